"""A small synchronous client of the control socket, for the command line and for tests."""

from __future__ import annotations

import itertools
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from prestage.target.errors import TargetError
from prestage.target.rpc.dispatch import MAX_ANSWER_BYTES

TIMEOUT_S = 60.0
ENVIRONMENT = "PRESTAGE_SOCKET"
DEFAULT_SOCKET = "var/prestage.sock"


class ClientError(TargetError):
    """The control socket could not be reached, or answered what cannot be an answer."""


class CallFailed(ClientError):
    """The target answered with an error; `code` is JSON-RPC's or a negative errno."""

    def __init__(self, method: str, code: int, message: str) -> None:
        self.method = method
        self.code = code
        super().__init__(message)


def socket_path(given: str | None) -> str:
    """Return the control socket to use: as given, else $PRESTAGE_SOCKET, else the default."""
    return given or os.environ.get(ENVIRONMENT) or DEFAULT_SOCKET


class Client:
    """A connection to the control socket of a running target."""

    def __init__(self, path: str | Path, timeout_s: float = TIMEOUT_S) -> None:
        """Connect. Raises `ClientError` when no target answers at `path`."""
        self._path = str(path)
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._buffer = b""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._sock.settimeout(timeout_s)
        try:
            self._sock.connect(self._path)
        except (OSError, ValueError) as error:
            self._sock.close()
            raise _unreachable(self._path, error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def call(self, method: str, /, **params: object) -> Any:
        """Return the result of a method.

        Raises `CallFailed` for an error of the target, `ClientError` for anything else.
        """
        request: dict[str, object] = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        if params:
            request["params"] = params
        try:
            self._sock.sendall(msgspec.json.encode(request) + b"\n")
            answer = msgspec.json.decode(self._receive_line(), type=dict[str, Any])
        except TimeoutError:
            raise ClientError(f"no answer from {self._path} in {self._timeout_s:g} s") from None
        except (OSError, msgspec.DecodeError) as error:
            raise ClientError(f"no answer from {self._path}: {error}") from None
        if "error" in answer:
            raise CallFailed(method, answer["error"]["code"], answer["error"]["message"])
        if answer.get("id") != request["id"] or "result" not in answer:
            raise ClientError(f"the answer from {self._path} belongs to another request")
        return answer["result"]

    def _receive_line(self) -> bytes:
        """Return the next answer, which ends with a line feed. Its JSON has none inside."""
        deadline = time.monotonic() + self._timeout_s
        pieces = [self._buffer]
        size = len(self._buffer)
        while b"\n" not in pieces[-1]:
            self._sock.settimeout(max(deadline - time.monotonic(), 0.001))
            piece = self._sock.recv(1 << 16)
            size += len(piece)
            if not piece:
                raise ClientError(f"{self._path}: the target closed the connection")
            if size > MAX_ANSWER_BYTES + (1 << 17):
                raise ClientError(f"the answer from {self._path} is larger than 32 MiB")
            pieces.append(piece)
        line, _, self._buffer = b"".join(pieces).partition(b"\n")
        return line


def _unreachable(path: str, error: OSError | ValueError) -> ClientError:
    if isinstance(error, FileNotFoundError):
        reason = "no target runs there (no such socket)"
    elif isinstance(error, ConnectionRefusedError):
        left = "a socket is left over" if Path(path).is_socket() else "it is no socket"
        reason = f"no target runs there ({left})"
    elif isinstance(error, OSError) and error.strerror:
        reason = error.strerror
    else:
        reason = str(error)
    return ClientError(
        f"cannot reach a target at {Path(path).absolute()}: {reason}",
        expected=f"the control socket of a running target, by --control-socket or ${ENVIRONMENT}",
    )
