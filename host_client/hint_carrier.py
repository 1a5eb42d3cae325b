"""What a hint travels by: the interface that `Hints` speaks to, whichever carrier is behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from prestage.ext.pages import Capability


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of the records of a batch, as far as the carrier says so at once."""

    accepted: int
    dropped: int
    unknown: int


class HintCarrier(Protocol):
    """One way to a target. Methods raise `HostError`, or OSError where a device node is behind.

    Pages are 4096 bytes as in clause 5 of the specification.
    """

    @property
    def where(self) -> str:
        """What it leads to, for messages."""

    async def open(self) -> None:
        """Get ready."""

    async def close(self) -> None:
        """Give back what `open` took."""

    async def capability(self) -> Capability | None:
        """Return what the target offers by this carrier; None: no PAX that we know."""

    async def submit(self, batch: bytes, mailbox: int) -> Taken | None:
        """Send a batch; None: only the answer page of `mailbox` says what became of it.

        Raises `BatchRefused` where the carrier says so at once.
        """

    async def answer(self, mailbox: int) -> bytes:
        """Return the answer page of a mailbox."""

    async def status(self) -> bytes:
        """Return the status page."""

    async def events(self, *, clear: bool) -> bytes:
        """Return the warm-event log. Raises `NotSupported`."""

    async def wait_event(self) -> None:
        """Wait until the target has said that the log is not empty. Raises `NotSupported`."""
