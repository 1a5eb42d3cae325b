"""The flash model on a virtual clock: its parameters are what comes out; and the medium over it."""

from __future__ import annotations

import math
import random
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from prestage._core import ffi, lib
from prestage.testing_media import NEVER, PREFETCH, READ, SYNC, WRITE, ZERO, Medium

US = 1000
MS = 1000 * US
S = 1000 * MS


def configuration(**changes: Any) -> Any:
    """A struct ps_flash_config: 80 us reads, no queueing to speak of, unless changed."""
    values: dict[str, Any] = {
        "seed": 7,
        "read_median_us": 80,
        "read_p99_us": 400,
        "write_median_us": 20,
        "write_p99_us": 50,
        "bandwidth": 1e12,
        "scale": 1,
        "channels": 4,
    }
    return ffi.new("struct ps_flash_config *", values | changes)


class Flash:
    """The model, with its items kept alive."""

    def __init__(self, **changes: Any) -> None:
        self.flash = ffi.gc(lib.ps_flash_new(configuration(**changes)), lib.ps_flash_free)
        self.items: dict[Any, tuple[int, Any]] = {}
        self.count = 0

    def submit(self, now: int, op: int = READ, length: int = 4096) -> int:
        """Submit; returns the number of the request."""
        item = ffi.new("struct ps_flash_item *", {"op": op, "length": length})
        lib.ps_flash_submit(self.flash, now, item)
        self.items[ffi.cast("uintptr_t", item)] = self.count, item
        self.count += 1
        return self.count - 1

    def reap(self, now: int = NEVER) -> list[tuple[int, int]]:
        """All that ended by now: which, and when."""
        found = []
        while (item := lib.ps_flash_reap(self.flash, now)) != ffi.NULL:
            number, _ = self.items.pop(ffi.cast("uintptr_t", item))
            found.append((number, item.due_ns))
        return found

    def next_time(self) -> int:
        return int(lib.ps_flash_next_time(self.flash))

    def alone(self, count: int, op: int = READ, length: int = 4096) -> list[int]:
        """Times of requests of which each has the device for itself."""
        times, now = [], 0
        for _ in range(count):
            self.submit(now, op, length)
            ((_, due),) = self.reap()
            times.append(due - now)
            now = due + S
        return times


@pytest.mark.parametrize(
    ("op", "median_us", "p99_us"),
    [(READ, 80, 400), (PREFETCH, 80, 400), (WRITE, 20, 50), (SYNC, 20, 50), (ZERO, 20, 50)],
)
def test_latencies_have_the_median_and_p99_they_were_given(
    op: int, median_us: float, p99_us: float
) -> None:
    times = sorted(Flash().alone(20_000, op))
    assert statistics.median(times) == pytest.approx(median_us * US, rel=0.03)
    assert times[int(0.99 * len(times))] == pytest.approx(p99_us * US, rel=0.08)
    # Log-normal: the logarithms are symmetric about the median's.
    logs = [math.log(each) for each in times]
    assert statistics.mean(logs) == pytest.approx(math.log(median_us * US), abs=0.03)


def test_equal_median_and_p99_give_exact_latencies() -> None:
    times = Flash(read_p99_us=80).alone(100)
    assert all(each == pytest.approx(80 * US, abs=10) for each in times)


def test_latency_is_fixed_by_seed_and_number_alone() -> None:
    assert Flash().alone(500) == Flash().alone(500)
    assert Flash().alone(500) != Flash(seed=8).alone(500)
    expected = [lib.ps_flash_latency(configuration(), READ, number) for number in range(500)]
    assert all(
        a == pytest.approx(b, abs=10)
        for a, b in zip(Flash(bandwidth=1e15).alone(500), expected, strict=True)
    )


def test_scale_multiplies_every_time() -> None:
    plain = Flash(bandwidth=1e9).alone(200, length=100_000)
    scaled = Flash(bandwidth=1e9, scale=10).alone(200, length=100_000)
    assert scaled == pytest.approx([10 * each for each in plain], rel=1e-4)


def test_bandwidth_is_shared_and_bounds_throughput() -> None:
    flash = Flash(bandwidth=1e9, channels=64)
    for _ in range(1000):
        flash.submit(0, READ, 1 << 20)
    last = max(due for _, due in flash.reap())
    assert last == pytest.approx((1000 << 20) / 1e9 * S, rel=0.01)


def test_channels_bound_how_many_are_served_at_once() -> None:
    for channels in (1, 4, 16):
        flash = Flash(channels=channels, read_p99_us=80)
        for _ in range(160):
            flash.submit(0)
        last = max(due for _, due in flash.reap())
        assert last == pytest.approx(160 / channels * 80 * US, rel=0.02)


def test_prefetches_wait_behind_reads_that_come_later() -> None:
    flash = Flash(channels=1, read_p99_us=80)
    running = flash.submit(0)
    prefetches = [flash.submit(1, PREFETCH) for _ in range(3)]
    reads = [flash.submit(2) for _ in range(3)]
    assert [key for key, _ in flash.reap()] == [running, *reads, *prefetches]


def test_prefetch_that_is_being_served_is_not_interrupted() -> None:
    flash = Flash(channels=1, read_p99_us=80)
    prefetch = flash.submit(0, PREFETCH)
    read = flash.submit(10 * US)
    found = flash.reap()
    assert [key for key, _ in found] == [prefetch, read]
    assert found[1][1] == pytest.approx(160 * US, abs=100)


def test_reads_are_as_fast_with_a_queue_of_prefetches_but_for_the_one_in_service() -> None:
    flash = Flash(channels=1, read_p99_us=80)
    for _ in range(100):
        flash.submit(0, PREFETCH)
    now = 1000 * US
    flash.reap(now)
    read = flash.submit(now)
    due = dict(flash.reap())[read]
    assert due - now <= 160 * US + 200


def test_a_late_caller_sees_the_same_times() -> None:
    """Reaping often or seldom moves no end of a request."""
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    rng = random.Random(seed)
    arrivals = sorted(rng.randrange(20 * MS) for _ in range(500))
    kinds = [rng.choice([READ, WRITE, PREFETCH]) for _ in arrivals]

    def ends(*, often: bool) -> list[int]:
        flash = Flash(bandwidth=5e8)
        found: dict[int, int] = {}
        for now, op in zip(arrivals, kinds, strict=True):
            while often and flash.next_time() <= now:
                found.update(flash.reap(flash.next_time()))
            # Before its own time nobody can know of a request: all callers reap up to now first.
            found.update(flash.reap(now))
            flash.submit(now, op)
        found.update(flash.reap())
        return [found[number] for number in range(len(arrivals))]

    assert ends(often=True) == ends(often=False)


def test_nothing_ends_before_its_time() -> None:
    flash = Flash()
    assert flash.next_time() == NEVER
    flash.submit(5)
    due = flash.next_time()
    assert due > 5
    assert flash.reap(due - 1) == []
    assert len(flash.reap(due)) == 1
    assert flash.next_time() == NEVER


@pytest.mark.parametrize(
    "change",
    [
        {"read_median_us": 0},
        {"read_p99_us": 79},
        {"write_median_us": -1},
        {"write_p99_us": 19},
        {"bandwidth": 0},
        {"scale": 0},
        {"channels": 0},
        {"channels": 257},
        {"read_median_us": math.nan},
    ],
)
def test_configuration_out_of_range_makes_no_model(change: dict[str, float]) -> None:
    assert lib.ps_flash_new(configuration(**change)) == ffi.NULL


def test_medium_keeps_the_bytes_and_the_times(tmp_path: Path) -> None:
    spec = (
        f"model:{tmp_path}/f,create=1,size=1M,seed=1,read_us=20000,read_p99_us=20000,"
        "write_us=5000,bandwidth=1G,channels=2"
    )
    with Medium(spec) as medium:
        start = time.monotonic()
        medium.write(0, b"a" * 4096)
        assert time.monotonic() - start >= 0.005
        start = time.monotonic()
        requests = [medium.submit(READ, 0, 4096) for _ in range(8)]
        medium.wait()
        # Eight requests, two at once, 20 ms each.
        assert 0.08 <= time.monotonic() - start < 2
        assert all(each.data == b"a" * 4096 for each in requests)
    assert (tmp_path / "f").read_bytes()[:4096] == b"a" * 4096


def test_medium_scales_with_its_option(tmp_path: Path) -> None:
    spec = (
        f"model:{tmp_path}/f,create=1,size=1M,seed=1,read_us=20,read_p99_us=20,"
        "write_us=5,bandwidth=1G,channels=2,scale=1000"
    )
    with Medium(spec) as medium:
        start = time.monotonic()
        medium.read(0, 4096)
        assert time.monotonic() - start >= 0.02
