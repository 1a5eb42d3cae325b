"""Hydrates: whose frames they may take, what they hold, and how they turn out."""

from __future__ import annotations

import pytest
from tier_support import (
    COMING,
    DATED,
    DEMAND,
    DONE,
    EIO,
    INVALID,
    MS,
    NEVER,
    NO_ROOM,
    OF_MODEL,
    SECOND,
    SLOT,
    SPECULATIVE,
    STARTED,
    UNIT,
    WAIT,
    WARM,
    Tier,
    waiter,
)

from prestage._core import ffi, lib

A, B, C = 1, 2, 3


def small_tier(frames: int = 8, limit: int | None = None, size: int = 512 * SLOT) -> Tier:
    """Return a tier whose tenants' hints may hold `limit` frames each (default: all)."""
    tier = Tier(frames=frames, dirty_limit=1, size=size)
    for tenant in range(8):
        lib.ps_tier_set_tenant(tier.tier, tenant, frames if limit is None else limit)
    return tier


def read_in(tier: Tier, tenant: int, first: int, count: int) -> list[int]:
    """Let a tenant read `count` extents, 10 ms apart; return their offsets."""
    offsets = [extent * SLOT for extent in range(first, first + count)]
    for offset in offsets:
        tier.now_ns += 10 * MS
        tier.touch(offset, tenant=tenant)
    return offsets


def resident(tier: Tier, offsets: list[int]) -> int:
    """Return how many of the extents have something in the tier."""
    return sum(tier.resident(offset) > 0 for offset in offsets)


# ---- what a hydrate says ----


def test_a_hydrate_says_what_became_of_it() -> None:
    tier = small_tier()
    assert tier.hydrate(0, SLOT) == STARTED
    assert tier.hydrate(0, SLOT) == COMING
    assert tier.residency(0) == (0, SLOT)
    tier.run()
    assert tier.hydrate(0, SLOT) == WARM
    assert tier.residency(0) == (SLOT, 0)
    assert tier.hydrate(SLOT - 512, 1024) == INVALID
    assert tier.hydrate(0, 512, volume=3) == INVALID
    assert tier.hydrate(512 * SLOT, 512) == INVALID


def test_the_work_of_a_hydrate_carries_what_was_asked() -> None:
    tier = small_tier()
    tier.touch(UNIT)
    tier.hydrate(0, 3 * UNIT, DATED, deadline_ns=77, cookie=5, priority=3, tenant=B)
    first, second = sorted(tier.actions(), key=lambda action: action.offset)
    assert (first.offset, first.length) == (0, UNIT)
    assert (second.offset, second.length) == (2 * UNIT, UNIT)
    for action in (first, second):
        assert (action.urgency, action.deadline_ns) == (DATED, 77)
        assert (action.cookie, action.priority, action.tenant) == (5, 3, B)


def test_only_the_work_of_hydrates_has_a_cookie() -> None:
    tier = small_tier()
    assert tier.read(0, UNIT, waiter(), cookie=9)[0] == WAIT
    (action,) = tier.actions()
    assert (action.cookie, action.urgency, action.deadline_ns) == (0, DEMAND, NEVER)


def test_a_hydrate_of_what_somebody_else_fills_has_no_work_of_its_own() -> None:
    tier = small_tier()
    assert tier.read(0, SLOT, waiter())[0] == WAIT
    assert tier.hydrate(0, SLOT, cookie=9) == COMING
    assert [action.cookie for action in tier.actions()] == [0]


def test_residency_is_in_bytes_and_ends_with_the_volume() -> None:
    tier = small_tier(size=SLOT + UNIT + 512)
    assert tier.residency(0, NEVER) == (0, 0)
    tier.prestage(SLOT, UNIT + 512)
    tier.hydrate(UNIT, 2 * UNIT)
    assert tier.residency(0, NEVER) == (UNIT + 512, 2 * UNIT)
    assert tier.residency(UNIT + 100, UNIT) == (0, UNIT)
    assert tier.residency(SLOT + UNIT + 100, 10 * SLOT) == (412, 0)
    assert tier.residency(SLOT + UNIT + 512, 1) == (0, 0)
    assert tier.residency(0, SLOT, volume=3) == (0, 0)


# ---- whose frames ----


def test_a_hydrate_takes_free_frames_first() -> None:
    tier = small_tier(8)
    offsets = read_in(tier, A, 0, 7)
    assert tier.prestage(100 * SLOT, tenant=A) == STARTED
    assert resident(tier, offsets) == 7
    assert tier.prestage(101 * SLOT, tenant=A) == STARTED
    assert resident(tier, offsets) == 6


def test_hints_of_one_tenant_cannot_evict_from_the_share_of_another() -> None:
    tier = small_tier(8)
    theirs = read_in(tier, B, 0, 4)
    read_in(tier, A, 10, 4)
    for extent in range(100, 140):
        tier.now_ns += SECOND
        assert tier.prestage(extent * SLOT, tenant=A) == STARTED
    assert resident(tier, theirs) == 4
    assert (tier.tenant(A).frames, tier.tenant(B).frames) == (4, 4)


def test_hints_do_not_grow_beyond_a_share_by_the_frames_that_commands_give_back() -> None:
    tier = small_tier(64)
    theirs = read_in(tier, B, 0, 24)
    frame = ffi.new("uint32_t *")
    for extent in range(100, 200):
        tier.now_ns += MS
        until_ns = tier.now_ns + 1000 * SECOND
        tier.prestage(extent * SLOT, tenant=A, keep_until_ns=until_ns)
        # A command, whoever's, takes a frame for the data that it receives, and gives it back.
        assert lib.ps_tier_fresh(tier.tier, tier.now_ns, waiter(), frame) == DONE
        lib.ps_tier_release(tier.tier, tier.now_ns, frame[0])
    assert tier.tenant(A).frames == 36, "more than its share, but a 16th stays free"
    assert resident(tier, theirs) == 24


def test_a_tenant_beyond_its_share_gives_frames_to_hints_down_to_its_share() -> None:
    tier = small_tier(8)
    theirs = read_in(tier, B, 0, 8)
    for extent in range(100, 106):
        tier.now_ns += SECOND
        assert tier.prestage(extent * SLOT, tenant=A) == STARTED, "at last it takes its own"
    assert resident(tier, theirs) == 4
    assert [tier.resident(offset) > 0 for offset in theirs] == [False] * 4 + [True] * 4


def test_its_own_extents_go_before_those_of_tenants_beyond_their_share() -> None:
    tier = small_tier(8)
    theirs = read_in(tier, B, 0, 6)
    own = read_in(tier, A, 10, 2)
    assert tier.prestage(100 * SLOT, tenant=A) == STARTED
    assert resident(tier, theirs) == 6
    assert resident(tier, own) == 1


def test_a_tenant_that_holds_nothing_counts_itself_among_the_holders() -> None:
    tier = small_tier(9)
    read_in(tier, A, 0, 3)
    read_in(tier, B, 10, 6)
    for extent in range(100, 110):
        assert tier.prestage(extent * SLOT, tenant=C) == STARTED
    held = [tier.tenant(tenant).frames for tenant in (A, B, C)]
    assert held == [3, 3, 3]


def test_own_extents_are_found_behind_many_colder_ones_of_others() -> None:
    tier = small_tier(128)
    read_in(tier, B, 0, 64)
    read_in(tier, A, 100, 64)
    results = [tier.prestage((300 + i) * SLOT, tenant=A) for i in range(8)]
    assert STARTED in results[:4], "the search goes on where it ended"
    assert tier.tenant(B).frames == 64


def test_a_hydrate_is_refused_while_somebody_waits_for_a_frame() -> None:
    tier = small_tier(8)
    frames = [tier.fresh()[1] for _ in range(8)]
    assert tier.fresh(waiter())[0] == WAIT
    assert tier.hydrate(0, tenant=A) == NO_ROOM
    tier.release(frames[0])
    assert len(tier.woken()) == 1
    assert tier.hydrate(0, tenant=A) == NO_ROOM, "that frame is set aside"
    tier.release(frames[1])
    assert tier.hydrate(0, tenant=A) == STARTED


def test_what_time_alone_makes_evictable_is_for_who_waits_and_not_for_hints() -> None:
    tier = small_tier(8)
    slow, writer = waiter(), waiter()
    assert tier.read(0, UNIT, slow, tenant=A)[0] == WAIT
    tier.run()
    assert tier.woken() == [slow]
    for _ in range(7):
        tier.fresh()
    assert tier.fresh(writer)[0] == WAIT, "the extent is promised to its reader"
    tier.now_ns = tier.next_time
    assert tier.hydrate(SLOT, tenant=A) == NO_ROOM
    assert tier.actions() == []
    assert tier.woken() == [writer]


def test_a_speculative_hydrate_never_takes_a_frame_from_what_is_worth_more() -> None:
    tier = small_tier(4)
    values = [float(value_class) for value_class in range(64) for _ in range(64)]
    lib.ps_tier_set_values(tier.tier, ffi.new("float[]", values))
    own = read_in(tier, A, 0, 4)
    assert tier.hydrate(10 * SLOT, urgency=SPECULATIVE, tenant=A) == NO_ROOM
    assert tier.hydrate(10 * SLOT, urgency=DATED, tenant=A) == STARTED
    tier.run()
    assert resident(tier, own) == 3
    assert tier.hydrate(11 * SLOT, urgency=SPECULATIVE, tenant=A) == STARTED
    assert resident(tier, [*own, 10 * SLOT]) == 3, "what was hydrated is worth no more"


@pytest.mark.parametrize("urgency", [DATED, SPECULATIVE])
def test_the_least_valuable_of_its_own_goes(urgency: int) -> None:
    tier = small_tier(4)
    read_in(tier, A, 0, 4)
    tier.now_ns += 10 * MS
    tier.touch(0, tenant=A)
    tier.now_ns += 10 * MS
    assert tier.hydrate(10 * SLOT, urgency=urgency, tenant=A) == STARTED
    assert [tier.resident(extent * SLOT) // UNIT for extent in range(4)] == [1, 0, 1, 1]


def test_an_unread_hydrate_goes_before_other_own_extents_only_when_it_is_worth_less() -> None:
    tier = small_tier(4)
    tier.prestage(10 * SLOT, tenant=A)
    old = read_in(tier, A, 0, 3)
    tier.now_ns += SECOND
    assert tier.prestage(11 * SLOT, tenant=A) == STARTED
    assert [tier.resident(extent * SLOT) // UNIT for extent in (10, 11)] == [0, 1]
    assert tier.prestage(12 * SLOT, tenant=A) == STARTED
    assert [tier.resident(extent * SLOT) // UNIT for extent in (11, 12)] == [1, 1]
    assert resident(tier, old) == 2


# ---- the hint limit ----


def test_a_quarter_of_the_frames_is_the_hint_limit_unless_set() -> None:
    tier = Tier(frames=16, dirty_limit=1)
    for extent in range(8):
        tier.prestage(extent * SLOT, tenant=A)
    assert tier.tenant(A).hint_frames == 4
    lib.ps_tier_set_tenant(tier.tier, A, 6)
    for extent in range(8, 16):
        tier.prestage(extent * SLOT, tenant=A)
    assert tier.tenant(A).hint_frames == 6


def test_at_its_limit_a_hydrate_takes_the_frame_of_the_oldest_unread_one() -> None:
    tier = small_tier(8, limit=2)
    for extent in range(3):
        tier.now_ns += 10 * MS
        assert tier.prestage(extent * SLOT, tenant=A) == STARTED
    assert [tier.resident(extent * SLOT) // UNIT for extent in range(3)] == [0, 1, 1]
    assert tier.stats.frames_free == 6, "free frames are not for a tenant at its limit"


def test_at_its_limit_a_hydrate_finds_no_room_in_what_is_kept_or_was_read() -> None:
    tier = small_tier(8, limit=2)
    read_in(tier, A, 10, 3)
    for extent in (0, 1):
        until_ns = tier.now_ns + SECOND
        assert tier.prestage(extent * SLOT, tenant=A, keep_until_ns=until_ns) == STARTED
    assert tier.hydrate(2 * SLOT, tenant=A) == NO_ROOM
    tier.now_ns += 2 * SECOND
    assert tier.hydrate(2 * SLOT, tenant=A) == STARTED


def test_what_was_read_no_longer_counts_against_the_limit() -> None:
    tier = small_tier(8, limit=1)
    tier.prestage(0, tenant=A)
    assert tier.tenant(A).hint_frames == 1
    tier.touch(0, tenant=B)
    assert (tier.tenant(A).hint_frames, tier.tenant(A).frames) == (0, 1)
    assert tier.prestage(SLOT, tenant=A) == STARTED
    assert tier.resident(0) == UNIT


def test_a_tenant_without_hint_frames_can_only_complete_what_is_there() -> None:
    tier = small_tier(8, limit=0)
    tier.touch(0, tenant=A)
    assert tier.hydrate(SLOT, tenant=A) == NO_ROOM
    assert tier.hydrate(UNIT, tenant=A) == STARTED, "this takes no frame"


# ---- how they turn out ----


def outcome(tier: Tier, tenant: int) -> tuple[int, int, int, int]:
    """Return timely hits, late hits, and hydrated and wasted units of a tenant."""
    found = tier.tenant(tenant)
    hits = (found.timely_hits, found.late_hits)
    return (*hits, found.hydrated_bytes // UNIT, found.wasted_bytes // UNIT)


def test_the_first_read_of_what_a_hydrate_had_brought_in_is_a_timely_hit() -> None:
    tier = small_tier()
    tier.prestage(0, 4 * UNIT, tenant=A)
    assert outcome(tier, A) == (0, 0, 4, 0)
    for _ in range(3):
        tier.touch(0, tenant=A)
    tier.touch(UNIT, tenant=A)
    assert outcome(tier, A) == (1, 0, 4, 0)
    assert tier.stats.timely_hits == 1


def test_a_read_that_waits_for_the_fill_of_a_hydrate_is_a_late_hit() -> None:
    tier = small_tier()
    tier.hydrate(0, 4 * UNIT, tenant=A)
    tier.touch(0, tenant=A)
    tier.touch(0, tenant=A)
    assert outcome(tier, A) == (0, 1, 4, 0)
    assert tier.stats.late_hits == 1


def test_a_read_ahead_of_a_command_that_meets_a_hydrate_is_late_too() -> None:
    tier = small_tier()
    tier.hydrate(0, tenant=A)
    assert tier.read(0, tenant=A)[0] == WAIT
    tier.run()
    tier.touch(0, tenant=A)
    assert outcome(tier, A) == (0, 1, 1, 0)


def test_a_read_of_other_units_is_no_hit_of_a_hydrate() -> None:
    tier = small_tier()
    tier.touch(8 * UNIT, tenant=A)
    tier.prestage(0, tenant=A)
    tier.touch(8 * UNIT, tenant=A)
    assert outcome(tier, A) == (0, 0, 1, 0)
    who = waiter()
    assert tier.read(0, 2 * UNIT, who, tenant=A)[0] == WAIT
    tier.run()
    result, frame = tier.read(0, 2 * UNIT, who, tenant=A)
    assert result == DONE
    tier.release(frame)
    assert outcome(tier, A) == (0, 0, 1, 0), "it had to wait for what no hydrate had made"


def test_what_is_evicted_or_overwritten_unread_is_wasted() -> None:
    tier = small_tier(4)
    tier.prestage(0, 4 * UNIT, tenant=A)
    tier.write(0, b"w" * UNIT, tenant=A)
    assert outcome(tier, A) == (0, 0, 4, 1)
    tier.touch(UNIT, tenant=B)
    tier.settle()
    for extent in range(10, 20):
        tier.touch(extent * SLOT, tenant=B)
        tier.now_ns += 10 * MS
    assert outcome(tier, A) == (1, 0, 4, 3)
    assert tier.stats.wasted_bytes == 3 * UNIT


def test_what_did_not_land_is_neither_hydrated_nor_wasted() -> None:
    tier = small_tier(4)
    tier.hydrate(0, tenant=A)
    tier.run(EIO)
    assert (outcome(tier, A), tier.tenant(A).frames) == ((0, 0, 0, 0), 0)
    tier.hydrate(0, 2 * UNIT, tenant=A)
    (fill,) = tier.actions()
    tier.write(0, b"w" * UNIT, tenant=A)
    tier.end(fill)
    assert outcome(tier, A) == (0, 0, 1, 0)


def test_an_extent_stays_charged_to_who_brought_it_in() -> None:
    tier = small_tier()
    tier.prestage(0, tenant=A)
    tier.touch(0, tenant=B)
    tier.write(0, b"w" * UNIT, tenant=B)
    assert (tier.tenant(A).frames, tier.tenant(B).frames) == (1, 0)
    assert outcome(tier, A) == (1, 0, 1, 0)
    assert outcome(tier, B) == (0, 0, 0, 0)


def test_what_was_hydrated_for_one_read_is_used_up_by_a_one_time_read() -> None:
    tier = small_tier(4)
    read_in(tier, A, 0, 3)
    tier.now_ns += 10 * MS
    tier.prestage(10 * SLOT, tenant=A)
    tier.touch(10 * SLOT, tenant=B, once=True)
    tier.touch(11 * SLOT, tenant=B)
    assert tier.resident(10 * SLOT) == UNIT, "another tenant cannot use it up"
    tier.prestage(12 * SLOT, tenant=A)
    tier.touch(12 * SLOT, tenant=A, once=True)
    tier.touch(13 * SLOT, tenant=B)
    assert tier.resident(12 * SLOT) == 0


# ---- the model ----


def test_what_the_model_brings_in_is_none_of_the_tenants_hints() -> None:
    tier = small_tier(limit=0)
    assert tier.hydrate(0, SLOT, SPECULATIVE, tenant=A, source=OF_MODEL) == STARTED
    tier.run()
    own, model = tier.tenant(A), tier.model()
    assert (own.frames, own.hint_frames, own.hydrated_bytes) == (1, 0, 0)
    assert (model.frames, model.hint_frames, model.hydrated_bytes) == (0, 1, SLOT)
    tier.touch(0, tenant=A)
    assert (tier.tenant(A).timely_hits, tier.model().timely_hits) == (0, 1)
    assert tier.model().hint_frames == 0
    assert tier.stats.timely_hits == 1


def test_what_of_it_nobody_reads_is_wasted_by_the_model() -> None:
    tier = small_tier()
    tier.hydrate(0, SLOT, SPECULATIVE, tenant=A, source=OF_MODEL)
    tier.run()
    tier.write(0, bytes(SLOT), tenant=A)
    assert (tier.tenant(A).wasted_bytes, tier.model().wasted_bytes) == (0, SLOT)


def test_an_eighth_of_the_frames_is_not_for_the_model() -> None:
    tier = small_tier(frames=16)
    read_in(tier, A, 100, 16)
    started = [
        tier.hydrate(extent * SLOT, SLOT, SPECULATIVE, tenant=A, value=100, source=OF_MODEL)
        for extent in range(16)
    ]
    assert started.count(STARTED) == 14
    assert tier.model().hint_frames == 14


def test_the_model_takes_nothing_that_a_hint_brought_in_and_nobody_read() -> None:
    tier = small_tier(frames=8)
    hinted = [extent * SLOT for extent in range(8)]
    for offset in hinted:
        tier.hydrate(offset, SLOT, DATED, tenant=A, deadline_ns=tier.now_ns + SECOND)
    tier.run()
    wanted = tier.hydrate(100 * SLOT, SLOT, SPECULATIVE, tenant=A, value=1e9, source=OF_MODEL)
    assert wanted == NO_ROOM
    assert resident(tier, hinted) == tier.tenant(A).hint_frames
