"""Stopping in order: connections, then caches, then media."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from dataclasses import dataclass, field

from prestage.target.datapath import DoneNotice
from prestage.target.errors import DataPathError
from prestage.target.extension import Extension
from prestage.target.runtime import Runtime
from prestage.target.subsystem import Namespace, Subsystem

log = logging.getLogger("prestage.target")

FLUSH_TRIES = 2
"""A flush also reports failures from before it; the second one tells how things stand now."""
CLOSE_S = 1.0
"""Closing a medium that was flushed, or is abandoned, may take this long beyond the limit."""


@dataclass(frozen=True)
class Unflushed:
    """A namespace whose data did not all reach its medium."""

    nqn: str
    nsid: int
    path: str
    bytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.nqn} namespace {self.nsid} ({self.path}): {self.bytes} bytes, {self.reason}"


@dataclass(frozen=True)
class StopReport:
    """How a stop went."""

    clean: bool
    unflushed: list[Unflushed] = field(default_factory=list)


async def drain(runtime: Runtime, timeout_s: float) -> StopReport:
    """Close all connections, flush and close all volumes, within about `timeout_s`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout_s
    await _close_connections(runtime, end - timeout_s / 2)
    if runtime.background:
        await asyncio.wait(runtime.background, timeout=max(0.0, end - loop.time()))
    namespaces = [(s, n) for s in runtime.subsystems.values() for n in s.namespaces.values()]
    lost = await asyncio.gather(
        *(_finish(runtime, subsystem, namespace, end) for subsystem, namespace in namespaces)
    )
    unflushed = [entry for entry in lost if entry is not None]
    return StopReport(clean=not unflushed and not runtime.background, unflushed=unflushed)


async def _close_connections(runtime: Runtime, end: float) -> None:
    """Close in order; a host that does not read its last answers is cut off at `end`."""
    for subsystem in runtime.subsystems.values():
        for controller in list(subsystem.controllers.values()):
            controller.close()
    for connection in list(runtime.connections.values()):
        runtime.close(connection)
    await _until_closed(runtime, end - (end - asyncio.get_running_loop().time()) / 2)
    for connection in list(runtime.connections.values()):
        runtime.data_path.close(connection.id, False)
    await _until_closed(runtime, end)
    if runtime.connections:
        log.warning("%d connections have not closed", len(runtime.connections))


async def _until_closed(runtime: Runtime, end: float) -> None:
    loop = asyncio.get_running_loop()
    if runtime.connections:
        await asyncio.wait(
            [loop.create_task(runtime.all_closed.wait())], timeout=max(0.0, end - loop.time())
        )


async def _finish(
    runtime: Runtime, subsystem: Subsystem, namespace: Namespace, end: float
) -> Unflushed | None:
    """Flush and close one namespace; return what was lost, or None.

    A flush that did not end is no loss when nothing was left to write. This may be cancelled and
    called again with less time.
    """
    loop = asyncio.get_running_loop()
    try:
        reason = await flush_volume(runtime, namespace, max(0.0, end - loop.time()))
        left = runtime.data_path.volume_stats(namespace.volume).get("unflushed_bytes", 0)
    except DataPathError:
        return None  # A stop before this one has closed it meanwhile.
    task = loop.create_task(_close(runtime, subsystem, namespace, abandon=bool(reason)))
    await asyncio.wait([task], timeout=max(0.0, end - loop.time()) + CLOSE_S)
    subsystem.namespaces.pop(namespace.nsid, None)
    if not task.done():
        task.cancel()
        reason = reason or "its medium does not close"
    else:
        closed = task.result()
        lost = 0 if closed is None else closed.lost_bytes
        if closed is not None and closed.result and not reason:
            reason = _errno(closed.result)
        left = max(left, lost)
        if not left:
            return None
    path = namespace.settings.path or namespace.settings.media
    return Unflushed(subsystem.nqn, namespace.nsid, path, left, reason or "not written")


async def _close(
    runtime: Runtime, subsystem: Subsystem, namespace: Namespace, *, abandon: bool
) -> DoneNotice | None:
    """Unmap and close; return how the first try to close ended, None when it is closed already."""
    # A stop before this one may have asked for it already.
    with contextlib.suppress(DataPathError):
        await unmap(runtime, subsystem, namespace)
    try:
        notice = await close_volume(runtime, namespace, abandon=abandon)
        if not abandon and notice is not None and notice.result:
            # A close that failed leaves the medium open with its data; nobody will try again.
            await close_volume(runtime, namespace, abandon=True)
    except DataPathError:
        return None
    return notice


async def flush_volume(runtime: Runtime, namespace: Namespace, timeout_s: float) -> str:
    """Flush; return "" or why it failed."""
    why = ""
    end = asyncio.get_running_loop().time() + timeout_s
    for _ in range(FLUSH_TRIES):
        cookie, future = runtime.cookies.expect()
        runtime.data_path.volume_flush(namespace.volume, cookie)
        remaining = end - asyncio.get_running_loop().time()
        await asyncio.wait([future], timeout=max(0.0, remaining))
        if not future.done():
            return f"not flushed within {timeout_s:.1f} s"
        notice = future.result()
        if notice is None or notice.result == 0:
            return ""
        why = _errno(notice.result)
    return why


async def remove(runtime: Runtime, subsystem: Subsystem, namespace: Namespace) -> str:
    """Take a flushed namespace away and close its medium; return "" or why that failed.

    A medium that refuses the last writes keeps its namespace: it is put back.
    """
    del subsystem.namespaces[namespace.nsid]
    subsystem.leaving.add(namespace.nsid)
    subsystem.namespace_changed(namespace.nsid)
    await unmap(runtime, subsystem, namespace)
    notice = await close_volume(runtime, namespace, abandon=False)
    subsystem.leaving.discard(namespace.nsid)
    if notice is None or notice.result == 0:
        return ""
    runtime.data_path.map(subsystem.index, namespace.nsid, namespace.volume)
    subsystem.namespaces[namespace.nsid] = namespace
    subsystem.namespace_changed(namespace.nsid)
    return _errno(notice.result)


async def unmap(runtime: Runtime, subsystem: Subsystem, namespace: Namespace | Extension) -> None:
    """Take a namespace off the data path; returns when its last command has ended."""
    cookie, future = runtime.cookies.expect()
    runtime.data_path.unmap(subsystem.index, namespace.nsid, cookie)
    await future


async def close_volume(
    runtime: Runtime, namespace: Namespace, *, abandon: bool
) -> DoneNotice | None:
    """Close the medium; returns how it ended."""
    cookie, future = runtime.cookies.expect()
    runtime.data_path.volume_close(namespace.volume, abandon, cookie)
    return await future


def _errno(number: int) -> str:
    return os.strerror(abs(number))
