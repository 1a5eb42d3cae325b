"""The target on a virtual clock (csrc/replay.h), for Python: events in, results out, no threads.

The model's side is the same as live: a reader of the ring of facts and a writer of orders map
`ring_fd` and `orders_fd`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from prestage._core import ffi, lib
from prestage.ext.layout import PAGE_BYTES
from prestage.target.core_config import hints_config
from prestage.target.errors import Invalid
from prestage.target.ring import struct_dtype
from prestage.target.settings import TargetSettings

NEVER_NS: Final = (1 << 64) - 1
ERROR_BYTES: Final = 512

EVENT_FIELDS: Final = (
    ("time_ns", "<u8", 0),
    ("offset", "<u8", 8),
    ("session", "<u8", 16),
    ("length", "<u4", 24),
    ("queue", "<u4", 28),
    ("deadline_us", "<u4", 32),
    ("tenant", "<u2", 36),
    ("op", "u1", 38),
    ("flags", "u1", 39),
    ("priority", "u1", 40),
    ("reserved", "V7", 41),
)
"""Name, type and offset in bytes: struct ps_replay_event."""
RESULT_FIELDS: Final = (("ready_ns", "<u8", 0), ("state", "<u4", 8), ("reserved", "<u4", 12))
"""Likewise of struct ps_replay_result."""


EVENT: Final = struct_dtype(EVENT_FIELDS, 48)
RESULT: Final = struct_dtype(RESULT_FIELDS, 16)


class Op(IntEnum):
    """What an event is: enum ps_replay_op."""

    READ = 1
    WRITE = 2
    BATCH = 3


class State(IntEnum):
    """What became of an event: enum ps_replay_state."""

    PENDING = 0
    HIT = 1
    LATE = 2
    MISS = 3
    WRITTEN = 4
    TAKEN = 5
    REFUSED = 6


@dataclass(frozen=True, slots=True)
class Flash:
    """A flash device (csrc/media/flash_model.h): `channels` at once share one bandwidth."""

    bandwidth: float
    """Bytes per second."""
    seed: int = 1
    """Of latencies, which are log-normal."""
    read_median_us: float = 80.0
    read_p99_us: float = 250.0
    channels: int = 32


@dataclass(frozen=True, slots=True)
class MachineConfig:
    """What is simulated. The tier, the scheduler and the hints are configured as a target's."""

    settings: TargetSettings
    flash: Flash
    volume_bytes: int
    block_size: int = 4096
    tenant_count: int = 1
    ring_facts: int = 1 << 16
    """Facts that the ring holds, a power of two; 0: there is no ring."""
    orders: int = 1 << 14
    """Orders that wait, a power of two; 0: none are taken."""
    fetches: int = 1 << 14
    """Fetches that are pending at most."""


@dataclass(frozen=True, slots=True)
class MachineStats:
    """struct ps_replay_stats: operations of the flash, of merged ones each part."""

    now_ns: int
    demand_reads: int
    fetch_reads: int
    demand_bytes: int
    fetch_bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class TierStats:
    """Some of struct ps_tier_stats."""

    read_hits: int
    read_misses: int
    fills: int
    evictions: int
    timely_hits: int
    late_hits: int
    hydrated_bytes: int
    wasted_bytes: int
    frames_free: int
    frames_resident: int


@dataclass(frozen=True, slots=True)
class OrderStats:
    """struct ps_orders_stats: fetches by how they ended."""

    orders: int
    refused: int
    resets: int
    fetches: int
    landed: int
    warm: int
    no_room: int
    failed: int
    withdrawn: int
    expired: int
    fetched_bytes: int
    pending: int


T = TypeVar("T")


def _plain(cls: type[T], struct: Any) -> T:
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    return cls(**{name: getattr(struct, name) for name in names})


class Machine:
    """One run of events. Raises Invalid when the configuration cannot be simulated.

    `results` (dtype RESULT) is beside `events`, and is filled in as they end.
    """

    def __init__(self, config: MachineConfig, events: NDArray[np.void], data: bytes = b"") -> None:
        """`events`: dtype EVENT [n], in order of time; `data` is what the batches lie in."""
        if events.dtype != EVENT:
            raise Invalid(f"{events.dtype}", "events", f"{EVENT}")
        times = events["time_ns"]
        if np.any(times[:1] < 1) or np.any(times[1:] < times[:-1]):
            raise Invalid("times that go back", "events", "order of time, from 1 ns on")
        self.config = config
        self.events = np.ascontiguousarray(events)
        self.results: NDArray[np.void] = np.zeros(len(events), RESULT)
        self.begun = 0
        """How many events have begun."""
        self._data = data
        error = ffi.new("char[]", ERROR_BYTES)
        self._replay = lib.ps_replay_new(
            ffi.new("struct ps_replay_config *", _c_config(config)), error, ERROR_BYTES
        )
        if self._replay == ffi.NULL:
            raise Invalid(ffi.string(error).decode(), "replay")
        self._c_events = ffi.from_buffer("struct ps_replay_event[]", self.events)
        self._c_results = ffi.from_buffer(
            "struct ps_replay_result[]", self.results, require_writable=True
        )
        self._c_data = ffi.from_buffer("uint8_t[]", data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, until_ns: int = NEVER_NS) -> int:
        """Run as far as `until_ns`, or until the ring's reader is to be woken; returns the time.

        Orders that wait are taken first. NEVER_NS: until nothing happens any more.
        """
        self.begun = lib.ps_replay_run(
            self._replay,
            self._c_events,
            self.begun,
            len(self.events),
            self._c_data,
            len(self._data),
            max(0, min(until_ns, NEVER_NS)),
            self._c_results,
        )
        return self.stats().now_ns

    @property
    def pending(self) -> int:
        """How many events have begun and not ended."""
        return int(lib.ps_replay_pending(self._replay))

    @property
    def is_done(self) -> bool:
        """Whether every event has ended."""
        return self.begun == len(self.events) and self.pending == 0

    @property
    def ring_fd(self) -> int:
        """The ring of facts, the machine's own; -1: there is none."""
        return int(lib.ps_replay_ring_fd(self._replay))

    @property
    def orders_fd(self) -> int:
        """The memory of orders, the machine's own; -1: there is none."""
        return int(lib.ps_replay_orders_fd(self._replay))

    def stats(self) -> MachineStats:
        """Return what the flash did so far, and the time."""
        struct = ffi.new("struct ps_replay_stats *")
        lib.ps_replay_get_stats(self._replay, struct)
        return _plain(MachineStats, struct)

    def tier_stats(self) -> TierStats:
        """Return what the tier did so far."""
        struct = ffi.new("struct ps_tier_stats *")
        lib.ps_replay_tier_stats(self._replay, struct)
        return _plain(TierStats, struct)

    def order_stats(self) -> OrderStats:
        """Return what became of orders so far."""
        struct = ffi.new("struct ps_orders_stats *")
        lib.ps_replay_orders_stats(self._replay, struct)
        return _plain(OrderStats, struct)

    def hint_status(self, tenant: int = 0) -> bytes:
        """Return the status page of a tenant (prestage.ext.pages)."""
        page = ffi.new("uint8_t[]", PAGE_BYTES)
        lib.ps_replay_hint_status(self._replay, tenant, page)
        return bytes(ffi.buffer(page))

    def check(self) -> None:
        """Assert all internal invariants of the parts."""
        failed = lib.ps_replay_check(self._replay)
        assert failed == 0, f"invariant {failed} of csrc/replay.h fails"

    def close(self) -> None:
        """Free it; once or more."""
        lib.ps_replay_free(self._replay)
        self._replay = ffi.NULL


def _c_config(config: MachineConfig) -> dict[str, Any]:
    settings, flash = config.settings, config.flash
    return {
        "frame_count": settings.tier.size // settings.tier.slot,
        "slot_size": settings.tier.slot,
        "tenant_count": config.tenant_count,
        "block_size": config.block_size,
        "volume_bytes": config.volume_bytes,
        "flash": {
            "seed": flash.seed,
            "read_median_us": flash.read_median_us,
            "read_p99_us": flash.read_p99_us,
            "write_median_us": flash.read_median_us,
            "write_p99_us": flash.read_p99_us,
            "bandwidth": flash.bandwidth,
            "scale": 1.0,
            "channels": flash.channels,
        },
        "merge_bytes": settings.scheduler.merge_bytes,
        "starvation_ns": round(settings.scheduler.starvation_ms * 1e6),
        "ring_capacity": config.ring_facts,
        "orders_capacity": config.orders,
        "fetches": config.fetches,
        "hints": hints_config(settings, lib),
    }
