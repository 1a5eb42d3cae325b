"""The data path as the control plane needs it: notices up, orders down (csrc/core.h).

`DataPath` is a protocol, so that everything above it runs on a fake. `prestage.target.core` has the
real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from prestage.target.latency import Counts

MAX_SUBSYSTEMS = 512
MAX_NSID = 1024
COPY_RANGES = 16
"""Source ranges of one Copy command at most (MSRC + 1)."""
ATOMIC_BYTES = 4096
"""What a write or compare-and-write replaces as one, if it stands in one aligned piece."""
HINT_KINDS = ("intents", "sets", "streams")
"""By number (enum ps_tier_source)."""
MEDIA_BUFFERED = 1
MEDIA_THREADS = 2
MEDIA_NO_PUNCH = 4

Numbers = dict[str, int | list[int]]
"""The fields of a struct; arrays are lists."""


@dataclass(frozen=True, slots=True)
class CommandNotice:
    """A fabrics or admin command, to be answered by `DataPath.answer`."""

    connection: int
    slot: int
    qid: int
    entry: bytes
    data: bytes = b""
    digest_error: bool = False


@dataclass(frozen=True, slots=True)
class ClosedNotice:
    """The connection is gone and nothing of it is left; its id may be given out again."""

    connection: int


@dataclass(frozen=True, slots=True)
class DoneNotice:
    """What was asked with `cookie` has ended.

    `result`: of an abort 1 when the command was ended; of a flush or close 0 or an errno.
    `lost_bytes`: of a close, what could not be written.
    """

    cookie: int
    result: int = 0
    lost_bytes: int = 0


@dataclass(frozen=True, slots=True)
class IoErrorNotice:
    """An I/O command ended in error."""

    connection: int
    qid: int
    nsid: int
    status: int
    lba: int
    entry: bytes


@dataclass(frozen=True, slots=True)
class HealthNotice:
    """Deferred writes of a volume began to fail (`error` is an errno) or succeed again (0)."""

    volume: int
    error: int


@dataclass(frozen=True, slots=True)
class WarmEventNotice:
    """The warm-event log of a tenant is not empty any more."""

    tenant: int


Notice = CommandNotice | ClosedNotice | DoneNotice | IoErrorNotice | HealthNotice | WarmEventNotice


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """A queue after its Connect (struct ps_queue_config)."""

    qid: int
    sq_size: int
    flow_control_disabled: bool
    controller: int
    subsystem: int
    tenant: int
    enabled: bool


@dataclass(frozen=True, slots=True)
class VolumeConfig:
    """A medium to open (struct ps_volume_config)."""

    spec: str
    block_size: int
    write_through: bool
    read_only: bool
    reactor: int


@dataclass(frozen=True, slots=True)
class VolumeLimits:
    """What opening a medium found (struct ps_media_limits)."""

    size: int
    block_size: int
    warnings: int


@dataclass(frozen=True, slots=True)
class HintBudget:
    """What the hints of one tenant may use at most (struct ps_hints_budget)."""

    sets: int = 0
    set_ranges: int = 0
    signatures: int = 0
    intents: int = 0
    """Pending at a time."""
    intent_bytes: int = 0
    """Of these."""
    tier_bytes: int = 0
    """In the tier by hints and not read yet, or kept by them."""
    records_per_s: int = 0
    is_shared: bool = False
    """By hosts that must learn nothing of each other: nothing of them is kept or told."""


class DataPath(Protocol):
    """Orders to the data path. All are called from the event loop's thread, and wait for nothing.

    Those that wait for a medium are coroutines: the event loop goes on, and so do keep-alives. When
    they are cancelled they still end first.

    Calls on a connection that has gone meanwhile do nothing: its ClosedNotice is on the way.
    """

    def start(self, receive: Callable[[Notice], None]) -> None:
        """Start the reactors; notices come to `receive` in the running event loop."""

    def stop(self) -> None:
        """Close what is left, stop the reactors and free everything."""

    def adopt(self, fd: int, reactor: int) -> int:
        """Hand over a socket; return the connection's id. Raises Exhausted; `fd` stays ours."""

    def bind(self, connection: int, queue: QueueConfig) -> None:
        """Say what queue a connection is, before its Connect is answered."""

    def enable(self, connection: int, enabled: bool) -> None:
        """Let I/O commands run, or end with 0/0C."""

    def answer(
        self, connection: int, slot: int, status: int, dw0: int, dw1: int, data: bytes
    ) -> None:
        """Answer a command; `status` includes the DNR bit."""

    def quiesce(self, connection: int, cookie: int) -> None:
        """Ask for a DoneNotice once no I/O command of the connection is under way."""

    def abort(self, connection: int, cid: int, cookie: int) -> None:
        """Try to end a command; the DoneNotice says whether it was ended."""

    def close(self, connection: int, after_output: bool) -> None:
        """Close a connection; its ClosedNotice follows."""

    def last_command_ns(self, connection: int) -> int:
        """Return when the last command arrived (CLOCK_MONOTONIC), 0 when it is gone."""

    def connection_stats(self, connection: int) -> dict[str, int]:
        """Return counters of a connection, empty when it is gone."""

    async def volume_open(self, config: VolumeConfig) -> int:
        """Open a medium; return the volume's number. Raises MediumError."""

    def volume_limits(self, volume: int) -> VolumeLimits:
        """Return what is known of the medium."""

    async def volume_resize(self, volume: int, size_bytes: int) -> bool:
        """Change the size. Raises MediumError with nothing changed.

        False: commands beyond the smaller size are refused from now on, but the medium still works
        there. Call again, or with the old size to give up.
        """

    def volume_flush(self, volume: int, cookie: int) -> None:
        """Make everything durable; DoneNotice."""

    def volume_close(self, volume: int, abandon: bool, cookie: int) -> None:
        """Flush unless `abandon`, close the medium; DoneNotice."""

    def volume_control(self, volume: int, kind: str, verb: str) -> None:
        """Reach a fault wrapper of the medium. Raises MediumError."""

    def volume_stats(self, volume: int) -> dict[str, int]:
        """Return the counters of struct ps_volume_stats."""

    def volume_latency(self, volume: int, *, writes: bool) -> Counts:
        """Return how long Reads, or Writes, took: counts by bin (`prestage.target.latency`)."""

    def volume_sched(self, volume: int) -> Numbers:
        """Return the state and counters of its medium's scheduler (struct ps_sched_stats)."""

    def map(self, subsystem: int, nsid: int, volume: int) -> None:
        """Make a volume a namespace of a subsystem."""

    def map_extension(self, subsystem: int, nsid: int) -> None:
        """Make pages without a medium a namespace of a subsystem; unmapped as any other."""

    def unmap(self, subsystem: int, nsid: int, cookie: int) -> None:
        """Take it away; DoneNotice once its last command has ended."""

    def stats(self) -> dict[str, int]:
        """Return the counters of struct ps_core_stats."""

    def reactor_stats(self, reactor: int) -> dict[str, int]:
        """Return the same of one reactor."""

    def reactor_cpu(self, reactor: int) -> int:
        """Return the processor that a reactor is pinned to, as the kernel says; -1: none."""

    def tier_stats(self) -> dict[str, int]:
        """Return the counters of struct ps_tier_stats."""

    def tenant_stats(self, tenant: int) -> dict[str, int]:
        """Return what the tier counts of a tenant (struct ps_tier_tenant)."""

    # ---- hints ----

    def set_capability(self, capability: bytes) -> None:
        """Say what controllers offer (struct pax_capability); no carriers: nothing."""

    def set_benefit(self, benefit: bytes) -> None:
        """Say what the prestager has measured of itself (struct pax_benefit)."""

    def set_budget(self, tenant: int, budget: HintBudget | None) -> None:
        """Give a tenant a budget of its own; None: the default again."""

    def hint_status(self, tenant: int, subsystem: int) -> bytes:
        """Return the status page of a tenant as its host sees it there: 4096 bytes."""

    def hint_events(self, tenant: int, *, clear: bool) -> bytes:
        """Return the warm-event log of a tenant: 4096 bytes; `clear` forgets what was returned."""

    def hint_trust(self, tenant: int) -> dict[str, dict[str, int]]:
        """Return how far a tenant's hints are trusted (struct ps_hints_trust), by HINT_KINDS."""

    def hint_stats(self) -> dict[str, int]:
        """Return the counters of struct ps_hints_stats."""

    def ring_fd(self) -> int:
        """Return the memfd of the ring of facts, which stays the data path's; -1: none."""

    # ---- the prestager ----

    def ring_wake_fd(self) -> int:
        """Return the eventfd that says that the ring has what its reader waits for; -1: none."""

    def orders_fd(self) -> int:
        """Return the memfd of orders, which stays the data path's; -1: none are taken."""

    def orders_wake_fd(self) -> int:
        """Return the eventfd by which the data path is told of orders; -1: none are taken."""

    def orders_reset(self) -> None:
        """Forget all orders: who gave them is gone."""

    def orders_stats(self) -> dict[str, int]:
        """Return the counters of struct ps_orders_stats."""

    def model_stats(self) -> dict[str, int]:
        """Return what became of what orders brought in (ps_tier_get_model)."""


class Cookies:
    """Pairs what was asked of the data path with its DoneNotice."""

    def __init__(self) -> None:
        self._next = 1
        self._waiting: dict[int, tuple[int, asyncio.Future[DoneNotice | None]]] = {}

    def expect(self, connection: int = 0) -> tuple[int, asyncio.Future[DoneNotice | None]]:
        """Return a fresh cookie and what its notice will resolve.

        It resolves to None if `connection` closes first.
        """
        while self._next in self._waiting:
            self._next = self._next % 0xFFFFFFFF + 1
        cookie = self._next
        self._next = cookie % 0xFFFFFFFF + 1
        future: asyncio.Future[DoneNotice | None] = asyncio.get_running_loop().create_future()
        self._waiting[cookie] = (connection, future)
        return cookie, future

    def resolve(self, notice: DoneNotice) -> None:
        """Resolve what waits for this notice; unknown cookies are from before a close."""
        _, future = self._waiting.pop(notice.cookie, (0, None))
        if future is not None and not future.done():
            future.set_result(notice)

    def drop(self, connection: int) -> None:
        """Resolve to None what waits for a connection that has closed."""
        gone = [c for c, (owner, _) in self._waiting.items() if owner == connection]
        for cookie in gone:
            _, future = self._waiting.pop(cookie)
            if not future.done():
                future.set_result(None)
