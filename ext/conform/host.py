"""What the kit needs of a host: raw commands on one controller of the target."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Tenant(Enum):
    """Whose Host NQN a connection has."""

    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, slots=True)
class Command:
    """An admin or I/O command. Data go to the controller, or come from it, or there are none."""

    opcode: int
    nsid: int = 0
    cdw2: int = 0
    cdw3: int = 0
    cdw10: int = 0
    cdw11: int = 0
    cdw12: int = 0
    cdw13: int = 0
    cdw14: int = 0
    cdw15: int = 0
    data_out: bytes = b""
    data_in_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """How a command ended.

    `status` is the status field without the phase bit: DNR << 14 | SCT << 8 | SC. `data` has what
    the controller sent, `data_in_bytes` at most.
    """

    status: int = 0
    dw0: int = 0
    dw1: int = 0
    data: bytes = b""


class Host(Protocol):
    """One controller with an admin and at least one I/O queue.

    An error status is a value, never an exception; ConnectionError or TimeoutError says that there
    was no answer. Commands may be outstanding together: an Asynchronous Event Request (admin 0Ch)
    stays so until there is an event, and nobody but the kit sends one.
    """

    async def admin(self, command: Command) -> Completion:
        """Run an admin command."""

    async def io(self, command: Command) -> Completion:
        """Run an I/O command."""

    async def reconnect(self) -> None:
        """End the association and make a new one by the same host; commands under way are lost."""

    async def close(self) -> None:
        """End the association."""
