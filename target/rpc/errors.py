"""The errors of the control socket, as JSON-RPC 2.0 and SPDK number them."""

from __future__ import annotations

import errno
import os

from prestage.target.errors import (
    AlreadyExists,
    Exhausted,
    Invalid,
    MediumError,
    NotFound,
    TargetError,
)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMETERS = -32602
INTERNAL_ERROR = -32603
WRONG_STATE = -1

NUMBERS: dict[type[TargetError], int] = {
    AlreadyExists: errno.EEXIST,
    NotFound: errno.ENODEV,
    Invalid: errno.EINVAL,
    Exhausted: errno.ENOSPC,
}
"""Which errno an error of the target is on the wire; any other is EIO."""


class RpcError(Exception):
    """A request that failed: the code and the message that its caller gets."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


def invalid_parameters(detail: str) -> RpcError:
    """Return the error for parameters that cannot be used; `detail` names the parameter."""
    return RpcError(INVALID_PARAMETERS, f"Invalid parameters: {detail}")


def from_errno(number: int, detail: str) -> RpcError:
    """Return the error that carries an errno: its negative, and its text."""
    return RpcError(-number, f"{os.strerror(number)}: {detail}")


def from_exception(error: TargetError | OSError) -> RpcError:
    """Return the error for one that the target raised on purpose."""
    if isinstance(error, OSError):
        number = error.errno or errno.EIO
        return RpcError(-number, str(error.strerror or error))
    if isinstance(error, MediumError):
        return from_errno(error.number, str(error))
    for kind, number in NUMBERS.items():
        if isinstance(error, kind):
            return from_errno(number, str(error))
    return from_errno(errno.EIO, str(error))
