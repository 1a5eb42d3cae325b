"""Deadlines from end to end: what becomes of intents, dated reads and what follows reads, over a
medium that takes its time, holds what it was asked for, or fails. States are looked at, not speeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from . import hinting
from .hinting import BLOCK, OTHER_HOST
from .intents import STATES, check_sums, pending
from .patterned import (
    BAD,
    FAILING,
    FLASH,
    HELD,
    PLAIN,
    REGION,
    SLOT,
    SLOW,
    check_bytes,
    cold,
    connected,
    end_of,
    events_of,
    intend,
    new_id,
    pattern,
    read_all,
    serve,
)
from .probing import SEED, Site, turns
from .running import MIB, NQN, RunningTarget, base_config, merge


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTarget]:
    """A target over media that hold a pattern."""
    with serve(tmp_path_factory.mktemp("patterned")) as started:
        yield started


@pytest.fixture
def controller(site: Site) -> Iterator[Controller]:
    """One controller with one I/O queue."""
    with connected(site) as controller:
        yield controller


@pytest.fixture
def queue(controller: Controller) -> Queue:
    """Its I/O queue."""
    return controller.io[0]


# ---- verdicts ----


def test_intent_with_room_to_spare_is_met_and_its_reads_are_hits(
    controller: Controller, queue: Queue
) -> None:
    slba, blocks = cold(queue), 8 * SLOT
    before = hinting.status(queue)
    number = intend(queue, [(slba, blocks)], deadline_us=20_000_000, flags=0, priority=2)
    end = hinting.ended(queue, number)
    assert (STATES[end.state], end.reason, end.was_warm) == ("met", "none", False)
    assert end.verdict == 1, "accepted"
    assert end.warm_bytes == end.admitted_bytes == end.total_bytes == blocks * BLOCK
    assert 0 < end.ready_us <= 20_000_000
    assert 0 < end.predicted_us < 20_000_000
    (event,) = events_of(controller, number)
    assert (event.state, event.ready_us, event.priority) == ("met", end.ready_us, 2)
    check_bytes(queue, slba, blocks)
    after = hinting.status(queue)
    assert after.timely_hits == before.timely_hits + 8
    assert after.intents[2]["met"] == before.intents[2]["met"] + 1
    again = intend(queue, [(slba, blocks)], deadline_us=1, flags=0)
    end = hinting.outcome(queue, again)
    assert (STATES[end.state], end.was_warm, end.ready_us) == ("met", True, 0)


@pytest.fixture
def measured(queue: Queue) -> int:
    """8 MiB that are cold; the medium's speed is known."""
    number = intend(queue, [(cold(queue), REGION)], deadline_us=20_000_000)
    assert end_of(queue, number) == ("met", "none")
    first, *_ = (cold(queue) for _ in range(4))  # they follow one another
    return first


def test_intent_that_cannot_be_in_time_is_dropped(queue: Queue, measured: int) -> None:
    number = intend(queue, [(measured, 4 * REGION)], deadline_us=1000, flags=0)
    end = hinting.outcome(queue, number)
    assert (STATES[end.state], end.reason, end.verdict) == ("dropped", "deadline", 4)
    assert (end.admitted_bytes, end.ready_us) == (0, 0xFFFFFFFF)
    assert hinting.residency(queue, measured, 4 * REGION).coming_bytes == 0


def test_intent_that_can_be_in_time_in_part_keeps_its_first_bytes(queue: Queue) -> None:
    slba, whole_us = cold(queue), 0
    # A little less than all of it is expected to take, as the target sees it then.
    for share in (0.0, 0.99, 0.97, 0.95, 0.93, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5):
        deadline_us = int(whole_us * share)
        number = intend(queue, [(slba, REGION)], deadline_us=deadline_us, flags=hints.PREFIX)
        seen = hinting.outcome(queue, number)
        if seen.verdict == 2:
            break
        whole_us = seen.predicted_us
        if seen.verdict != 4:
            slba = cold(queue)
    assert seen.verdict == 2, "partial"
    assert 0 < seen.admitted_bytes < seen.total_bytes == REGION * BLOCK
    state, reason = end_of(queue, number)
    assert (state, reason) in {("met", "none"), ("dropped", "deadline"), ("late", "none")}
    first = seen.admitted_bytes // BLOCK
    if state != "dropped":
        assert hinting.residency(queue, slba, first).warm_bytes == seen.admitted_bytes
    rest = hinting.residency(queue, slba + first, REGION - first)
    assert rest.warm_bytes == rest.coming_bytes == 0, "the last of it was not asked for"
    check_bytes(queue, slba, REGION)


def test_intent_that_may_be_late_is_late(
    controller: Controller, queue: Queue, measured: int
) -> None:
    blocks = 4 * REGION
    flags = hints.LATE_OK | hints.PREFIX
    number = intend(queue, [(measured, blocks)], deadline_us=1000, flags=flags)
    assert hinting.outcome(queue, number).verdict == 3, "late"
    end = hinting.ended(queue, number)
    assert (STATES[end.state], end.reason) == ("late", "none")
    assert end.admitted_bytes == end.warm_bytes == blocks * BLOCK
    assert 1000 < end.ready_us < 0xFFFFFFFF
    (event,) = events_of(controller, number)
    assert event.state == "late"
    check_bytes(queue, measured, REGION)


# ---- reads ----


def test_dated_reads_on_a_busy_medium_are_never_dropped(queue: Queue) -> None:
    rng = random.Random(SEED)
    start = cold(queue)
    before = hinting.status(queue).reads
    intend(queue, [(cold(queue), REGION)], deadline_us=50_000)
    sent = {}
    for turn in range(turns("PRESTAGE_TEST_COMMANDS", 300)):
        slba = start + rng.randrange(REGION - 64)
        deadline_us = rng.choice((0, 1, 1000, 100_000, 0xFFFFFFFF))
        entry = hints.dated_read(slba, 64, deadline_us=deadline_us, priority=turn % 4)
        sent[queue.submit(entry, expected=64 * BLOCK)] = slba
        if len(queue.in_flight) >= 24:
            answer = queue.wait_any()
            assert answer.is_ok
            assert answer.data == pattern(sent[answer.cid], 64)
    while queue.in_flight or queue.completions:
        answer = queue.wait_any()
        assert answer.is_ok
        assert answer.data == pattern(sent[answer.cid], 64)
    after = hinting.status(queue).reads
    check_sums(after)
    assert pending(after) == 0
    assert sum(one["arrived"] for one in after) - sum(one["arrived"] for one in before) == len(sent)
    assert sum(one["late"] for one in after) > sum(one["late"] for one in before)


def test_rest_of_an_ordered_set_becomes_warm(queue: Queue) -> None:
    slba = cold(queue)
    ranges = [(slba + step * 5 * SLOT, SLOT + 3) for step in (0, 2, 1, 3)]
    hinting.accepted(queue, hints.set_(41, ranges, flags=hints.ORDERED))
    check_bytes(queue, slba, 8)
    for first, blocks in ranges[1:]:
        hinting.warm(queue, first, blocks)
        check_bytes(queue, first, blocks)
    assert hinting.residency(queue, slba + 8 * SLOT, SLOT).warm_bytes == 0, "it is of no range"


def test_rest_of_a_data_set_becomes_warm(queue: Queue) -> None:
    slba = cold(queue)
    ranges = [(slba + step * 5 * SLOT, 9) for step in (0, 2, 1, 3)]
    raw = nvme.dsm_ranges(ranges, attributes=1 << 9)
    assert queue.execute(nvme.sqe(nvme.DSM, FLASH, cdw10=3, cdw11=1), data=raw).is_ok
    check_bytes(queue, slba, 8)
    for first, blocks in ranges[1:]:
        hinting.warm(queue, first, blocks)
        check_bytes(queue, first, blocks)


def test_what_follows_a_readahead_read_becomes_warm(queue: Queue) -> None:
    slba = cold(queue)
    assert queue.read(slba, 8, BLOCK, dsm=7) == pattern(slba, 8)
    hinting.warm(queue, slba + 8, MIB // BLOCK)
    check_bytes(queue, slba, REGION)


# ---- writes while an intent is on its way ----


def change(rng: random.Random, queue: Queue, slba: int, stamp: int) -> tuple[int, bytes]:
    """Write, clear or deallocate some of one extent; where, and what is there then."""
    blocks = rng.choice((1, 3, 8, 100, SLOT))
    at = slba + rng.randrange(SLOT - blocks + 1)
    kind = rng.choice(("write", "fua", "zeroes", "deallocate"))
    data = bytes(blocks * BLOCK)
    if kind in ("write", "fua"):
        data = pattern(at, blocks, stamp)
        entry = nvme.block_command(nvme.WRITE, at, blocks, nsid=SLOW, fua=kind == "fua")
        queue.submit(entry, data=data)
    elif kind == "zeroes":
        queue.submit(nvme.block_command(nvme.WRITE_ZEROES, at, blocks, nsid=SLOW))
    else:
        entry = nvme.sqe(nvme.DSM, SLOW, cdw11=4)
        queue.submit(entry, data=nvme.dsm_ranges([(at, blocks)]))
    return at, data


@pytest.mark.stress
@pytest.mark.parametrize("flags", [0, hints.LATE_OK])
def test_write_within_an_intent_on_its_way_is_not_undone(
    target: RunningTarget, queue: Queue, flags: int
) -> None:
    rng = random.Random(SEED)
    for turn in range(turns("PRESTAGE_TEST_ROUNDS", 10)):
        slba = cold(queue, SLOW)
        right = bytearray(pattern(slba, REGION))
        number = intend(queue, [(slba, REGION)], deadline_us=9_000_000, nsid=SLOW, flags=flags)
        slots = list(range(0, REGION, SLOT))
        for stamp, slot in enumerate(rng.sample(slots, 20), 1):
            if len(queue.in_flight) > 10:
                assert queue.wait_any().is_ok
            at, data = change(rng, queue, slba + slot, turn * 100 + stamp)
            right[(at - slba) * BLOCK : (at - slba) * BLOCK + len(data)] = data
        while queue.in_flight:
            assert queue.wait_any().is_ok
        where = f"seed {SEED}, turn {turn}"
        assert read_all(queue, slba, REGION, SLOW) == right, where
        assert end_of(queue, number) in {("met", "none"), ("dropped", "deadline")}, where
        assert read_all(queue, slba, REGION, SLOW) == right, where
        assert queue.execute(nvme.sqe(nvme.FLUSH, SLOW)).is_ok
        with (target.directory / f"ns{SLOW}").open("rb") as file:
            file.seek(slba * BLOCK)
            assert file.read(REGION * BLOCK) == right, f"{where}: on the medium"


# ---- a failing medium, a full tier ----


def test_intent_over_what_cannot_be_read_is_dropped_and_reads_have_their_own_status(
    controller: Controller, queue: Queue
) -> None:
    bad = BAD[0] // BLOCK
    ranges = [(bad - 4 * SLOT, 4 * SLOT), (bad, 2 * SLOT)]
    for flags in (0, hints.LATE_OK, hints.PREFIX):
        number = intend(queue, ranges, deadline_us=20_000_000, nsid=FAILING, flags=flags)
        assert end_of(queue, number) == ("dropped", "media")
        assert len(events_of(controller, number)) == 1
    for _ in range(2):
        answer = queue.execute(
            nvme.block_command(nvme.READ, bad, 8, nsid=FAILING), expected=8 * BLOCK
        )
        assert answer.code == "2/81"
        check_bytes(queue, bad - 4 * SLOT, 4 * SLOT, FAILING)
        check_bytes(queue, bad + REGION, 8, FAILING)


def dirty_config(directory: Path) -> dict[str, object]:
    """A small tier over a medium that takes no writes until it is told to."""
    path = directory / "ns"
    path.write_bytes(pattern(0, 32 * MIB // BLOCK))
    space = {"path": str(path), "size": 32 * MIB, "block": BLOCK}
    changes = {
        "tier": {"size": 9 * MIB, "dirty_percent": 60},
        "subsystems": [
            {"nqn": NQN, "extension": True, "namespaces": [space | {"faults": ["stall:op=write"]}]}
        ],
    }
    return merge(base_config(directory), changes)


def test_intents_while_the_tier_is_full_of_what_was_written(directory: Path) -> None:
    target = RunningTarget(directory, dirty_config(directory))
    try:
        with target.site().pair(1) as controller:
            (queue,) = controller.io
            for slba in range(0, 40 * SLOT, SLOT):
                queue.write(slba, pattern(slba, SLOT, 1), BLOCK)
            start = 16 * MIB // BLOCK
            ranges = [(start, 8 * MIB // BLOCK)]
            strict = intend(queue, ranges, deadline_us=300_000, flags=0)
            late = intend(queue, ranges, deadline_us=300_000)
            assert end_of(queue, strict)[0] == "dropped"
            assert end_of(queue, late) == ("dropped", "room")
            for slba in range(0, 40 * SLOT, SLOT):
                assert queue.read(slba, SLOT, BLOCK) == pattern(slba, SLOT, 1)
            check_bytes(queue, start, 1024)
            target.media_control("stall", "release")
            assert queue.execute(nvme.sqe(nvme.FLUSH, 1)).is_ok
            number = intend(queue, [(start + 8 * SLOT, SLOT)], deadline_us=20_000_000)
            assert end_of(queue, number) == ("met", "none")
            seen = hinting.status(queue)
            check_sums(seen.intents)
            assert pending(seen.intents) == 0
        assert target.stop() == 0, target.said()[-3000:]
    finally:
        target.kill()


# ---- many ranges, several intents on the same ----


def test_intent_on_thousands_of_ranges(queue: Queue) -> None:
    slba = cold(queue, PLAIN)
    ranges = [(slba + 2 * number, 1) for number in range(REGION // 2 - 8)]
    random.Random(SEED).shuffle(ranges)
    for at in range(0, len(ranges), 200):
        op = hints.DEFINE if at == 0 else hints.EXTEND
        hinting.accepted(queue, hints.set_(51, ranges[at : at + 200], nsid=PLAIN, op=op))
    assert len(ranges) > 2000
    number = intend(queue, set_id=51, nsid=PLAIN, deadline_us=20_000_000, flags=0)
    end = hinting.ended(queue, number)
    assert (STATES[end.state], end.total_bytes) == ("met", len(ranges) * BLOCK)
    hinting.warm(queue, slba, REGION - 16, nsid=PLAIN)
    (seen,) = hints.parse_answer(hinting.ask(queue, hints.ASK_SET, 51)).answers
    assert isinstance(seen, hints.Residency)
    assert seen.warm_bytes == seen.total_bytes == len(ranges) * BLOCK
    check_bytes(queue, slba, REGION, PLAIN)


@pytest.mark.parametrize("withdraws", [False, True])
def test_overlapping_intents_of_two_hosts(
    target: RunningTarget, site: Site, queue: Queue, withdraws: bool
) -> None:
    slba = cold(queue, HELD)
    with site.pair(1, **OTHER_HOST) as other:
        (theirs,) = other.io
        target.media_control("stall", "arm", nsid=HELD)
        mine = intend(queue, [(slba, 12 * SLOT)], deadline_us=20_000_000, nsid=HELD)
        yours = intend(theirs, [(slba + 4 * SLOT, 16 * SLOT)], deadline_us=20_000_000, nsid=HELD)
        assert hinting.outcome(theirs, mine).state == hints.UNKNOWN
        if withdraws:
            hinting.accepted(queue, hints.cancel(hints.CANCEL_EVERYTHING))
        target.media_control("stall", "release", nsid=HELD)
        assert end_of(theirs, yours) == ("met", "none")
        assert end_of(queue, mine) == ("cancelled" if withdraws else "met", "none")
        warm = hinting.residency(theirs, slba + 4 * SLOT, 16 * SLOT, nsid=HELD)
        assert warm.warm_bytes == warm.total_bytes
        for one in (queue, theirs):
            seen = hinting.status(one)
            check_sums(seen.intents)
            assert pending(seen.intents) == 0


def test_intent_with_the_number_of_another(
    target: RunningTarget, controller: Controller, queue: Queue
) -> None:
    slba, number = cold(queue, HELD), new_id()

    def say(blocks: int, priority: int) -> None:
        record = hints.intent(
            number, [(slba, blocks)], nsid=HELD, priority=priority, deadline_us=20_000_000
        )
        hinting.accepted(queue, record)

    target.media_control("stall", "arm", nsid=HELD)
    before = hinting.status(queue).intents
    for priority in (0, 1, 2):
        say(SLOT * (priority + 1), priority)
    seen = hinting.status(queue).intents
    check_sums(seen)
    assert [new["cancelled"] - old["cancelled"] for new, old in zip(seen, before, strict=True)] == [
        1,
        1,
        0,
        0,
    ]
    assert hinting.outcome(queue, number).total_bytes == 3 * SLOT * BLOCK
    target.media_control("stall", "release", nsid=HELD)
    assert end_of(queue, number) == ("met", "none")
    say(SLOT, 3)  # in the place of one that has ended
    end = hinting.outcome(queue, number)
    assert (STATES[end.state], end.was_warm, end.total_bytes) == ("met", True, SLOT * BLOCK)
    ends = [(event.priority, event.state) for event in events_of(controller, number)]
    assert ends == [(0, "cancelled"), (1, "cancelled"), (2, "met"), (3, "met")]
