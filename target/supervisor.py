"""Starts the prestager's process, watches it, and starts it anew when it has died.

The data path goes on without it: its orders are forgotten and the tier is the plain one again until
the next process gives others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

import prestage
from prestage.ext.pages import Benefit, encode_benefit
from prestage.target.datapath import DataPath
from prestage.target.prestager.launch import Alive, Launch, Words
from prestage.target.processes import usage_of
from prestage.target.settings import TargetSettings

__all__ = ["COMMAND", "State", "Supervisor"]

log = logging.getLogger("prestage.prestager")

COMMAND: Final = (sys.executable, "-m", "prestage.target.prestager")
"""What is run; its settings follow."""
SNAPSHOT_NAME: Final = "prestager.snapshot"
START_S: Final = 60.0
"""It may take so long to read what it had learned, or `silence_s` where that is longer."""
STOP_S: Final = 10.0
"""And so long to write it."""
FIRST_BACK_OFF_S: Final = 0.25
MOST_BACK_OFF_S: Final = 60.0
HEALTHY_S: Final = 60.0
"""A process that lived so long did not die of how it was started."""
DISTRUST_AFTER: Final = 3
"""Deaths in a row before that: perhaps it dies of what it had learned."""
SECOND_LOOK_S: Final = 0.1
LINE_BYTES: Final = 4 << 20
TAIL_BYTES: Final = 4096
OTHER_TENANTS: Final = {0: "*"}
"""The number that hosts share when there are too many of them."""


class State(StrEnum):
    """What there is of a prestager."""

    OFF = "off"
    """It was not asked for, or nobody would tell it what happens."""
    STARTING = "starting"
    RUNNING = "running"
    DEAD = "dead"
    """It ended, and is started again in a while."""
    STOPPED = "stopped"
    """The target stops."""


@dataclass
class Child:
    """One process."""

    process: asyncio.subprocess.Process
    writer: asyncio.StreamWriter
    heard_s: float
    """When it gave a sign of life; before the first, when it was born."""
    listener: asyncio.Task[None]
    tail: asyncio.Task[bytes]
    alive: Alive | None = None
    cpu_s: float = 0.0
    """Processor time it had had by then."""


@dataclass
class Supervisor:
    """Keeps one prestager running for a data path; all in the event loop's thread."""

    data_path: DataPath
    settings: TargetSettings
    command: Sequence[str] = COMMAND
    state: State = State.OFF
    restarts: int = 0
    """Processes that were started after the first."""
    last_error: str = ""
    """Why the last one died; empty: none has."""
    _stop_at_s: float = 0.0
    """When one that was told to end is killed."""
    _deaths: int = 0
    """In a row, each soon after its start."""
    _child: Child | None = None
    _task: asyncio.Task[None] | None = None
    _names: Words = field(default_factory=lambda: Words({}, dict(OTHER_TENANTS)))
    _told: set[str] = field(default_factory=set)
    """Troubles that the log has."""

    # ---- life ----

    @property
    def is_wanted(self) -> bool:
        """Whether there is to be one."""
        fds = (self.data_path.ring_fd(), self.data_path.orders_fd())
        return self.settings.prestager.enabled and min(fds) >= 0

    async def start(self) -> None:
        """Start the first process, without waiting until it is ready."""
        if self.is_wanted:
            self.state = State.STARTING
            born = await self._begin()
            self._task = asyncio.get_running_loop().create_task(self._keep(born))

    def begin_stop(self) -> None:
        """Tell it to end: what happens from now on it does not learn."""
        if self._task is None or self.state is State.STOPPED:
            return
        self.state = State.STOPPED
        self._stop_at_s = asyncio.get_running_loop().time() + STOP_S
        if self._child is None:
            self._task.cancel()
        else:
            self._child.writer.write(msgspec.json.encode(Words(is_last=True)) + b"\n")
            self._child.writer.write_eof()

    async def stop(self) -> None:
        """Let it write what it has learned and end. May be called twice."""
        self.begin_stop()
        task, self._task = self._task, None
        if task is None:
            return
        # It was told before the target drained, so most of its time may have passed.
        left_s = self._stop_at_s - asyncio.get_running_loop().time()
        await asyncio.wait({task}, timeout=max(left_s, 0))
        if not task.done() and self._child is not None:
            log.warning("the prestager did not end within %g s and was killed", STOP_S)
            self._kill(self._child)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def hurry(self) -> None:
        """Let a stop under way wait no longer: what was learned since the last writing is lost."""
        if self.state is State.STOPPED and self._child is not None:
            log.warning("the prestager was killed: the stop is hurried")
            self._kill(self._child)

    async def _keep(self, born: Child | str) -> None:
        """Watch one process after the other until `stop`."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            why = born if isinstance(born, str) else await self._watch(born)
            self.data_path.orders_reset()
            if self.state is State.STOPPED:
                return
            self.state, self.last_error = State.DEAD, why
            healthy = loop.time() - began_s >= HEALTHY_S
            self._deaths = 0 if healthy else self._deaths + 1
            back_off_s = min(FIRST_BACK_OFF_S * 2**self._deaths, MOST_BACK_OFF_S)
            log.warning("the prestager %s; started again in %g s", why, back_off_s)
            await asyncio.sleep(back_off_s)
            self.restarts += 1
            self.state = State.STARTING
            born = await self._begin()

    # ---- one process ----

    async def _begin(self) -> Child | str:
        """Start a process; return it, or why that failed."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._child = await self._spawn(ours, its)
        except OSError as error:
            ours.close()
            return f"could not be started: {error.strerror or error}"
        except BaseException:
            ours.close()
            raise
        finally:
            its.close()
        return self._child

    async def _spawn(self, ours: socket.socket, its: socket.socket) -> Child:
        loop = asyncio.get_running_loop()
        launch = self._launch(its.fileno())
        process = await asyncio.create_subprocess_exec(
            *self.command,
            msgspec.json.encode(launch).decode(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=[getattr(launch, name) for name in DESCRIPTORS],
            # Ctrl-C on a terminal is for the target, which says when to end.
            process_group=0,
            env=_environment(),
        )
        try:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LINE_BYTES)
        except BaseException:
            process.kill()
            raise
        assert process.stderr is not None, "it was asked for"
        child = Child(
            process,
            writer,
            heard_s=loop.time(),
            listener=loop.create_task(self._listen(reader)),
            tail=loop.create_task(_last_words(process.stderr)),
        )
        writer.write(msgspec.json.encode(self._names) + b"\n")
        return child

    def _launch(self, channel: int) -> Launch:
        own, tier, data_path = self.settings.prestager, self.settings.tier, self.data_path
        directory = Path(self.settings.state_directory)
        return Launch(
            channel=channel,
            ring=data_path.ring_fd(),
            orders=data_path.orders_fd(),
            ring_wake=data_path.ring_wake_fd(),
            orders_wake=data_path.orders_wake_fd(),
            frame_count=tier.size // tier.slot,
            slot_size=tier.slot,
            seed=own.seed,
            holdout_share=own.holdout_percent / 100,
            time_scale=own.time_scale,
            snapshot=own.snapshot or str(directory / SNAPSHOT_NAME),
            snapshot_s=own.snapshot_s,
            distrust=self._deaths >= DISTRUST_AFTER,
            memory_bytes=own.memory,
            hang_s=self._start_s,
            orphan_s=STOP_S,
            is_idle=own.scheduling == "idle",
            cpus=own.cpus or _left_by(self.settings.cpus),
        )

    async def _watch(self, child: Child) -> str:
        """Return how it ended. One that gives no sign of life is killed."""
        loop, own = asyncio.get_running_loop(), self.settings.prestager
        ending = loop.create_task(child.process.wait())
        killed = ""
        while not ending.done():
            left_s = max(self._silent_at(child) - loop.time(), 0.001)
            # It is judged more strictly once it has been heard.
            await asyncio.wait({ending}, timeout=min(left_s, own.silence_s))
            if ending.done() or loop.time() < self._silent_at(child):
                continue
            # The target itself may have been stopped: what has come meanwhile counts.
            await asyncio.wait({ending}, timeout=SECOND_LOOK_S)
            if ending.done() or loop.time() < self._silent_at(child) or killed:
                continue
            now = usage_of(child.process.pid)
            # One that would run but is not let has done nothing wrong.
            if now.is_runnable and now.cpu_s - child.cpu_s < self._patience_s(child):
                continue
            silent_s = loop.time() - child.heard_s
            killed = f"gave no sign of life for {silent_s:.1f} s and was killed"
            self._kill(child)
        said = await self._bury(child)
        return killed or _how(ending.result(), said)

    def _patience_s(self, child: Child) -> float:
        return self._start_s if child.alive is None else self.settings.prestager.silence_s

    @property
    def _start_s(self) -> float:
        return max(START_S, self.settings.prestager.silence_s)

    def _silent_at(self, child: Child) -> float:
        return child.heard_s + self._patience_s(child)

    def _kill(self, child: Child) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.process.kill()

    async def _bury(self, child: Child) -> str:
        """Give back what a process that has ended held; return its last words."""
        self._child = None
        self.data_path.set_benefit(encode_benefit(Benefit()))
        child.listener.cancel()
        child.writer.close()
        with contextlib.suppress(asyncio.CancelledError):
            await child.listener
        # Whatever it may have started could still hold its standard error.
        _, pending = await asyncio.wait({child.tail}, timeout=SECOND_LOOK_S)
        for task in pending:
            task.cancel()
        return "" if pending else child.tail.result().decode(errors="replace").strip()

    # ---- what it says, and is told ----

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        # One that says what cannot be is as good as silent.
        with contextlib.suppress(msgspec.MsgspecError, ValueError, OSError):
            while line := await reader.readline():
                self._heard(msgspec.json.decode(line, type=Alive))

    def _heard(self, alive: Alive) -> None:
        child = self._child
        if child is None:
            return
        if child.alive is None and self.state is State.STARTING:
            self.state = State.RUNNING
            log.info("the prestager runs as process %d", child.process.pid)
        child.alive, child.heard_s = alive, asyncio.get_running_loop().time()
        child.cpu_s = usage_of(child.process.pid).cpu_s
        self.data_path.set_benefit(encode_benefit(alive.benefit))
        troubles = {f"{about}: {text}" for about, text in alive.troubles.items()}
        for text in sorted(troubles - self._told):
            log.warning("prestager: %s", text)
        self._told = troubles

    def name_volume(self, number: int, uuid: str) -> None:
        """Say which namespace a volume is, before anything happens to it."""
        self._tell(Words(volumes={number: uuid}))

    def name_tenant(self, number: int, nqn: str) -> None:
        """Say which host a tenant is, before it does anything."""
        self._tell(Words(tenants={number: nqn}))

    def _tell(self, names: Words) -> None:
        self._names.volumes.update(names.volumes)
        self._names.tenants.update(names.tenants)
        if self._child is not None and self.state is not State.STOPPED:
            self._child.writer.write(msgspec.json.encode(names) + b"\n")

    # ---- for the statistics ----

    @property
    def warnings(self) -> list[str]:
        """What somebody should know, in sentences."""
        found = [f"prestager: {text}" for text in sorted(self._told)]
        if self.state is State.DEAD:
            found.append(f"the prestager {self.last_error}")
        elif self.state is State.STARTING and self.last_error:
            found.append(f"the prestager {self.last_error}, and is starting again")
        return found

    def report(self) -> dict[str, Any]:
        """Return state, counters and what the prestager says of itself, as plain values."""
        child = self._child
        alive = child.alive if child is not None else None
        return {
            "state": self.state.value,
            "pid": child.process.pid if child is not None else None,
            "restarts": self.restarts,
            "last_error": self.last_error,
            "process": {} if alive is None else alive.counters,
            "orders": self.data_path.orders_stats(),
            "tier": self.data_path.model_stats(),
            "learned": {} if alive is None else alive.report,
        }


DESCRIPTORS: Final = ("channel", "ring", "orders", "ring_wake", "orders_wake")
"""Fields of a Launch that a process inherits."""


async def _last_words(stream: asyncio.StreamReader) -> bytes:
    """Read everything and return the end of it."""
    tail = b""
    while piece := await stream.read(TAIL_BYTES):
        tail = (tail + piece)[-TAIL_BYTES:]
    return tail


def _how(status: int, said: str) -> str:
    """Return in words how a process ended: by its status (negative: a signal) and its last line."""
    try:
        ended = f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        ended = f"ended with status {status}"
    last = said.splitlines()[-1] if said else ""
    return f"{ended}: {last}" if last else ended


def _left_by(reactors: Sequence[int]) -> list[int]:
    """Return the processors that no reactor is pinned to; none: there are no others."""
    return sorted(os.sched_getaffinity(0) - set(reactors)) if reactors else []


def _environment() -> dict[str, str]:
    """Return the environment: this package is found, and numpy keeps to one thread."""
    root = str(Path(prestage.__file__).parents[1])
    path = os.pathsep.join([root, *filter(None, sys.path)])
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**os.environ, "PYTHONPATH": path, **one}
