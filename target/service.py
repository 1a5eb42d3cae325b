"""The daemon: a target under asyncio with signals, readiness, control socket and exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import structlog

from prestage.target import descriptors, readiness
from prestage.target.errors import TargetError
from prestage.target.notify import notify
from prestage.target.places import control_socket_path
from prestage.target.ready_file import ReadyFile
from prestage.target.rpc import view
from prestage.target.rpc.context import Context
from prestage.target.rpc.server import ControlServer
from prestage.target.rpc.view import TargetLike
from prestage.target.settings import TargetSettings

EXIT_CLEAN = 0
EXIT_FAILED = 1
EXIT_UNFLUSHED = 3

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""SIGHUP last: it is left out where it is ignored."""
STOP_GRACE_S = 10.0
"""How much longer than it promised a stop may take before the process gives up on it."""
HURRY_S = 1.0
"""How much longer a stop may take once it is hurried."""

log = structlog.get_logger("prestage.service")

MakeTarget = Callable[[TargetSettings], TargetLike]


def make_target(settings: TargetSettings) -> TargetLike:
    """Return the real target. Imported late: `prestage --help` needs no data path."""
    from prestage.target.target import Target

    return Target(settings)


@dataclass
class Service:
    """One run of the daemon; `run` returns the exit code."""

    settings: TargetSettings
    ready_file: str | None = None
    ready_fd: int | None = None
    json: bool = False
    make: MakeTarget = make_target
    say: Callable[[str], None] | None = None
    gave_up: bool = False
    """The stop did not end; whatever still runs has to end with the process."""
    """About the process; the target has its own."""
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def _say(self, line: str) -> None:
        (self.say or print_line)(line)

    async def run(self) -> int:
        """Start, serve until a signal, stop. Returns the exit code of the process."""
        loop = asyncio.get_running_loop()
        # One that nohup has set to be ignored stays so: whoever used it wants the target to go on.
        is_deaf = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        numbers = STOP_SIGNALS[:-1] if is_deaf else STOP_SIGNALS
        for number in numbers:
            loop.add_signal_handler(number, self._signalled, number)
        try:
            return await self._run()
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _signalled(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            log.warning("told to stop again: hurrying", signal=number.name)
            self._hurry.set()
        else:
            log.info("told to stop", signal=number.name)
            self._stop.set()

    async def _run(self) -> int:
        if self.ready_fd is not None:
            readiness.check_fd(self.ready_fd)
        await asyncio.to_thread(self._prepare)
        target = self.make(self.settings)
        control = ControlServer(Context(target, self._kill), control_socket_path(self.settings))
        ready_file = None if self.ready_file is None else ReadyFile(self.ready_file)
        try:
            descriptors.raise_limit(self.settings.limits.connections)
            # The lock of the control socket first: a second target in one place touches nothing.
            control.claim()
            if ready_file is not None:
                # One left over would tell a waiting program of a target that is not there yet.
                await asyncio.to_thread(ready_file.claim, control.path)
            notify("STATUS=starting")
            if not await self._start(target):
                return self._tell_given_up() if self.gave_up else await self._finish(target)
            try:
                control.start()
                await self._tell_ready(target, control.path, ready_file)
                await self._stop.wait()
            except BaseException:
                await self._finish(target)
                raise
            notify("STOPPING=1", "STATUS=flushing and closing")
            return await self._finish(target)
        finally:
            if ready_file is not None:
                await asyncio.to_thread(ready_file.remove)
            await control.stop()

    async def _start(self, target: TargetLike) -> bool:
        """Start the target; return False when a signal came first."""
        starting = asyncio.ensure_future(target.start())
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await self._wait_hurried(starting, STOP_GRACE_S, target)
                # A medium that does not open cannot be called off: the process ends around it.
                self.gave_up = not starting.done()
                if not self.gave_up:
                    with contextlib.suppress(asyncio.CancelledError):
                        await starting
                return False
            await starting
        finally:
            stopping.cancel()
        return True

    async def _wait_hurried(
        self, work: asyncio.Future[Any], limit_s: float, target: TargetLike
    ) -> None:
        """Wait for `work`, for `limit_s` at most, and not much longer after a second signal."""
        hurrying = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait({work, hurrying}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not work.done():
            target.hurry()
            await asyncio.wait({work}, timeout=HURRY_S)

    def _prepare(self) -> None:
        Path(self.settings.state_directory).mkdir(parents=True, exist_ok=True)
        Path(control_socket_path(self.settings)).parent.mkdir(parents=True, exist_ok=True)

    def _kill(self, number: int) -> None:
        os.kill(os.getpid(), number)

    async def _tell_ready(
        self, target: TargetLike, control_socket: str, ready_file: ReadyFile | None
    ) -> None:
        ready = readiness.report(target, control_socket)
        if ready_file is not None:
            # Before anything is said: this can still fail.
            await asyncio.to_thread(ready_file.write, ready)
        if self.json:
            self._say(msgspec.json.encode(ready).decode())
        else:
            for line in readiness.banner(ready):
                self._say(line)
        if self.ready_fd is not None and not readiness.write_fd(self.ready_fd, ready):
            log.warning("nobody reads the ready descriptor", fd=self.ready_fd)
        addresses = ", ".join(f"{one['address']} port {one['port']}" for one in ready["listeners"])
        notify("READY=1", f"STATUS=serving on {addresses or 'no address'}")

    async def _finish(self, target: TargetLike) -> int:
        """Stop the target, in a hurry once a second signal came; return the exit code."""
        limit = self.settings.limits.stop_s
        stopping = asyncio.ensure_future(target.stop(limit))
        await self._wait_hurried(stopping, limit + STOP_GRACE_S, target)
        if not stopping.done():
            # A stop that is cancelled half way can no longer tell what it lost, so it is left
            # alone: the process ends around it, and says what is not on the media now.
            self.gave_up = True
            left = []
            with contextlib.suppress(TargetError):
                left = view.unflushed(target)
            left = left or ["the target did not say that it had finished"]
            return self._tell_stopped(False, left)
        report = stopping.result()
        return self._tell_stopped(report.clean, [str(item) for item in report.unflushed])

    def _tell_given_up(self) -> int:
        """Say that it was told to stop while it could not start; return the exit code."""
        why = "a medium that was being opened does not answer; no host was served"
        if self.json:
            gone = {"stopped": True, "clean": False, "unflushed": [], "reason": why}
            self._say(msgspec.json.encode(gone).decode())
        else:
            self._say(f"stopped: {why}")
        return EXIT_FAILED

    def _tell_stopped(self, clean: bool, unflushed: Sequence[str]) -> int:
        code = EXIT_CLEAN if clean and not unflushed else EXIT_UNFLUSHED
        stopped: dict[str, Any] = {
            "stopped": True,
            "clean": code == EXIT_CLEAN,
            "unflushed": list(unflushed),
        }
        if self.json:
            self._say(msgspec.json.encode(stopped).decode())
        elif code == EXIT_CLEAN:
            self._say("stopped: everything is flushed")
        else:
            self._say(f"stopped: not flushed: {'; '.join(unflushed) or 'something unnamed'}")
        return code


def print_line(line: str) -> None:
    """Write a line to standard output at once; a reader that has gone is no reason to stop."""
    with contextlib.suppress(OSError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def run(service: Service) -> int:
    """Run the daemon and return its exit code; what keeps it from starting is one sentence."""
    try:
        with asyncio.Runner() as runner:
            code = runner.run(service.run())
            if service.gave_up:
                # Threads that wait for a medium which never answers would hold the exit up.
                sys.stdout.flush()
                os._exit(code)
            return code
    except (TargetError, OSError) as error:
        message = describe(error)
        log.debug("start failed", reason=message)
        sys.stderr.write(f"prestage: cannot serve: {message}\n")
        return EXIT_FAILED


def describe(error: Exception) -> str:
    """Return an error as one sentence, with the file that an OSError is about."""
    if isinstance(error, OSError) and error.strerror:
        name = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{name}"
    return str(error) or type(error).__name__
