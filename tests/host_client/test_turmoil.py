"""Everything at once: requests that are cancelled, overdue and sent again, while the controller
goes, comes back with other limits, asks late for data and answers Aborts late."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from prestage.host_client import (
    ConnectionLost,
    Controller,
    DigestError,
    NvmeError,
    RequestTimeout,
    giving_back,
)

from .scripted import BLOCK, READ, SILENCE, WRITE, Answer, Command, ScriptedTarget
from .test_requests import run
from .test_reuse import ABORT

WRITERS, READERS = 4, 4
SHARE = 24
"""Blocks of each writer; the readers' follow."""
MINE = WRITERS * SHARE
OPTIONS: dict[str, Any] = {
    "queues": 2,
    "queue_depth": 5,
    "keep_alive_s": 0,
    "backoff_s": (0.001, 0.01),
    "timeout_s": 20,
}
ENDS = (ConnectionLost, RequestTimeout, NvmeError, DigestError)


class Turmoil:
    """A target that answers in any order, and what has happened so far."""

    def __init__(self, target: ScriptedTarget, controller: Controller, rng: random.Random) -> None:
        self.target = target
        self.controller = controller
        self.rng = rng
        self.held: list[Command] = []
        self.is_over = False
        self.wrong: list[Command] = []
        """Writes of what nobody wanted to be written."""
        for key in ((False, READ), (False, WRITE), (True, ABORT)):
            target.handlers[key] = self.hold

    def hold(self, command: Command) -> object:
        """Answer at once, or some time later."""
        if command.opcode == WRITE and not is_meant(command):
            self.wrong.append(command)
        if self.rng.random() < 0.3:
            return None
        self.held.append(command)
        return SILENCE

    def answer(self) -> None:
        """Answer something that was held back; an Abort of a command that is there ends it."""
        command = self.held.pop(self.rng.randrange(len(self.held)))
        if command.link not in self.target.links:
            return
        if command.opcode == ABORT and command.link.qid == 0:
            for one in self.held:
                named = one.link.qid | one.cid << 16
                if one.link in self.target.links and named == command.cdw(10):
                    self.held.remove(one)
                    one.end(Answer(status=0x007))
                    break
        command.end(self.target.default(command))

    def time_passes(self) -> None:
        """Some command is overdue."""
        association = self.controller._link.current
        if association is None:
            return
        queue = self.rng.choice(association.io)
        slot = queue._engine.overdue(queue._loop.time() + queue._timeout_s + 1)
        if slot >= 0:
            queue._overdue(slot)

    async def go_on(self, steps: int) -> None:
        """Make trouble, in so many steps; then none any more."""
        target = self.target
        for _ in range(steps):
            await asyncio.sleep(0)
            dice = self.rng.random()
            if dice < 0.5 and self.held:
                self.answer()
            elif dice < 0.52:
                self.time_passes()
            elif dice < 0.525 and self.controller.connected.is_set():
                target.mdts = self.rng.randrange(4)
                target.withheld = None
                target.drop()
            elif dice < 0.55 and target.withheld is None:
                target.withheld = []
            elif dice < 0.57:
                target.ask()
        self.is_over = True
        target.ask()
        target.handlers.clear()
        while self.held:
            self.answer()


def is_meant(write: Command) -> bool:
    """Whether what is written is of one write of the share that it lies in."""
    share = write.cdw(10) // SHARE
    return write.data == pattern(share, write.data[1]) * (len(write.data) // BLOCK)


def pattern(share: int, number: int) -> bytes:
    """What a writer's blocks hold after its write of this number."""
    return bytes([share + 1, number % 256]) * (BLOCK // 2)


async def some_turns(rng: random.Random) -> None:
    for _ in range(rng.randrange(40)):
        await asyncio.sleep(0)


async def give_up_sometimes(task: asyncio.Task[Any], rng: random.Random) -> bool:
    """Wait for a request, or cancel it after some turns; return whether it was done."""
    if rng.random() < 0.5:
        await some_turns(rng)
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError, *ENDS):
        await task
        return True
    return False


async def write_on(turmoil: Turmoil, share: int) -> None:
    """Write a share over and over; what it holds was written as it is, block by block."""
    rng = random.Random(turmoil.rng.random())
    data = bytearray(SHARE * BLOCK)
    number = 0
    while not turmoil.is_over:
        number += 1
        data[:] = pattern(share, number) * SHARE
        where, many = share * SHARE, rng.random() < 0.5
        request = (
            turmoil.controller.write_many(1, data, range(where, where + SHARE, 4), 4)
            if many
            else turmoil.controller.write(1, data, slba=where)
        )
        await give_up_sometimes(asyncio.ensure_future(request), rng)
        data[:] = b"\xee" * len(data)
        data += b"ours"
        del data[-4:]
        await some_turns(rng)


async def read_on(turmoil: Turmoil) -> None:
    """Read blocks that never change; a buffer that came back stays as it is."""
    rng = random.Random(turmoil.rng.random())
    into = bytearray(16 * BLOCK)
    while not turmoil.is_over:
        starts = [MINE + rng.randrange(256 - MINE - 2) for _ in range(8)]
        one = MINE + rng.randrange(256 - MINE - 16)
        many = rng.random() < 0.5
        request = (
            turmoil.controller.read_many(1, starts, 2, into=into)
            if many
            else turmoil.controller.read(1, slba=one, into=into)
        )
        memory = turmoil.target.memory
        if await give_up_sometimes(asyncio.ensure_future(request), rng):
            wanted = [(start, 2) for start in starts] if many else [(one, 16)]
            assert into == b"".join(memory[at * BLOCK : (at + n) * BLOCK] for at, n in wanted)
        into[:] = b"\xaa" * len(into)
        await some_turns(rng)
        assert into == b"\xaa" * len(into)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_that_is_written_or_read_is_ever_wrong(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(giving_back, "STEP_BYTES", rng.choice([1 << 10, 1 << 14, 1 << 20]))

    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.memory[:] = rng.randbytes(len(target.memory))
        for share in range(WRITERS):
            place = slice(share * SHARE * BLOCK, (share + 1) * SHARE * BLOCK)
            target.memory[place] = pattern(share, 0) * SHARE
        await controller.namespace(1)
        turmoil = Turmoil(target, controller, rng)
        tasks = [asyncio.create_task(write_on(turmoil, share)) for share in range(WRITERS)]
        tasks += [asyncio.create_task(read_on(turmoil)) for _ in range(READERS)]
        await turmoil.go_on(4000)
        await asyncio.gather(*tasks)
        assert not turmoil.wrong
        await controller.read_many(1, range(256), 1)
        link = controller._link
        assert all(queue.reserved == 0 for queue in link.association.io)
        assert not link._waiters
        assert link._work.waiting == 0

    run(body, script={"max_h2c_data": 4096}, data_digest=rng.random() < 0.5, **OPTIONS)
