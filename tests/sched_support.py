"""A Python face for the media scheduler: items and jobs that stay alive, and a medium."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from prestage._core import ffi, lib

US = 1000
MS = 1000 * US
SECOND = 1000 * MS
NEVER = 2**64 - 1
READ, WRITE, SYNC, PREFETCH = 1, 2, 3, 6
DEMAND, DATED, WRITES, SPECULATIVE = range(4)
EXTENT = 65536


class Scheduler:
    """One scheduler on a clock that the test moves."""

    def __init__(
        self,
        window: int = 32,
        merge_bytes: int = 4 * EXTENT,
        starvation_ns: int = 50 * MS,
        **stated: int,
    ) -> None:
        config = ffi.new(
            "struct ps_sched_config *",
            {"window": window, "merge_bytes": merge_bytes, "starvation_ns": starvation_ns} | stated,
        )
        self.sched = ffi.gc(lib.ps_sched_new(config), lib.ps_sched_free)
        self.now = SECOND
        self.kept: list[Any] = []
        self.offset = 1 << 40  # far from what a test names

    def push(self, sched_class: int, offset: int = -1, length: int = EXTENT, **values: Any) -> Any:
        """Push an item; without an offset, one that has no neighbours."""
        if offset < 0:
            self.offset += 2 * length
            offset = self.offset
        values.setdefault("op", WRITE if sched_class == WRITES else READ)
        values.setdefault("deadline_ns", NEVER)
        values.setdefault("is_mergeable", sched_class != WRITES)
        item = ffi.new(
            "struct ps_sched_item *",
            {"sched_class": sched_class, "offset": offset, "length": length, **values},
        )
        self.kept.append(item)
        lib.ps_sched_push(self.sched, self.now, item)
        return item

    def job(self, bytes_: int, deadline_ns: int = NEVER, **values: Any) -> Any:
        """Add a job: dated when there is a deadline, else speculative."""
        values.setdefault("sched_class", SPECULATIVE if deadline_ns == NEVER else DATED)
        job = ffi.new(
            "struct ps_sched_job *", {"bytes": bytes_, "deadline_ns": deadline_ns, **values}
        )
        self.kept.append(job)
        lib.ps_sched_add_job(self.sched, self.now, job)
        return job

    def pop(self) -> Any:
        """What starts now, or ffi.NULL."""
        return lib.ps_sched_pop(self.sched, self.now)

    def next_job(self) -> Any:
        """The job to make items of, or ffi.NULL."""
        return lib.ps_sched_next_job(self.sched, self.now)

    def start_piece(self, job: Any, piece: int = EXTENT) -> Any:
        """Make one item of a piece of a job, as its caller would."""
        piece = min(piece, job.bytes)
        job.bytes -= piece
        item = self.push(job.sched_class, length=piece, deadline_ns=job.deadline_ns)
        if job.bytes > 0:
            lib.ps_sched_update_job(self.sched, self.now, job)
        else:
            lib.ps_sched_remove_job(self.sched, job)
        return item

    def done(self, item: Any) -> None:
        """An item that was popped, with what hangs on it, has ended."""
        lib.ps_sched_done(self.sched, self.now, item)

    def stats(self) -> Any:
        """All counters."""
        stats = ffi.new("struct ps_sched_stats *")
        lib.ps_sched_get_stats(self.sched, stats)
        return stats

    def forecast(self, bytes_: int, deadline_ns: int, priority: int = 1) -> tuple[int, int]:
        """When a job that came now would be ready, and how much of it by its deadline."""
        found = ffi.new("struct ps_sched_forecast *")
        lib.ps_sched_forecast(self.sched, self.now, bytes_, deadline_ns, priority, found)
        return found.ready_ns, found.bytes_in_time

    def next_time(self) -> int:
        """When to look again although nothing ends."""
        return lib.ps_sched_next_time(self.sched, self.now)


def chain(item: Any) -> list[Any]:
    """An item and those that go with it."""
    found = []
    while item != ffi.NULL:
        found.append(item)
        item = item.merged
    return found


class Medium:
    """Moves one transfer after the other; each read then takes `latency_ns` more."""

    def __init__(self, sched: Scheduler, bandwidth: float = 2e9, latency_ns: int = 80 * US) -> None:
        self.sched = sched
        self.bandwidth = bandwidth
        self.latency_ns = latency_ns
        self.free_ns = 0
        self.under_way: list[tuple[int, int, Any]] = []
        self.count = 0

    def start_all(self, on_start: Callable[[Any], None] = lambda item: None) -> None:
        """Start whatever the scheduler gives, pieces of jobs too."""
        while True:
            item = self.sched.pop()
            if item == ffi.NULL:
                job = self.sched.next_job()
                if job == ffi.NULL:
                    return
                self.sched.start_piece(job)
                continue
            on_start(item)
            self.start(item)

    def start(self, item: Any) -> None:
        """One operation is under way."""
        length = sum(each.length for each in chain(item))
        self.free_ns = max(self.free_ns, self.sched.now) + int(length * 1e9 / self.bandwidth)
        self.count += 1
        heapq.heappush(self.under_way, (self.free_ns + self.latency_ns, self.count, item))

    def step(self) -> bool:
        """Move the clock to the next event; False when there is none."""
        ends = self.under_way[0][0] if self.under_way else NEVER
        time = min(ends, self.sched.next_time())
        if time == NEVER:
            return False
        self.sched.now = max(self.sched.now, time)
        while self.under_way and self.under_way[0][0] <= self.sched.now:
            self.sched.done(heapq.heappop(self.under_way)[2])
        return True

    def run(self, until_ns: int = NEVER, on_start: Callable[[Any], None] = lambda _: None) -> None:
        """Start and end until nothing happens any more, or until then."""
        self.start_all(on_start)
        while self.sched.now < until_ns and self.step():
            self.start_all(on_start)


def trained(**values: Any) -> tuple[Scheduler, Medium]:
    """A scheduler that has seen enough reads of a medium to know it."""
    sched = Scheduler(**values)
    medium = Medium(sched)
    for number in range(4000):
        sched.push(DEMAND, length=4096 << number % 6)
        medium.run(until_ns=sched.now + 1)
        sched.now += 40 * US
    medium.run()
    sched.kept.clear()
    return sched, medium
