"""What can go wrong at a host, by whose fault it is.

Every error says what happened, where, and what was expected. `InvalidRequest` is the caller's
fault, `NvmeError` the controller's answer, `ProtocolError` a peer that breaks the rules of the
transport, `ConnectionLost` nobody's; `HintError` never comes out of a read.
"""

from __future__ import annotations

from typing import Any

from prestage.host_client.status import status_name


class HostError(Exception):
    """Something failed at the host: `what` is a sentence, `where` names the object or field."""

    def __init__(self, what: str, where: str = "", expected: str = "") -> None:
        self.what = what
        self.where = where
        self.expected = expected
        text = f"{where}: {what}" if where else what
        super().__init__(f"{text} (expected {expected})" if expected else text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let errors of every kind go to other processes, whatever they are made of."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[HostError], arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> HostError:
    error = kind.__new__(kind)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class InvalidRequest(HostError, ValueError):
    """An argument is outside what is allowed; nothing was sent."""


class ConnectFailed(HostError):
    """No association could be made: nobody listens, or the target refuses this host."""


class ConnectionLost(HostError, ConnectionError):
    """The connection ended while the request was under way, or while it waited to be sent.

    What was under way may have been carried out or not. Requests that can be repeated without harm
    are sent again by themselves and do not see this, unless the controller stays away.
    """


class ProtocolError(ConnectionLost):
    """The target broke a rule of NVMe/TCP or NVMe-oF; the connection was closed."""


class RequestTimeout(HostError, TimeoutError):
    """A request was not answered in time; it was given up, and may yet be carried out."""


class DigestError(HostError):
    """The data digest of a transfer from the controller did not match; the data is wrong."""


class NvmeError(HostError):
    """A command ended with a status other than success (Base 2.0, 3.3.3.2.1).

    `sct` and `sc` are status code type and status code, `dnr` is Do Not Retry, `dw0` is dword 0 of
    the completion, `name` the words of the specification.
    """

    def __init__(self, status: int, where: str = "", dw0: int = 0) -> None:
        self.sct = status >> 8 & 7
        self.sc = status & 0xFF
        self.dnr = bool(status & 1 << 14)
        self.dw0 = dw0
        self.name = status_name(self.sct, self.sc)
        retry = ", do not retry" if self.dnr else ""
        super().__init__(f"{self.name} ({self.sct:X}/{self.sc:02X}{retry})", where)


class HintError(HostError):
    """A hint call failed. Reads and writes are not affected."""


class NotSupported(HintError):
    """The target does not speak PAX, or not by this carrier."""


class InvalidHint(HintError, ValueError):
    """An argument of a hint call is outside what is allowed; nothing was sent."""


class AnswerLost(HintError):
    """Other writers overwrote the answer to a batch; the batch itself was taken."""


class BatchRefused(HintError):
    """The target calls a batch malformed: `fault` is its word for why, `offset` the byte at fault.

    This is a defect of whoever made the batch, not of what was asked for.
    """

    def __init__(self, fault: str, offset: int, where: str = "") -> None:
        self.fault = fault
        self.offset = offset
        super().__init__(f"the batch was refused: {fault} at byte {offset}", where)
