"""Requests of many commands: bytes, order, limits, cancellation, failures, lost connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from prestage._engine import ffi
from prestage.host_client import (
    ConnectionLost,
    Controller,
    DigestError,
    InvalidRequest,
    NvmeError,
    ProtocolError,
    RequestTimeout,
    connect,
)
from prestage.host_client.batch import PIECE

from .fake_pax import DATED, FakePax, PaxTarget
from .scripted import BLOCK, READ, SILENCE, WRITE, Answer, Command, ScriptedTarget, scripted
from .test_false_targets import lie, lying
from .test_requests import Gate, run

ABORT = 0x08
FAST: dict[str, Any] = {"backoff_s": (0.01, 0.05), "keep_alive_s": 0}
Body = Callable[[Controller], Awaitable[None]]


def on(url: str, body: Body, **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), connect(url, **options) as controller:
            await body(controller)

    asyncio.run(main())


def fill(target: ScriptedTarget, rng: random.Random) -> None:
    target.memory[:] = rng.randbytes(len(target.memory))


def block(target: ScriptedTarget, slba: int, nlb: int = 1) -> bytes:
    return bytes(target.memory[slba * BLOCK : (slba + nlb) * BLOCK])


def test_a_row_of_pieces_is_what_c_expects() -> None:
    fields = dict(ffi.typeof("struct ps_host_piece").fields)
    assert PIECE.itemsize == ffi.sizeof("struct ps_host_piece")
    assert PIECE.names == tuple(fields)
    offsets = [(PIECE.fields or {})[name][1] for name in fields]
    assert offsets == [field.offset for field in fields.values()]


# ---- what is read and written ----


@pytest.mark.parametrize("nsid", [1, 2])
@pytest.mark.parametrize("digests", [False, True])
def test_what_was_written_to_many_places_is_read_from_there(
    url: str, rng: random.Random, nsid: int, digests: bool
) -> None:
    async def body(controller: Controller) -> None:
        size = (await controller.namespace(nsid)).block_bytes
        starts = np.array(rng.sample(range(0, 2000, 4), 300))
        counts = np.array([rng.randrange(1, 5) for _ in starts])
        data = np.frombuffer(rng.randbytes(int(counts.sum()) * size), np.uint8)
        await controller.write_many(nsid, data, starts, counts)
        assert await controller.read_many(nsid, starts, counts) == data.tobytes()
        ends = np.cumsum(counts) * size
        for index in rng.sample(range(len(starts)), 20):
            found = await controller.read(nsid, slba=int(starts[index]), nlb=int(counts[index]))
            assert found == data[ends[index] - counts[index] * size : ends[index]].tobytes()

    on(url, body, queues=3, queue_depth=16, header_digest=digests, data_digest=digests)


def test_each_extent_may_have_a_buffer_of_its_own(url: str, rng: random.Random) -> None:
    async def body(controller: Controller) -> None:
        starts = [9, 0, 77]
        parts = [rng.randbytes(4096), rng.randbytes(8192), rng.randbytes(12288)]
        await controller.write_many(1, parts, starts, [1, 2, 3])
        into = (bytearray(4096), np.zeros((2, 1024), np.float32), memoryview(bytearray(12288)))
        assert await controller.read_many(1, starts, [1, 2, 3], into=into) is into
        assert [bytes(memoryview(one).cast("B")) for one in into] == parts
        into[0].extend(b"it is ours again")

    on(url, body)


def test_a_tensor_is_a_source_and_a_destination(url: str) -> None:
    torch: Any = pytest.importorskip("torch")

    async def body(controller: Controller) -> None:
        data = torch.rand(8, 2048).to(torch.bfloat16)
        starts = np.arange(8) * 3
        await controller.write_many(1, data, starts, 1)
        into = torch.zeros_like(data)
        assert await controller.read_many(1, starts, 1, into=into) is into
        assert torch.equal(into, data)
        each = list(torch.zeros_like(data))
        await controller.read_many(1, starts, 1, into=each)
        assert torch.equal(torch.stack(each), data)
        assert torch.equal(await controller.read(1, slba=3, into=each[0]), data[1])
        with pytest.raises(InvalidRequest, match="strided tensor of cpu"):
            await controller.read_many(1, starts, 1, into=into.t())

    on(url, body)


def test_no_extents_are_no_request() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        assert await controller.read_many(1, [], 1) == b""
        await controller.write_many(1, [], [], [])
        assert not target.io(READ) and not target.io(WRITE)

    run(body)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slba": [[0, 1]], "nlb": 1}, r"slba and nlb: found shapes \(1, 2\) and \(\)"),
        ({"slba": [0, 1], "nlb": [1, 1, 1]}, r"slba and nlb: found shapes \(2,\) and \(3,\)"),
        ({"slba": [0, 1.5], "nlb": 1}, "slba: found float64 .expected integers"),
        ({"slba": np.array([0, 1 << 63], np.uint64), "nlb": 1}, "slba: found 9223372036854775808"),
        ({"slba": [0, 255], "nlb": [1, 2]}, "found 2 blocks from 255 on, extent 1 .*0 to 255"),
        ({"slba": [0, -1], "nlb": 1}, "found 1 blocks from -1 on, extent 1"),
        ({"slba": [0, 1], "nlb": 0}, "found 0 blocks from 0 on, extent 0"),
        ({"slba": [0, 1], "nlb": (1 << 63) - 1}, "blocks from 0 on, extent 0"),
        ({"slba": [0, 1], "nlb": 1, "into": bytearray(4096)}, "into: found 4096 bytes .*8192"),
        ({"slba": [0, 1], "nlb": 1, "into": bytes(8192)}, "into: found bytes"),
        ({"slba": [0, 1], "nlb": 1, "into": [bytearray(4096)]}, "into: found 1 buffers .*2"),
        ({"slba": [0], "nlb": 1, "into": np.zeros((4, 4096))[:, ::2]}, "into: found ndarray"),
        ({"slba": [0], "nlb": 1, "into": 7}, "into: found int"),
    ],
)
def test_a_wrong_request_says_what_was_expected_and_sends_nothing(
    arguments: dict[str, Any], message: str
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        with pytest.raises(InvalidRequest, match=message):
            await controller.read_many(1, **arguments)
        assert not target.io(READ)

    run(body)


def test_a_buffer_of_the_wrong_size_keeps_none_of_the_others() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        first, second = bytearray(BLOCK), bytearray(BLOCK + 1)
        with pytest.raises(InvalidRequest, match="into: found 4097 bytes"):
            await controller.read_many(1, [0, 1], 1, into=[first, second])
        first += b"ours"
        second += b"ours"

    run(body)


# ---- how commands are started ----


@pytest.mark.parametrize("depth", [1, 4])
def test_a_batch_is_larger_than_the_queue(rng: random.Random, depth: int) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        fill(target, rng)
        most = 0

        def handler(command: Command) -> Any:
            nonlocal most
            held.append(command)
            most = max(most, len(held))
            asyncio.get_running_loop().call_soon(answer)
            return SILENCE

        def answer() -> None:
            command = held.pop(rng.randrange(len(held)))
            command.end(target.default(command))

        held: list[Command] = []
        target.handlers[False, READ] = handler
        starts = [rng.randrange(256) for _ in range(500)]
        found = await controller.read_many(1, starts, 1)
        assert found == b"".join(block(target, slba) for slba in starts)
        assert 1 <= most <= depth
        assert controller._link.association.io[0].in_flight == 0

    run(body, queue_depth=depth)


def test_a_batch_is_spread_over_all_queues() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()
        target.handlers[False, READ] = gate
        task = asyncio.create_task(controller.read_many(1, range(9), 1))
        await target.until(lambda: len(gate.held) == 9)
        by_queue = [one.link.qid for one in gate.held]
        assert {qid: by_queue.count(qid) for qid in (1, 2, 3)} == {1: 3, 2: 3, 3: 3}
        while gate.held:
            gate.open(target)
        await task

    run(body, queues=3)


def test_large_extents_are_split_and_small_writes_travel_in_their_capsule(
    rng: random.Random,
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        data = rng.randbytes(8 * BLOCK)
        await controller.write_many(1, data, [10, 100, 200], [5, 1, 2])
        assert block(target, 10, 5) + block(target, 100) + block(target, 200, 2) == data
        writes = sorted((one.cdw(10), one.cdw(12) + 1, one.entry[39]) for one in target.io(WRITE))
        assert writes == [(10, 2, 0x5A), (12, 2, 0x5A), (14, 1, 1), (100, 1, 1), (200, 2, 0x5A)]
        assert await controller.read_many(1, [10, 100, 200], [5, 1, 2]) == data
        assert len(target.io(READ)) == 5

    run(body, script={"mdts": 1, "in_capsule": 4096, "max_h2c_data": 4096}, data_digest=True)


def test_single_requests_and_a_batch_do_not_wait_for_the_end_of_each_other() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await controller.namespace(1)
        gate = Gate()
        target.handlers[False, READ] = gate
        batch = asyncio.create_task(controller.read_many(1, [7] * 40, 1))
        await target.until(lambda: len(gate.held) == 4)
        singles = [asyncio.create_task(controller.read(1, slba=9, nlb=1)) for _ in range(40)]
        await asyncio.sleep(0)
        order = []
        for _ in range(80):
            await target.until(lambda: bool(gate.held))
            order.append(gate.held[0].cdw(10))
            gate.open(target)
            for _ in range(20):  # the slot goes to whoever is next
                await asyncio.sleep(0)
        await asyncio.gather(batch, *singles)
        assert (order.count(7), order.count(9)) == (40, 40)
        # Each has about half of the slots while both are there.
        assert 10 <= order[:40].count(9) <= 30

    run(body, queue_depth=4)


def test_batches_take_turns() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await controller.namespace(1)
        gate = Gate()
        target.handlers[False, READ] = gate
        large = asyncio.create_task(controller.read_many(1, [7] * 60, 1))
        await target.until(lambda: len(gate.held) == 4)
        small = asyncio.create_task(controller.read_many(1, [9] * 6, 1))
        await asyncio.sleep(0)
        ended = 0
        while not small.done():
            await target.until(lambda: bool(gate.held))
            gate.open(target)
            ended += 1
            for _ in range(20):
                await asyncio.sleep(0)
        assert 6 <= ended <= 20
        target.handlers.clear()
        while gate.held:
            gate.open(target)
        await large

    run(body, queue_depth=4)


def test_a_batch_of_dated_reads_falls_back_where_they_are_refused(rng: random.Random) -> None:
    async def main() -> None:
        target = PaxTarget(FakePax())
        await target.start()
        try:
            fill(target, rng)
            async with connect(target.url) as controller:
                how: dict[str, Any] = {"deadline": 0.02, "priority": 1, "session": 7 << 32 | 5}
                found = await controller.read_many(1, [3, 50], 2, **how)
                assert found == block(target, 3, 2) + block(target, 50, 2)
                dated = target.io(DATED)
                assert sorted((one.cdw(10), one.cdw(12)) for one in dated) == [(3, 1), (50, 1)]
                assert {(one.cdw(14), one.cdw(15), one.cdw(2), one.cdw(3)) for one in dated} == {
                    (20_000, 1, 5, 7)
                }
                target.handlers[False, DATED] = lambda command: Answer(0x4001)
                assert await controller.read_many(1, [3, 50], 2, **how) == found
                assert len(target.io(READ)) == 2
        finally:
            await target.stop()

    asyncio.run(main())


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
        assert not any(queue._engine._detached for queue in queues)

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
