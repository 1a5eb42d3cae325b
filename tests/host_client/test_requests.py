"""Requests and their slots against a scripted target: order, limits, cancellation, timeouts."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from prestage.host_client import (
    Controller,
    DigestError,
    NvmeError,
    ProtocolError,
    RequestTimeout,
    connect,
)

from .scripted import BLOCK, READ, SILENCE, WRITE, Answer, Command, ScriptedTarget, scripted

Body = Callable[[ScriptedTarget, Controller], Awaitable[None]]


def run(body: Body, *, script: dict[str, Any] | None = None, **options: Any) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(60),
            scripted(**(script or {})) as target,
            connect(target.url, **options) as controller,
        ):
            await body(target, controller)

    asyncio.run(main())


class Gate:
    """A handler that keeps every command until it is told to answer."""

    def __init__(self) -> None:
        self.held: list[Command] = []

    def __call__(self, command: Command) -> object:
        self.held.append(command)
        return SILENCE

    def open(self, target: ScriptedTarget, index: int = 0) -> None:
        command = self.held.pop(index)
        command.end(target.default(command))


def test_no_more_requests_are_in_flight_than_the_depth_and_the_oldest_goes_first() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await controller.namespace(1)
        gate = Gate()
        target.handlers[False, READ] = gate
        tasks = []
        for index in range(12):
            tasks.append(asyncio.create_task(controller.read(1, index * BLOCK, BLOCK)))
            await asyncio.sleep(0)
        order = []
        for _ in range(12):
            await target.until(lambda: bool(gate.held))
            assert len(gate.held) <= 4
            order += [one.cdw(10) for one in gate.held if one.cdw(10) not in order]
            gate.open(target)
        await asyncio.gather(*tasks)
        assert order == list(range(12))

    run(body, queue_depth=4)


def test_the_depth_is_what_the_controller_allows() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()
        target.handlers[False, READ] = gate
        tasks = [asyncio.create_task(controller.read(1, 0, BLOCK)) for _ in range(20)]
        await target.until(lambda: len(gate.held) == 15)
        assert controller._link.association.io[0].room == 0
        target.handlers.clear()
        while gate.held:
            gate.open(target)
        await asyncio.gather(*tasks)

    run(body, script={"mqes": 15}, queue_depth=128)


def test_requests_go_to_the_queue_with_the_most_room() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()
        target.handlers[False, READ] = gate
        tasks = [asyncio.create_task(controller.read(1, 0, BLOCK)) for _ in range(9)]
        await target.until(lambda: len(gate.held) == 9)
        by_queue = [one.link.qid for one in gate.held]
        assert {qid: by_queue.count(qid) for qid in (1, 2, 3)} == {1: 3, 2: 3, 3: 3}
        while gate.held:
            gate.open(target)
        await asyncio.gather(*tasks)

    run(body, queues=3)


def test_small_writes_travel_in_their_capsule_and_large_ones_when_asked_for(
    rng: random.Random,
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        for size in (BLOCK, 2 * BLOCK, 64 * BLOCK):
            data = rng.randbytes(size)
            await controller.write(1, data, 0)
            assert target.memory[:size] == data
        kinds = [one.entry[39] for one in target.io(WRITE)]
        assert kinds == [0x01, 0x5A, 0x5A]

    run(body, script={"in_capsule": 4096, "max_h2c_data": 8192}, data_digest=True)


def test_admin_commands_wait_for_their_turn() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()
        target.handlers[True, 0x0A] = gate
        tasks = [
            asyncio.create_task(controller.command(0x0A, cdw10=7, admin=True)) for _ in range(60)
        ]
        ended = 0
        while ended < 60:
            await target.until(lambda: bool(gate.held))
            gate.open(target)
            ended += 1
        assert all([(await task).ok for task in tasks])
        admin = controller._link.association.admin
        assert (admin.reserved, admin.room) == (0, admin.slots - admin.in_flight)

    run(body)


# ---- cancellation ----


@pytest.mark.parametrize("digests", [False, True])
def test_a_cancelled_reads_buffer_is_left_alone(
    digests: bool,
    rng: random.Random,
) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.memory[:] = rng.randbytes(len(target.memory))
        gate = Gate()
        target.handlers[False, READ] = gate
        into = bytearray(b"\x55" * BLOCK * 8)
        task = asyncio.create_task(controller.read(1, 0, into=into))
        await target.until(lambda: bool(gate.held))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        into += b"it may even change its size"
        assert controller._link.association.io[0].in_flight == 1
        gate.open(target)
        target.handlers.clear()
        assert await controller.read(1, BLOCK, BLOCK) == target.memory[BLOCK : 2 * BLOCK]
        assert into[: BLOCK * 8] == b"\x55" * BLOCK * 8
        assert controller._link.association.io[0].in_flight == 0

    run(body, header_digest=digests, data_digest=digests)


@pytest.mark.parametrize("digests", [False, True])
def test_a_read_cancelled_in_the_middle_of_its_data_is_left_alone(
    digests: bool,
    rng: random.Random,
) -> None:
    size = 64 * BLOCK

    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.memory[:] = rng.randbytes(len(target.memory))
        into = bytearray(size)

        def half(command: Command) -> object:
            engine = command.link.engine
            engine.respond(command.slot, data=bytes(target.memory[:size]))
            stream = engine.output()
            command.link.writer.write(stream[: size // 2])
            rest.append((command, stream[size // 2 :]))
            return SILENCE

        rest: list[tuple[Command, bytes]] = []
        target.handlers[False, READ] = half
        task = asyncio.create_task(controller.read(1, 0, into=into))
        await target.until(lambda: bool(rest))
        for _ in range(1 << 20):  # the first half is on its way through the socket
            if any(into):
                break
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        into[:] = bytes(size)
        command, stream = rest.pop()
        command.link.writer.write(stream)
        target.handlers.clear()
        assert await controller.read(1, 0, size) == target.memory[:size]
        assert not any(into)

    run(body, data_digest=digests)


def test_a_cancelled_write_sends_what_the_buffer_held_then(rng: random.Random) -> None:
    """Its R2T comes after the caller has used the buffer for something else."""
    size = 32 * BLOCK

    async def body(target: ScriptedTarget, controller: Controller) -> None:
        data = bytearray(rng.randbytes(size))
        kept = bytes(data)
        await controller.namespace(1)
        task = asyncio.create_task(controller.write(1, data, 0))
        await asyncio.sleep(0)  # It is submitted; nothing of it was sent.
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        data[:] = bytes(size)
        data += b"and larger"
        await target.until(lambda: bool(target.io(WRITE)))
        assert target.memory[:size] == kept
        assert len(await controller.read(1, 0, BLOCK)) == BLOCK

    run(body, script={"max_h2c_data": 4096}, data_digest=True)


def test_one_that_is_cancelled_while_it_waits_gives_its_turn_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before its turn has come, and in the very moment that it comes."""

    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await controller.namespace(1)
        gate = Gate()
        target.handlers[False, READ] = gate
        tasks = []
        for index in range(4):
            tasks.append(asyncio.create_task(controller.read(1, index * BLOCK, BLOCK)))
            await asyncio.sleep(0)
        await target.until(lambda: bool(gate.held))
        tasks[1].cancel()
        link = controller._link
        real = link._serve

        def serve() -> None:
            real()
            tasks[2].cancel()

        monkeypatch.setattr(link, "_serve", serve)
        link.association.io[0].on_free = serve
        target.handlers.clear()
        gate.open(target)
        assert len(await tasks[3]) == BLOCK
        assert [task.cancelled() for task in tasks] == [False, True, True, False]
        assert link.association.io[0].room == 1

    run(body, queue_depth=1)


def test_cancelling_at_random_moments_harms_nobody_else(rng: random.Random) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.memory[:] = rng.randbytes(len(target.memory))
        guarded = [bytearray(b"\xaa" * 8 * BLOCK) for _ in range(4)]

        async def reader(seed: int) -> None:
            own = random.Random(seed)
            for _ in range(40):
                slba = own.randrange(200)
                found = await controller.read(1, slba=slba, nlb=8)
                assert found == target.memory[slba * BLOCK : (slba + 8) * BLOCK]

        async def quitter(seed: int, into: bytearray) -> None:
            own = random.Random(seed)
            for _ in range(60):
                task = asyncio.create_task(controller.read(1, slba=own.randrange(200), into=into))
                for _ in range(own.randrange(12)):
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


# ---- timeouts ----


def test_a_request_that_is_not_answered_times_out_and_is_aborted() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()
        target.handlers[False, READ] = gate

        def abort(command: Command) -> Answer:
            (held,) = gate.held
            assert (
                command.cdw(10) == held.link.qid | int.from_bytes(held.entry[2:4], "little") << 16
            )
            gate.held.clear()
            held.end(Answer(status=0x007))
            return Answer()

        target.handlers[True, 0x08] = abort
        into = bytearray(b"\x55" * BLOCK)
        with pytest.raises(RequestTimeout, match=r"has not answered in 0.2 s"):
            await controller.read(1, 0, into=into)
        assert set(into) == {0x55}
        await target.until(lambda: not gate.held)
        target.handlers.clear()
        assert len(await controller.read(1, 0, BLOCK)) == BLOCK
        assert controller._link.association.io[0].in_flight == 0
        assert controller.connects == 1

    run(body, timeout_s=0.2)


def test_a_controller_that_does_not_even_abort_is_connected_anew() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.handlers[False, READ] = lambda command: SILENCE
        target.handlers[True, 0x08] = lambda command: SILENCE
        with pytest.raises(RequestTimeout):
            await controller.read(1, 0, BLOCK)
        target.handlers.pop((False, READ))
        waiting = asyncio.create_task(controller.read(1, 0, BLOCK))
        assert len(await waiting) == BLOCK
        await target.until(lambda: len(target.links) == 4)
        await controller.wait_connected()
        assert controller.connects == 2

    run(body, timeout_s=0.2, keep_alive_s=0, backoff_s=(0.01, 0.1))


# ---- what a target says wrongly ----


def test_success_without_all_the_data_is_a_fault_of_the_target() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.handlers[False, READ] = lambda command: Answer(data=bytes(512))
        with pytest.raises(ProtocolError, match="success, and 512 of 4096 bytes"):
            await controller.read(1, 0, BLOCK)
        answer = await controller.command(READ, nsid=1, read_bytes=BLOCK)
        assert answer.ok and answer.data == bytes(512)

    run(body)


def test_a_wrong_data_digest_fails_its_request_only(rng: random.Random) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        def spoiled(command: Command) -> object:
            command.link.engine.respond(command.slot, data=bytes(BLOCK))
            stream = bytearray(command.link.engine.output())
            stream[24 + 7] ^= 1  # a byte of the data, behind the header
            command.link.writer.write(bytes(stream))
            return SILENCE

        target.handlers[False, READ] = spoiled
        with pytest.raises(DigestError, match="data digest"):
            await controller.read(1, 0, BLOCK)
        target.handlers.clear()
        assert await controller.read(1, 0, BLOCK) == target.memory[:BLOCK]
        assert controller.connects == 1

    run(body, data_digest=True)


@pytest.mark.parametrize("status", [0x4002, 0x281, 0x302, 0x7C3])
def test_every_status_reaches_the_caller(status: int) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.handlers[False, WRITE] = lambda command: Answer(status=status, dw0=77)
        with pytest.raises(NvmeError) as caught:
            await controller.write(1, bytes(BLOCK), 0)
        error = caught.value
        assert (error.sct << 8 | error.sc, error.dnr) == (status & 0x7FF, bool(status & 0x4000))
        assert error.dw0 == 77

    run(body)


def test_a_failing_piece_of_a_large_read_ends_the_others_at_once() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        gate = Gate()

        def third(command: Command) -> object:
            return Answer(status=0x281) if command.cdw(10) == 4 else gate(command)

        target.handlers[False, READ] = third
        into = bytearray(16 * BLOCK)
        with pytest.raises(NvmeError, match="Unrecovered Read Error"):
            await controller.read(1, 0, into=into)
        into += b"its memory is ours again"
        target.handlers.clear()
        while gate.held:
            gate.open(target)
        assert len(await controller.read(1, 0, 16 * BLOCK)) == 16 * BLOCK
        assert not any(into[: 16 * BLOCK])

    run(body, script={"mdts": 1})


def test_a_wrong_pdu_ends_the_requests_under_way_and_none_is_sent_again() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        def evil(command: Command) -> object:
            command.link.writer.write(b"\x55" * 64)
            return SILENCE

        target.handlers[False, READ] = evil
        with pytest.raises(ProtocolError, match="the target sent a wrong PDU"):
            await controller.read(1, 0, BLOCK)
        target.handlers.clear()
        assert len(target.io(READ)) == 1
        assert len(await controller.read(1, 0, BLOCK)) == BLOCK
        assert controller.connects == 2

    run(body, backoff_s=(0.01, 0.1))


def test_a_namespace_that_changes_is_looked_at_again() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        events: list[Command] = []

        def listen(command: Command) -> object:
            events.append(command)
            return SILENCE

        # The first request is kept by the target itself, the next one by this handler.
        await target.until(lambda: any(one.opcode == 0x0C for one in target.commands))
        first = next(one for one in target.commands if one.opcode == 0x0C)
        target.handlers[True, 0x0C] = listen
        before = await controller.namespace(1)
        assert await controller.namespace(1) is before
        first.end(Answer(dw0=2 | 4 << 16))
        await target.until(lambda: bool(events))
        assert await controller.namespace(1) is not before
        await target.until(
            lambda: any(one.opcode == 2 and one.cdw(10) & 0xFF == 4 for one in target.commands)
        )

    run(body, script={"oaes": 1 << 8})


def test_a_namespace_that_changes_while_it_is_looked_at_is_looked_at_again() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await target.until(lambda: any(one.opcode == 0x0C for one in target.commands))
        event = next(one for one in target.commands if one.opcode == 0x0C)
        gate = Gate()
        target.handlers[True, 0x06] = gate
        task = asyncio.create_task(controller.namespace(1))
        await target.until(lambda: bool(gate.held))
        event.end(Answer(dw0=2 | 4 << 16))
        # The log is read because of the event, so it has been noticed by then.
        await target.until(lambda: target.commands[-1].opcode == 0x02)
        gate.open(target)
        await target.until(lambda: bool(gate.held))
        gate.open(target)
        assert (await task).blocks == 256

    run(body, script={"oaes": 1 << 8})
