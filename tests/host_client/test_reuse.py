"""CIDs while something under way means the command that had them: an Abort that comes late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from prestage.host_client import Controller, RequestTimeout
from prestage.host_client.queue import Queue

from .scripted import BLOCK, READ, SILENCE, ScriptedTarget
from .test_requests import Gate, run

ABORT = 0x08
QUIET: dict[str, Any] = {"keep_alive_s": 0, "backoff_s": (0.01, 0.05)}


def time_out(queue: Queue) -> None:
    """Let the time of the oldest command pass, without waiting for it."""
    slot = queue._engine.overdue(queue._loop.time() + queue._timeout_s + 1)
    assert slot >= 0
    queue._overdue(slot)


class Late:
    """A read that was overdue, whose Abort the target has not looked at yet."""

    def __init__(self, target: ScriptedTarget, controller: Controller) -> None:
        self.target = target
        self.controller = controller
        self.queue = controller._link.association.io[0]
        self.reads, self.aborts = Gate(), Gate()
        target.handlers[False, READ] = self.reads
        target.handlers[True, ABORT] = self.aborts

    async def begin(self) -> int:
        """Return the CID that the Abort names."""
        read = asyncio.create_task(self.controller.read(1, 0, BLOCK))
        await self.target.until(lambda: bool(self.reads.held))
        time_out(self.queue)
        with pytest.raises(RequestTimeout):
            await read
        await self.target.until(lambda: bool(self.aborts.held))
        assert self.aborts.held[0].cdw(10) == 1 | self.reads.held[0].cid << 16
        return self.reads.held[0].cid

    def answer_all(self) -> None:
        """Let the target answer what comes, and what has come."""
        self.target.handlers.clear()
        while self.reads.held:
            self.reads.open(self.target)

    async def turns(self, count: int) -> set[int]:
        """Let the target answer as many reads, the oldest first; return the CIDs they had."""
        seen = set()
        for _ in range(count):
            await self.target.until(lambda: bool(self.reads.held))
            seen.add(self.reads.held[0].cid)
            self.reads.open(self.target)
        return seen


def test_a_cid_is_not_used_again_before_its_abort_was_answered() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        late = Late(target, controller)
        aborted = await late.begin()
        late.reads.open(target)  # It has ended when the Abort comes.
        single = [asyncio.create_task(controller.read(1, slba=n, nlb=1)) for n in range(12)]
        many = asyncio.create_task(controller.read_many(1, range(32), 1))
        assert aborted not in await late.turns(30)
        late.aborts.open(target)
        assert aborted in await late.turns(14)
        await asyncio.gather(*single, many)
        assert late.queue.in_flight == 0
        assert controller.connects == 1

    run(body, queue_depth=4, **QUIET)


def test_an_abort_that_was_answered_before_its_command_keeps_nothing() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        late = Late(target, controller)
        aborted = await late.begin()
        late.aborts.open(target)
        await asyncio.sleep(0)
        waiting = asyncio.create_task(controller.read(1, slba=5, nlb=1))
        await target.until(lambda: len(late.aborts.held) == 0)
        assert late.queue.in_flight == 1  # The only slot, of a command that may yet be answered.
        late.answer_all()
        assert len(await waiting) == BLOCK
        assert target.io(READ)[-1].cid == aborted
        assert late.queue.in_flight == 0

    run(body, queue_depth=1, **QUIET)


def test_what_waits_for_the_only_slot_gets_it_when_the_abort_is_answered() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        late = Late(target, controller)
        await late.begin()
        late.answer_all()
        tasks = [asyncio.create_task(controller.read(1, slba=n, nlb=1)) for n in range(3)]
        many = asyncio.create_task(controller.read_many(1, range(3), 1))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(target.io(READ)) == 1
        late.aborts.open(target)
        await asyncio.gather(*tasks, many)
        assert (late.queue.in_flight, late.queue.reserved) == (0, 0)

    run(body, queue_depth=1, **QUIET)


def test_an_abort_that_is_never_answered_ends_the_connection_and_leaks_no_slot() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        reads = Gate()
        target.handlers[False, READ] = reads
        target.handlers[True, ABORT] = lambda command: SILENCE
        with pytest.raises(RequestTimeout):
            await controller.read(1, 0, BLOCK)
        target.handlers.pop((False, READ))
        reads.open(target)
        # The only slot is kept: this waits until the Abort has been given up.
        assert len(await controller.read(1, slba=5, nlb=1)) == BLOCK
        assert controller.connects == 2
        assert [one.opcode for one in target.commands].count(ABORT) == 1  # None of an Abort.
        assert controller._link.association.io[0].in_flight == 0

    run(body, queue_depth=1, timeout_s=0.2, **QUIET)


def test_no_more_aborts_are_under_way_than_the_controller_allows() -> None:
    """Those count that were not answered in time, too."""

    async def body(target: ScriptedTarget, controller: Controller) -> None:
        late = Late(target, controller)
        tasks = [asyncio.create_task(controller.read(1, slba=n, nlb=1)) for n in range(8)]
        await target.until(lambda: len(late.reads.held) == 8)
        for _ in range(3):
            time_out(late.queue)
        await target.until(lambda: len(late.aborts.held) == 3)
        for _ in range(3):
            time_out(controller._link.association.admin)
        for _ in range(5):
            time_out(late.queue)
        await target.until(lambda: len(late.aborts.held) == 4)
        late.answer_all()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, RequestTimeout) for one in results)
        while late.aborts.held:
            late.aborts.open(target)
        assert len(await controller.read_many(1, range(64), 1)) == 64 * BLOCK
        assert controller._link.association._aborts == set()
        assert late.queue.in_flight == 0

    run(body, queue_depth=8, **QUIET)
