"""What the model hears of hints, reads and writes: whole, or lost and counted."""

from __future__ import annotations

from hints_media import MS, PER_SLOT, SLOT, slots
from hints_support import Fact, Rig

from prestage._core import lib
from prestage.ext.names import CancelWhat, IntentFlag, SetFlag, SetOp, State
from prestage.ext.records import (
    Cancel,
    Intent,
    Outcome,
    Range,
    Residency,
    Retain,
    SetRecord,
    Signature,
)

FACTS = 1024
RANGES = (Range(*slots(1)), Range(*slots(4, 2)))


def fact(kind: int, **values: int) -> Fact:
    """Return a fact of tenant 0 and volume 0."""
    names = Fact.__dataclass_fields__
    return Fact(**dict.fromkeys(names, 0) | {"kind": kind} | values)


def ranges_of(number: int) -> list[Fact]:
    """Return the facts of RANGES."""
    return [
        fact(lib.PS_FACT_RANGE, id=number, aux=0, offset=SLOT, length=SLOT),
        fact(lib.PS_FACT_RANGE, id=number, aux=1, offset=4 * SLOT, length=2 * SLOT),
    ]


def test_a_set_is_told_with_its_ranges() -> None:
    rig = Rig(ring_facts=FACTS)
    rig.submit(SetRecord(5, 1, RANGES, flags=SetFlag.ORDERED, ttl_ms=70))
    value = SetOp.DEFINE << 32 | 70
    head = fact(lib.PS_FACT_SET, id=5, aux=2, value=value, flags=SetFlag.ORDERED)
    assert rig.facts() == [head, *ranges_of(5)]
    rig.submit(SetRecord(5, 1, op=SetOp.DROP))
    assert rig.facts() == [fact(lib.PS_FACT_SET, id=5, value=SetOp.DROP << 32)]


def test_a_set_of_the_target_is_told_too() -> None:
    rig = Rig(ring_facts=FACTS)
    rig.dataset(1, slots(1), slots(4, 2))
    head, *ranges = rig.facts()
    assert head.id >> 63 == 1
    assert (head.kind, head.flags) == (lib.PS_FACT_SET, SetFlag.ORDERED)
    assert ranges == ranges_of(head.id)


def test_a_signature_is_told_with_its_vector() -> None:
    rig = Rig(ring_facts=FACTS)
    vector = bytes(range(16))
    rig.submit(Signature(1, 8, 4, vector, family=3), Signature(1, 16, 4, vector[:8]))
    low, high = (int.from_bytes(half, "little") for half in (vector[:8], vector[8:]))
    kind, place = lib.PS_FACT_SIGNATURE, {"length": 4 * 512}
    assert rig.facts() == [
        fact(kind, offset=8 * 512, id=low, value=high, aux=128 << 16 | 3, **place),
        fact(kind, offset=16 * 512, id=low, aux=64 << 16, **place),
    ]


def test_an_intent_is_told_and_its_outcome() -> None:
    rig = Rig(ring_facts=FACTS)
    rig.submit(Intent(9, 1_000_000, 1, RANGES, session=6, priority=1, flags=IntentFlag.PREFIX))
    head, *ranges = rig.facts()
    assert head == fact(
        lib.PS_FACT_INTENT,
        id=9,
        session=6,
        value=1_000_000,
        aux=2,
        priority=1,
        flags=IntentFlag.PREFIX,
    )
    assert ranges == ranges_of(9)
    rig.run()
    (end,) = rig.facts()
    assert (end.kind, end.id, end.session) == (lib.PS_FACT_OUTCOME, 9, 6)
    assert (end.aux, end.value) == (State.MET, rig.outcome(9).ready_us)


def test_an_intent_on_a_set_names_the_set() -> None:
    rig = Rig(ring_facts=FACTS)
    rig.submit(SetRecord(5, 1, RANGES), Intent(9, 1_000_000, set_id=5), Retain(30, set_id=5))
    facts = rig.facts()[3:]
    assert [(each.kind, each.offset, each.aux) for each in facts] == [
        (lib.PS_FACT_INTENT, 5, 0),
        (lib.PS_FACT_RETAIN, 5, 0),
    ]


def test_retain_and_cancel_are_told() -> None:
    rig = Rig(ring_facts=FACTS)
    rig.submit(Retain(30, 1, RANGES), Cancel(CancelWhat.SESSION, 8))
    assert rig.facts() == [
        fact(lib.PS_FACT_RETAIN, value=30, aux=2),
        *ranges_of(0),
        fact(lib.PS_FACT_CANCEL, id=8, aux=CancelWhat.SESSION),
    ]


def test_what_is_dropped_or_only_asked_is_not_told() -> None:
    rig = Rig(ring_facts=FACTS, budget={"sets": 0, "intents": 0})
    rig.submit(SetRecord(5, 1, RANGES), Residency(1, RANGES), Outcome(3))
    rig.submit(SetRecord(5, 7, RANGES), Signature(7, 0, 1, bytes(8)), Retain(1, set_id=4))
    assert rig.facts() == []
    rig.submit(Intent(9, 1000, 1, RANGES))
    assert [each.kind for each in rig.facts()] == [lib.PS_FACT_OUTCOME]


def test_reads_and_writes_are_told() -> None:
    rig = Rig(ring_facts=FACTS)
    flags = lib.PS_FACT_DATED | lib.PS_FACT_READAHEAD
    read = rig.touch(
        2 * SLOT, SLOT, flags=flags, session=4, deadline_us=77, priority=3, volume=1, tenant=2
    )
    arrived_ns = rig.now_ns
    rig.now_ns += MS
    read.flags |= lib.PS_FACT_HIT
    rig.read_seen(read, arrived_ns, tenant=2)
    rig.read_ended(read, arrived_ns, tenant=2)
    scope = rig.scope(1)
    for is_discard in (False, True):
        lib.ps_hints_written(rig.hints, rig.now_ns, scope, 0, SLOT, 512, is_discard)
    place = {"tenant": 1, "offset": SLOT, "length": 512}
    assert rig.facts() == [
        Fact(
            kind=lib.PS_FACT_READ,
            tenant=2,
            volume=1,
            offset=2 * SLOT,
            length=SLOT,
            id=0,
            session=4,
            value=77,
            aux=0,
            flags=flags | lib.PS_FACT_HIT,
            priority=3,
        ),
        fact(lib.PS_FACT_WRITE, **place),
        fact(lib.PS_FACT_DISCARD, **place),
    ]


def test_a_volume_that_goes_is_told() -> None:
    rig = Rig(ring_facts=FACTS)
    rig.remove_volume(1)
    assert rig.facts() == [fact(lib.PS_FACT_UNMAPPED, volume=1)]


def test_a_record_that_does_not_fit_as_a_whole_is_lost_as_a_whole() -> None:
    rig = Rig(ring_facts=8)
    many = tuple(Range(at * PER_SLOT, 1) for at in range(6))
    rig.submit(SetRecord(1, 1, many), SetRecord(2, 1, RANGES), Signature(1, 0, 1, bytes(8)))
    facts = rig.facts()
    assert [each.kind for each in facts].count(lib.PS_FACT_SET) == 1
    assert [each.kind for each in facts].count(lib.PS_FACT_RANGE) == 6
    assert facts[-1].kind == lib.PS_FACT_SIGNATURE
    rig.submit(SetRecord(2, 1, RANGES))
    assert len(rig.facts()) == 3
    assert rig.stats().sets == 2


def test_without_a_ring_all_is_the_same() -> None:
    rig = Rig()
    rig.submit(SetRecord(1, 1, RANGES), Intent(1, 1_000_000, set_id=1))
    rig.run()
    assert rig.outcome(1).state == State.MET
