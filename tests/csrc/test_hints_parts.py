"""Records that go on over several turns, while other things happen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hints_media import MS, PER_SLOT, slots
from hints_support import NOWHERE, Rig
from hints_words import counts, end_of, intent

from prestage._core import ffi, lib
from prestage.ext import codec
from prestage.ext.names import CancelWhat, IntentFlag, OutcomeFlag, Reason, State, Verdict
from prestage.ext.records import Cancel, Range, Record, Retain, SetRecord

WARM = range(60)


@dataclass
class Batch:
    """A batch that is taken a turn at a time."""

    rig: Rig
    records: tuple[Record, ...]
    tenant: int = 0
    progress: Any = field(init=False)

    def __post_init__(self) -> None:
        self.progress = ffi.new("struct ps_hints_progress *")
        self.data = codec.encode_batch(self.records, writer=1, sequence=1)

    def turn(self) -> bool:
        """Take one turn; returns whether it has ended."""
        rig, scope = self.rig, self.rig.scope(self.tenant)
        done = lib.ps_hints_submit_some(
            rig.hints, rig.now_ns, scope, NOWHERE, self.data, len(self.data), 4, self.progress
        )
        rig.check()
        return bool(done)

    def rest(self) -> tuple[int, int]:
        """Take all turns that are left; returns how many records were accepted and dropped."""
        for _ in range(1000):
            if self.turn():
                return self.progress.result.accepted, self.progress.result.dropped
        raise AssertionError("it goes on for ever")


def small_parts(**how: Any) -> Rig:
    """Return a rig in which nothing is looked at beyond one extent a turn."""
    return Rig(config={"part_items": 1}, **how)


def test_an_intent_has_its_verdict_when_its_batch_has_ended() -> None:
    rig = small_parts()
    rig.warm(*WARM)
    before = rig.hint_frames()
    batch = Batch(rig, (intent(1, *WARM),))
    assert not batch.turn()
    assert rig.outcome(1).verdict == Verdict.NONE
    assert batch.rest() == (1, 0)
    assert end_of(rig, 1) == (State.MET, Reason.NONE)
    assert (rig.outcome(1).flags, rig.outcome(1).ready_us) == (OutcomeFlag.WAS_WARM, 0)
    assert rig.hint_frames() == before + len(WARM)


def test_one_that_is_withdrawn_meanwhile_leaves_nothing() -> None:
    rig = small_parts()
    rig.warm(*WARM)
    before = rig.hint_frames()
    batch = Batch(rig, (intent(1, *WARM),))
    assert not batch.turn()
    assert rig.hint_frames() > before, "it is kept as it is looked at"
    rig.submit(Cancel(CancelWhat.INTENT, id=1))
    assert batch.rest() == (1, 0)
    rig.tick()
    assert end_of(rig, 1) == (State.CANCELLED, Reason.NONE)
    assert rig.hint_frames() == before


@pytest.mark.parametrize("other", [0, 1])
def test_a_batch_does_not_go_on_with_an_intent_of_another(other: int) -> None:
    rig = small_parts()
    rig.warm(*WARM)
    first = Batch(rig, (intent(1, *WARM),))
    assert not first.turn()
    rig.submit(Cancel(CancelWhat.INTENT, id=1))
    second = Batch(rig, (intent(1 + other, *WARM),), tenant=other)
    assert not second.turn()
    assert first.turn(), "its own has ended"
    assert second.rest() == (1, 0)


def test_what_became_warm_long_after_it_came_was_not_warm() -> None:
    rig = small_parts()
    rig.warm(*WARM[:-1])
    late_ok = IntentFlag.LATE_OK
    assert not Batch(rig, (intent(1, *WARM, deadline_us=1000, flags=late_ok),)).turn()
    assert not Batch(rig, (intent(2, *WARM, deadline_us=1000),)).turn()
    rig.now_ns += 5 * MS
    rig.warm(WARM[-1])
    for _ in range(2 * len(WARM)):
        rig.tick(rig.now_ns + MS)
    assert end_of(rig, 1) == (State.LATE, Reason.NONE)
    assert rig.outcome(1).flags == OutcomeFlag.NONE
    assert rig.outcome(1).ready_us >= 5000
    assert end_of(rig, 2) == (State.DROPPED, Reason.DEADLINE)
    assert rig.outcome(2).verdict == Verdict.DROPPED
    assert counts(rig) == (2, 0, 0, 0, 1, 1, 0)


def test_one_that_was_dropped_between_two_turns_counts_as_dropped() -> None:
    rig = small_parts()
    rig.warm(*WARM)
    batch = Batch(rig, (intent(1, *WARM, deadline_us=1000),))
    assert not batch.turn()
    rig.tick(rig.now_ns + 5 * MS)
    assert end_of(rig, 1) == (State.DROPPED, Reason.DEADLINE)
    assert batch.rest() == (0, 1)
    assert rig.status().dropped[Reason.DEADLINE] == 1


def test_one_whose_namespace_has_gone_is_cancelled() -> None:
    rig = small_parts()
    rig.warm(*WARM)
    batch = Batch(rig, (intent(1, *WARM),))
    assert not batch.turn()
    del rig.namespaces[0, 1]
    assert batch.rest() == (1, 0)
    assert end_of(rig, 1) == (State.CANCELLED, Reason.NONE)


def test_cancel_of_all_means_what_came_before_it_whatever_becomes_of_that() -> None:
    rig = small_parts()
    before = rig.hint_frames()
    rig.submit(*(intent(1 + at, at) for at in WARM[:8]))
    batch = Batch(rig, (Cancel(CancelWhat.ALL),))
    assert not batch.turn()
    rig.warm(40)
    rig.submit(intent(100, 40))
    assert end_of(rig, 100) == (State.MET, Reason.NONE)
    rig.run()
    assert batch.rest() == (1, 0)
    rig.read(*WARM[1:8])  # What was read counts for hints only while it is kept for one.
    rig.tick()
    assert rig.hint_frames() == before + 1, "only the one that came later is kept"


def define(rig: Rig, extents: Iterable[int]) -> None:
    """Define set 7 of these extents."""
    rig.submit(SetRecord(7, 1, tuple(Range(*slots(at)) for at in extents)))


def set_being_retained() -> tuple[Rig, int, Batch]:
    """Return a batch that goes on retaining set 7, and how many frames were kept before."""
    rig = small_parts()
    rig.warm(*WARM)
    before = rig.hint_frames()
    define(rig, WARM)
    batch = Batch(rig, (Retain(10_000, set_id=7),))
    assert not batch.turn()
    return rig, before, batch


def test_a_set_is_retained_whole_in_parts() -> None:
    rig, before, batch = set_being_retained()
    assert batch.rest() == (1, 0)
    assert rig.hint_frames() == before + len(WARM)


def test_ranges_are_retained_whole_in_parts() -> None:
    rig = small_parts(frames=512)
    rig.warm(*WARM)
    before = rig.hint_frames()
    ranges = (Range(0, 40 * PER_SLOT), Range(40 * PER_SLOT, 20 * PER_SLOT))
    assert Batch(rig, (Retain(10_000, nsid=1, ranges=ranges),)).rest() == (1, 0)
    assert rig.hint_frames() == before + len(WARM)


def test_a_set_that_has_become_another_is_not_gone_on_with() -> None:
    rig, before, batch = set_being_retained()
    define(rig, WARM[:50])
    assert batch.turn()
    assert before < rig.hint_frames() < before + 50
