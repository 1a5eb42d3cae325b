"""Whatever ends while hints are alive: no intent is lost or ends twice, and all is given back."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints, pdu
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from . import hinting, intents
from .hinting import BLOCK, OTHER_NQN, until
from .intents import Ledger, Said, check_sums, pending, read_events
from .probing import SEED, Site, turns
from .running import MIB, NQN, RunningTarget, find

LASTING, STALLED = 1, 2
SIZE = 32 * MIB
BLOCKS = SIZE // BLOCK
CONFIG: dict[str, Any] = {
    "tier": {"size": 32 * MIB},
    "limits": {"stop_s": 5.0},
    "reactors": 2,
    # Few ends are remembered, so that their memory is soon as large as it gets.
    "hints": {"intents": 64, "total_intents": 128},
    "subsystems": [
        {
            "nqn": NQN,
            "extension": True,
            "namespaces": [
                {"media": "ram", "size": SIZE, "block": BLOCK},
                {"media": "ram", "size": SIZE, "block": BLOCK, "faults": ["stall:op=read,after=0"]},
            ],
        },
    ],
}
SLOT = (64 << 10) // BLOCK
Leave = Callable[[Controller], None]
GONE = frozenset({"room", "namespace"})
"""Why an intent is dropped whose namespace goes, or its size."""
_ids = iter(range(1, 1 << 30))


@pytest.fixture
def bare(site: Site, target: RunningTarget) -> RunningTarget:
    """The target, with no hints of the usual host, and none of its events unread."""
    with site.pair(1) as controller:
        hinting.accepted(controller.io[0], hints.cancel(hints.CANCEL_EVERYTHING))
        read_events(controller, may_lose=True)
    return target


@pytest.fixture
def stalled(site: Site, bare: RunningTarget) -> Iterator[RunningTarget]:
    """The target, with reads of the second namespace held."""
    until(lambda: _work(bare), lambda work: work == 0)
    with site.pair(1) as controller:
        _cool(controller.io[0])
    bare.media_control("stall", "arm", nsid=STALLED)
    yield bare
    bare.media_control("stall", "release", nsid=STALLED)


def _cool(queue: Queue) -> None:
    """Nothing of the stalled namespace is warm: what is deallocated is forgotten."""
    entry = nvme.sqe(nvme.DSM, STALLED, cdw11=4)
    assert queue.execute(entry, data=nvme.dsm_ranges([(0, BLOCKS)])).is_ok
    assert hinting.residency(queue, 0, BLOCKS, nsid=STALLED).warm_bytes == 0


def _namespaces(target: RunningTarget, nqn: str = NQN) -> dict[int, dict[str, Any]]:
    stats = target.rpc("prestage_get_stats")
    (mine,) = [one for one in stats["subsystems"] if one["nqn"] == nqn]
    return {one["nsid"]: one for one in mine["namespaces"]}


def _work(target: RunningTarget, nsid: int = STALLED) -> int:
    """Media operations and jobs of a namespace."""
    found = _namespaces(target)[nsid]
    waiting = sum(
        one["waiting"] + one["in_flight"] for one in found["scheduler"]["classes"].values()
    )
    return int(found["counters"]["media_in_flight"] + found["scheduler"]["jobs"] + waiting)


def say(queue: Queue, ledger: Ledger, *said: Said, ranges: hints.Ranges = ()) -> None:
    """Submit intents; each record is taken, or dropped."""
    records = []
    for one in said:
        ledger.say(one)
        records.append(
            hints.intent(
                one.intent_id,
                ranges,
                nsid=one.nsid,
                deadline_us=one.deadline_us,
                priority=one.priority,
                flags=one.flags,
            )
        )
    assert hinting.submit(queue, *records).is_ok


def held_back(queue: Queue, ledger: Ledger, *, may_cancel: bool = False) -> list[int]:
    """Intents that stay pending while the medium stalls: started, queued, and in between."""
    may_drop = frozenset({"room", "namespace"} if may_cancel else {"room"})
    numbers = []
    for priority in range(4):
        said = Said(next(_ids), STALLED, 60_000_000, priority, hints.LATE_OK, may_cancel, may_drop)
        numbers.append(said.intent_id)
        start = priority * MIB // BLOCK
        say(queue, ledger, said, ranges=[(start, SLOT * 4 + 1), (8 * MIB // BLOCK, 3 * SLOT)])
    return numbers


def states(queue: Queue, numbers: list[int]) -> list[str]:
    """Of intents, now."""
    return [intents.STATES[hinting.outcome(queue, number).state] for number in numbers]


def count(queue: Queue) -> tuple[dict[str, int], ...]:
    """The counts of intents; they add up."""
    seen = hinting.status(queue)
    check_sums(seen.intents)
    check_sums(seen.reads)
    return seen.intents


def all_ended(controller: Controller, ledger: Ledger) -> tuple[dict[str, int], ...]:
    """The counts once nothing is pending; meanwhile the events are heard."""

    def look() -> tuple[dict[str, int], ...]:
        ledger.hear(read_events(controller))
        return count(controller.io[0])

    counts = until(look, lambda seen: pending(seen) == 0)
    ledger.hear(read_events(controller))
    return counts


def grown(
    before: tuple[dict[str, int], ...], after: tuple[dict[str, int], ...]
) -> tuple[dict[str, int], ...]:
    """What was counted since."""
    return tuple(
        {name: new[name] - old[name] for name in new}
        for old, new in zip(before, after, strict=True)
    )


# ---- the end of a connection, a controller, a host ----


def close(controller: Controller) -> None:
    """In good order."""
    controller.close()


def vanish(controller: Controller) -> None:
    """RST on every connection."""
    controller.vanish()


def reset(controller: Controller) -> None:
    """CC.EN = 0, and 1 again."""
    controller.set_cc(nvme.CC_BASE)
    controller.wait_csts(1, 0)
    controller.set_cc(nvme.CC_BASE | 1)
    controller.wait_csts(1, 1)


def shut_down(controller: Controller) -> None:
    """CC.SHN."""
    controller.set_cc(nvme.CC_BASE | 1 | 1 << 14)
    controller.wait_csts(12, 8)


def within_a_batch(controller: Controller) -> None:
    """Die with a part of a batch sent."""
    queue = controller.io[0]
    raw = hints.batch(*(hints.intent(next(_ids), [(0, 8)]) for _ in range(30)))
    entry = nvme.with_sgl(hints.submit(), nvme.sgl(nvme.SGL_IN_CAPSULE, len(raw)))
    capsule = queue.capsule(nvme.with_cid(entry, 7), raw)
    queue.connection.send(capsule[: random.Random(SEED).randrange(1, len(capsule))])
    controller.vanish()


def within_the_data_of_a_batch(controller: Controller) -> None:
    """Die with a part of the data sent that was asked for."""
    queue = controller.io[0]
    raw = hints.page(hints.batch(hints.intent(next(_ids), [(0, 8)])))
    cid = queue.submit(hints.submit(), data=raw, in_capsule=False)
    queue.answers_r2t = False
    r2t = queue.wait_r2t()
    queue.connection.send(pdu.h2c_data(cid, r2t.u16(10), 0, raw)[:2000])
    controller.vanish()


@pytest.mark.stress
@pytest.mark.parametrize(
    "leave", [close, vanish, reset, shut_down, within_a_batch, within_the_data_of_a_batch]
)
def test_hints_outlive_the_connection_that_brought_them(
    site: Site, stalled: RunningTarget, leave: Leave
) -> None:
    ledger = Ledger()
    with site.pair(2) as controller:
        queue, other = controller.io
        before = count(queue)
        records = [
            hints.set_(7, [(64, SLOT * 2), (8192, SLOT)], nsid=STALLED, flags=hints.ORDERED),
            hints.signature(0, 64, bytes(8), nsid=STALLED),
            hints.retain(set_id=7),
        ]
        hinting.accepted(queue, *records)
        numbers = held_back(queue, ledger)
        for priority in range(4):
            entry = hints.dated_read(priority * 8, 8, deadline_us=1000, priority=priority)
            other.submit(entry, expected=8 * BLOCK)
        hinting.status(other)  # they have been taken
        leave(controller)
    with site.pair(1) as controller:
        (queue,) = controller.io
        assert states(queue, numbers) == ["pending"] * 4
        used = hinting.status(queue).used
        assert (used["sets"], used["set_ranges"], used["signatures"]) == (1, 2, 1)
        reads = until(lambda: hinting.status(queue).reads, lambda seen: pending(seen) == 0)
        check_sums(reads)
        stalled.media_control("stall", "release", nsid=STALLED)
        after = all_ended(controller, ledger)
        assert states(queue, numbers) == ["met"] * 4
        ledger.settle(grown(before, after))


def test_reset_of_one_controller_leaves_the_hints_of_its_host_to_the_others(
    site: Site, stalled: RunningTarget
) -> None:
    ledger = Ledger()
    with site.pair(1) as first, site.pair(1) as second:
        before = count(second.io[0])
        numbers = held_back(first.io[0], ledger)
        for _ in range(5):
            reset(first)
            assert states(second.io[0], numbers) == ["pending"] * 4
            first.io.pop().connection.close()
            held = first.add_queue()
            hinting.accepted(held, hints.residency([(0, 8)], nsid=STALLED))
        stalled.media_control("stall", "release", nsid=STALLED)
        ledger.settle(grown(before, all_ended(second, ledger)))


# ---- the end of a namespace, of its size, of its subsystem ----


@contextlib.contextmanager
def added(
    target: RunningTarget, path: Path, *faults: str, nqn: str = NQN
) -> Iterator[Callable[[], int]]:
    """A medium; each call adds it as a namespace and says its NSID."""
    settings = {"path": str(path), "size": SIZE, "block": BLOCK, "faults": list(faults)}
    target.rpc("prestage_bdev_create", name=path.name, **settings)
    wanted = {"bdev_name": path.name}
    yield lambda: int(target.rpc("nvmf_subsystem_add_ns", nqn=nqn, namespace=wanted))
    target.rpc("prestage_bdev_delete", name=path.name)


def fill_with_hints(queue: Queue, ledger: Ledger, nsid: int) -> list[int]:
    """Sets, signatures, a retain, and intents of every kind on a namespace; the intents."""
    records = [
        hints.set_(11, [(0, 5 * SLOT), (9 * SLOT, SLOT)], nsid=nsid, flags=hints.ORDERED),
        hints.set_(12, [(SLOT * 20 + number * 9, 7) for number in range(40)], nsid=nsid),
        hints.signature(0, 64, bytes(16), nsid=nsid),
        hints.retain([(0, 4096)], nsid=nsid),
    ]
    hinting.accepted(queue, *records)
    numbers: list[int] = []
    for flags in (0, hints.LATE_OK, hints.PREFIX, hints.LATE_OK):
        for deadline_us in (1_000_000, 30_000_000):
            said = Said(next(_ids), nsid, deadline_us, flags, flags, True, GONE)
            start = len(numbers) * 16 * SLOT % BLOCKS
            ranges = [(start + 3, 2 * SLOT), (start, 12 * SLOT), (BLOCKS - SLOT, SLOT)]
            say(queue, ledger, said, ranges=ranges)
            numbers.append(said.intent_id)
    return numbers


@pytest.mark.stress
def test_removed_namespace_takes_its_hints_with_it(
    bare: RunningTarget, site: Site, directory: Path
) -> None:
    slow = "delay:read_us=150000"
    with added(bare, directory / "goes", slow) as add, site.pair(2) as controller:
        queue, other = controller.io
        before, idle = count(queue), bare.at_rest()
        kept = hinting.status(queue).used["tier_bytes"]
        for _ in range(3):
            ledger, first = Ledger(), count(queue)
            nsid = add()
            numbers = fill_with_hints(queue, ledger, nsid)
            reads = [
                other.submit(
                    hints.dated_read(slba, 64, deadline_us=500, nsid=nsid), expected=64 * BLOCK
                )
                for slba in (0, 40, 4096, 20000)
            ]
            bare.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=nsid)
            assert pending(count(queue)) == 0, "its intents have ended when it is gone"
            for cid in reads:
                assert other.wait(cid).code in ("ok", "0/0b"), "read, or too late for it"
            assert {"pending", "unknown"}.isdisjoint(states(queue, numbers))
            assert "cancelled" in states(queue, numbers)
            ledger.settle(grown(first, all_ended(controller, ledger)))
            seen = until(lambda: hinting.status(queue).used, lambda used: used["sets"] == 0)
            kinds = ("set_ranges", "signatures", "intents", "intent_bytes")
            assert not any(seen[kind] for kind in kinds), seen
            assert seen["tier_bytes"] <= kept, "frames of it are still counted"
            answer = hinting.submit(queue, hints.intent(next(_ids), set_id=11), mailbox=1)
            assert answer.dw0 >> 16 == 1
            assert hinting.mailbox_answer(queue, 1).dropped_reason == "set"
            read_events(controller)
        bare.settled(idle)
        assert pending(grown(before, count(queue))) == 0


def test_namespace_that_comes_again_has_no_hints(
    bare: RunningTarget, site: Site, directory: Path
) -> None:
    with added(bare, directory / "again") as add, site.pair(1) as controller:
        (queue,) = controller.io
        nsid = add()
        hinting.accepted(queue, hints.set_(31, [(0, SLOT), (4096, SLOT)], nsid=nsid, flags=1))
        bare.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=nsid)
        assert add() == nsid
        queue.read(0, 8, BLOCK, nsid=nsid)
        (answer,) = hints.parse_answer(hinting.ask(queue, hints.ASK_SET, 31)).answers
        assert isinstance(answer, hints.Residency)
        assert answer.reason == "set"
        number = next(_ids)
        hinting.accepted(queue, hints.intent(number, [(2048, SLOT)], nsid=nsid))
        assert hinting.ended(queue, number).state == hints.MET
        assert hinting.residency(queue, 4096, SLOT, nsid=nsid).warm_bytes == 0
        read_events(controller)


@pytest.mark.stress
@pytest.mark.parametrize("slow", [True, False])
def test_namespace_shrinks_below_ranges_of_sets_and_intents(
    bare: RunningTarget, site: Site, directory: Path, slow: bool
) -> None:
    faults = ["delay:read_us=20000"] if slow else []
    small = 2 * SLOT * BLOCK + 5 * BLOCK  # within an extent, and within a unit of it
    with added(bare, directory / "shrinks", *faults) as add, site.pair(1) as controller:
        (queue,) = controller.io
        nsid = add()
        for _ in range(4):
            ledger, before = Ledger(), count(queue)
            numbers = fill_with_hints(queue, ledger, nsid)
            ends = Said(next(_ids), nsid, 30_000_000, 1, hints.LATE_OK, True, GONE)
            numbers.append(ends.intent_id)
            say(
                queue, ledger, ends, ranges=[(0, 2 * SLOT + 100)]
            )  # within what the cut goes through
            bare.rpc("prestage_namespace_resize", nqn=NQN, nsid=nsid, size=small)
            ledger.settle(grown(before, all_ended(controller, ledger)))
            reasons = {hinting.outcome(queue, number).reason for number in numbers}
            assert "room" not in reasons, "nothing lacked room"
            queue.read(0, 8, BLOCK, nsid=nsid)  # its set goes on beyond the end
            answer = queue.execute(nvme.block_command(nvme.READ, 3 * SLOT, 8, nsid=nsid))
            assert answer.code == "0/80"
            bare.rpc("prestage_namespace_resize", nqn=NQN, nsid=nsid, size=SIZE)
            data = queue.read(small // BLOCK, 1000, BLOCK, nsid=nsid)
            assert data == bytes(1000 * BLOCK)
            number = next(_ids)
            hinting.accepted(queue, hints.intent(number, set_id=11, deadline_us=10_000_000))
            assert hinting.ended(queue, number).state == hints.MET
            read_events(controller)


@pytest.mark.stress
def test_deleted_subsystem_takes_the_hints_about_it(
    bare: RunningTarget, site: Site, directory: Path
) -> None:
    with site.pair(1) as controller:
        (queue,) = controller.io
        for turn in range(3):
            ledger, before = Ledger(), count(queue)
            bare.rpc("nvmf_create_subsystem", nqn=OTHER_NQN, allow_any_host=True)
            slow = "delay:read_us=100000"
            with added(bare, directory / f"of{turn}", slow, nqn=OTHER_NQN) as add:
                nsid = add()
                with site.pair(1, nqn=OTHER_NQN) as other:
                    numbers = fill_with_hints(other.io[0], ledger, nsid)
                    other.io[0].submit(
                        hints.dated_read(0, 64, deadline_us=5, nsid=nsid), expected=64 * BLOCK
                    )
                    bare.rpc("nvmf_delete_subsystem", nqn=OTHER_NQN)
            assert {"pending", "unknown"}.isdisjoint(states(queue, numbers))
            ledger.settle(grown(before, all_ended(controller, ledger)))
            seen = until(lambda: hinting.status(queue).used, lambda used: used["sets"] == 0)
            assert seen["intents"] == seen["signatures"] == 0
        assert pending(hinting.status(queue).reads) == 0


# ---- many rounds ----


WARM_UP = 40
"""Rounds until as many ends of intents are remembered as ever are."""


def one_round(target: RunningTarget, site: Site, add: Callable[[], int], turn: int) -> None:
    """A namespace comes, many hints are said about it, one end or another, and it goes."""
    nsid = add()
    leave = (close, vanish, reset, within_a_batch)[turn % 4]
    with site.pair(1) as controller:
        queue = controller.io[0]
        fill_with_hints(queue, Ledger(), nsid)
        ranges = [(slot * 2 * SLOT, 9) for slot in range(100)]
        hinting.accepted(queue, hints.set_(100 + turn, ranges, nsid=nsid), mailbox=turn % 64)
        queue.submit(hints.dated_read(0, 64, deadline_us=5, nsid=nsid), expected=64 * BLOCK)
        queue.read(0, 8, BLOCK, nsid=nsid, dsm=7)
        if turn % 3 == 0:
            hinting.accepted(queue, hints.cancel(hints.CANCEL_EVERYTHING))
        leave(controller)
    target.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=nsid)


@pytest.mark.stress
def test_memory_is_flat_over_many_rounds(bare: RunningTarget, site: Site, directory: Path) -> None:
    target, rounds = bare, turns("PRESTAGE_TEST_ROUNDS", 160)
    with added(target, directory / "round", "delay:read_us=3000") as add:
        for turn in range(WARM_UP):
            one_round(target, site, add, turn)
        before = target.at_rest()
        hints_before = target.rpc("prestage_get_stats")["hints"]["memory_bytes"]
        for turn in range(WARM_UP, WARM_UP + rounds):
            one_round(target, site, add, turn)
        after = target.settled(before)
        stats = until(
            lambda: target.rpc("prestage_get_stats")["hints"],
            lambda seen: seen["sets"] + seen["signatures"] + seen["intents"] == 0,
        )
    # What is swept a moment later takes a little more at times, not more each round.
    assert stats["memory_bytes"] - hints_before < 128 << 10, "the tables have grown"
    if rounds >= 160:  # a sanitizer keeps what was freed
        assert after.rss_kib - before.rss_kib < 4096, f"{before} then {after}"
    with site.pair(1) as controller:
        check_sums(hinting.status(controller.io[0]).intents)
        assert find(stats, "intents") == 0
