"""The same workload over the wire: hosts that read, write and hint at their times, checking bytes.

Requests come at their times, divided by `speed`; all reads of one are sent at once, on its queue (a
controller each, of the host that its tenant stands for). Each block has bytes of its own, which a
read must return. Whether a block was in the tier is counted by the target (`prestage stats`), which
must have no other hosts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.ext.records import Intent, Record, Residency, ResidencyAnswer
from prestage.host_client.address import Address
from prestage.host_client.controller import Controller
from prestage.host_client.hints import Hints
from prestage.host_client.options import Options
from prestage.replay.hint_plans import MAX_RANGES, Hint
from prestage.replay.result import spread
from prestage.replay.run import Progress
from prestage.replay.workload import Layout, Workload
from prestage.target.errors import Invalid, NotFound, TargetError

NSID: Final = 1
QUEUE_DEPTH: Final = 1023
"""What a request reads is sent at once, as far as the target lets it."""
PROGRESS_S: Final = 0.2
FRAMES: Final = ("free", "resident", "reserved")
"""A target's frames are one of these."""
MULTIPLIER: Final = 0x9E3779B97F4A7C15

TakeStats = Callable[[], dict[str, Any]]
"""The target's counters (`prestage_get_stats`), as they are now; called in a thread."""


class WrongBytes(TargetError):
    """A read returned other bytes than were written."""


@dataclass(frozen=True, slots=True)
class LiveResult:
    """What came of it; times are those of the workload, `speed` times as long as they took."""

    reads: int
    writes: int
    read_hit_ratio: float
    """By the target's counters: extents of reads that were in the tier when they came."""
    flash_reads_per_read: float
    precision: float | None
    """Of bytes brought in ahead, those that were read before they were evicted; None: no bytes."""
    ready_requests: float | None
    """Of requests with reads, those whose blocks were all in the tier just before they were sent;
    None: nobody asked."""
    time_to_data_s: dict[str, float]
    wait_s: NDArray[np.float64]
    """[requests]; nan without reads."""
    behind_s: dict[str, float]
    """How much later than at their times requests were sent: large values say that the host could
    not keep up."""
    is_ready: NDArray[np.bool_]
    """[requests]: those of `ready_requests`."""
    tier_blocks: int
    """Frames of the target's tier."""
    medium: str
    """Of its namespace."""
    report: Any
    """What the target says of its prestager (`prestager` of its counters)."""


def content(block: int, size_bytes: int) -> bytes:
    """Return the bytes of a block."""
    word = (block + 1) * MULTIPLIER & 0xFFFFFFFFFFFFFFFF
    return word.to_bytes(8, "little") * (size_bytes // 8)


def at_speed(record: Record, speed: float) -> Record:
    """Return a hint that comes `speed` times as soon as it was meant."""
    if isinstance(record, Intent):
        return replace(record, deadline_us=round(record.deadline_us / speed))
    return record


@dataclass(frozen=True)
class Drive:
    """A workload that is to be replayed."""

    workload: Workload
    layout: Layout
    speed: float
    address: Address
    host_nqn: str
    """Of tenant 0; the others' have their number behind it."""
    take_stats: TakeStats
    hints: Sequence[Hint] = field(default=())
    """In order of time."""
    asks_residency: bool = False
    """Whether the target is asked, before each request, how much of it is in the tier."""

    async def run(self, progress: Progress | None = None) -> LiveResult:
        """Replay it. Raises HostError of the initiator, WrongBytes, and what `take_stats` does."""
        async with AsyncExitStack() as stack:
            host = _Host(self, await self._connect(stack), await self._connect_hints(stack))
            before = await asyncio.to_thread(self.take_stats)
            await host.run(progress)
            after = await asyncio.to_thread(self.take_stats)
        return self._result(host, before, after)

    async def check(self) -> None:
        """Raise what would keep `run` from its work: HostError, Invalid, what `take_stats` does."""
        async with AsyncExitStack() as stack:
            lanes = await self._connect(stack)
            said = await self._connect_hints(stack)
            for lane in lanes.values():
                await self._check_size(lane)
            if any(hints.capability is None for hints in said.values()):
                what = "the target does not speak PAX"
                raise NotFound(what, str(self.address), "one that does, where hosts say hints")
            await asyncio.to_thread(self.take_stats)

    async def _check_size(self, lane: Controller) -> None:
        found, wanted = (await lane.namespace(NSID)).size_bytes, self.layout.volume_bytes
        if found < wanted:
            where = f"namespace {NSID} of {self.address}"
            expected = f"{wanted} or more, for all blocks of the trace"
            raise Invalid(f"found {found} bytes", where, expected)

    def _controller(self, tenant: int) -> Controller:
        nqn = f"{self.host_nqn}-{tenant}" if tenant else self.host_nqn
        return Controller(self.address, Options(host_nqn=nqn, queues=1, queue_depth=QUEUE_DEPTH))

    async def _connect(self, stack: AsyncExitStack) -> dict[tuple[int, int], Controller]:
        """Return a connection for each tenant and queue."""
        pairs = np.unique(np.stack([self.workload.tenant, self.workload.queue], axis=1), axis=0)
        return {
            (tenant, queue): await stack.enter_async_context(self._controller(tenant))
            for tenant, queue in pairs.tolist()
        }

    async def _connect_hints(self, stack: AsyncExitStack) -> dict[int, Hints]:
        """Return for each tenant that says or asks something where it does."""
        found: dict[int, Hints] = {}
        tenants = {hint.tenant for hint in self.hints}
        if self.asks_residency:
            tenants |= set(self.workload.tenant.tolist())
        for tenant in sorted(tenants):
            controller = await stack.enter_async_context(self._controller(tenant))
            hints = Hints(controller, when_missing="raise")
            found[tenant] = await stack.enter_async_context(hints)
        return found

    def _result(
        self, host: _Host, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> LiveResult:
        moved = {name: after["tier"][name] - value for name, value in _numbers(before["tier"])}
        asked = moved["read_hits"] + moved["read_misses"]
        media = _media_read_bytes(after) - _media_read_bytes(before)
        used = (moved["timely_hits"] + moved["late_hits"]) * self.layout.slot_size
        fetched = moved["hydrated_bytes"]
        reads = self.workload.reads
        asking = int(np.count_nonzero(~np.isnan(host.wait_s)))
        ready = int(np.count_nonzero(host.is_ready))
        return LiveResult(
            reads=reads,
            writes=len(self.workload) - reads,
            read_hit_ratio=moved["read_hits"] / asked if asked else float("nan"),
            flash_reads_per_read=media / self.layout.slot_size / reads if reads else float("nan"),
            precision=used / fetched if fetched else None,
            ready_requests=ready / asking if asking and self.asks_residency else None,
            time_to_data_s=spread(host.wait_s * self.speed),
            wait_s=host.wait_s * self.speed,
            behind_s=spread(host.behind_s * self.speed),
            is_ready=host.is_ready,
            tier_blocks=sum(after["tier"][f"frames_{each}"] for each in FRAMES),
            medium=_medium(after, self.address.nqn),
            report=after["prestager"],
        )


def _numbers(group: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [(name, value) for name, value in group.items() if isinstance(value, int)]


def _medium(stats: Mapping[str, Any], nqn: str) -> str:
    """Return what is behind the namespace that is replayed on."""
    of_ours = (each["namespaces"] for each in stats["subsystems"] if each["nqn"] == nqn)
    return next(str(one["media"]) for found in of_ours for one in found if one["nsid"] == NSID)


def _media_read_bytes(stats: Mapping[str, Any]) -> int:
    return sum(
        namespace["counters"]["media_read_bytes"]
        for subsystem in stats["subsystems"]
        for namespace in subsystem["namespaces"]
    )


class _Host:
    """The side that asks."""

    def __init__(
        self, drive: Drive, lanes: dict[tuple[int, int], Controller], hints: dict[int, Hints]
    ) -> None:
        self._drive = drive
        self._lanes = lanes
        self._hints = hints
        self._writing: dict[int, asyncio.Task[None]] = {}
        """By block: a read must not overtake the write that makes it."""
        self._is_written = np.zeros(drive.workload.block_count, np.bool_)
        requests = drive.workload.requests
        self.wait_s = np.full(requests, np.nan)
        self.behind_s = np.full(requests, np.nan)
        self.is_ready = np.zeros(requests, np.bool_)

    async def run(self, progress: Progress | None) -> None:
        """Do everything at its time; of one time, hints before requests."""
        loop = asyncio.get_running_loop()
        workload, speed = self._drive.workload, self._drive.speed
        first_s = float(workload.request_time_s.min()) if workload.requests else 0.0
        last_s = float(workload.request_time_s.max()) if workload.requests else 0.0
        due = [(hint.time_s, 0, at) for at, hint in enumerate(self._drive.hints)]
        due += [(time_s, 1, at) for at, time_s in enumerate(workload.request_time_s.tolist())]
        due.sort()
        start = loop.time()
        told = 0.0
        async with asyncio.TaskGroup() as tasks:
            for time_s, is_request, at in due:
                passed_s = max(time_s - first_s, 0.0) / speed
                await asyncio.sleep(max(0.0, start + passed_s - loop.time()))
                now = loop.time()
                if is_request:
                    self.behind_s[at] = now - start - passed_s
                    tasks.create_task(self._ask(at))
                else:
                    tasks.create_task(self._say(self._drive.hints[at]))
                if progress is not None and now - told >= PROGRESS_S:
                    told = now
                    progress(passed_s * speed / max(last_s - first_s, 1e-9))

    async def _say(self, hint: Hint) -> None:
        await self._hints[hint.tenant].submit([at_speed(hint.record, self._drive.speed)])

    async def _ask(self, request: int) -> None:
        """Send all of a request at once; its reads decide how long it waits."""
        loop = asyncio.get_running_loop()
        workload = self._drive.workload
        begin, end = (int(each) for each in workload.request_start[request : request + 2])
        blocks = workload.block[begin:end].tolist()
        writes = workload.is_write[begin:end].tolist()
        if not blocks:
            return
        tenant = int(workload.tenant[begin])
        lane = self._lanes[tenant, int(workload.queue[begin])]
        if self._drive.asks_residency:
            reading = [
                block for block, is_write in zip(blocks, writes, strict=True) if not is_write
            ]
            self.is_ready[request] = bool(reading) and await self._is_warm(tenant, reading)
        sent = loop.time()
        async with asyncio.TaskGroup() as tasks:
            reads = []
            for block, is_write in zip(blocks, writes, strict=True):
                if is_write:
                    task = tasks.create_task(self._write(lane, block, self._writing.get(block)))
                    self._writing[block] = task
                    task.add_done_callback(partial(self._written, block))
                else:
                    reads.append(tasks.create_task(self._read(lane, block)))
            if reads:
                await asyncio.wait(reads)
                self.wait_s[request] = loop.time() - sent

    async def _is_warm(self, tenant: int, blocks: list[int]) -> bool:
        """Ask whether all blocks are in the tier."""
        layout = self._drive.layout
        ranges = layout.ranges(blocks)
        records = [
            Residency(NSID, ranges[at : at + MAX_RANGES])
            for at in range(0, len(ranges), MAX_RANGES)
        ]
        answers = (await self._hints[tenant].submit(records)).answers
        warm = sum(each.warm_bytes for each in answers if isinstance(each, ResidencyAnswer))
        return warm == len(blocks) * layout.slot_size

    async def _write(self, lane: Controller, block: int, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        layout = self._drive.layout
        offset = int(layout.extent[block]) * layout.slot_size
        await lane.write(NSID, content(block, layout.slot_size), offset)

    def _written(self, block: int, task: asyncio.Task[None]) -> None:
        if self._writing.get(block) is task:
            del self._writing[block]
        if not task.cancelled() and task.exception() is None:
            self._is_written[block] = True

    async def _read(self, lane: Controller, block: int) -> None:
        if (writing := self._writing.get(block)) is not None:
            await asyncio.wait([writing])
        layout = self._drive.layout
        size = layout.slot_size
        offset = int(layout.extent[block]) * size
        found = await lane.read(NSID, offset, size)
        if not self._is_written[block]:
            return  # It was there before, or never written: nobody here knows its bytes.
        if found != content(block, size):
            raise WrongBytes(
                f"block {block} at byte {offset} has other bytes than were written",
                str(lane.address),
            )
