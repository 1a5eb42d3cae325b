"""How far hints are trusted: by what was read of what they brought in."""

from __future__ import annotations

from typing import Any

from hints_media import MS, PER_SLOT, SLOT, slots
from hints_support import Rig
from hints_words import end_of, intent

from prestage._core import ffi, lib
from prestage.ext.names import Reason, SetFlag, State
from prestage.ext.records import Range, SetRecord

OF_INTENT, OF_SET, OF_STREAM = range(3)
CREDIT = 256
ROUND = 32
"""Extents of an intent."""
FRAMES = 40
PASSED_NS = 1100 * MS
"""A deadline, and what is kept beyond it."""
MET, LEFT_OUT = (State.MET, Reason.NONE), (State.DROPPED, Reason.BUDGET)
READAHEAD: int = lib.PS_FACT_READAHEAD


class Trust:
    """A rig in whose tier nothing is warm when an intent comes."""

    def __init__(self, **how: Any) -> None:
        self.rig = Rig(frames=FRAMES, volumes=3, **how)
        self.number = self.passed = 0

    def ask(self, tenant: int = 0) -> tuple[State, Reason]:
        """Let an intent name the first extents of volume 0; return how it ended."""
        self.number += 1
        self.rig.submit(intent(self.number, *range(ROUND)), tenant=tenant)
        self.rig.run()
        return end_of(self.rig, self.number, tenant=tenant)

    def pass_time(self) -> None:
        """Let the last intent's time run out, and other reads evict what it brought in."""
        self.rig.tick(self.rig.now_ns + PASSED_NS)
        self.passed += 1
        self.rig.warm(*range(FRAMES), volume=1 + self.passed % 2)

    def waste(self, extents: int) -> None:
        """Have as much brought in that nobody reads."""
        for _ in range(extents // ROUND):
            assert self.ask() == MET
            self.pass_time()

    def found(self, tenant: int = 0, source: int = OF_INTENT) -> tuple[int, int, int, bool]:
        """Return extents used and unused, hints left out, and whether more are acted on."""
        trust = ffi.new("struct ps_hints_trust *")
        lib.ps_hints_get_trust(self.rig.hints, tenant, source, trust)
        return trust.used, trust.unused, trust.left_out, trust.is_trusted


def test_who_names_what_nobody_reads_is_left_out_once_his_credit_is_used_up() -> None:
    trust = Trust()
    trust.waste(3 * CREDIT)
    assert trust.found() == (0, 3 * CREDIT, 0, True), "a quarter of all counts as read"
    trust.waste(ROUND)
    assert trust.found() == (0, 3 * CREDIT + ROUND, 0, False)
    assert trust.ask() == LEFT_OUT
    assert trust.rig.outcome(trust.number).admitted_bytes == 0
    assert trust.rig.status().dropped[Reason.BUDGET] == 1
    assert trust.found()[2] == 1


def test_another_tenant_is_not_answerable_for_it() -> None:
    trust = Trust()
    trust.waste(3 * CREDIT + ROUND)
    assert trust.ask() == LEFT_OUT
    trust.rig.submit(intent(900, 0, 1), tenant=1)
    trust.rig.run()
    assert end_of(trust.rig, 900, tenant=1) == MET
    assert trust.found(tenant=1)[3]


def test_what_is_read_keeps_the_trust() -> None:
    trust = Trust()
    for _ in range(6 * CREDIT // ROUND):
        assert trust.ask() == MET
        trust.rig.read(*range(ROUND // 2), tenant=2)
        trust.pass_time()
    assert trust.found() == (3 * CREDIT, 3 * CREDIT, 0, True), "whoever reads it"


def test_one_of_twenty_is_acted_on_without_trust_and_brings_it_back_when_it_is_read() -> None:
    trust = Trust()
    trust.waste(3 * CREDIT + ROUND)
    ends = []
    while not trust.found()[3]:
        ends.append(trust.ask())
        if ends[-1] == MET:
            trust.rig.read(*range(ROUND))
        trust.pass_time()
    assert ends[:20] == [*[LEFT_OUT] * 19, MET]
    used, unused, left_out, _ = trust.found()
    assert 2 * (CREDIT + used) >= unused > 2 * (CREDIT + used - ROUND), "a third was read"
    assert left_out == ends.count(LEFT_OUT)
    assert trust.ask() == MET


def test_without_trust_what_is_warm_is_met_and_not_kept() -> None:
    trust = Trust()
    trust.waste(3 * CREDIT + ROUND)
    trust.rig.warm(5, 6)
    before = trust.rig.hint_frames()
    trust.rig.submit(intent(900, 5, 6))
    assert end_of(trust.rig, 900) == MET
    assert trust.rig.hint_frames() == before


def test_the_model_hears_of_no_intent_that_is_left_out() -> None:
    trust = Trust(ring_facts=4096)
    trust.waste(3 * CREDIT + ROUND)
    trust.rig.facts()
    assert trust.ask() == LEFT_OUT
    kinds = [fact.kind for fact in trust.rig.facts()]
    assert lib.PS_FACT_OUTCOME in kinds and lib.PS_FACT_INTENT not in kinds


def test_streams_that_nobody_goes_on_with_are_not_followed_any_more() -> None:
    trust = Trust()
    for number in range(12 * CREDIT):
        trust.rig.touch(number * 9 % 56 * SLOT, flags=READAHEAD)
        trust.rig.run()
        if not trust.found(source=OF_STREAM)[3]:
            break
    assert trust.found(source=OF_STREAM)[1] > 3 * CREDIT
    before = trust.rig.stats().follows
    trust.rig.touch(0, flags=READAHEAD)
    assert trust.rig.stats().follows == before
    assert trust.found()[3], "intents are another kind"


def test_sets_of_which_a_part_is_read_in_vain_are_a_kind_of_their_own() -> None:
    trust = Trust()
    ranges = tuple(Range(at * PER_SLOT, PER_SLOT) for at in range(8))
    trust.rig.submit(SetRecord(1, 1, ranges, flags=SetFlag.ORDERED))
    trust.rig.touch(0)
    trust.rig.run()
    trust.rig.read(*range(1, 5))
    assert trust.found(source=OF_SET)[0] == 4
    assert trust.found(source=OF_STREAM)[0] == trust.found()[0] == 0
    assert trust.rig.residency(*slots(7)).warm_bytes == SLOT
