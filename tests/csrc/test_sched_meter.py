"""What the media scheduler learns of its medium, and what it foretells from that."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sched_support import (
    DATED,
    DEMAND,
    EXTENT,
    MS,
    NEVER,
    SECOND,
    SYNC,
    US,
    WRITE,
    WRITES,
    Medium,
    Scheduler,
    trained,
)

from prestage._core import ffi, lib


def load(sched: Scheduler, medium: Medium, reads: int, depth: int) -> None:
    """Keep `depth` reads of 4 KiB waiting or under way until so many have ended."""
    for _ in range(reads):
        while lib.ps_sched_waiting(sched.sched) + len(medium.under_way) < depth:
            sched.push(DEMAND, length=4096)
        medium.start_all()
        medium.step()


@pytest.mark.parametrize("bandwidth", [0.5e9, 2e9, 6e9])
@pytest.mark.parametrize("latency_us", [20, 80, 400])
def test_bandwidth_and_latency_are_found(bandwidth: float, latency_us: int) -> None:
    generator = random.Random(3)
    sched = Scheduler(window=128)
    medium = Medium(sched, bandwidth, latency_us * US)
    sched.job(16384 * EXTENT, sched.now + 100 * SECOND)
    for _ in range(20_000):
        if generator.random() < 0.2:
            sched.push(DEMAND, length=4096)
        medium.start_all()
        medium.step()
    stats = sched.stats()
    assert 0.9 * bandwidth < stats.bandwidth < 1.1 * bandwidth
    expected_ns = latency_us * US + EXTENT * 1e9 / bandwidth
    assert 0.85 * expected_ns < stats.service_ns < 1.35 * expected_ns


def test_the_window_shrinks_when_reads_take_longer_and_grows_again() -> None:
    sched = Scheduler(window=128)
    medium = Medium(sched, 8e9, 80 * US)
    load(sched, medium, 8000, 128)
    usual = sched.stats().window
    assert usual > 32
    medium.latency_ns = 1600 * US
    load(sched, medium, 1000, 128)
    assert sched.stats().window < usual / 2
    medium.latency_ns = 80 * US
    load(sched, medium, 20_000, 128)
    assert sched.stats().window > 0.8 * usual


def test_a_medium_that_stays_slow_gets_its_window_back() -> None:
    sched = Scheduler(window=64)
    medium = Medium(sched, 8e9, 80 * US)
    load(sched, medium, 4000, 64)
    medium.latency_ns = 2 * MS
    load(sched, medium, 60_000, 64)
    assert sched.stats().window > 48


def test_a_stall_is_got_over() -> None:
    sched, medium = trained()
    before = sched.stats().bandwidth
    for _ in range(20):
        sched.push(DEMAND)
    medium.start_all()
    medium.under_way = [(end + 2 * SECOND, number, item) for end, number, item in medium.under_way]
    medium.free_ns += 2 * SECOND
    medium.run()
    load(sched, medium, 3000, 4)
    begin = sched.now
    sched.job(512 * EXTENT, sched.now + SECOND)
    medium.run()
    assert 0.7 * before < sched.stats().bandwidth < 1.4 * before
    assert sched.now - begin < 1.5 * 512 * EXTENT / 2


# ---- a bandwidth that is far from what was assumed ----


def work_on_jobs(sched: Scheduler, medium: Medium, for_ns: int, seed: int) -> list[float]:
    """Jobs one after the other and nothing else; how far each forecast was off, as a share."""
    generator = random.Random(seed)
    until_ns = sched.now + for_ns
    errors = []
    while sched.now < until_ns:
        begin = sched.now
        size = generator.randint(4, 64) * EXTENT
        ready_ns, _ = sched.forecast(size, begin + 10 * SECOND)
        sched.job(size, begin + 10 * SECOND)
        medium.run()
        errors.append(abs(ready_ns - sched.now) / (sched.now - begin))
        sched.kept.clear()
        sched.now += int(generator.expovariate(4) * size * 1e9 / medium.bandwidth)
    return errors


def are_right(errors: list[float]) -> bool:
    """Nine of ten forecasts were within a quarter."""
    return sum(error <= 0.25 for error in errors) >= 0.9 * len(errors) > 0


@pytest.mark.parametrize("bandwidth", [40e6, 120e6, 500e6, 2e9, 6e9])
@pytest.mark.parametrize("latency_us", [80, 400])
def test_bandwidth_is_found_from_jobs_only(bandwidth: float, latency_us: int) -> None:
    sched = Scheduler(window=64)
    medium = Medium(sched, bandwidth, latency_us * US)
    work_on_jobs(sched, medium, 2 * SECOND, seed=7)
    assert 0.75 * bandwidth < sched.stats().bandwidth < 1.25 * bandwidth
    assert are_right(work_on_jobs(sched, medium, SECOND, seed=8))


@pytest.mark.parametrize("bandwidth", [10e6, 40e6, 120e6, 500e6, 2e9, 6e9])
@pytest.mark.parametrize("latency_us", [80, 400])
def test_bandwidth_is_found_from_single_reads_of_many_sizes(
    bandwidth: float, latency_us: int
) -> None:
    generator = random.Random(9)
    sched = Scheduler(window=64)
    medium = Medium(sched, bandwidth, latency_us * US)
    until_ns = sched.now + 2 * SECOND
    while sched.now < until_ns:
        sched.push(DEMAND, length=4096 << generator.randrange(6))
        medium.run()
        sched.kept.clear()
        sched.now += int(generator.expovariate(1) * MS)
    assert 0.75 * bandwidth < sched.stats().bandwidth < 1.25 * bandwidth


@pytest.mark.parametrize("bandwidth", [500e6, 2e9])
def test_a_medium_that_slows_down_and_recovers_is_followed(bandwidth: float) -> None:
    sched = Scheduler(window=64)
    medium = Medium(sched, bandwidth)
    for part in (1, 0.25, 1):
        medium.bandwidth = part * bandwidth
        work_on_jobs(sched, medium, 2 * SECOND, seed=10)
        found = sched.stats().bandwidth
        assert 0.75 * medium.bandwidth < found < 1.25 * medium.bandwidth
        assert are_right(work_on_jobs(sched, medium, SECOND, seed=11))


def test_writes_and_syncs_that_take_long_do_not_make_the_medium_slow() -> None:
    sched, medium = trained()
    before = sched.stats().bandwidth
    medium.latency_ns = 5 * MS
    for _ in range(200):
        for op, length in ((WRITE, 4096), (SYNC, 0)):
            sched.push(WRITES, op=op, length=length, offset=0)
        sched.now += 100 * US
        medium.run(until_ns=sched.now + 1)
    medium.run()
    assert sched.stats().bandwidth == before


# ---- forecasts ----


@pytest.mark.parametrize("bandwidth", [4e6, 40e6, 2e9])
def test_the_first_forecast_knows_what_the_medium_says_of_itself(bandwidth: float) -> None:
    latency_ns = 400 * US
    sched = Scheduler(bandwidth=int(bandwidth), latency_ns=latency_ns)
    medium = Medium(sched, bandwidth, latency_ns)
    size = 32 * EXTENT
    begin = sched.now
    ready_ns, in_time = sched.forecast(size, begin + 10 * SECOND)
    assert in_time == size
    needed_ns = size * 1e9 / bandwidth
    assert sched.forecast(size, begin + int(needed_ns / 5))[1] < size / 4
    sched.job(size, begin + 10 * SECOND)
    medium.run()
    assert 0.75 * (ready_ns - begin) < sched.now - begin < 1.35 * (ready_ns - begin)


def test_one_urgent_job_on_a_slow_medium_is_not_the_first_of_many() -> None:
    sched = Scheduler(bandwidth=4_000_000, latency_ns=80 * US)
    medium = Medium(sched, 4e6)
    sched.job(8 * EXTENT, sched.now + SECOND // 5)
    medium.run()
    begin = sched.now
    ready_ns, _ = sched.forecast(16 * EXTENT, begin + 5 * SECOND)
    sched.job(16 * EXTENT, begin + 5 * SECOND)
    medium.run()
    assert sched.now - begin == pytest.approx(ready_ns - begin, rel=0.35)


def test_pieces_that_take_long_to_move_do_not_look_like_a_small_share() -> None:
    class Pieces(Scheduler):
        """Makes all items of a piece at once, as the hints do."""

        def start_piece(self, job: Any, piece: int = 4 * EXTENT) -> Any:
            for _ in range(min(piece, job.bytes) // EXTENT - 1):
                job.bytes -= EXTENT
                self.push(job.sched_class, deadline_ns=job.deadline_ns)
            return super().start_piece(job)

    sched = Pieces(bandwidth=4_000_000, latency_ns=80 * US)
    medium = Medium(sched, 4e6)
    for _ in range(8):
        begin = sched.now
        ready_ns, _ = sched.forecast(16 * EXTENT, begin + 5 * SECOND)
        sched.job(16 * EXTENT, begin + 5 * SECOND)
        medium.run()
        assert 0.7 < (ready_ns - begin) / (sched.now - begin) < 1.4
        sched.now += SECOND // 10


def test_little_is_promised_of_a_medium_of_which_nothing_is_known() -> None:
    sched = Scheduler()
    size = 1 << 30
    ready_ns, _ = sched.forecast(size, sched.now + 100 * SECOND)
    assert ready_ns - sched.now > size / 500e6 * SECOND
    assert sched.stats().bandwidth == 4_000_000_000, "it is tried out as a fast one"


def test_a_forecast_comes_true_on_a_medium_of_its_own() -> None:
    sched, medium = trained()
    sched.job(256 * EXTENT, sched.now + SECOND)
    medium.run()
    begin = sched.now
    ready_ns, in_time = sched.forecast(128 * EXTENT, sched.now + SECOND)
    assert in_time == 128 * EXTENT
    sched.job(128 * EXTENT, sched.now + SECOND)
    medium.run()
    assert abs((sched.now - begin) - (ready_ns - begin)) < 0.25 * (sched.now - begin)


@pytest.mark.parametrize(
    ("due_ms", "other_due_ms"), [(150, 30), (28, 30), (10, 30), (60, 200), (60, 80)]
)
def test_a_forecast_knows_when_a_job_will_go_by_deadline(due_ms: int, other_due_ms: int) -> None:
    """In its turn, when its own slack is gone, or when that of one due after it is."""
    sched, medium = trained()
    now = sched.now
    for size, due in ((4000, 10_000), (600, other_due_ms)):
        sched.job(size * EXTENT, now + due * MS)
    ready_ns, _ = sched.forecast(100 * EXTENT, now + due_ms * MS)
    job = sched.job(100 * EXTENT, now + due_ms * MS)
    medium.start_all()
    while job.bytes > 0 and medium.step():
        medium.start_all()
    assert ready_ns - now == pytest.approx(sched.now - now, rel=0.25)


def test_more_bytes_are_ready_later_and_a_later_deadline_leaves_room_for_more() -> None:
    generator = random.Random(5)
    sched, _ = trained()
    for _ in range(50):
        sched.job(
            generator.randint(1, 64) * EXTENT, sched.now + int(generator.uniform(5, 500) * MS)
        )
    deadline_ns = sched.now + 50 * MS
    times = [sched.forecast(count * EXTENT, deadline_ns)[0] for count in range(1, 2000, 50)]
    assert times == sorted(times)
    huge = 1 << 40
    fits = [sched.forecast(huge, sched.now + after * MS)[1] for after in range(0, 1000, 50)]
    assert fits[0] == 0
    assert fits == sorted(fits)
    assert fits[-1] > 0


def test_admitted_jobs_leave_less_room() -> None:
    sched, _ = trained()
    deadline_ns = sched.now + 20 * MS
    ready_ns, room = sched.forecast(1 << 40, deadline_ns)
    sched.job(128 * EXTENT, deadline_ns)
    later_ns, less = sched.forecast(1 << 40, deadline_ns)
    assert later_ns > ready_ns
    assert 0 < room - less < 1.5 * 128 * EXTENT


def test_a_job_is_not_let_in_at_the_cost_of_one_that_was() -> None:
    sched, _ = trained()
    deadline_ns = sched.now + 20 * MS
    _, room = sched.forecast(1 << 40, deadline_ns)
    sched.job(room // EXTENT * EXTENT, deadline_ns)
    assert sched.forecast(64 * EXTENT, sched.now + 5 * MS)[1] < 2 * EXTENT


def test_a_forecast_changes_nothing() -> None:
    sched, _ = trained()
    first = sched.job(64 * EXTENT, sched.now + SECOND)
    before = bytes(ffi.buffer(sched.stats()))
    for after in (0, MS, SECOND):
        sched.forecast(1 << 30, sched.now + after)
    assert bytes(ffi.buffer(sched.stats())) == before
    assert sched.next_job() == first


def test_dated_ends_are_counted_by_their_deadline() -> None:
    sched, medium = trained()
    sched.push(DATED, deadline_ns=sched.now + SECOND)
    sched.push(DATED, deadline_ns=sched.now + 1)
    sched.push(DATED, deadline_ns=NEVER)
    medium.run()
    assert (sched.stats().dated_met, sched.stats().dated_late) == (1, 1)
