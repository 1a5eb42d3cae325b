"""The real data path: a thin typed wrapper over the C module (csrc/core.h).

Each method is one call whose return code is checked. Reading notices is one call per wake-up, for
many notices at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import numpy as np

from prestage._core import ffi, lib
from prestage.target.core_config import core_config
from prestage.target.datapath import (
    HINT_KINDS,
    ClosedNotice,
    CommandNotice,
    DataPath,
    DoneNotice,
    HealthNotice,
    HintBudget,
    IoErrorNotice,
    Notice,
    Numbers,
    QueueConfig,
    VolumeConfig,
    VolumeLimits,
    WarmEventNotice,
)
from prestage.target.errors import DataPathError, Exhausted, MediumError, TargetError
from prestage.target.latency import Counts
from prestage.target.nvme import PAGE_BYTES
from prestage.target.settings import TargetSettings

__all__ = ["CoreDataPath", "DataPath"]

BATCH = 256
"""Notices read in one call."""
PASSES = 16
"""Calls in one wake-up, so that the event loop's other work is not kept waiting."""
ERROR_BYTES = 512
UNHEARD = 0
"""A cookie that nothing waits for: Cookies begin at 1."""
T = TypeVar("T")


class CoreDataPath:
    """The reactors, the tier and the media in C. Raises TargetError when they cannot be made."""

    def __init__(self, settings: TargetSettings) -> None:
        error = ffi.new("char[]", ERROR_BYTES)
        config = ffi.new("struct ps_core_config *", core_config(settings, lib))
        self._core = lib.ps_core_new(config, error, ERROR_BYTES)
        if self._core == ffi.NULL:
            raise TargetError(_text(error), "data path")
        self._notices = ffi.new("struct ps_notice[]", BATCH)
        self._wake_fd = -1
        self._receive: Callable[[Notice], None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slow_calls = asyncio.Lock()

    # ---- life ----

    def start(self, receive: Callable[[Notice], None]) -> None:
        """Start the reactors; notices come to `receive` in the running event loop."""
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        code = lib.ps_core_start(self._core)
        if code < 0:
            expected = "threads to start, each on its processor"
            raise TargetError(os.strerror(-code), "data path", expected)
        self._wake_fd = lib.ps_core_wake_fd(self._core)
        self._loop.add_reader(self._wake_fd, self._drain)

    def stop(self) -> None:
        """Close what is left, stop and join the reactors, free everything; once."""
        if self._core == ffi.NULL:
            return
        if self._loop is not None and self._wake_fd >= 0:
            self._loop.remove_reader(self._wake_fd)
        self._receive = None
        lib.ps_core_stop(self._core)
        lib.ps_core_free(self._core)
        self._core = ffi.NULL

    def _drain(self) -> None:
        for _ in range(PASSES):
            if self._core == ffi.NULL:
                return
            count = lib.ps_core_notices(self._core, self._notices, BATCH)
            # All are copied first: handling one may read more, or stop the data path.
            for notice in [_notice(self._notices[index]) for index in range(count)]:
                if self._receive is not None:
                    self._receive(notice)
            if count < BATCH:
                return
        if self._loop is not None:
            # The descriptor was cleared by the first call; what is left is ours to fetch.
            self._loop.call_soon(self._drain)

    # ---- connections ----

    def adopt(self, fd: int, reactor: int) -> int:
        """Hand over a socket; return the connection's id. Raises Exhausted; `fd` stays ours."""
        code = int(lib.ps_core_adopt(self._core, fd, reactor))
        if code == -errno.EMFILE:
            raise Exhausted("no more connections", expected="limits.connections to be higher")
        return _checked(code, "ps_core_adopt")

    def bind(self, connection: int, queue: QueueConfig) -> None:
        """Say what queue a connection is, before its Connect is answered."""
        config = {
            "qid": queue.qid,
            "sq_size": queue.sq_size,
            "flow_control_disabled": int(queue.flow_control_disabled),
            "controller": queue.controller,
            "subsystem": queue.subsystem,
            "tenant": queue.tenant,
            "enabled": int(queue.enabled),
        }
        pointer = ffi.new("struct ps_queue_config *", config)
        _unless_gone(lib.ps_core_bind(self._core, connection, pointer), "ps_core_bind")

    def enable(self, connection: int, enabled: bool) -> None:
        """Let I/O commands run, or end with 0/0C."""
        _unless_gone(lib.ps_core_enable(self._core, connection, enabled), "ps_core_enable")

    def answer(
        self, connection: int, slot: int, status: int, dw0: int, dw1: int, data: bytes
    ) -> None:
        """Answer a command; `status` includes the DNR bit."""
        code = lib.ps_core_answer(
            self._core, connection, slot, status, dw0, dw1, data or ffi.NULL, len(data)
        )
        _unless_gone(code, "ps_core_answer")

    def quiesce(self, connection: int, cookie: int) -> None:
        """Ask for a DoneNotice once no I/O command of the connection is under way."""
        _unless_gone(lib.ps_core_quiesce(self._core, connection, cookie), "ps_core_quiesce")

    def abort(self, connection: int, cid: int, cookie: int) -> None:
        """Try to end a command; the DoneNotice says whether it was ended."""
        _unless_gone(lib.ps_core_abort(self._core, connection, cid, cookie), "ps_core_abort")

    def close(self, connection: int, after_output: bool) -> None:
        """Close a connection; its ClosedNotice follows."""
        _unless_gone(lib.ps_core_close(self._core, connection, after_output), "ps_core_close")

    def last_command_ns(self, connection: int) -> int:
        """Return when the last command arrived (CLOCK_MONOTONIC), 0 when it is gone."""
        info = ffi.new("struct ps_connection_info *")
        code = lib.ps_core_connection_info(self._core, connection, info)
        return 0 if code < 0 else int(info.last_command_ns)

    def connection_stats(self, connection: int) -> dict[str, int]:
        """Return counters of a connection, empty when it is gone."""
        info = ffi.new("struct ps_connection_info *")
        code = lib.ps_core_connection_info(self._core, connection, info)
        return {} if code < 0 else _fields(info)

    # ---- volumes ----

    async def volume_open(self, config: VolumeConfig) -> int:
        """Open a medium; return the volume's number. Raises MediumError."""
        opening = asyncio.ensure_future(self._in_thread(partial(self._volume_open, config)))
        try:
            return await _to_its_end(opening)
        except asyncio.CancelledError:
            if opening.exception() is None:
                # Nobody else knows of it.
                lib.ps_core_volume_close(self._core, opening.result(), True, UNHEARD)
            raise

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Make a call that waits for a medium, without the event loop; one at a time (core.h)."""
        async with self._slow_calls:
            return await asyncio.to_thread(call)

    def _volume_open(self, config: VolumeConfig) -> int:
        encoded = os.fsencode(config.spec)
        spec = ffi.new("char[]", encoded)
        # The reason comes after the specification, and mostly names the file once more.
        size = ERROR_BYTES + 2 * len(encoded)
        error = ffi.new("char[]", size)
        values = {
            "spec": spec,
            "block_size": config.block_size,
            "write_through": int(config.write_through),
            "read_only": int(config.read_only),
            "reactor": config.reactor,
        }
        pointer = ffi.new("struct ps_volume_config *", values)
        code = int(lib.ps_core_volume_open(self._core, pointer, error, size))
        if code < 0:
            reason = _reason(_text(error), config.spec) or os.strerror(-code)
            raise MediumError(reason, config.spec, number=-code)
        return code

    def volume_limits(self, volume: int) -> VolumeLimits:
        """Return what is known of the medium."""
        limits = ffi.new("struct ps_media_limits *")
        code = lib.ps_core_volume_limits(self._core, volume, limits)
        _checked(code, "ps_core_volume_limits")
        return VolumeLimits(limits.size, limits.block_size, limits.warnings)

    async def volume_resize(self, volume: int, size_bytes: int) -> bool:
        """Change the size; False while a smaller one must wait. Raises MediumError."""
        call = partial(lib.ps_core_volume_resize, self._core, volume, size_bytes)
        code = int(await _to_its_end(asyncio.ensure_future(self._in_thread(call))))
        if code < 0 and code != -errno.EBUSY:
            raise MediumError(
                os.strerror(-code), f"volume {volume} to {size_bytes} bytes", number=-code
            )
        return code == 0

    def volume_flush(self, volume: int, cookie: int) -> None:
        """Make everything durable; DoneNotice."""
        _checked(lib.ps_core_volume_flush(self._core, volume, cookie), "ps_core_volume_flush")

    def volume_close(self, volume: int, abandon: bool, cookie: int) -> None:
        """Flush unless `abandon`, close the medium; DoneNotice."""
        code = lib.ps_core_volume_close(self._core, volume, abandon, cookie)
        _checked(code, "ps_core_volume_close")

    def volume_control(self, volume: int, kind: str, verb: str) -> None:
        """Reach a fault wrapper of the medium. Raises MediumError."""
        error = ffi.new("char[]", ERROR_BYTES)
        code = lib.ps_core_volume_control(
            self._core, volume, kind.encode(), verb.encode(), error, ERROR_BYTES
        )
        if code < 0:
            raise MediumError(_text(error) or os.strerror(-code), f"{kind}: {verb}")

    def volume_stats(self, volume: int) -> dict[str, int]:
        """Return the counters of struct ps_volume_stats."""
        stats = ffi.new("struct ps_volume_stats *")
        code = lib.ps_core_volume_get_stats(self._core, volume, stats)
        _checked(code, "ps_core_volume_get_stats")
        return _fields(stats)

    def volume_latency(self, volume: int, *, writes: bool) -> Counts:
        """Return how long Reads, or Writes, took: counts by bin."""
        counts = np.zeros(lib.PS_LATENCY_BINS, np.uint64)
        bins = ffi.from_buffer("uint64_t[]", counts)
        code = lib.ps_core_volume_latency(self._core, volume, writes, bins)
        _checked(code, "ps_core_volume_latency")
        return counts

    def volume_sched(self, volume: int) -> Numbers:
        """Return the state and counters of its medium's scheduler."""
        stats = ffi.new("struct ps_sched_stats *")
        code = lib.ps_core_volume_sched(self._core, volume, stats)
        _checked(code, "ps_core_volume_sched")
        return _numbers(stats)

    def map(self, subsystem: int, nsid: int, volume: int) -> None:
        """Make a volume a namespace of a subsystem."""
        _checked(lib.ps_core_map(self._core, subsystem, nsid, volume), "ps_core_map")

    def map_extension(self, subsystem: int, nsid: int) -> None:
        """Make pages without a medium a namespace of a subsystem."""
        code = lib.ps_core_map_extension(self._core, subsystem, nsid)
        _checked(code, "ps_core_map_extension")

    def unmap(self, subsystem: int, nsid: int, cookie: int) -> None:
        """Take it away; DoneNotice once its last command has ended."""
        _checked(lib.ps_core_unmap(self._core, subsystem, nsid, cookie), "ps_core_unmap")

    # ---- statistics ----

    def stats(self) -> dict[str, int]:
        """Return the counters of struct ps_core_stats."""
        stats = ffi.new("struct ps_core_stats *")
        lib.ps_core_get_stats(self._core, stats)
        return _fields(stats)

    def reactor_stats(self, reactor: int) -> dict[str, int]:
        """Return the same of one reactor."""
        stats = ffi.new("struct ps_core_stats *")
        code = lib.ps_core_reactor_stats(self._core, reactor, stats)
        _checked(code, "ps_core_reactor_stats")
        return _fields(stats)

    def reactor_cpu(self, reactor: int) -> int:
        """Return the processor that a reactor is pinned to, as the kernel says; -1: none."""
        return int(lib.ps_core_reactor_cpu(self._core, reactor))

    def tier_stats(self) -> dict[str, int]:
        """Return the counters of struct ps_tier_stats."""
        stats = ffi.new("struct ps_tier_stats *")
        lib.ps_core_tier_stats(self._core, stats)
        return _fields(stats)

    def tenant_stats(self, tenant: int) -> dict[str, int]:
        """Return what the tier counts of a tenant."""
        stats = ffi.new("struct ps_tier_tenant *")
        lib.ps_core_tenant_stats(self._core, tenant, stats)
        return _fields(stats)

    # ---- hints ----

    def set_capability(self, capability: bytes) -> None:
        """Say what controllers offer (struct pax_capability, copied)."""
        pointer = ffi.new("struct pax_capability *")
        ffi.memmove(pointer, capability, ffi.sizeof("struct pax_capability"))
        lib.ps_core_set_capability(self._core, pointer)

    def set_benefit(self, benefit: bytes) -> None:
        """Say what the prestager has measured of itself (struct pax_benefit, copied)."""
        pointer = ffi.new("struct pax_benefit *")
        ffi.memmove(pointer, benefit, ffi.sizeof("struct pax_benefit"))
        lib.ps_core_set_benefit(self._core, pointer)

    def set_budget(self, tenant: int, budget: HintBudget | None) -> None:
        """Give a tenant a budget of its own; None: the default again."""
        given = ffi.NULL
        if budget is not None:
            given = ffi.new("struct ps_hints_budget *", asdict(budget))
        lib.ps_core_set_budget(self._core, tenant, given)

    def hint_status(self, tenant: int, subsystem: int) -> bytes:
        """Return the status page of a tenant as its host sees it there."""
        page = bytearray(PAGE_BYTES)
        lib.ps_core_hint_status(self._core, tenant, subsystem, ffi.from_buffer("uint8_t[]", page))
        return bytes(page)

    def hint_events(self, tenant: int, *, clear: bool) -> bytes:
        """Return the warm-event log of a tenant; `clear` forgets what was returned."""
        page = bytearray(PAGE_BYTES)
        lib.ps_core_hint_events(self._core, tenant, clear, ffi.from_buffer("uint8_t[]", page))
        return bytes(page)

    def hint_trust(self, tenant: int) -> dict[str, dict[str, int]]:
        """Return struct ps_hints_trust of a tenant, by kind of hint."""
        trust = ffi.new("struct ps_hints_trust *")
        found = {}
        for number, kind in enumerate(HINT_KINDS):
            lib.ps_core_hint_trust(self._core, tenant, number, trust)
            found[kind] = _fields(trust)
        return found

    def hint_stats(self) -> dict[str, int]:
        """Return the counters of struct ps_hints_stats."""
        stats = ffi.new("struct ps_hints_stats *")
        lib.ps_core_hint_stats(self._core, stats)
        return _fields(stats)

    def ring_fd(self) -> int:
        """Return the memfd of the ring of facts, which stays ours; -1: none."""
        return int(lib.ps_core_ring_fd(self._core))

    # ---- the prestager ----

    def ring_wake_fd(self) -> int:
        """Return the eventfd that says that the ring has what its reader waits for; -1: none."""
        return int(lib.ps_core_ring_wake_fd(self._core))

    def orders_fd(self) -> int:
        """Return the memfd of orders, which stays ours; -1: none are taken."""
        return int(lib.ps_core_orders_fd(self._core))

    def orders_wake_fd(self) -> int:
        """Return the eventfd by which the data path is told of orders; -1: none are taken."""
        return int(lib.ps_core_orders_wake_fd(self._core))

    def orders_reset(self) -> None:
        """Forget all orders: who gave them is gone."""
        lib.ps_core_orders_reset(self._core)

    def orders_stats(self) -> dict[str, int]:
        """Return the counters of struct ps_orders_stats."""
        stats = ffi.new("struct ps_orders_stats *")
        lib.ps_core_orders_stats(self._core, stats)
        return _fields(stats)

    def model_stats(self) -> dict[str, int]:
        """Return what became of what orders brought in (ps_tier_get_model)."""
        stats = ffi.new("struct ps_tier_tenant *")
        lib.ps_core_model_stats(self._core, stats)
        found = _fields(stats)
        del found["frames"]  # They are charged to tenants.
        found["unread_frames"] = found.pop("hint_frames")
        return found


async def _to_its_end(work: asyncio.Future[T]) -> T:
    """Await `work`. When cancelled, do so no less: what it uses may be freed afterwards."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        raise


def _notice(raw: Any) -> Notice:
    """Return a notice as an object of ours; the memory behind it is C's and is used again."""
    kind = raw.kind
    if kind == lib.PS_NOTICE_COMMAND:
        data = bytes(ffi.buffer(raw.data, raw.data_length)) if raw.data_length else b""
        entry = bytes(ffi.buffer(raw.entry))
        return CommandNotice(raw.connection, raw.slot, raw.qid, entry, data, bool(raw.digest_error))
    if kind == lib.PS_NOTICE_CLOSED:
        return ClosedNotice(raw.connection)
    if kind == lib.PS_NOTICE_IO_ERROR:
        entry = bytes(ffi.buffer(raw.entry))
        return IoErrorNotice(raw.connection, raw.qid, raw.nsid, raw.status, raw.lba, entry)
    if kind == lib.PS_NOTICE_VOLUME_HEALTH:
        return HealthNotice(raw.volume, raw.result)
    if kind == lib.PS_NOTICE_WARM_EVENT:
        return WarmEventNotice(raw.result)
    lost = raw.lba if kind == lib.PS_NOTICE_VOLUME_CLOSED else 0
    return DoneNotice(raw.cookie, raw.result, lost)


def _fields(pointer: Any) -> dict[str, int]:
    """Return the numbers of a struct by name."""
    names = [name for name, _ in ffi.typeof(pointer[0]).fields or () if name != "reserved"]
    return {name: int(getattr(pointer, name)) for name in names}


def _numbers(pointer: Any) -> Numbers:
    """Return the numbers of a struct by name; arrays of numbers are lists."""
    values = [(name, getattr(pointer, name)) for name, _ in ffi.typeof(pointer[0]).fields or ()]
    return {
        name: int(value) if isinstance(value, int) else [int(one) for one in value]
        for name, value in values
    }


def _reason(text: str, spec: str) -> str:
    """Return why a medium could not be opened, without its specification before it."""
    for start in (f'media spec "{spec}"', spec):
        if text.startswith(start):
            return re.sub(r"(, at byte [0-9]+)?: ", "", text[len(start) :], count=1)
    return text


def _text(error: Any) -> str:
    return bytes(ffi.string(error)).decode("utf-8", "replace")


def _checked(code: int, call: str) -> int:
    """Return a result that is not negative; raise DataPathError for the others."""
    if code < 0:
        raise DataPathError(f"{os.strerror(-code)}", call, "a legal call")
    return int(code)


def _unless_gone(code: int, call: str) -> None:
    """Check a call on a connection, which may have gone without our knowing yet."""
    if code != -errno.ENOENT:
        _checked(code, call)
