"""The control socket itself: a Unix socket, its lock, its connections and their limits."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from pathlib import Path

import structlog

# Imported for their methods, which register themselves.
from prestage.target.errors import AlreadyExists, Invalid
from prestage.target.places import MAX_SOCKET_PATH_BYTES
from prestage.target.rpc import bdev, framework, nvmf, nvmf_access, nvmf_inspect, prestage
from prestage.target.rpc.context import Context
from prestage.target.rpc.dispatch import answer_error, handle
from prestage.target.rpc.errors import INTERNAL_ERROR, PARSE_ERROR
from prestage.target.rpc.framing import FramingError, ValueScanner

FAMILIES = (bdev, framework, nvmf, nvmf_access, nvmf_inspect, prestage)

MAX_CONNECTIONS = 64
READ_BYTES = 64 << 10
SEND_TIMEOUT_S = 60.0
"""A client that takes in nothing of an answer for this long is cut off."""
IDLE_BEFORE_EVICTION_S = 30.0
"""When all connections are taken, the one that has been silent longest, and at least this long,
makes room."""

log = structlog.get_logger("prestage.rpc")


class _Client:
    """A connection: requests in, answers out, one at a time and in order."""

    def __init__(self, server: ControlServer, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock
        self.busy = False
        self.active_at = time.monotonic()
        self.task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        try:
            await self._converse()
        except (OSError, TimeoutError) as error:
            log.debug("control connection lost", reason=str(error) or type(error).__name__)
        finally:
            self.server.clients.discard(self)
            self.sock.close()

    async def _converse(self) -> None:
        loop = asyncio.get_running_loop()
        scanner = ValueScanner()
        while data := await loop.sock_recv(self.sock, READ_BYTES):
            self.active_at = time.monotonic()
            scanner.feed(data)
            try:
                while (value := scanner.next_value()) is not None:
                    if not await self._answer(value):
                        return
            except FramingError as error:
                await self._send(answer_error(PARSE_ERROR, f"Parse error: {error}"))
                return

    async def _answer(self, value: bytes) -> bool:
        """Answer one value; return whether the connection goes on."""
        self.busy = True
        try:
            answer, broken = await handle(self.server.context, value)
            if answer is not None:
                await self._send(answer)
        finally:
            self.busy = False
            self.active_at = time.monotonic()
        return not broken

    async def _send(self, answer: bytes) -> None:
        """Send an answer; raises TimeoutError when the client takes in nothing any more."""
        loop = asyncio.get_running_loop()
        rest = memoryview(answer + b"\n")
        while rest:
            piece = rest[: 256 << 10]
            await asyncio.wait_for(loop.sock_sendall(self.sock, piece), SEND_TIMEOUT_S)
            rest = rest[len(piece) :]


class ControlServer:
    """Answers JSON-RPC requests on a Unix socket."""

    def __init__(self, context: Context, path: str | Path) -> None:
        self.context = context
        self.path = str(path)
        self.clients: set[_Client] = set()
        self._lock_fd = -1
        self._sock: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    def claim(self) -> None:
        """Take the lock, replace a stale socket, and listen; whoever connects has to wait.

        Raises `AlreadyExists` when a running process holds the lock, `Invalid` for a path that
        cannot be a socket, and OSError.
        """
        assert self._sock is None
        if len(os.fsencode(self.path)) > MAX_SOCKET_PATH_BYTES:
            expected = f"at most {MAX_SOCKET_PATH_BYTES} bytes"
            raise Invalid("the path of the control socket is too long", self.path, expected)
        self._lock_fd = take_lock(lock_path(self.path))
        try:
            self._sock = bind(self.path)
        except BaseException:
            self._release()
            raise

    def start(self) -> None:
        """Answer; after `claim`, in the event loop."""
        assert self._sock is not None
        assert self._accepting is None
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._sock))

    async def stop(self) -> None:
        """Close all connections and remove the socket. May be called twice."""
        if self._sock is None:
            return
        tasks = [client.task for client in self.clients]
        if self._accepting is not None:
            tasks.append(self._accepting)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._accepting = None
        self._sock.close()
        self._sock = None
        self._remove()
        self._release()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            Path(self.path).unlink()

    def _release(self) -> None:
        # Unlinked while it is still held: whoever opened it before finds that it is not the
        # file any more (`take_lock`).
        with contextlib.suppress(OSError):
            Path(lock_path(self.path)).unlink()
        os.close(self._lock_fd)
        self._lock_fd = -1

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                # Out of descriptors, most likely: wait, or this would spin.
                log.warning("control connection not accepted", reason=error.strerror)
                await asyncio.sleep(0.1)
                continue
            if len(self.clients) >= MAX_CONNECTIONS and not self._make_room():
                self._refuse(sock)
                continue
            self.clients.add(_Client(self, sock))

    def _make_room(self) -> bool:
        idle = [client for client in self.clients if not client.busy]
        if not idle:
            return False
        oldest = min(idle, key=lambda client: client.active_at)
        if time.monotonic() - oldest.active_at < IDLE_BEFORE_EVICTION_S:
            return False
        self.clients.discard(oldest)
        oldest.task.cancel()
        return True

    def _refuse(self, sock: socket.socket) -> None:
        message = f"there are {MAX_CONNECTIONS} control connections already"
        with contextlib.suppress(OSError):
            sock.send(answer_error(INTERNAL_ERROR, message) + b"\n")
        sock.close()


def lock_path(control_socket: str) -> str:
    """Return the file whose lock the target behind a control socket holds."""
    return f"{control_socket}.lock"


def is_locked(control_socket: str) -> bool:
    """Return whether a running target has that control socket. Raises OSError."""
    try:
        fd = os.open(lock_path(control_socket), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def take_lock(path: str) -> int:
    """Return the descriptor of a lock file that this process now holds.

    Raises `AlreadyExists` when another process holds it, and OSError.
    """
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(fd, path):
                os.ftruncate(fd, 0)
                os.pwrite(fd, b"%d\n" % os.getpid(), 0)
                return fd
        except BlockingIOError:
            holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            os.close(fd)
            what = f"in use by a running target{f', process {holder}' if holder else ''}"
            expected = "its end, or another --state-directory for this one"
            raise AlreadyExists(what, path, expected) from None
        except OSError:
            os.close(fd)
            raise
        # Its holder removed it between our open and our lock; the next one is another file.
        os.close(fd)


def _is_same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), Path(path).stat())
    except FileNotFoundError:
        return False


def bind(path: str) -> socket.socket:
    """Return a listening socket at `path`, for its owner only. Replaces a socket, nothing else."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise Invalid("something else is there already", path, "a free path for a socket")
        Path(path).unlink()
    except FileNotFoundError:
        pass
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    # What the socket has before bind is what its file gets, so the mode is right from the first
    # moment on. A umask would be that of the whole process, other targets in it included.
    os.fchmod(sock.fileno(), 0o600)
    try:
        sock.bind(path)
        sock.listen(MAX_CONNECTIONS)
    except OSError as error:
        sock.close()
        number = error.errno or errno.EIO
        raise OSError(number, f"control socket {path}: {os.strerror(number)}") from None
    sock.setblocking(False)
    return sock
