"""Running targets for tests: in this process, or as a process of their own.

Every one listens on a free port of 127.0.0.1, has throw-away namespaces, and is gone, with its
files, when its `with` block ends. See docs/testing.md.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prestage.target.config import require_valid
from prestage.target.errors import TargetError
from prestage.target.flags import parse_namespace
from prestage.target.rpc import view
from prestage.target.rpc.client import Client
from prestage.target.rpc.context import Context
from prestage.target.rpc.server import ControlServer
from prestage.target.service import make_target
from prestage.target.settings import (
    DEFAULT_NQN,
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    PrestagerSettings,
    SubsystemSettings,
    TargetSettings,
    TierSettings,
)
from prestage.target.sizes import parse_size, size_text

DEFAULT_NAMESPACE = "64M"
DEFAULT_DRAM = "16M"
STOP_S = 10.0
READY_S = 30.0
LOG_TAIL_BYTES = 2000

NamespaceLike = NamespaceSettings | str | int
"""Settings; or a size ("64M"), which gives memory; or a path with options, as for the flag."""


def namespace_settings(wanted: NamespaceLike) -> NamespaceSettings:
    """Return the settings of a namespace that was asked for in short."""
    if isinstance(wanted, NamespaceSettings):
        return wanted
    with contextlib.suppress(ValueError):
        return NamespaceSettings(media="ram", size=parse_size(wanted))
    return parse_namespace(str(wanted), "namespace")


class Target:
    """A target in this process and its event loop: `async with Target() as target`."""

    def __init__(
        self,
        *,
        namespaces: Sequence[NamespaceLike] = (DEFAULT_NAMESPACE,),
        nqn: str = DEFAULT_NQN,
        hosts: Sequence[str] = (),
        dram: str | int = DEFAULT_DRAM,
        extension: bool = False,
        prestager: bool = False,
        settings: TargetSettings | None = None,
        make: Callable[[TargetSettings], view.TargetLike] = make_target,
    ) -> None:
        """Describe a target; nothing runs yet.

        `settings` replaces what the other arguments say, except that an empty state directory
        is made for it. Raises `TargetError` when something is wrong with them.
        """
        # Unix sockets have short paths, which the temporary folders of test runners are not.
        self.directory = Path(tempfile.mkdtemp(prefix="prestage-"))
        self._make = make
        try:
            wanted = settings or _settings(
                namespaces, nqn, hosts, dram, self.directory, extension, prestager
            )
            self.settings = require_valid(wanted, "Target")
        except BaseException:
            shutil.rmtree(self.directory)
            raise
        self.control_socket = str(self.directory / "prestage.sock")
        self.target: view.TargetLike
        self._control: ControlServer | None = None

    @property
    def address(self) -> str:
        """The address of the first listener."""
        return view.listeners(self.target)[0].address

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return view.listeners(self.target)[0].port

    @property
    def nqn(self) -> str:
        """The NQN of the first subsystem."""
        return view.subsystems(self.target)[0].nqn

    @property
    def namespaces(self) -> list[view.NamespaceView]:
        """The namespaces of all subsystems, as they are now."""
        return view.namespaces(self.target)

    def client(self) -> Client:
        """Return a connection to the control socket; not to be used in the loop's own thread."""
        return Client(self.control_socket)

    async def start(self) -> None:
        """Start; `async with` does it. Raises what the target raises."""
        try:
            target = self._make(self.settings)
            await target.start()
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self.target = target
        self._control = ControlServer(Context(target, self._killed), self.control_socket)
        self._control.claim()
        self._control.start()

    def _killed(self, number: int) -> None:
        name = signal.Signals(number).name
        raise TargetError(f"{name} is refused: this target shares its process with a test")

    async def stop(self) -> view.StopReportLike:
        """Stop and remove all files; `async with` does it. Returns how it went."""
        try:
            if self._control is not None:
                await self._control.stop()
            return await self.target.stop(STOP_S)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        report = await self.stop()
        if error is None and not report.clean:
            lost = ", ".join(map(str, report.unflushed))
            raise TargetError(f"the target could not flush: {lost or 'it does not say what'}")


def _settings(
    namespaces: Sequence[NamespaceLike],
    nqn: str,
    hosts: Sequence[str],
    dram: str | int,
    directory: Path,
    extension: bool,
    prestager: bool,
) -> TargetSettings:
    subsystem = SubsystemSettings(
        nqn=nqn,
        extension=extension,
        hosts=list(hosts),
        namespaces=[namespace_settings(one) for one in namespaces],
    )
    return TargetSettings(
        listeners=[ListenerSettings(port=0)],
        subsystems=[subsystem],
        # Huge pages would be taken from whoever else uses the machine.
        tier=TierSettings(size=parse_size(dram), huge_pages=False),
        limits=LimitSettings(connections=256, stop_s=STOP_S),
        # A process for each target is half the time of a short test.
        prestager=PrestagerSettings(enabled=prestager),
        state_directory=str(directory),
    )


@contextlib.contextmanager
def in_thread(target: Target) -> Iterator[Target]:
    """Run a target in a thread with an event loop of its own, for tests that are not coroutines."""
    outcome: list[BaseException] = []
    ready = threading.Event()
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with target:
            ends.append(partial(loop.call_soon_threadsafe, over.set))
            ready.set()
            await over.wait()

    def body() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, below
            outcome.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=body, name="prestage-target", daemon=True)
    thread.start()
    ready.wait()
    try:
        if not outcome:
            yield target
    finally:
        for end in ends:
            end()
        thread.join()
    if outcome:
        raise outcome[0]


class SpawnedTarget:
    """A target that is a process of its own. Use `spawn_target`."""

    def __init__(self, process: subprocess.Popen[bytes], ready: dict[str, Any], log: Path) -> None:
        self.process = process
        self.ready = ready
        """What the target said when it was ready (docs/cli.md)."""
        self.log = log
        """The file of its standard output and error."""

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    @property
    def address(self) -> str:
        """The address of the first listener."""
        return str(self.ready["listeners"][0]["address"])

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return int(self.ready["listeners"][0]["port"])

    @property
    def ports(self) -> list[int]:
        """The ports of all listeners."""
        return [one["port"] for one in self.ready["listeners"]]

    @property
    def nqn(self) -> str:
        """The NQN of the first subsystem."""
        return str(self.ready["subsystems"][0]["nqn"])

    @property
    def namespaces(self) -> list[dict[str, Any]]:
        """The namespaces that it had when it was ready."""
        return [one for each in self.ready["subsystems"] for one in each["namespaces"]]

    @property
    def control_socket(self) -> str:
        """The path of its control socket."""
        return str(self.ready["control_socket"])

    def client(self) -> Client:
        """Return a connection to the control socket."""
        return Client(self.control_socket)

    def kill(self) -> int:
        """End it at once (SIGKILL) and return its exit status, which is -9."""
        self.process.kill()
        return self.process.wait()

    def terminate(self, timeout_s: float = 60.0) -> int:
        """Let it drain and flush (SIGTERM); return its exit status, 0 when all went well."""
        self.process.terminate()
        return self.process.wait(timeout_s)


@contextlib.contextmanager
def spawn_target(
    *arguments: str,
    namespaces: Sequence[NamespaceLike] = (DEFAULT_NAMESPACE,),
    dram: str | int = DEFAULT_DRAM,
    directory: str | Path | None = None,
    timeout_s: float = READY_S,
    python: Sequence[str] = ("-m", "prestage"),
) -> Iterator[SpawnedTarget]:
    """Run `prestage serve` as a process until the block ends, or it is ended before.

    `arguments` are further flags of `serve`. `directory`, when given, holds the state and stays.
    `python` is what the interpreter runs as the command `prestage`.
    Raises `TargetError`, with the end of its log, when it does not get ready in time.
    """
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="prestage-"))
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        log = folder / "serve.log"
        command = [sys.executable, *python, *_serve(arguments, namespaces, dram, folder)]
        process, fd = _start(command, log)
        at_exit = process.kill
        atexit.register(at_exit)
        try:
            ready = _wait_ready(fd, process, log, timeout_s)
            yield SpawnedTarget(process, ready, log)
        finally:
            atexit.unregister(at_exit)
            if process.poll() is None:
                process.kill()
            process.wait()


def _serve(
    arguments: Sequence[str],
    namespaces: Sequence[NamespaceLike],
    dram: str | int,
    folder: Path,
) -> list[str]:
    flags = ["--state-directory", str(folder), "--dram", str(dram)]
    if "--config" not in arguments:
        for one in namespaces:
            flags += ["--namespace", namespace_flag(one)]
    if "--listen" not in arguments:
        flags += ["--listen", "127.0.0.1:0"]
    return ["serve", *flags, *arguments]


def namespace_flag(wanted: NamespaceLike) -> str:
    """Return the --namespace flag for a namespace that was asked for."""
    if isinstance(wanted, str) and not _is_size(wanted):
        return wanted
    settings = namespace_settings(wanted)
    path = settings.path.replace("%", "%25").replace(",", "%2C").replace("|", "%7C")
    parts = [f"{settings.media}:{path}", f"block={settings.block}"]
    if settings.size:
        parts.append(f"size={size_text(settings.size)}")
    if settings.nsid:
        parts.append(f"nsid={settings.nsid}")
    parts += [f"write={settings.write_policy}", f"read_only={str(settings.read_only).lower()}"]
    parts += [f"{name}={value}" for name, value in settings.media_options.items()]
    parts += [f"fault={fault.replace(',', ';')}" for fault in settings.faults]
    parts += [f"uuid={settings.uuid}"] if settings.uuid else []
    parts += [f"nguid={settings.nguid}"] if settings.nguid else []
    return ",".join(parts)


def _is_size(text: str) -> bool:
    try:
        parse_size(text)
    except ValueError:
        return False
    return True


def _start(command: list[str], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start the process; return it and the end of the pipe that it reports on when ready."""
    reader, writer = os.pipe()
    # The package may be used from a checkout that is on the path and installed nowhere.
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *filter(None, sys.path)])
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*command, "--ready-fd", str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(writer,),
                env={**os.environ, "PYTHONPATH": path},
            )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return process, reader


def _wait_ready(
    fd: int, process: subprocess.Popen[bytes], log: Path, timeout_s: float
) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    text = b""
    poll = select.poll()  # select() knows no descriptor above 1023.
    with os.fdopen(fd, "rb", buffering=0) as pipe:
        poll.register(pipe, select.POLLIN)
        while not text.endswith(b"\n"):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not poll.poll(left_s * 1000):
                raise TargetError(f"the target was not ready in {timeout_s:g} s{_tail(log)}")
            piece = pipe.read(1 << 16)
            if not piece:
                code = process.wait(timeout_s)
                raise TargetError(f"the target ended with status {code}{_tail(log)}")
            text += piece
    ready: dict[str, Any] = json.loads(text)
    return ready


def _tail(log: Path) -> str:
    text = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    return f"; it said: {text}" if text else ""
