"""The media scheduler: what goes first, what goes together, and what waits how long."""

from __future__ import annotations

from typing import Any

from sched_support import (
    DATED,
    DEMAND,
    EXTENT,
    MS,
    NEVER,
    SECOND,
    SPECULATIVE,
    SYNC,
    US,
    WRITES,
    Medium,
    Scheduler,
    chain,
    trained,
)

from prestage._core import ffi, lib


def order_of(sched: Scheduler, medium: Medium) -> list[Any]:
    """Run to the end; the items in the order in which they started."""
    started: list[Any] = []
    medium.run(on_start=lambda item: started.extend(chain(item)))
    return started


# ---- order ----


def test_undated_reads_start_in_order_of_arrival_urgent_ones_first() -> None:
    sched = Scheduler()
    low = sched.push(DEMAND, priority=3)
    first = sched.push(DEMAND, priority=1)
    second = sched.push(DEMAND, priority=1)
    assert [sched.pop() for _ in range(4)] == [first, second, low, ffi.NULL]
    assert lib.ps_sched_in_flight(sched.sched) == 3


def test_an_item_knows_when_it_came_and_when_it_started() -> None:
    sched = Scheduler()
    item = sched.push(DEMAND)
    sched.now += 5
    assert sched.pop() == item
    assert (item.arrived_ns, item.started_ns) == (sched.now - 5, sched.now)
    assert sched.stats().waited_ns[DEMAND] == 5


def test_demand_goes_before_dated_work_that_has_slack() -> None:
    sched = Scheduler()
    sched.push(DATED, deadline_ns=sched.now + SECOND)
    sched.job(EXTENT, sched.now + SECOND)
    demand = sched.push(DEMAND)
    assert sched.pop() == demand


def test_a_dated_item_goes_before_demand_when_its_slack_is_gone() -> None:
    sched = Scheduler()
    demand = sched.push(DEMAND)
    dated = sched.push(DATED, deadline_ns=sched.now + 200 * US)
    assert [sched.pop(), sched.pop()] == [dated, demand]


def test_a_job_is_asked_for_before_demand_when_its_slack_is_gone() -> None:
    sched = Scheduler()
    job = sched.job(EXTENT, sched.now + 250 * US)
    demand = sched.push(DEMAND)
    assert sched.pop() == ffi.NULL
    assert sched.next_job() == job
    piece = sched.start_piece(job)
    assert [sched.pop(), sched.pop()] == [piece, demand]


def test_a_job_that_nothing_comes_of_holds_up_nobody() -> None:
    sched = Scheduler()
    job = sched.job(EXTENT, sched.now + 250 * US)
    demand = sched.push(DEMAND)
    assert sched.pop() == ffi.NULL
    assert sched.next_job() == job
    assert sched.next_job() == ffi.NULL
    assert sched.pop() == demand
    assert sched.now < sched.next_time() <= sched.now + 2 * MS


def test_dated_items_go_by_latest_start() -> None:
    sched, medium = trained()
    late = sched.push(DATED, deadline_ns=sched.now + 40 * MS)
    large = sched.push(DATED, length=8 << 20, deadline_ns=sched.now + 22 * MS)  # takes 4 ms
    small = sched.push(DATED, length=4096, deadline_ns=sched.now + 20 * MS)
    assert order_of(sched, medium) == [large, small, late]


def test_of_equal_deadlines_the_urgent_goes_first() -> None:
    sched, medium = trained()
    deadline_ns = sched.now + SECOND
    low = sched.push(DATED, deadline_ns=deadline_ns, priority=3)
    urgent = sched.push(DATED, deadline_ns=deadline_ns, priority=0)
    assert order_of(sched, medium) == [urgent, low]


def test_jobs_with_slack_go_in_order_of_arrival() -> None:
    sched = Scheduler()
    first = sched.job(EXTENT, sched.now + 2 * SECOND)
    sched.job(EXTENT, sched.now + SECOND)
    assert sched.next_job() == first


def test_jobs_go_by_deadline_when_one_has_no_slack() -> None:
    sched, _ = trained()
    sched.job(64 * EXTENT, sched.now + SECOND)
    tight = sched.job(64 * EXTENT, sched.now + 4 * MS)  # takes 2 ms
    assert sched.next_job() == tight


def test_a_job_that_cannot_be_in_time_lets_others_go_first_and_still_has_turns() -> None:
    sched, medium = trained()
    late = sched.job(64 * EXTENT, sched.now + MS)
    other = sched.job(64 * EXTENT, sched.now + 4 * MS)
    turns = []
    for _ in range(64):
        while (job := sched.next_job()) == ffi.NULL:
            medium.step()
        turns.append(job)
        sched.start_piece(job)
        medium.start_all()
    assert turns.count(other) > 50
    assert turns.count(late) >= 2


# ---- what is left over ----


def test_work_that_nobody_waits_for_starts_piece_by_piece() -> None:
    sched, medium = trained()
    sched.job(64 * EXTENT, sched.now + SECOND)
    medium.start_all()
    assert lib.ps_sched_in_flight(sched.sched) <= 2
    assert sched.now < sched.next_time() < sched.now + 100 * US


def test_pieces_follow_each_other_at_the_speed_of_the_medium() -> None:
    sched, medium = trained()
    begin = sched.now
    sched.job(512 * EXTENT, sched.now + SECOND)
    medium.run()
    least_ns = 512 * EXTENT / 2  # 2 GB/s
    assert least_ns < sched.now - begin < 1.05 * least_ns + MS


def test_speculation_waits_for_all_else() -> None:
    sched, medium = trained()
    guess = sched.push(SPECULATIVE)
    sched.job(EXTENT)
    write = sched.push(WRITES)
    dated = sched.push(DATED, deadline_ns=sched.now + SECOND)
    demand = sched.push(DEMAND)
    assert order_of(sched, medium)[:4] == [demand, write, dated, guess]


def test_speculation_gives_way_after_one_extent() -> None:
    sched, medium = trained()
    guess = sched.job(64 * EXTENT)
    medium.run(until_ns=sched.now + 300 * US)
    assert 0 < guess.bytes < 64 * EXTENT
    left = guess.bytes
    sched.job(16 * EXTENT, sched.now + SECOND)
    demand = [sched.push(DEMAND) for _ in range(4)]
    started: list[Any] = []
    medium.run(until_ns=sched.now + 300 * US, on_start=started.append)
    assert started[:4] == demand
    assert guess.bytes == left


def test_the_most_valuable_guess_goes_first() -> None:
    sched = Scheduler()
    sched.job(EXTENT, value=0.5)
    best = sched.job(EXTENT, value=2.5)
    sched.job(EXTENT, value=1.0)
    assert sched.next_job() == best


# ---- neighbours ----


def test_neighbours_go_together_up_to_the_limit() -> None:
    sched = Scheduler(merge_bytes=3 * EXTENT)
    items = [sched.push(DEMAND, offset=number * EXTENT) for number in range(4)]
    assert chain(sched.pop()) == items[:3]
    assert chain(sched.pop()) == items[3:]
    stats = sched.stats()
    assert (stats.merges, stats.started[DEMAND], stats.in_flight[DEMAND]) == (2, 2, 2)
    assert stats.started_bytes[DEMAND] == 4 * EXTENT


def test_neighbours_find_each_other_in_any_order_of_arrival() -> None:
    sched = Scheduler()
    first = sched.push(DEMAND, offset=0)
    third = sched.push(DEMAND, offset=2 * EXTENT)
    second = sched.push(DEMAND, offset=EXTENT)
    assert chain(sched.pop()) == [first, second, third]
    assert sched.pop() == ffi.NULL


def test_what_differs_in_class_or_kind_does_not_go_together() -> None:
    sched = Scheduler()
    demand = sched.push(DEMAND, offset=0)
    sched.push(DATED, offset=EXTENT, deadline_ns=sched.now + SECOND)
    alone = sched.push(DEMAND, offset=4 * EXTENT, is_mergeable=0)
    sched.push(DEMAND, offset=5 * EXTENT)
    assert chain(sched.pop()) == [demand]
    assert chain(sched.pop()) == [alone]


def test_with_no_limit_for_neighbours_none_go_together() -> None:
    sched = Scheduler(merge_bytes=0)
    items = [sched.push(DEMAND, offset=number * EXTENT) for number in range(2)]
    assert [chain(sched.pop()) for _ in range(2)] == [[items[0]], [items[1]]]


def test_at_most_as_many_go_together_as_a_request_has_parts() -> None:
    sched = Scheduler(merge_bytes=1 << 20)
    for number in range(lib.PS_MEDIA_PARTS + 4):
        sched.push(DEMAND, offset=number * 4096, length=4096)
    assert [len(chain(sched.pop())) for _ in range(2)] == [lib.PS_MEDIA_PARTS, 4]


# ---- bounds ----


def test_nothing_starves_while_dated_work_exceeds_the_medium() -> None:
    sched, medium = trained(starvation_ns=20 * MS)
    end = sched.now + 200 * MS
    waits: list[int] = []

    def note(item: Any) -> None:
        if item.sched_class in (DEMAND, WRITES):
            waits.append(sched.now - item.arrived_ns)

    while sched.now < end:
        for _ in range(10):  # 160 % of what the medium moves in 2 ms
            sched.push(DATED, length=10 * EXTENT, deadline_ns=sched.now + 100 * US)
        sched.push(DEMAND)
        sched.push(WRITES)
        medium.run(until_ns=sched.now + 2 * MS, on_start=note)
    assert len(waits) > 150
    assert max(waits) < 22 * MS


def test_nothing_waits_for_ever_for_a_medium_that_ends_nothing() -> None:
    sched, _ = trained(starvation_ns=20 * MS)
    for _ in range(64):
        sched.push(DATED, deadline_ns=sched.now + SECOND)
    while (then := sched.next_time()) < NEVER:
        sched.now = then
        sched.pop()
    assert sched.stats().waiting[DATED] > 0, "the medium has all that it takes"
    sync = sched.push(WRITES, op=SYNC, length=0)
    assert sched.pop() == ffi.NULL
    limit = sched.now + 20 * MS
    while (then := sched.next_time()) <= limit:
        sched.now = max(then, sched.now + 1)
        if (item := sched.pop()) != ffi.NULL:
            assert item == sync
            return
    raise AssertionError("nobody was told to look again")


def test_writes_are_few_while_somebody_reads() -> None:
    sched, medium = trained()
    for _ in range(64):
        sched.push(WRITES)
    sched.push(DEMAND)
    most = 0
    for number in range(200):
        medium.start_all()
        most = max(most, sched.stats().in_flight[WRITES])
        medium.step()
        if number % 10 == 0:
            sched.push(DEMAND)
    assert 1 <= most <= 8


def test_writes_have_the_whole_window_when_nobody_reads() -> None:
    sched = Scheduler(window=32)
    for _ in range(64):
        sched.push(WRITES)
    sched.push(WRITES, op=SYNC, length=0)
    popped = [sched.pop() for _ in range(33)]
    assert popped[31] != ffi.NULL
    assert popped[32] == ffi.NULL


# ---- changes while waiting ----


def test_a_promoted_item_goes_as_what_it_became() -> None:
    sched, _ = trained()
    guess = sched.push(SPECULATIVE, offset=0)
    dated = sched.push(DATED, deadline_ns=sched.now + SECOND)
    sched.push(SPECULATIVE)
    lib.ps_sched_promote(sched.sched, sched.now, guess, DEMAND, NEVER)
    assert sched.pop() == guess
    lib.ps_sched_promote(sched.sched, sched.now, dated, DEMAND, NEVER)
    assert sched.pop() == dated
    stats = sched.stats()
    assert list(stats.waiting) == [0, 0, 0, 1]
    assert stats.in_flight[DEMAND] == 2


def test_a_promotion_of_what_has_started_changes_nothing() -> None:
    sched = Scheduler()
    item = sched.push(SPECULATIVE)
    assert sched.pop() == item
    lib.ps_sched_promote(sched.sched, sched.now, item, DEMAND, NEVER)
    assert item.sched_class == SPECULATIVE
    sched.done(item)
    assert list(sched.stats().in_flight) == [0, 0, 0, 0]


def test_a_job_may_be_removed_in_every_state() -> None:
    sched, medium = trained()
    waiting = sched.job(EXTENT, sched.now + SECOND)
    guess = sched.job(EXTENT)
    offered = sched.job(8 * EXTENT, sched.now + 2 * MS)
    late = sched.job(8 * EXTENT, sched.now + 1)
    assert sched.next_job() in (offered, late)
    started = sched.job(8 * EXTENT, sched.now + SECOND)
    sched.start_piece(started)
    medium.start_all(on_start=lambda item: None)
    for job in (waiting, guess, offered, late, started):
        if job.state != 0:
            lib.ps_sched_remove_job(sched.sched, job)
    medium.run()
    assert (sched.stats().jobs, sched.stats().job_bytes) == (0, 0)
    assert sched.next_job() == ffi.NULL
    assert sched.next_time() == NEVER


def test_a_changed_deadline_changes_the_order() -> None:
    sched, _ = trained()
    sched.job(64 * EXTENT, sched.now + 5 * MS)
    job = sched.job(64 * EXTENT, sched.now + SECOND)
    job.deadline_ns = sched.now + 4 * MS
    lib.ps_sched_update_job(sched.sched, sched.now, job)
    assert sched.next_job() == job


def test_a_scheduler_of_nothing_is_refused() -> None:
    for values in ({"window": 0, "starvation_ns": 1}, {"window": 1, "starvation_ns": 0}):
        config = ffi.new("struct ps_sched_config *", values)
        assert lib.ps_sched_new(config) == ffi.NULL
    lib.ps_sched_free(ffi.NULL)
