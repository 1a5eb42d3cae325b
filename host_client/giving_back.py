"""Buffers go back to callers that turn away while their commands still run.

The controller may ask for the data of a write until it has answered, so somebody must keep the
bytes. They are copied, and the buffer is the caller's again when they are: not before, and nobody
else waits meanwhile, for it is done bit by bit between the turns of the event loop. Until then the
command goes on from the caller's buffer; one that ends is not copied any further.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from prestage.host_client.engine import Orphan

STEP_BYTES = 512 << 10
"""That are copied in one turn of the event loop."""


class GivingBack:
    """The copies that are under way, one after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[Orphan, asyncio.Future[None]]] = deque()

    def begin(self, orphans: Iterable[Orphan]) -> list[asyncio.Future[None]]:
        """Have copied what orphans need; return a future for each that does."""
        begun = [(one, self._loop.create_future()) for one in orphans if one.needs_copy]
        if begun and not self._waiting:
            self._loop.call_soon(self._turn)
        self._waiting += begun
        return [future for _, future in begun]

    def _turn(self) -> None:
        orphan, future = self._waiting[0]
        if orphan.copy(STEP_BYTES):
            self._waiting.popleft()
            future.set_result(None)
        if self._waiting:
            self._loop.call_soon(self._turn)


async def finish(futures: list[asyncio.Future[None]]) -> None:
    """Wait for all of `futures`; a cancellation of the caller takes effect only then."""
    cancelled: asyncio.CancelledError | None = None
    while pending := [one for one in futures if not one.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
