"""Callers that turn away from large writes: when they get their buffers back, and who waits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from prestage.host_client import (
    ConnectionLost,
    Controller,
    NvmeError,
    RequestTimeout,
    giving_back,
)

from .scripted import BLOCK, BLOCKS, WRITE, Answer, ScriptedTarget
from .test_requests import run
from .test_reuse import QUIET, time_out

STEP = 4096
SIZE = BLOCK * BLOCKS
EXTENTS = range(0, BLOCKS, 4)
Write = Callable[[Controller, bytearray], Awaitable[None]]


async def many(controller: Controller, data: bytearray) -> None:
    await controller.write_many(1, data, EXTENTS, 4)


async def single(controller: Controller, data: bytearray) -> None:
    await controller.write(1, data, 0)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_back, "STEP_BYTES", STEP)


async def begin(
    target: ScriptedTarget, controller: Controller, write: Write, data: bytearray
) -> asyncio.Task[None]:
    """Write until the target has every command, and has asked for none of the data."""
    await controller.namespace(1)
    target.withheld = []
    task = asyncio.ensure_future(write(controller, data))
    count = 1 if write is single else len(EXTENTS)
    await target.until(lambda: len(target.withheld or []) == count)
    return task


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, some turns of the event loop."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


async def turns_of(task: asyncio.Task[Any]) -> int:
    """Wait for a task; return how often others had their turn meanwhile."""
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.parametrize("write", [single, many])
def test_a_cancelled_write_is_copied_between_the_turns_of_others(
    rng: random.Random, write: Write
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        data = bytearray(rng.randbytes(SIZE))
        kept = bytes(data)
        task = await begin(target, controller, write, data)
        task.cancel()
        assert await turns_of(task) >= SIZE // STEP
        with pytest.raises(asyncio.CancelledError):
            await task
        data[:] = bytes(SIZE)
        data += b"and larger"
        target.ask()
        await controller.read(1, 0, BLOCK)
        await target.until(lambda: len(target.io(WRITE)) == (1 if write is single else 64))
        assert target.memory == kept

    run(body, data_digest=True, **QUIET)


@pytest.mark.parametrize("write", [single, many])
def test_a_buffer_is_lent_until_it_was_copied_however_often_its_caller_is_cancelled(
    rng: random.Random, write: Write
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        data = bytearray(rng.randbytes(SIZE))
        kept = bytes(data)
        task = await begin(target, controller, write, data)
        turns = 0
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
            turns += 1
        assert turns >= SIZE // STEP
        assert task.cancelled()
        data[:] = bytes(SIZE)
        target.ask()
        await target.until(lambda: len(target.io(WRITE)) == (1 if write is single else 64))
        assert target.memory == kept

    run(body, **QUIET)


def test_a_cancellation_that_comes_while_a_failed_batch_is_copied_is_not_lost() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.handlers[False, WRITE] = lambda command: Answer(status=0x280)
        task = await begin(target, controller, many, bytearray(SIZE))
        assert target.withheld is not None
        target.withheld.pop()()
        await target.until(lambda: len(target.io(WRITE)) == 1)
        await until(lambda: not controller._link._work.batches)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        target.ask()

    run(body, **QUIET)


def test_commands_that_end_meanwhile_are_not_copied(rng: random.Random) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        data = bytearray(rng.randbytes(SIZE))
        kept = bytes(data)
        task = await begin(target, controller, many, data)
        task.cancel()
        target.ask()
        assert await turns_of(task) < SIZE // STEP
        data[:] = bytes(SIZE)
        await target.until(lambda: len(target.io(WRITE)) == 64)
        assert target.memory == kept
        await controller.read(1, 0, BLOCK)
        queue = controller._link.association.io[0]
        await until(lambda: queue.in_flight == 0)
        assert not queue._engine._orphans

    run(body, **QUIET)


@pytest.mark.parametrize("write", [single, many])
def test_a_connection_that_is_lost_meanwhile_ends_the_copying(write: Write) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        data = bytearray(SIZE)
        task = await begin(target, controller, write, data)
        task.cancel()
        await asyncio.sleep(0)
        controller._link.association.io[0]._lose(ConnectionLost("its cable was pulled"))
        assert await turns_of(task) < SIZE // STEP
        assert task.cancelled()
        data += b"ours"
        target.withheld = None
        assert len(await controller.read(1, 0, BLOCK)) == BLOCK

    run(body, **QUIET)


@pytest.mark.parametrize("write", [single, many])
def test_a_write_that_was_not_answered_in_time_is_copied_likewise(
    rng: random.Random, write: Write
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        data = bytearray(rng.randbytes(SIZE))
        kept = bytes(data)
        task = await begin(target, controller, write, data)
        time_out(controller._link.association.io[0])
        assert await turns_of(task) >= SIZE // STEP
        with pytest.raises(RequestTimeout):
            await task
        data[:] = bytes(SIZE)
        data += b"and larger"
        target.ask()
        await target.until(lambda: len(target.io(WRITE)) == (1 if write is single else 64))
        assert target.memory == kept

    run(body, **QUIET)


def test_a_failed_batch_is_told_of_once_its_buffer_is_back() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.handlers[False, WRITE] = lambda command: Answer(status=0x280)
        data = bytearray(SIZE)
        task = await begin(target, controller, many, data)
        assert target.withheld is not None
        target.withheld.pop()()
        with pytest.raises(NvmeError, match="Write Fault"):
            await task
        data += b"ours"
        target.ask()

    run(body, **QUIET)
