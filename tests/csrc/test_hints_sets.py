"""Sets and signatures: what is defined, extended, replaced, dropped, and how long it lives."""

from __future__ import annotations

import pytest
from hints_media import MS, SECOND, slots
from hints_support import BUDGET, CONFIG, Rig

from prestage.ext.names import CancelWhat, Reason, SetFlag, SetOp
from prestage.ext.records import (
    Cancel,
    Intent,
    Range,
    Residency,
    ResidencyAnswer,
    SetRecord,
    Signature,
)

ONE = (Range(*slots(0)),)


def set_of(number: int, *ranges: int, **how: int) -> SetRecord:
    """Return a set of whole extents of namespace 1."""
    return SetRecord(
        number,
        how.pop("nsid", 1),
        tuple(Range(*slots(each)) for each in ranges),
        op=SetOp(how.pop("op", SetOp.DEFINE)),
        flags=SetFlag(how.pop("flags", 0)),
        **how,
    )


def bytes_of(rig: Rig, number: int, **who: int) -> int | Reason:
    """Return the size of a set, as a residency query says it, or why not."""
    rig.submit(Residency(set_id=number), mailbox=3, **who)
    (answer,) = rig.answer(3, **who).answers
    assert isinstance(answer, ResidencyAnswer)
    return answer.reason or answer.total_bytes // slots(0)[1] // 512


def reason_of(rig: Rig, *items: SetRecord | Signature, **who: int) -> Reason:
    """Return why the first of these records was dropped."""
    rig.submit(*items, mailbox=3, **who)
    return rig.answer(3, **who).dropped_reason


def test_a_set_is_defined_replaced_extended_and_dropped() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0, 1))
    assert bytes_of(rig, 1) == 2
    rig.submit(set_of(1, 5, 6, 7, 8, 9))
    assert bytes_of(rig, 1) == 5
    rig.submit(set_of(1, 20, 21, 22, op=SetOp.EXTEND))
    assert bytes_of(rig, 1) == 8
    assert rig.status().set_ranges.used == rig.stats().set_ranges == 8
    rig.submit(set_of(1, op=SetOp.DROP))
    assert bytes_of(rig, 1) == Reason.SET
    assert (rig.stats().sets, rig.stats().set_ranges) == (0, 0)


def test_an_extension_of_nothing_defines() -> None:
    rig = Rig()
    rig.submit(set_of(4, 1, op=SetOp.EXTEND))
    assert bytes_of(rig, 4) == 1


def test_a_set_that_is_not_there_cannot_be_dropped() -> None:
    assert reason_of(Rig(), set_of(4, op=SetOp.DROP)) == Reason.SET


def test_one_set_has_one_namespace() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0))
    assert reason_of(rig, set_of(1, 1, nsid=2, op=SetOp.EXTEND)) == Reason.NAMESPACE
    assert bytes_of(rig, 1) == 1
    rig.submit(set_of(1, 1, 2, nsid=2))
    assert bytes_of(rig, 1) == 2


@pytest.mark.parametrize(
    ("nsid", "slba", "nlb"),
    [(7, 0, 1), (1, 64 * 32 + 3, 1), (1, 0, 64 * 32 + 4), (1, 2**64 - 1, 2), (1, 2**63, 2**31)],
)
def test_ranges_must_be_within_their_namespace(nsid: int, slba: int, nlb: int) -> None:
    rig = Rig()
    record = SetRecord(1, nsid, (Range(0, 1), Range(slba, nlb)))
    assert reason_of(rig, record) == Reason.NAMESPACE
    assert reason_of(rig, Signature(nsid, slba, nlb, bytes(8))) == Reason.NAMESPACE
    assert rig.status().dropped[Reason.NAMESPACE] == 2
    assert (rig.stats().sets, rig.stats().signatures) == (0, 0)


def test_a_set_lives_as_long_as_it_was_said() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0, ttl_ms=100), set_of(2, 1))
    rig.now_ns += 100 * MS - 1
    assert bytes_of(rig, 1) == 1
    rig.now_ns += 1
    assert bytes_of(rig, 1) == Reason.SET
    assert bytes_of(rig, 2) == 1
    rig.now_ns += CONFIG["max_ttl_ms"] * MS
    assert bytes_of(rig, 2) == Reason.SET


def test_an_extension_renews_the_life_of_a_set() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0, ttl_ms=100))
    rig.now_ns += 60 * MS
    rig.submit(set_of(1, 1, op=SetOp.EXTEND, ttl_ms=100))
    rig.now_ns += 60 * MS
    assert bytes_of(rig, 1) == 2


def test_no_life_is_longer_than_the_target_allows() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0, ttl_ms=2**32 - 1))
    rig.now_ns += CONFIG["max_ttl_ms"] * MS
    assert bytes_of(rig, 1) == Reason.SET


def test_the_memory_of_what_has_lived_its_time_comes_back_by_ticks() -> None:
    rig = Rig()
    rig.submit(*(set_of(number, 0, 1, ttl_ms=100) for number in range(1, 31)))
    rig.submit(*(Signature(1, 8 * at, 8, bytes(8), ttl_ms=200) for at in range(20)))
    rig.submit(set_of(99, 0))
    assert (rig.stats().sets, rig.stats().signatures) == (31, 20)
    rig.tick(rig.now_ns + 150 * MS)
    assert (rig.stats().sets, rig.stats().set_ranges, rig.stats().signatures) == (1, 1, 20)
    rig.tick(rig.now_ns + 100 * MS)
    assert (rig.status().sets.used, rig.status().signatures.used) == (1, 0)


def test_a_set_over_the_budget_is_dropped_and_what_was_there_stays() -> None:
    rig = Rig(budget={"sets": 2, "set_ranges": 5})
    rig.submit(set_of(1, 0, 1), set_of(2, 2, 3))
    assert reason_of(rig, set_of(3, 4)) == Reason.BUDGET
    assert reason_of(rig, set_of(2, 4, 5, 6, 7)) == Reason.BUDGET
    assert reason_of(rig, set_of(1, 4, 5, op=SetOp.EXTEND)) == Reason.BUDGET
    assert (bytes_of(rig, 1), bytes_of(rig, 2), bytes_of(rig, 3)) == (2, 2, Reason.SET)
    assert reason_of(rig, set_of(2, 4, 5, 6)) == Reason.NONE
    status = rig.status()
    assert status.dropped[Reason.BUDGET] == 3
    assert (status.sets.used, status.sets.limit) == (2, 2)
    assert (status.set_ranges.used, status.set_ranges.limit) == (5, 5)


def test_one_set_has_no_more_ranges_than_the_target_says() -> None:
    rig = Rig(config={"max_set_ranges": 3})
    assert reason_of(rig, set_of(1, 0, 1, 2, 3)) == Reason.BUDGET
    rig.submit(set_of(1, 0, 1))
    assert reason_of(rig, set_of(1, 2, 3, op=SetOp.EXTEND)) == Reason.BUDGET
    assert reason_of(rig, set_of(1, 2, op=SetOp.EXTEND)) == Reason.NONE


def test_all_tenants_together_have_a_limit_too() -> None:
    rig = Rig(config={"sets": 3, "set_ranges": 10, "signatures": 2})
    rig.submit(set_of(1, 0), set_of(2, 0), tenant=0)
    rig.submit(set_of(1, 0), tenant=1)
    assert reason_of(rig, set_of(2, 0), tenant=1) == Reason.BUDGET
    rig.submit(Signature(1, 0, 8, bytes(8)), tenant=0)
    rig.submit(Signature(1, 0, 8, bytes(8)), tenant=1)
    assert reason_of(rig, Signature(1, 8, 8, bytes(8)), tenant=1) == Reason.BUDGET


def test_a_full_table_makes_room_by_what_has_expired() -> None:
    rig = Rig(budget={"sets": 3, "signatures": 2})
    rig.submit(*(set_of(number, 0, ttl_ms=10) for number in (1, 2, 3)))
    rig.submit(*(Signature(1, at, 1, bytes(8), ttl_ms=10) for at in (1, 2)))
    rig.now_ns += 20 * MS
    assert reason_of(rig, set_of(4, 0)) == Reason.NONE
    assert reason_of(rig, Signature(1, 5, 1, bytes(8))) == Reason.NONE


def test_a_tenant_has_the_budget_that_was_set_for_it() -> None:
    from prestage._core import ffi, lib

    rig = Rig()
    own = ffi.new("struct ps_hints_budget *", {**BUDGET, "sets": 1})
    lib.ps_hints_set_budget(rig.hints, 1, own)
    rig.submit(set_of(1, 0), set_of(2, 0), tenant=1)
    rig.submit(set_of(1, 0), set_of(2, 0), tenant=0)
    assert (rig.status(1).sets.used, rig.status(0).sets.used) == (1, 2)
    lib.ps_hints_set_budget(rig.hints, 1, ffi.NULL)
    rig.submit(set_of(2, 0), tenant=1)
    assert rig.status(1).sets.used == 2


def test_a_newer_signature_of_the_same_place_replaces() -> None:
    rig = Rig()
    rig.submit(Signature(1, 8, 8, bytes(8)), Signature(1, 8, 16, bytes(16)))
    assert rig.stats().signatures == 1
    rig.submit(Signature(2, 8, 8, bytes(8)), Signature(1, 9, 8, bytes(8)))
    rig.submit(Signature(1, 8, 8, bytes(8)), tenant=1)
    assert (rig.status(0).signatures.used, rig.status(1).signatures.used) == (3, 1)


def test_a_signature_over_the_budget_is_dropped_but_may_replace() -> None:
    rig = Rig(budget={"signatures": 1})
    rig.submit(Signature(1, 8, 8, bytes(8)))
    assert reason_of(rig, Signature(1, 16, 8, bytes(8))) == Reason.BUDGET
    assert reason_of(rig, Signature(1, 8, 8, bytes(16))) == Reason.NONE


def test_cancel_everything_forgets_sets_and_signatures_at_once() -> None:
    rig = Rig(budget={"sets": 30})
    everything = [set_of(number, 0, 1) for number in range(1, 31)]
    rig.submit(*everything, Signature(1, 8, 8, bytes(8)))
    rig.submit(set_of(1, 0), tenant=1)
    rig.submit(Cancel(CancelWhat.EVERYTHING), *everything)
    assert rig.status().sets.used == 30
    assert rig.status().signatures.used == 0
    rig.submit(Cancel(CancelWhat.EVERYTHING))
    assert bytes_of(rig, 1) == Reason.SET
    assert bytes_of(rig, 1, tenant=1) == 1
    rig.tick(rig.now_ns + SECOND)
    assert (rig.stats().sets, rig.stats().set_ranges, rig.stats().signatures) == (1, 1, 0)


def test_a_volume_takes_its_sets_and_signatures_along() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0), set_of(2, 0, nsid=2), Signature(1, 8, 8, bytes(8)))
    rig.remove_volume(0)
    assert bytes_of(rig, 1) == Reason.SET
    assert bytes_of(rig, 2) == 1
    rig.tick(rig.now_ns + SECOND)
    assert (rig.stats().sets, rig.stats().signatures) == (1, 0)


def test_a_volume_that_comes_back_does_not_bring_old_sets_along() -> None:
    from prestage._core import lib

    rig = Rig()
    rig.submit(set_of(1, 0))
    rig.remove_volume(0)
    assert lib.ps_tier_volume_remove(rig.tier, 0) == 0
    rig.add_volume(0)
    assert bytes_of(rig, 1) == Reason.SET


def test_a_set_whose_namespace_is_unmapped_or_another_is_of_no_use() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0))
    del rig.namespaces[0, 1]
    assert bytes_of(rig, 1) == Reason.NAMESPACE
    rig.namespaces[0, 1] = 1
    assert bytes_of(rig, 1) == Reason.NAMESPACE
    rig.namespaces[0, 1] = 0
    assert bytes_of(rig, 1) == 1


def test_a_set_is_of_no_use_through_another_subsystem() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0))
    assert bytes_of(rig, 1, subsystem=1) == Reason.NAMESPACE
    rig.submit(set_of(1, 0, 1), subsystem=1)
    assert bytes_of(rig, 1, subsystem=1) == 2


def test_a_tenant_does_not_see_the_sets_of_another() -> None:
    rig = Rig()
    rig.submit(set_of(1, 0, 1, 2), tenant=0)
    assert bytes_of(rig, 1, tenant=1) == Reason.SET
    rig.submit(set_of(1, 5), tenant=1)
    assert reason_of(rig, set_of(1, op=SetOp.DROP), tenant=2) == Reason.SET
    rig.submit(Intent(1, 1000, set_id=1), tenant=1)
    assert rig.outcome(1, tenant=1).total_bytes == 16384
    assert bytes_of(rig, 1, tenant=0) == 3


def test_dataset_management_makes_a_set_of_the_target() -> None:
    rig = Rig()
    rig.dataset(1, slots(0), (7, 0), slots(3, 2))
    status = rig.status()
    assert (status.dataset_sets, status.sets.used, status.set_ranges.used) == (1, 1, 2)
    rig.dataset(1, (7, 0))
    assert rig.status().dataset_sets == 1
    rig.dataset(9, slots(0))
    rig.dataset(1, (2**63, 8))
    assert rig.status().dropped[Reason.NAMESPACE] == 2
    assert (rig.status().dataset_sets, rig.status().records) == (1, 3)


def test_the_oldest_set_of_the_target_makes_room_for_its_next() -> None:
    rig = Rig(budget={"sets": 4, "set_ranges": 20})
    rig.submit(set_of(1, 0))
    for first in range(0, 30, 2):
        rig.dataset(1, slots(first), slots(first + 1))
    status = rig.status()
    assert (status.sets.used, status.dataset_sets) == (4, 15)
    assert status.dropped[Reason.BUDGET] == 0
    assert bytes_of(rig, 1) == 1
    rig.dataset(1, *(slots(each) for each in range(19)))
    assert (rig.status().sets.used, rig.status().set_ranges.used) == (2, 20)
    rig.dataset(1, *(slots(each) for each in range(21)))
    assert rig.status().dropped[Reason.BUDGET] == 1


# ---- large sets: what goes is freed in steps ----

LARGE = {"max_set_ranges": 4000, "set_ranges": 8000}
MANY = 4000
PART = 200


def large_rig() -> Rig:
    """Return a rig in which one tenant may fill the tables with two sets, and does."""
    rig = Rig(config=LARGE, budget={"set_ranges": 8000})
    for number in (1, 2):
        define_large(rig, number)
    assert rig.stats().set_ranges == 2 * MANY
    return rig


def define_large(rig: Rig, number: int) -> None:
    """Define an ordered set of many ranges, part by part."""
    part = tuple(Range(8 * each, 1) for each in range(PART))
    for done in range(0, MANY, PART):
        op = SetOp.EXTEND if done else SetOp.DEFINE
        result = rig.submit(SetRecord(number, 1, part, op=op, flags=SetFlag.ORDERED))
        assert result.accepted == 1


def test_a_batch_frees_a_bounded_part_of_the_large_sets_that_it_drops() -> None:
    rig = large_rig()
    rig.submit(set_of(1, op=SetOp.DROP), set_of(2, op=SetOp.DROP))
    assert bytes_of(rig, 1) == bytes_of(rig, 2) == Reason.SET
    assert (rig.stats().sets, rig.status().set_ranges.used) == (0, 0)
    assert rig.stats().set_ranges > MANY
    steps = 0
    while rig.stats().set_ranges > 0:
        before = rig.stats().set_ranges
        rig.tick(rig.now_ns + 4 * MS)
        assert 0 < before - rig.stats().set_ranges <= PART * 10
        steps += 1
    assert steps > 1


def test_what_is_left_of_a_dropped_set_makes_room_for_whoever_needs_it() -> None:
    rig = large_rig()
    rig.submit(set_of(1, op=SetOp.DROP), set_of(2, op=SetOp.DROP))
    define_large(rig, 3)
    assert reason_of(rig, set_of(4, *range(50)), tenant=1) == Reason.NONE
    define_large(rig, 3)
    assert bytes_of(rig, 4, tenant=1) == 50
    assert rig.stats().set_ranges <= 8000


def test_reads_in_what_is_left_of_a_dropped_set_begin_nothing() -> None:
    rig = large_rig()
    rig.submit(set_of(1, op=SetOp.DROP), set_of(2, op=SetOp.DROP))
    rig.touch(0, 512)
    assert rig.stats().follows == 0
