"""Batches that do not end as they should: cancellation, failures, lost connections, lies."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from prestage.host_client import (
    ConnectionLost,
    Controller,
    DigestError,
    NvmeError,
    ProtocolError,
    RequestTimeout,
    connect,
)

from .scripted import BLOCK, READ, SILENCE, WRITE, Answer, Command, ScriptedTarget, scripted
from .test_batches import block, fill
from .test_false_targets import lie, lying
from .test_requests import Gate, run

ABORT = 0x08
FAST: dict[str, Any] = {"backoff_s": (0.01, 0.05), "keep_alive_s": 0}


# ---- cancellation ----


@pytest.mark.parametrize("digests", [False, True])
def test_a_batch_that_is_cancelled_in_the_middle_leaves_its_buffer_alone(
    rng: random.Random, digests: bool
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)
        gate = Gate()
        target.handlers[False, READ] = gate
        into = bytearray(b"\x55" * BLOCK * 40)
        task = asyncio.create_task(controller.read_many(1, range(40), 1, into=into))
        await target.until(lambda: len(gate.held) == 8)
        for _ in range(3):
            gate.open(target)
        await target.until(lambda: len(gate.held) == 8)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        into += b"it may even change its size"
        kept = bytes(into)
        queues = controller._link.association.io
        assert sum(queue.in_flight for queue in queues) == 8
        while gate.held:
            gate.open(target)
        target.handlers.clear()
        assert await controller.read_many(1, [200] * 16, 1) == block(target, 200) * 16
        assert into == kept
        assert sum(queue.in_flight for queue in queues) == 0
        assert len(target.io(READ)) == 11 + 16
        assert not any(queue._engine._orphans for queue in queues)

    run(body, queues=2, queue_depth=4, header_digest=digests, data_digest=digests)


def test_a_cancelled_batch_of_writes_sends_what_the_buffers_held_then(rng: random.Random) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        data = bytearray(rng.randbytes(64 * BLOCK))
        kept = bytes(data)
        await controller.namespace(1)
        task = asyncio.create_task(controller.write_many(1, data, [0, 100, 200], [32, 16, 16]))
        await asyncio.sleep(0)  # It is submitted; its R2Ts come later.
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        data[:] = bytes(len(data))
        data += b"and larger"
        await target.until(lambda: len(target.io(WRITE)) == 3)
        assert block(target, 0, 32) + block(target, 100, 16) + block(target, 200, 16) == kept

    run(body, script={"max_h2c_data": 4096}, data_digest=True)


def test_cancelling_batches_at_random_moments_harms_nobody_else(rng: random.Random) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)
        guarded = [bytearray(b"\xaa" * 32 * BLOCK) for _ in range(4)]

        async def reader(seed: int) -> None:
            own = random.Random(seed)
            for _ in range(20):
                starts = [own.randrange(256) for _ in range(own.randrange(1, 40))]
                found = await controller.read_many(1, starts, 1)
                assert found == b"".join(block(target, slba) for slba in starts)
                slba = own.randrange(256)
                assert await controller.read(1, slba=slba, nlb=1) == block(target, slba)

        async def quitter(seed: int, into: bytearray) -> None:
            own = random.Random(seed)
            for _ in range(40):
                starts = [own.randrange(250) for _ in range(16)]
                task = asyncio.create_task(controller.read_many(1, starts, 2, into=into))
                for _ in range(own.randrange(30)):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                into[:] = b"\xaa" * len(into)
                await asyncio.sleep(0)
                assert into == b"\xaa" * len(into)

        seeds = [rng.randrange(1 << 30) for _ in range(8)]
        await asyncio.gather(
            *(reader(seed) for seed in seeds[:4]),
            *(quitter(seed, into) for seed, into in zip(seeds[4:], guarded, strict=True)),
        )
        assert all(set(one) == {0xAA} for one in guarded)

    run(body, queue_depth=6, queues=2, data_digest=True)


# ---- failures ----


def failing(gate: Gate, what: Callable[[Command], Any]) -> Callable[[Command], Any]:
    """Answer the command of block 5 as `what` says; keep the others."""
    return lambda command: what(command) if command.cdw(10) == 5 else gate(command)


def spoiled(command: Command) -> object:
    """Answer with a byte of the data changed behind its digest's back."""
    command.link.engine.respond(command.slot, data=bytes(BLOCK))
    stream = bytearray(command.link.engine.output())
    stream[24 + 7] ^= 1
    command.link.writer.write(bytes(stream))
    return SILENCE


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda command: Answer(status=0x281), NvmeError, "Read on namespace 1: Unrecovered Read"),
        (lambda command: Answer(data=bytes(512)), ProtocolError, "success, and 512 of 4096 bytes"),
        (spoiled, DigestError, "data digest"),
    ],
)
def test_the_first_command_that_fails_ends_the_batch(
    rng: random.Random, answer: Callable[[Command], Any], error: type[Exception], message: str
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)
        gate = Gate()
        target.handlers[False, READ] = failing(gate, answer)
        into = bytearray(100 * BLOCK)
        with pytest.raises(error, match=message):
            await controller.read_many(1, range(100), 1, into=into)
        into += b"its memory is ours again"
        kept = bytes(into)
        assert len(gate.held) == 7
        target.handlers.clear()
        while gate.held:
            gate.open(target)
        assert await controller.read_many(1, range(8), 1) == block(target, 0, 8)
        assert into == kept
        assert (controller.connects, len(target.io(READ))) == (1, 8 + 8)

    run(body, queue_depth=8, data_digest=True)


def test_a_command_that_is_not_answered_times_its_batch_out_and_is_aborted() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()

        def abort(command: Command) -> Answer:
            (held,) = gate.held
            cid = int.from_bytes(held.entry[2:4], "little")
            assert command.cdw(10) == held.link.qid | cid << 16
            gate.held.clear()
            held.end(Answer(status=0x007))
            return Answer()

        target.handlers[False, READ] = lambda command: (
            gate(command) if command.cdw(10) == 5 else None
        )
        target.handlers[True, ABORT] = abort
        into = bytearray(20 * BLOCK)
        with pytest.raises(RequestTimeout, match=r"I/O queue \d: the controller has not answered"):
            await controller.read_many(1, range(20), 1, into=into)
        into += b"ours"
        await target.until(lambda: not gate.held)
        target.handlers.clear()
        assert len(await controller.read_many(1, range(20), 1)) == 20 * BLOCK
        assert sum(queue.in_flight for queue in controller._link.association.io) == 0
        assert controller.connects == 1

    run(body, timeout_s=0.2, queues=2)


# ---- lost connections ----


@pytest.mark.parametrize("queues", [1, 3])
def test_a_batch_of_reads_goes_on_where_it_was_when_the_connection_is_lost(
    rng: random.Random, queues: int
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)
        starts = rng.sample(range(256), 200)
        lost = [False]

        def drop(command: Command) -> Any:
            if len(target.io(READ)) < 100 or lost[0]:
                return None
            lost[0] = True
            target.drop()
            return SILENCE

        target.handlers[False, READ] = drop
        found = await controller.read_many(1, starts, 1)
        assert found == b"".join(block(target, slba) for slba in starts)
        assert controller.connects == 2
        again = [one.cdw(10) for one in target.io(READ)]
        assert set(again) == set(starts)
        # What was answered is not read again.
        assert len(again) <= 200 + 8 * queues

    run(body, queues=queues, queue_depth=8, **FAST)


def longest(target: ScriptedTarget, opcode: int, since: int) -> int:
    """The largest command of an opcode from the one with this index on, in blocks."""
    return max(one.length for one in target.io(opcode)[since:]) // BLOCK


def test_a_batch_of_reads_is_cut_anew_for_a_controller_that_takes_less_at_a_time(
    rng: random.Random,
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)
        gate = Gate()
        target.handlers[False, READ] = gate
        into = bytearray(200 * BLOCK)
        task = asyncio.create_task(controller.read_many(1, [0, 100], [160, 40], into=into))
        other = asyncio.create_task(controller.read_many(1, range(64), 1))
        await target.until(lambda: len(gate.held) == 4)
        for _ in range(3):
            gate.open(target)
        await target.until(lambda: len(target.io(READ)) == 7)
        sent = len(target.io(READ))
        target.handlers.clear()
        target.mdts = 1
        target.drop()
        assert await task == block(target, 0, 160) + block(target, 100, 40)
        assert await other == block(target, 0, 64)
        assert longest(target, READ, 0) == 16
        assert longest(target, READ, sent) == 2
        # What was answered is not read again.
        assert sum(one.length for one in target.io(READ)[sent:]) < (200 + 64) * BLOCK

    run(body, script={"mdts": 4}, queue_depth=4, **FAST)


@pytest.mark.parametrize("is_many", [False, True])
@pytest.mark.parametrize("opcode", [READ, WRITE])
def test_what_waits_for_a_controller_is_cut_as_that_one_takes_it(
    rng: random.Random, opcode: int, is_many: bool
) -> None:
    """Reads under way and waiting, and writes of which nothing was sent."""

    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)
        await controller.namespace(1)
        target.handlers[False, READ] = lambda command: SILENCE
        held = asyncio.create_task(controller.read(1, slba=0, nlb=1))
        await target.until(lambda: bool(target.io(READ)))
        data = bytearray(rng.randbytes(16 * BLOCK)) if opcode == WRITE else bytearray(16 * BLOCK)
        if opcode == READ:
            each = controller.read_many(1, [32], 16, into=data)
            one = controller.read(1, slba=32, into=data)
        else:
            each = controller.write_many(1, data, [32], 16)
            one = controller.write(1, data, slba=32)
        waiting = asyncio.create_task(each if is_many else one)
        (one if is_many else each).close()
        await asyncio.sleep(0)
        target.handlers.clear()
        target.mdts = 1
        target.drop()
        await asyncio.gather(held, waiting)
        assert data == block(target, 32, 16)
        sizes = [command.length for command in target.io(opcode) if command.cdw(10) >= 32]
        assert sizes == [2 * BLOCK] * 8
        assert controller._link.association.io[0].reserved == 0

    run(body, script={"mdts": 4}, queue_depth=1, **FAST)


def test_a_single_read_under_way_is_cut_when_it_is_sent_again(rng: random.Random) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)
        target.handlers[False, READ] = lambda command: SILENCE
        task = asyncio.create_task(controller.read(1, slba=8, nlb=16))
        await target.until(lambda: bool(target.io(READ)))
        target.handlers.clear()
        target.mdts = 2
        target.drop()
        assert await task == block(target, 8, 16)
        assert [command.length // BLOCK for command in target.io(READ)] == [16, 4, 4, 4, 4]

    run(body, script={"mdts": 4}, **FAST)


def test_a_batch_of_writes_is_not_sent_again_when_the_connection_is_lost_under_it() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()
        target.handlers[False, WRITE] = gate
        data = bytearray(50 * BLOCK)
        task = asyncio.create_task(controller.write_many(1, data, range(50), 1))
        await target.until(lambda: len(gate.held) == 8)
        target.drop()
        with pytest.raises(ConnectionLost, match="closed|failed"):
            await task
        data += b"ours"
        target.handlers.clear()
        await controller.wait_connected()
        assert bytes(await controller.read(1, slba=0, nlb=1)) == bytes(BLOCK)
        assert len(target.io(WRITE)) == 8

    run(body, queue_depth=8, **FAST)


def test_a_batch_that_was_not_begun_waits_for_the_controller(rng: random.Random) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await controller.namespace(1)
        target.handlers[False, READ] = lambda command: SILENCE
        held = asyncio.create_task(controller.read(1, slba=0, nlb=1))
        await target.until(lambda: bool(target.io(READ)))
        data = rng.randbytes(20 * BLOCK)
        waiting = asyncio.create_task(controller.write_many(1, data, range(20), 1))
        await asyncio.sleep(0)
        target.handlers.clear()
        target.drop()
        await asyncio.gather(held, waiting)
        assert block(target, 0, 20) == data
        assert (controller.connects, len(target.io(WRITE))) == (2, 20)

    run(body, queue_depth=1, **FAST)


def test_a_batch_ends_with_a_controller_that_stays_away() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()
        target.handlers[False, READ] = gate
        into = bytearray(20 * BLOCK)
        task = asyncio.create_task(controller.read_many(1, range(20), 1, into=into))
        await target.until(lambda: len(gate.held) == 20)
        await target.stop()
        with pytest.raises(ConnectionLost, match="the controller is lost"):
            await task
        into += b"ours"
        with pytest.raises(ConnectionLost, match="the controller is lost"):
            await controller.read_many(1, range(20), 1, into=bytearray(20 * BLOCK))

    run(body, loss_timeout_s=0.1, **FAST)


def test_closing_the_controller_ends_a_batch() -> None:
    async def main() -> None:
        async with asyncio.timeout(60), scripted() as target:
            controller = await connect(target.url).open()
            gate = Gate()
            target.handlers[False, READ] = gate
            into = bytearray(20 * BLOCK)
            task = asyncio.create_task(controller.read_many(1, range(20), 1, into=into))
            await target.until(lambda: len(gate.held) == 20)
            await controller.close()
            with pytest.raises(ConnectionLost, match="the controller was closed"):
                await task
            into += b"ours"

    asyncio.run(main())


def test_losing_the_connection_at_random_moments_loses_no_batch_of_reads(
    rng: random.Random,
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)

        async def reader(seed: int) -> None:
            own = random.Random(seed)
            for _ in range(15):
                starts = [own.randrange(250) for _ in range(own.randrange(1, 60))]
                found = await controller.read_many(1, starts, 3)
                assert found == b"".join(block(target, slba, 3) for slba in starts)

        readers = [asyncio.create_task(reader(rng.randrange(1 << 30))) for _ in range(6)]
        for _ in range(12):
            for _ in range(rng.randrange(60)):
                await asyncio.sleep(0)
            target.drop()
            await asyncio.sleep(0)
            await controller.wait_connected()
        await asyncio.gather(*readers)

    run(body, queue_depth=8, queues=2, data_digest=True, **FAST)


def test_a_wrong_pdu_ends_a_batch_and_none_of_it_is_sent_again() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        def evil(command: Command) -> object:
            if command.cdw(10) == 5:
                command.link.writer.write(b"\x55" * 64)
                return SILENCE
            return None

        target.handlers[False, READ] = evil
        into = bytearray(40 * BLOCK)
        with pytest.raises(ProtocolError, match="the target sent a wrong PDU"):
            await controller.read_many(1, range(40), 1, into=into)
        into += b"ours"
        sent = len(target.io(READ))
        assert sent < 40
        target.handlers.clear()
        assert len(await controller.read_many(1, range(10), 1)) == 10 * BLOCK
        assert (controller.connects, len(target.io(READ))) == (2, sent + 10)

    run(body, queue_depth=4, **FAST)


@pytest.mark.parametrize("seed", range(40))
def test_a_lie_in_a_batch_ends_in_time_and_returns_no_wrong_byte(seed: int) -> None:
    rng = random.Random(seed)
    digests, at = rng.random() < 0.5, rng.randrange(14, 60)
    options: dict[str, Any] = {"timeout_s": 0.3, "loss_timeout_s": 0.5, **FAST}

    async def use(url: str, target: ScriptedTarget) -> None:
        async with connect(
            url, queue_depth=8, header_digest=digests, data_digest=digests, **options
        ) as controller:
            for _ in range(2):
                with contextlib.suppress(ConnectionLost, RequestTimeout, DigestError, NvmeError):
                    starts = [rng.randrange(250) for _ in range(40)]
                    found = await controller.read_many(1, starts, 2)
                    assert found == b"".join(block(target, slba, 2) for slba in starts)

    async def main() -> None:
        async with asyncio.timeout(30), scripted() as target:
            fill(target, rng)
            async with lying(target, at, lie(rng, digests)) as url:
                await use(url, target)

    asyncio.run(main())
