"""The wrappers delay, error and stall do what their spec says, to the requests it names."""

from __future__ import annotations

import errno
import random
import threading
import time
from pathlib import Path

import pytest

from prestage.testing_media import (
    DISCARD,
    GAP_BYTE,
    PREFETCH,
    READ,
    SYNC,
    WRITE,
    ZERO,
    MediaError,
    Medium,
    Request,
    check_quiet,
)

BLOCK = 4096
RAM = "ram:size=1M"


def take(medium: Medium, op: int, offset: int = 0, length: int = BLOCK) -> int:
    """Errno of one request."""
    return medium.run(op, offset, 0 if op == SYNC else length).error


# ---- delay ----


def test_delay_is_a_lower_bound_for_each_kind_of_request() -> None:
    with Medium(f"delay:read_us=20000,write_us=10000,sync_us=5000|{RAM}") as medium:
        for op, bound_ms in [
            (READ, 20),
            (PREFETCH, 20),
            (WRITE, 10),
            (ZERO, 10),
            (DISCARD, 10),
            (SYNC, 5),
        ]:
            start = time.monotonic()
            assert take(medium, op) == 0
            assert (time.monotonic() - start) * 1000 >= bound_ms


def test_delays_run_side_by_side() -> None:
    with Medium(f"delay:read_us=100000|{RAM}") as medium:
        start = time.monotonic()
        for i in range(32):
            medium.submit(READ, i * BLOCK, BLOCK)
        medium.wait()
        assert 0.1 <= time.monotonic() - start < 1.6


def test_nothing_ends_before_its_time_and_all_end_at_it() -> None:
    with Medium(f"delay:read_us=3000000,write_us=1000000|{RAM}") as medium:
        start = time.monotonic_ns()
        requests = [medium.submit(READ, 0, BLOCK), medium.submit(WRITE, BLOCK, data=bytes(BLOCK))]
        medium.kick()
        medium.poll(start)
        for later_ns, ended in [
            (999_999_999, [False, False]),
            (2_000_000_000, [False, True]),
            (4_000_000_000, [True, True]),
        ]:
            medium.poll(start + later_ns)
            assert [each.is_done for each in requests] == ended


def seeded_order(seed: int) -> list[int]:
    """The order in which 32 reads end whose delays are drawn by seed."""
    order: list[int] = []
    # An hour, on a clock of our own: that submitting took milliseconds must not change the order.
    with Medium(f"delay:read_us=3600000000,seed={seed}|{RAM}") as medium:
        requests = [medium.submit(READ, i * BLOCK, BLOCK) for i in range(32)]
        medium.kick()
        start = time.monotonic_ns()
        for step in range(400):
            medium.poll(start + step * 24_000_000_000)
            order += [i for i, each in enumerate(requests) if each.is_done and i not in order]
    return order


def test_seeded_delays_repeat() -> None:
    first = seeded_order(1)
    assert sorted(first) == list(range(32))
    assert first != list(range(32))
    assert seeded_order(1) == first
    assert seeded_order(2) != first


def test_what_is_due_does_not_depend_on_how_often_was_polled() -> None:
    def due_after_a_minute(polls: int) -> list[bool]:
        with Medium(f"delay:read_us=60000000,seed=5|{RAM}") as medium:
            requests = [medium.submit(READ, i * BLOCK, BLOCK) for i in range(100)]
            medium.kick()
            start = time.monotonic_ns()
            medium.poll(start)
            for step in range(1, polls + 1):
                medium.poll(start + step * 60_000_000_000 // polls)
            return [each.is_done for each in requests]

    often = due_after_a_minute(500)
    assert 20 < sum(often) < 80
    assert due_after_a_minute(1) == often


def test_delay_can_be_set_while_open() -> None:
    with Medium(f"delay|{RAM}") as medium:
        medium.control("delay", "set read_us=20000")
        start = time.monotonic()
        take(medium, READ)
        assert time.monotonic() - start >= 0.02


# ---- error ----


def test_error_hits_only_its_operation() -> None:
    for op, hit in [
        ("read", {READ, PREFETCH}),
        ("write", {WRITE, DISCARD, ZERO}),
        ("sync", {SYNC}),
    ]:
        with Medium(f"error:op={op},errno=ENOSPC|{RAM}") as medium:
            for each in range(READ, PREFETCH + 1):
                assert take(medium, each) == (errno.ENOSPC if each in hit else 0)


def test_error_hits_any_and_is_eio_by_default() -> None:
    with Medium(f"error|{RAM}") as medium:
        assert {take(medium, op) for op in range(READ, PREFETCH + 1)} == {errno.EIO}


def test_failed_write_changes_nothing() -> None:
    with Medium(f"error:op=write,count=1|{RAM}") as medium:
        assert medium.run(WRITE, 0, data=b"a" * BLOCK).error == errno.EIO
        assert medium.read(0, BLOCK) == bytes(BLOCK)
        medium.write(0, b"a" * BLOCK)
        assert medium.read(0, BLOCK) == b"a" * BLOCK


def test_error_hits_what_overlaps_its_range() -> None:
    with Medium(f"error:first=8192,last=12287|{RAM}") as medium:
        assert take(medium, READ, 4096, 4096) == 0
        assert take(medium, READ, 4096, 8192) == errno.EIO
        assert take(medium, WRITE, 8192, 4096) == errno.EIO
        assert take(medium, WRITE, 11776, 512) == errno.EIO
        assert take(medium, WRITE, 12288, 4096) == 0
        assert take(medium, READ, 0, 65536) == errno.EIO


def test_error_stops_after_its_count_until_it_is_armed() -> None:
    with Medium(f"error:op=read,count=2|{RAM}") as medium:
        assert [take(medium, READ) for _ in range(4)] == [errno.EIO, errno.EIO, 0, 0]
        medium.control("error", "arm")
        assert [take(medium, READ) for _ in range(3)] == [errno.EIO, errno.EIO, 0]
        medium.control("error", "set count=3")
        assert [take(medium, READ) for _ in range(2)] == [errno.EIO, 0]
        medium.control("error", "set rate=0")
        medium.control("error", "arm")
        assert take(medium, READ) == 0


def test_error_rate_is_kept_and_repeats_by_seed() -> None:
    def hits(seed: int) -> list[int]:
        with Medium(f"error:rate=0.25,seed={seed}|{RAM}") as medium:
            return [take(medium, READ, 0, 512) for _ in range(1000)]

    first = hits(11)
    assert 180 <= sum(map(bool, first)) <= 320
    assert hits(11) == first
    assert hits(12) != first


@pytest.mark.parametrize("below", [RAM, "file:{path},create=1,size=1M"])
def test_short_transfers_part_and_fails(below: str, tmp_path: Path) -> None:
    with Medium("error:errno=SHORT,count=1|" + below.format(path=tmp_path / "f")) as medium:
        assert medium.run(WRITE, 0, data=b"a" * (3 * BLOCK)).error == errno.EIO
        found = medium.read(0, 3 * BLOCK)
        assert found == b"a" * 6144 + bytes(6144)
        medium.control("error", "arm")
        request = medium.run(READ, 0, 2 * BLOCK)
        assert request.error == errno.EIO
        assert request.data == b"a" * BLOCK + bytes(BLOCK)
        medium.control("error", "arm")
        in_parts = medium.run(READ, 0, 2 * BLOCK, parts=(2048, 4096, 2048))
        assert in_parts.error == errno.EIO
        assert in_parts.data == b"a" * BLOCK + GAP_BYTE * BLOCK
        assert in_parts.is_whole()
        for op, length in [(READ, 512), (SYNC, 0)]:
            medium.control("error", "arm")
            assert take(medium, op, 0, length) == errno.EIO
        medium.control("error", "arm")
        assert take(medium, ZERO, 0, 2 * BLOCK) == errno.EIO
        assert medium.read(0, 2 * BLOCK) == bytes(BLOCK) + found[BLOCK : 2 * BLOCK]


# ---- stall ----


def held(medium: Medium, *requests: Request) -> bool:
    """Whether none of the requests ends, although all that can be done is done."""
    medium.kick()
    for _ in range(20):
        medium.poll()
        if not medium.is_readable() and not any(each.is_done for each in requests):
            continue
    return not any(each.is_done for each in requests)


@pytest.mark.parametrize("below", [RAM, "file:{path},create=1,size=1M"])
def test_stall_holds_after_so_many_until_released(below: str, tmp_path: Path) -> None:
    with Medium("stall:after=3|" + below.format(path=tmp_path / "f")) as medium:
        for _ in range(3):
            medium.write(0, b"a" * BLOCK)
        requests = [medium.submit(WRITE, 0, data=b"b" * BLOCK), medium.submit(SYNC)]
        assert held(medium, *requests)
        medium.control("stall", "release")
        assert medium.is_readable()
        medium.wait()
        assert not any(each.error for each in requests)
        assert medium.read(0, BLOCK) == b"b" * BLOCK
        check_quiet(medium)
        medium.control("stall", "arm")
        for _ in range(3):
            medium.read(0, BLOCK)
        late = medium.submit(READ, 0, BLOCK)
        assert held(medium, late)
        medium.control("stall", "release")
        medium.wait()


def test_stalled_write_has_not_reached_the_medium(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with Medium(f"stall:op=write|file:{path},create=1,size=64K") as medium:
        medium.submit(WRITE, 0, data=b"b" * BLOCK)
        assert take(medium, READ) == 0
        medium.close(abandon=True)
    assert path.read_bytes() == bytes(64 << 10)


def test_release_from_another_thread_wakes_the_owner() -> None:
    with Medium(f"delay|stall|error:rate=0|{RAM}") as medium:
        request = medium.submit(READ, 0, BLOCK)
        assert held(medium, request)
        thread = threading.Thread(target=medium.control, args=("stall", "release"))
        thread.start()
        assert medium.is_readable(10_000)
        medium.wait()
        thread.join()
        assert request.error == 0


@pytest.mark.parametrize("engine", ["uring", "threads"])
def test_closing_a_stalled_medium_is_prompt(engine: str, tmp_path: Path) -> None:
    medium = Medium(f"powercut|stall|file:{tmp_path}/f,create=1,size=1M,engine={engine}")
    for i in range(8):
        medium.submit(READ, i * BLOCK, BLOCK)
        medium.submit(WRITE, (i + 8) * BLOCK, data=bytes(BLOCK))
    medium.submit(SYNC)
    medium.kick()
    medium.poll()
    start = time.monotonic()
    medium.close(abandon=True)
    assert time.monotonic() - start < 1
    Medium(f"file:{tmp_path}/f").close()


# ---- orders ----


@pytest.mark.parametrize(
    ("kind", "verb", "text"),
    [
        ("tape", "eject", 'no "tape" in the chain; expected one of delay|error|stall|powercut|ram'),
        ("ram", "cut", 'medium "ram" takes no orders'),
        ("delay", "arm", 'unknown order "arm" to delay; expected set KEY=VALUE'),
        ("error", "release", 'unknown order "release" to error; expected arm or set KEY=VALUE'),
        ("stall", "", 'unknown order "" to stall; expected release, arm or set KEY=VALUE'),
        ("powercut", "arm", 'unknown order "arm" to powercut; expected cut or set KEY=VALUE'),
        ("powercut", "set limit=1M", 'unknown option "limit"; expected one of seed'),
        ("stall", "set after", '"set after" sets nothing; expected set KEY=VALUE'),
        ("stall", "set =1", 'unknown option ""; expected one of after, op'),
        ("error", "set rate=2", "rate=2 is out of range; expected 0 to 1"),
        ("delay", "set read_us=", 'read_us="" is no number; expected a whole number'),
    ],
)
def test_wrong_order_is_refused(kind: str, verb: str, text: str) -> None:
    with Medium(f"delay|error:rate=0|stall:after=9|powercut|{RAM}") as medium:
        with pytest.raises(MediaError) as caught:
            medium.control(kind, verb)
        assert str(caught.value) == text


def test_wrappers_pass_limits_and_sizes_through(tmp_path: Path) -> None:
    below = f"file:{tmp_path}/f,create=1,size=1M,depth=17"
    with Medium(below) as medium:
        plain = medium.limits
    with Medium(f"delay|error:rate=0|stall:after=99|powercut|{below}") as medium:
        assert medium.limits == plain
        assert medium.resize(2 << 20) == 0
        assert medium.limits.size == 2 << 20


def test_a_model_says_its_pace_and_a_delay_adds_to_it(tmp_path: Path) -> None:
    model = f"model:{tmp_path}/f,create=1,size=1M,seed=1,read_us=150,read_p99_us=400,write_us=50"
    with Medium(f"{model},bandwidth=4M,channels=8") as medium:
        assert (medium.limits.bandwidth, medium.limits.read_ns) == (4 << 20, 150_000)
    with Medium(f"delay:read_us=1000|{model},bandwidth=4M,channels=8,scale=2") as medium:
        assert (medium.limits.bandwidth, medium.limits.read_ns) == (2 << 20, 1_300_000)
    with Medium(RAM) as medium:
        assert (medium.limits.bandwidth, medium.limits.read_ns) == (0, 0)


def test_orders_from_many_threads_while_requests_run() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    stop = threading.Event()

    def order(medium: Medium, number: int) -> None:
        rng = random.Random(seed + number)
        while not stop.is_set():
            medium.control(
                *rng.choice(
                    [
                        ("stall", "release"),
                        ("stall", "arm"),
                        ("error", "arm"),
                        ("error", "set rate=0.1"),
                        ("delay", "set read_us=5"),
                        ("powercut", "cut"),
                    ]
                )
            )

    with Medium(f"delay|error:rate=0.1|stall:after=50|powercut:limit=64K|{RAM}") as medium:
        threads = [threading.Thread(target=order, args=(medium, number)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            for step in range(300):
                for op in (READ, WRITE, ZERO, SYNC):
                    medium.submit(op, step % 200 * BLOCK, 0 if op == SYNC else BLOCK)
                medium.kick()
                medium.poll()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        medium.control("stall", "release")
        medium.wait()
