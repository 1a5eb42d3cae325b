"""Both roles against each other, with no socket: random commands, digests, alignment, splits,
direct receives and early ends; every byte exact and neither end ever at fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from engine_support import (
    COMPLETION,
    CONNECTED,
    EV_COMMAND,
    EV_DATA,
    SENT,
    TERMINATED,
    Engine,
    sqe,
)

from prestage._engine import lib

LENGTHS = (1, 3, 4, 511, 512, 4096, 8192, 20000)


@dataclass
class Job:
    """A command that the host has under way."""

    transfer: int
    data: bytes
    read: Callable[[], bytes]


@dataclass
class Serving:
    """A command as the target knows it: it looks its data up by the number in CDW10."""

    number: int
    transfer: int
    read: Callable[[], bytes] | None = None
    answered: bool = False


@dataclass
class Pair:
    """Two engines and the wires between them."""

    choice: random.Random
    digests: int
    host: Engine = field(init=False)
    target: Engine = field(init=False)
    to_target: bytearray = field(default_factory=bytearray)
    to_host: bytearray = field(default_factory=bytearray)
    jobs: dict[int, Job] = field(default_factory=dict)
    numbers: dict[int, Job] = field(default_factory=dict)
    serving: dict[int, Serving] = field(default_factory=dict)
    submitted: int = 0
    completed: int = 0
    ended_early: int = 0

    def __post_init__(self) -> None:
        choose = self.choice
        slots = choose.choice([1, 2, 7, 32])
        self.host = Engine(
            role=1, digests=self.digests, slot_count=slots, max_r2t=choose.randrange(4),
            data_alignment=choose.randrange(32),
        )  # fmt: skip
        self.target = Engine(
            digests=3, slot_count=slots, max_h2c_data=choose.choice([4096, 8192, 65536])
        )
        self.target.bind(64, choose.random() < 0.5, 8192, choose.random() < 0.5)

    def iovec_sizes(self, length: int) -> list[int]:
        cuts = sorted(self.choice.randrange(length + 1) for _ in range(self.choice.randrange(4)))
        return [b - a for a, b in zip([0, *cuts], [*cuts, length], strict=True)]

    def submit(self) -> None:
        transfer = self.choice.randrange(4)
        length = self.choice.choice(LENGTHS) if transfer else 0
        if transfer == 3:
            length = min(length, 8192)
        data = self.choice.randbytes(length)
        entry = bytearray(sqe(0))
        entry[40:44] = self.submitted.to_bytes(4, "little")
        entry[44] = transfer
        given = data if transfer > 1 else b""
        slot, read = self.host.submit(
            bytes(entry), transfer, given, length, self.iovec_sizes(length) if length else None
        )
        if slot < 0:
            return
        assert slot not in self.jobs
        self.jobs[slot] = self.numbers[self.submitted] = Job(transfer, data, read)
        self.submitted += 1

    def move(self, engine: Engine, wire: bytearray) -> None:
        """Send some bytes of an end onto its wire, of what was shown."""
        shown = b"".join(engine.iovecs(self.choice.choice([1, 2, 64])))
        size = len(shown) if self.choice.random() < 0.5 else self.choice.randrange(len(shown) + 1)
        wire += shown[:size]
        engine.sent(size)

    def feed(self, engine: Engine, wire: bytearray) -> None:
        """Receive some bytes of a wire, by the call or straight into the buffers."""
        size = len(wire) if self.choice.random() < 0.5 else self.choice.randrange(len(wire) + 1)
        parts = (
            engine.destination(self.choice.choice([1, 64])) if self.choice.random() < 0.5 else []
        )
        if not parts:
            del wire[: engine.receive(bytes(wire[:size]))]
            return
        done = 0
        for part in parts:
            piece = wire[done : min(size, done + len(part))]
            part[: len(piece)] = bytes(piece)
            done += len(piece)
        lib.ps_engine_received(engine.engine, done)
        del wire[:done]

    def host_events(self) -> None:
        for event in self.host.events():
            assert event.kind != TERMINATED, event
            if event.kind != COMPLETION:
                continue
            job = self.jobs.pop(event.slot)
            assert event.digest_error == 0
            status = int.from_bytes(event.entry[14:16], "little") >> 1
            if status == 0:
                assert event.data_length == len(job.data)
            if status == 0 and job.transfer == 1:
                assert job.read() == job.data
            self.completed += 1

    def target_events(self) -> None:
        for event in self.target.events():
            assert event.kind != TERMINATED, event
            if event.kind == EV_COMMAND:
                number = int.from_bytes(event.entry[40:44], "little")
                assert event.slot not in self.serving
                self.serving[event.slot] = Serving(number, event.entry[44])
                job = self.numbers[number]
                assert event.data_length == (len(job.data) if job.transfer == 3 else 0)
            elif event.kind == EV_DATA:
                served = self.serving[event.slot]
                assert event.digest_error == 0
                assert served.read is not None
                assert served.read() == self.numbers[served.number].data
                self.target.respond(event.slot)
                served.answered = True
            elif event.kind == SENT:
                assert self.serving.pop(event.slot).answered
            else:
                assert event.kind == CONNECTED

    def serve(self) -> None:
        """Do something for one command: take its data, answer it, or end it early."""
        waiting = [slot for slot, served in self.serving.items() if not served.answered]
        if not waiting:
            return
        slot = self.choice.choice(waiting)
        served = self.serving[slot]
        job = self.numbers[served.number]
        early = self.choice.random() < 0.1
        if early:
            self.ended_early += 1
            self.target.respond(slot, 0x7)
            served.answered = True
        elif job.transfer > 1 and served.read is None:
            served.read = self.target.take(slot, self.iovec_sizes(len(job.data)))
        elif job.transfer < 2:
            data = job.data
            self.target.respond(slot, data=data, sizes=self.iovec_sizes(len(data)) if data else [])
            served.answered = True

    def step(self, submitting: bool) -> None:
        match self.choice.randrange(6):
            case 0 if submitting:
                self.submit()
            case 1:
                self.move(self.host, self.to_target)
            case 2:
                self.feed(self.target, self.to_target)
            case 3:
                self.move(self.target, self.to_host)
            case 4:
                self.feed(self.host, self.to_host)
            case _:
                self.serve()
        self.host_events()
        self.target_events()


@pytest.mark.parametrize("digests", range(4))
def test_both_roles_exchange_every_byte(digests: int) -> None:
    exchanged = early = 0
    seed = 20261129 + digests
    for round_ in range(100):
        pair = Pair(random.Random(seed * 1000 + round_), digests)
        for _ in range(40000):
            pair.step(submitting=pair.submitted < 40)
            if pair.submitted == 40 and not pair.jobs and not pair.serving:
                break
        where = f"seed {seed * 1000 + round_}"
        assert pair.completed == 40, f"stuck: {where}"
        assert pair.host.output() == pair.target.output() == b"", where
        exchanged += pair.completed
        early += pair.ended_early
    assert exchanged == 4000
    assert early > 200, "early ends are part of what is tested"
