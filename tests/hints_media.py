"""Media for the tests of hints: their work is started as schedulers say, and ends when told to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from prestage._core import ffi, lib

SLOT = 16384
BLOCK = 512
PER_SLOT = SLOT // BLOCK
MS = 1_000_000
SECOND = 1000 * MS
NEVER = 2**64 - 1
_ACTION_READ = 1
_CLASSES = (0, 1, 3)
"""Of the scheduler, by urgency."""


@dataclass(eq=False)
class Operation:
    """Media work that is waiting or under way."""

    item: Any
    volume: int
    ticket: int
    cookie: int
    op: int
    offset: int
    length: int
    urgency: int
    is_started: bool = False


class Media(ABC):
    """Schedulers of volumes, and the work that a tier and hints make for them."""

    now_ns: int
    tier: Any
    hints: Any
    scheds: dict[int, Any]
    operations: list[Operation]
    started: list[Operation]
    error = 0
    """An errno that operations end with."""

    @abstractmethod
    def check(self) -> None:
        """Fail when an invariant does not hold."""

    @abstractmethod
    def tick(self, to_ns: int | None = None) -> None:
        """Let time go on (to now, or to a time), and tick as often as is due."""

    def start(self) -> None:
        """Start all media work that the schedulers want started."""
        self._push_actions()
        self.forget_announced()
        for volume, sched in self.scheds.items():
            while self._start_one(volume, sched):
                self.check()

    def _start_one(self, volume: int, sched: Any) -> bool:
        item = lib.ps_sched_pop(sched, self.now_ns)
        if item != ffi.NULL:
            (found,) = [each for each in self.operations if each.item == item]
            found.is_started = True
            self.started.append(found)
            return True
        job = lib.ps_sched_next_job(sched, self.now_ns)
        if job == ffi.NULL:
            return False
        self.start_job(job)
        self._push_actions()
        return True

    def forget_announced(self) -> None:
        """Take note of all volumes that are to be looked at: all are, each time."""
        while lib.ps_hints_next_volume(self.hints) >= 0:
            pass

    def start_job(self, job: Any) -> None:
        """Have a piece of a job started by whoever gave it to the scheduler."""
        lib.ps_hints_start_job(self.hints, self.now_ns, job)

    def fill_ended(self, operation: Operation, error: int) -> None:
        """Tell whoever wanted it that a fill has ended."""
        lib.ps_hints_fill_ended(self.hints, self.now_ns, operation.cookie, operation.length, error)

    def _push_actions(self) -> None:
        action = ffi.new("struct ps_tier_action *")
        while lib.ps_tier_next_action(self.tier, self.now_ns, lib.PS_TIER_SPECULATIVE, action):
            is_read = action.op == _ACTION_READ
            values = {
                "deadline_ns": action.deadline_ns,
                "offset": action.offset,
                "length": action.length,
                "op": action.op,
                "sched_class": _CLASSES[action.urgency] if is_read else 2,
                "priority": action.priority,
            }
            item = ffi.new("struct ps_sched_item *", values)
            self.operations.append(
                Operation(
                    item,
                    action.volume,
                    action.ticket,
                    action.cookie,
                    action.op,
                    action.offset,
                    action.length,
                    action.urgency,
                )
            )
            lib.ps_sched_push(self.scheds[action.volume], self.now_ns, item)

    def end(self, operation: Operation, error: int | None = None) -> None:
        """End one operation that was started."""
        self.operations.remove(operation)
        self.started.remove(operation)
        code = self.error if error is None else error
        lib.ps_sched_done(self.scheds[operation.volume], self.now_ns, operation.item)
        lib.ps_tier_complete(self.tier, self.now_ns, operation.ticket, code)
        if operation.cookie:
            self.fill_ended(operation, code)
        self.check()

    def end_first(self, error: int | None = None) -> Operation:
        """Start what may be started, end the first of it, and return that."""
        self.start()
        operation = self.started[0]
        self.end(operation, error)
        return operation

    def run(self, step_ns: int = 100_000, rounds: int = 200) -> None:
        """Start and end media work until there is none, each round `step_ns` later."""
        for _ in range(rounds):
            self.tick()
            self.start()
            self.now_ns += step_ns
            for operation in list(self.started):
                self.end(operation)
            self.tick()
            if not self.operations and not self._has_work():
                return

    def _has_work(self) -> bool:
        stats = ffi.new("struct ps_sched_stats *")
        for sched in self.scheds.values():
            lib.ps_sched_get_stats(sched, stats)
            if stats.jobs:
                return True
        return False

    def warm(self, *slots: int, volume: int = 0, tenant: int = 0) -> None:
        """Have extents brought in by reads of the tenant."""
        access = {"deadline_ns": NEVER, "tenant": tenant}
        how = ffi.new("struct ps_tier_access *", access)
        frame = ffi.new("uint32_t *")
        for slot in slots:
            lib.ps_tier_read(
                self.tier, self.now_ns, volume, slot * SLOT, SLOT, how, ffi.NULL, frame
            )
            self.run()

    def read(self, *slots: int, volume: int = 0, tenant: int = 0) -> None:
        """Have the tenant read whole extents that are warm."""
        how = ffi.new("struct ps_tier_access *", {"deadline_ns": NEVER, "tenant": tenant})
        frame = ffi.new("uint32_t *")
        for slot in slots:
            result = lib.ps_tier_read(
                self.tier, self.now_ns, volume, slot * SLOT, SLOT, how, ffi.NULL, frame
            )
            assert result == lib.PS_TIER_DONE
            lib.ps_tier_release(self.tier, self.now_ns, frame[0])

    def hint_frames(self, tenant: int = 0) -> int:
        """Return how many frames the tenant's hints hold."""
        stats = ffi.new("struct ps_tier_tenant *")
        lib.ps_tier_get_tenant(self.tier, tenant, stats)
        return int(stats.hint_frames)

    def is_warm(self, slot: int, *, volume: int = 0) -> bool:
        """Return whether a whole extent is in the tier."""
        warm, coming = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.ps_tier_residency(self.tier, volume, slot * SLOT, SLOT, warm, coming)
        return bool(warm[0] == SLOT)

    def warm_slots(self, *, volume: int = 0) -> list[int]:
        """Return the extents that are in the tier."""
        return [slot for slot in range(64) if self.is_warm(slot, volume=volume)]


def slots(first: int, count: int = 1) -> tuple[int, int]:
    """Return the range of whole extents as (first block, blocks)."""
    return first * PER_SLOT, count * PER_SLOT
