"""The media scheduler: first come, first served, within a window."""

from __future__ import annotations

from prestage._core import ffi, lib


def test_items_start_in_order_of_arrival_within_the_window() -> None:
    sched = ffi.gc(lib.ps_sched_new(2), lib.ps_sched_free)
    items = [ffi.new("struct ps_sched_item *") for _ in range(5)]
    for number, item in enumerate(items):
        lib.ps_sched_push(sched, 100 + number, item)
    assert lib.ps_sched_waiting(sched) == 5
    assert [lib.ps_sched_pop(sched, 200) for _ in range(3)] == [items[0], items[1], ffi.NULL]
    assert (items[0].arrived_ns, items[0].started_ns) == (100, 200)
    assert (lib.ps_sched_waiting(sched), lib.ps_sched_in_flight(sched)) == (3, 2)
    for item in items[2:]:
        lib.ps_sched_done(sched, 300, item)
        assert lib.ps_sched_pop(sched, 300) == item
    assert lib.ps_sched_pop(sched, 300) == ffi.NULL
    lib.ps_sched_done(sched, 400, items[3])
    lib.ps_sched_done(sched, 400, items[4])
    assert (lib.ps_sched_waiting(sched), lib.ps_sched_in_flight(sched)) == (0, 0)
    assert lib.ps_sched_pop(sched, 500) == ffi.NULL
    lib.ps_sched_push(sched, 600, items[0])
    assert lib.ps_sched_pop(sched, 700) == items[0]


def test_a_window_of_nothing_is_refused() -> None:
    assert lib.ps_sched_new(0) == ffi.NULL
    lib.ps_sched_free(ffi.NULL)
