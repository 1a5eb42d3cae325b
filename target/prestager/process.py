"""The prestager's process: takes facts, lets the prestager learn, gives its orders, and sleeps.

It is started by the target (prestage.target.supervisor) and ends with it. Nothing that goes wrong
here reaches a byte of a block: at worst the target starts it anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from prestage.target.errors import TargetError
from prestage.target.prestager.channel import Channel
from prestage.target.prestager.exchange import DecisionLike, Exchange, wakes
from prestage.target.prestager.keeper import Keeper
from prestage.target.prestager.launch import Alive, Launch, decode_words
from prestage.target.prestager.lifeline import Lifeline
from prestage.target.prestager.numbering import Clock
from prestage.target.prestager.shared import Gauges, OrdersWriter
from prestage.target.prestager.snapshot import encode
from prestage.target.ring import RingReader, RingWaits

__all__ = ["MakePrestager", "PrestagerLike", "main"]

PORTION: Final = 8192
"""Facts that are learned from at a time: between two portions the target is heard."""
SLEEP_S: Final = 0.25
"""The longest sleep: facts that nobody is woken for are taken at least so often."""
REST_S: Final = 0.01
"""The longest rest after a turn."""
SHARE: Final = 4
"""And so often that they do not fill more than this part of the ring."""
NICENESS: Final = 10
"""Added to that of the target."""
OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
SPARED: Final = "500"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
PAGE_BYTES: Final = resource.getpagesize()


class PrestagerLike(Protocol):
    """What is asked of a prestager: `Prestager` of prestage.target.prestager.engine."""

    def observe(self, facts: NDArray[np.void]) -> None:
        """Learn from facts, oldest first; no view of them is kept."""

    def decide(self, now_ns: int, gauges: Gauges) -> DecisionLike:
        """Return what is to be done now."""

    def report(self) -> Any:
        """Return how it is doing, as a dataclass of plain numbers."""

    def save(self) -> Mapping[str, NDArray[Any]]:
        """Return what was learned."""

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over what was learned. Raises TargetError when that cannot be."""


MakePrestager = Callable[[Launch], PrestagerLike]


def make_prestager(launch: Launch) -> PrestagerLike:
    """Return the real one."""
    from prestage.target.prestager.engine import Prestager, PrestagerConfig

    config = PrestagerConfig(holdout_share=launch.holdout_share)
    prestager = Prestager(
        config, frame_count=launch.frame_count, slot_size=launch.slot_size, seed=launch.seed
    )
    if launch.time_scale == 1:
        return prestager
    from prestage.target.prestager.timescale import ScaledPrestager

    return ScaledPrestager(prestager, launch.time_scale)


def main(
    arguments: Sequence[str],
    *,
    prestager_factory: MakePrestager = make_prestager,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> int:
    """Run until the target is gone or wants it to end; returns the exit status.

    `arguments` is one text, a Launch as JSON. `clock_ns` is the clock of the facts.
    """
    launch = msgspec.json.decode(arguments[0], type=Launch)
    _behave(launch)
    lifeline = Lifeline(launch.hang_s, launch.orphan_s)
    process = Process(launch, prestager_factory, Clock(clock_ns), lifeline)
    for number in (signal.SIGINT, signal.SIGHUP):
        # The target hears these too, and says when to end.
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: process.end())
    process.run()
    return 0


def _behave(launch: Launch) -> None:
    """Stand back for the data path, and take no more memory than is allowed."""
    _schedule(is_idle=launch.is_idle, cpus=launch.cpus)
    with contextlib.suppress(OSError):
        # Should memory run out, it is this process that can be spared.
        OOM_SCORE.write_text(SPARED, "ascii")
    if launch.memory_bytes:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = _data_bytes() + launch.memory_bytes
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _schedule(*, is_idle: bool, cpus: Sequence[int]) -> None:
    """Run behind others, whatever policy the target has: real time would be inherited."""
    os.sched_setscheduler(0, os.SCHED_IDLE if is_idle else os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, 0, min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19))
    with contextlib.suppress(OSError):
        # Processors come and go; those that it inherited are as good.
        if cpus:
            os.sched_setaffinity(0, cpus)


def _data_bytes() -> int:
    """Return the size of this process's own memory, whether or not it was ever used."""
    status = Path("/proc/self/status").read_text("ascii", "replace")
    lines = dict(line.split(":", 1) for line in status.splitlines())
    return int(lines["VmData"].split()[0]) << 10


class Process:
    """One life of the prestager."""

    def __init__(
        self, launch: Launch, make: MakePrestager, clock: Clock, lifeline: Lifeline
    ) -> None:
        self._launch = launch
        self._lifeline = lifeline
        self._clock = clock
        self._channel = Channel(launch.channel)
        self._wake = launch.ring_wake
        self._end = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        os.set_blocking(self._wake, False)
        self._exchange = Exchange(
            RingReader(launch.ring), OrdersWriter(launch.orders), launch.orders_wake, clock
        )
        self._keeper = Keeper(launch.snapshot, launch.snapshot_s)
        self._prestager = self._recall(make)
        self._next_ns = 0
        self._waits = RingWaits.ALL
        self._told_s = 0.0
        self._taken_s = time.monotonic()
        self._rate = 0.0
        """Facts a second, as of late."""
        self._rest_s = 0.0
        """For how long more reads may gather before they are learned from."""
        self._is_kept = False
        """Whether this is an end at which what was learned is written."""
        self._learned = False
        """Whether anything is new since the file was written."""
        self.counters = dict.fromkeys(("wake_ups", "decisions", "observe_ns", "decide_ns"), 0)
        """Times are of the processor: it may wait long for one that nothing else wants."""

    # ---- life ----

    def end(self) -> None:
        """End soon, in order. May be called by a signal handler."""
        os.eventfd_write(self._end, 1)

    def run(self) -> None:
        """Go on until the target says that it is over, or `end` was called."""
        poll = select.poll()
        for descriptor in (self._wake, self._end, self._channel.fileno()):
            poll.register(descriptor, select.POLLIN)
        self._tell()
        self._hear_first_words(poll)
        ended = False
        while not ended and self._turn():
            ready = {descriptor for descriptor, _ in poll.poll(self._sleep_ms())}
            self._exchange.wait_for(RingWaits.NOT)
            self.counters["wake_ups"] += 1
            ended = self._end in ready
            self._is_kept = self._is_kept or ended
            if self._wake in ready:
                os.eventfd_read(self._wake)
        if self._is_kept and (self._learned or "snapshot_write" in self._keeper.troubles):
            self._keeper.finish(self._learned_bytes())
            self._tell()

    def _hear_first_words(self, poll: select.poll) -> None:
        """Wait for what the target says first: what numbers in facts that wait stand for."""
        while self._channel.is_open and not self._hear():
            if self._end in {descriptor for descriptor, _ in poll.poll()}:
                return
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)  # Facts are looked at anyway, later.

    def _hear(self) -> int:
        """Take what the target has said; returns how many lines that were."""
        lines = self._channel.receive()
        for line in lines:
            words = decode_words(line)
            self._exchange.name(words)
            self._is_kept = self._is_kept or words.is_last
        return len(lines)

    def _turn(self) -> bool:
        """Do what there is to do; False when the target stops or is gone."""
        began_s = time.monotonic()
        raw = self._exchange.fetch(PORTION)
        # Read after the facts were taken: it says what numbers in them stand for, and when the
        # target ends, before it does what we should not learn.
        self._hear()
        if self._is_kept or not self._channel.is_open:
            return False
        self._measure(len(raw))
        facts = self._exchange.translate(raw)
        if len(facts):
            start = time.thread_time_ns()
            self._prestager.observe(facts)
            self.counters["observe_ns"] += time.thread_time_ns() - start
            self._learned = True
        if wakes(facts, self._waits) or self._clock.now() >= self._next_ns:
            self._decide()
        if self._keeper.is_due and self._learned:
            self._keeper.start(self._learned_bytes())
            self._learned = False
        if time.monotonic() - self._told_s >= self._launch.report_s:
            self._tell()
        self._rest_s = min(time.monotonic() - began_s, REST_S) if len(raw) else 0.0
        return True

    def _decide(self) -> None:
        start = time.thread_time_ns()
        decision = self._prestager.decide(self._clock.now(), self._exchange.gauges())
        self._exchange.give(decision)
        self._next_ns, self._waits = decision.next_ns, decision.waits
        self.counters["decisions"] += 1
        self.counters["decide_ns"] += time.thread_time_ns() - start

    # ---- sleep ----

    def _measure(self, taken: int) -> None:
        now_s = time.monotonic()
        elapsed_s = max(now_s - self._taken_s, 1e-6)
        self._taken_s = now_s
        self._rate = max(taken / elapsed_s, self._rate / 2)

    def _sleep_ms(self) -> float:
        """Return for how long to sleep; 0 when there is something to do already."""
        # Reads gather for as long as the last turn took, so that it is not one turn for each; hints
        # are not kept waiting.
        rests = self._rest_s > 0 and self._waits == RingWaits.ALL
        waits = RingWaits.HINTS if rests else self._waits
        if self._exchange.backlog >= PORTION or self._exchange.wait_for(waits):
            return 0
        report_s = self._told_s + self._launch.report_s - time.monotonic()
        fill_s = self._exchange.capacity / SHARE / self._rate if self._rate > 1 else SLEEP_S
        least_s = min(report_s, fill_s, SLEEP_S, self._clock.until_s(self._next_ns))
        if rests:
            least_s = min(least_s, self._rest_s)
        # Not to wake just before it is time.
        return max(least_s, 0) * 1000 + 0.1

    # ---- what was learned ----

    def _recall(self, make: MakePrestager) -> PrestagerLike:
        """Return a prestager that knows what was learned before, as far as that can be used."""
        if self._launch.distrust:
            self._keeper.set_aside("the process ended early, again and again")
            return make(self._launch)
        found = self._keeper.load()
        if found is None:
            return make(self._launch)
        prestager = make(self._launch)
        try:
            self._resume(prestager, *found)
        except (TargetError, KeyError, TypeError, ValueError, IndexError) as error:
            self._keeper.set_aside(f"{self._launch.snapshot}: {error}")
            return make(self._launch)
        return prestager

    def _resume(
        self, prestager: PrestagerLike, about: dict[str, Any], state: dict[str, NDArray[Any]]
    ) -> None:
        if about["slot_size"] != self._launch.slot_size:
            found, expected = about["slot_size"], self._launch.slot_size
            raise TargetError(f"learned with slots of {found} bytes", "", f"{expected}")
        volumes, tenants = [str(n) for n in about["volumes"]], [str(n) for n in about["tenants"]]
        then_ns, elapsed_ns = int(about["now_ns"]), _elapsed_ns(about)
        prestager.load(state)
        self._exchange.remember(volumes, tenants)
        self._clock.go_on_from(then_ns, elapsed_ns)

    def _learned_bytes(self) -> bytes:
        about = {
            "slot_size": self._launch.slot_size,
            "volumes": self._exchange.volumes.names,
            "tenants": self._exchange.tenants.names,
            "now_ns": self._clock.now(),
            **_moment(),
        }
        return encode(about, self._prestager.save())

    # ---- the target ----

    def _tell(self) -> None:
        """Give the target a sign of life."""
        self._lifeline.renew()
        self._told_s = time.monotonic()
        alive = Alive(
            counters=self._counters(),
            troubles=self._keeper.troubles,
            report=_plain(self._prestager.report()),
        )
        self._channel.send(msgspec.json.encode(alive))

    def _counters(self) -> dict[str, int]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return {
            **self._exchange.counters,
            **self.counters,
            "facts_waiting": self._exchange.backlog,
            "facts_lost": self._exchange.lost,
            "cpu_ns": round((used.ru_utime + used.ru_stime) * 1e9),
            "memory_bytes": pages * PAGE_BYTES,
            "snapshots": self._keeper.written,
            "snapshot_bytes": self._keeper.size_bytes,
        }


def _plain(report: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(dataclasses.asdict(report))
    return plain


def _moment() -> dict[str, Any]:
    """Return when it is, so that a later run can tell how much time has passed."""
    return {
        "boot": BOOT_ID.read_text("ascii").strip(),
        "uptime_ns": time.monotonic_ns(),
        "wall_ns": time.time_ns(),
    }


def _elapsed_ns(about: Mapping[str, Any]) -> int:
    """Return how long ago that was. The wall clock may have been set since: it is asked last."""
    now = _moment()
    clock = "uptime_ns" if now["boot"] == about["boot"] else "wall_ns"
    return max(int(now[clock]) - int(about[clock]), 0)
