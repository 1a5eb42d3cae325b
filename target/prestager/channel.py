"""The prestager's end of the socket to the target: lines of JSON, and neither side ever waits."""

from __future__ import annotations

import socket
from typing import Final

__all__ = ["Channel"]

PIECE_BYTES: Final = 1 << 16
MAX_LINE_BYTES: Final = 16 << 20


class Channel:
    """A stream socket that was inherited as `descriptor`, which it takes over.

    Raises OSError when it is no socket.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(False)
        self._came = bytearray()
        self._goes = bytearray()
        self.is_open = True
        """False once the target is gone, or wants the process to end."""

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether something still waits for the target to read."""
        return bool(self._goes)

    def receive(self) -> list[bytes]:
        """Return the lines that have come, without their ends."""
        while self.is_open:
            try:
                piece = self._socket.recv(PIECE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                piece = b""
            self._came += piece
            self.is_open = bool(piece) and len(self._came) <= MAX_LINE_BYTES
        *lines, rest = self._came.split(b"\n")
        self._came = rest
        return [bytes(line) for line in lines]

    def send(self, line: bytes) -> bool:
        """Send a line; False when the target has not read the one before, and it was not sent."""
        if not self._goes:
            self._goes += line + b"\n"
            self.flush()
            return True
        self.flush()
        return False

    def flush(self) -> None:
        """Send what still waits, as far as the target reads."""
        try:
            while self._goes:
                del self._goes[: self._socket.send(self._goes)]
        except BlockingIOError:
            pass
        except OSError:
            self._goes.clear()
            self.is_open = False

    def close(self) -> None:
        """Close it: the target hears of it."""
        self._socket.close()
