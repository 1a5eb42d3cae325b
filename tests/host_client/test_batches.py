"""Requests of many commands: bytes, order, limits, turns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from prestage._engine import ffi
from prestage.host_client import (
    Controller,
    InvalidRequest,
    connect,
)
from prestage.host_client.batch import PIECE

from .fake_pax import DATED, FakePax, PaxTarget
from .scripted import BLOCK, READ, SILENCE, WRITE, Answer, Command, ScriptedTarget
from .test_requests import Gate, run

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


def test_tensors_that_are_no_plain_memory_are_refused() -> None:
    torch: Any = pytest.importorskip("torch")
    plain = torch.zeros(1024, 2)
    wrong = {
        "turned": plain.T,
        "spread": torch.zeros(1).expand(1024),
        "nowhere": torch.zeros(1024, device="meta"),
        "sparse": plain.to_sparse(),
        "conjugated on demand": torch.zeros(512, dtype=torch.complex64).conj(),
        "nested": torch.nested.nested_tensor([torch.zeros(512), torch.zeros(512)]),
    }

    async def body(target: ScriptedTarget, controller: Controller) -> None:
        for tensor in wrong.values():
            with pytest.raises(InvalidRequest, match="a contiguous tensor of the CPU"):
                await controller.write(1, tensor, 0)
            with pytest.raises(InvalidRequest, match="a contiguous tensor of the CPU"):
                await controller.read_many(1, [0], 1, into=tensor)
        assert not target.io(WRITE) and not target.io(READ)

    run(body)


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


@pytest.mark.parametrize(("queues", "depth", "count"), [(1, 4, 40), (1, 1, 20), (2, 1, 20)])
def test_single_requests_and_a_batch_do_not_wait_for_the_end_of_each_other(
    queues: int, depth: int, count: int
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await controller.namespace(1)
        gate = Gate()
        target.handlers[False, READ] = gate
        batch = asyncio.create_task(controller.read_many(1, [7] * count, 1))
        await target.until(lambda: len(gate.held) == queues * depth)
        singles = [asyncio.create_task(controller.read(1, slba=9, nlb=1)) for _ in range(count)]
        await asyncio.sleep(0)
        order = []
        for _ in range(2 * count):
            await target.until(lambda: bool(gate.held))
            order.append(gate.held[0].cdw(10))
            gate.open(target)
            for _ in range(20):  # the slot goes to whoever is next
                await asyncio.sleep(0)
        await asyncio.gather(batch, *singles)
        assert (order.count(7), order.count(9)) == (count, count)
        # Each has about half of the slots while both are there.
        assert count // 4 <= order[:count].count(9) <= 3 * count // 4

    run(body, queues=queues, queue_depth=depth)


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
