"""What can go wrong, by whose fault it is.

`TargetError` is for whoever operates the target: it says what was wrong, where, and what was
expected. `PeerFault` is for a host on the wire: it becomes the status of that one command.
"""

from __future__ import annotations

import errno
import signal


class TargetError(Exception):
    """An operation on the target failed and changed nothing.

    `what` is a sentence; `where` names the object or field; `expected` says what would be right.
    """

    def __init__(self, what: str, where: str = "", expected: str = "") -> None:
        self.what = what
        self.where = where
        self.expected = expected
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text} (expected {expected})" if expected else text)


class AlreadyExists(TargetError):
    """There is one of that name or number already."""


class NotFound(TargetError):
    """There is nothing of that name or number."""


class Invalid(TargetError):
    """A value is outside what is allowed."""


class InvalidFlag(Invalid):
    """A flag of a command is outside what is allowed, whatever the target."""


class MediumError(TargetError):
    """A medium could not be opened, resized or closed; `number` is the errno, EIO if unknown."""

    def __init__(
        self, what: str, where: str = "", expected: str = "", number: int = errno.EIO
    ) -> None:
        self.number = number
        super().__init__(what, where, expected)


class Exhausted(TargetError):
    """A configured or built-in limit is reached."""


class DataPathError(TargetError):
    """A call into the data path was refused although the control plane thought it legal."""


class Ended(KeyboardInterrupt):
    """A signal other than SIGINT is to end the command; on its way up, everything is cleaned up."""

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(signal.Signals(number).name)

    @property
    def status(self) -> int:
        """The exit status, as shells tell it of what a signal has killed."""
        return 128 + self.number


class PeerFault(Exception):
    """A host's command is wrong; it ends with `status` (SCT << 8 | SC, Base 2.0, 3.3.3.2.1)."""

    def __init__(self, status: int, dw0: int = 0, *, retry: bool = False, why: str = "") -> None:
        self.status = int(status)
        self.dw0 = dw0
        self.retry = retry
        """True: the Do Not Retry bit stays clear."""
        super().__init__(f"status {self.status >> 8:X}/{self.status & 0xFF:02X} {why}".rstrip())
