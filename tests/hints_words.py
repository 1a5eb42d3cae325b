"""Words for tests of hints: intents and queries of whole extents, and what became of them."""

from __future__ import annotations

from typing import Any

from hints_media import slots
from hints_support import Rig

from prestage._core import ffi, lib
from prestage.ext.names import Reason, State
from prestage.ext.records import Intent, Range, Residency

SOON_US = 1_000_000
EIO = 5


def intent(number: int, *ranges: int, deadline_us: int = SOON_US, **how: Any) -> Intent:
    """Return an intent on whole extents of namespace 1."""
    how.setdefault("nsid", 1)
    return Intent(number, deadline_us, ranges=tuple(Range(*slots(at)) for at in ranges), **how)


def end_of(rig: Rig, number: int, **who: int) -> tuple[State, Reason]:
    """Return state and reason of an intent."""
    found = rig.outcome(number, **who)
    return State(found.state), Reason(found.reason)


def forecast(rig: Rig, size: int, deadline_us: int, priority: int = 2) -> Any:
    """Return what the scheduler says of a job that comes now."""
    found = ffi.new("struct ps_sched_forecast *")
    deadline_ns = rig.now_ns + deadline_us * 1000
    lib.ps_sched_forecast(rig.scheds[0], rig.now_ns, size, deadline_ns, priority, found)
    return found


def counts(rig: Rig, priority: int = 2, tenant: int = 0) -> tuple[int, ...]:
    """Return arrived, pending, met, met_warm, late, dropped, cancelled of a priority."""
    found = rig.status(tenant).intent_counts[priority]
    ended = (found.met, found.met_warm, found.late, found.dropped, found.cancelled)
    return (found.arrived, found.pending, *ended)


def resident(*ranges: int, nsid: int = 1, tag: int = 0) -> Residency:
    """Return a query of whole extents."""
    return Residency(nsid, tuple(Range(*slots(at)) for at in ranges), tag=tag)
