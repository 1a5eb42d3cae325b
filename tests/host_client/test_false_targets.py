"""Targets that lie, stop talking or hang up, wherever: a host ends in time, and with the truth."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from prestage.host_client import Hints, connect
from prestage.host_client.errors import HostError, InvalidRequest

from .fake_pax import FakePax, PaxTarget
from .scripted import AER, BLOCK, FABRICS, NQN, SILENCE, Answer, Command, ScriptedTarget, scripted

GET_LOG = 0x02
SHUTDOWN = 1 << 14
EVENT = 0x02 | 4 << 16
"""Namespace attribute changed, log page 4."""
TIMEOUT_S = 0.3
SEEDS = range(60)
PDUS = 26
"""About as many come when nothing is wrong."""
WITHIN_S = 30.0
OPTIONS: dict[str, Any] = {
    "timeout_s": TIMEOUT_S, "loss_timeout_s": 0.5, "backoff_s": (0.01, 0.05), "keep_alive_s": 0,
}  # fmt: skip
Change = Callable[[bytes], bytes | None]


def lie(rng: random.Random, is_covered: bool) -> Change:
    """What becomes of one PDU: other bytes, or None: nothing comes after it.

    Data that no digest covers is left alone: nobody could tell.
    """
    kind = rng.randrange(6)

    def change(pdu: bytes) -> bytes | None:
        if kind == 0:
            return None
        if kind == 1:
            return pdu[: rng.randrange(len(pdu))]
        if kind == 2:
            return rng.randbytes(rng.randrange(1, 300))
        if kind == 3:
            lengths = (0, 7, 8, 24, len(pdu) - 1, len(pdu) + 1, 1 << 31, (1 << 32) - 1)
            return pdu[:4] + struct.pack("<I", rng.choice(lengths)) + pdu[8:]
        if kind == 4:
            return pdu + pdu
        place = rng.randrange(len(pdu) if is_covered else pdu[2])
        value = rng.choice([0, 255, pdu[place] ^ 255, pdu[place] ^ 1 << rng.randrange(8)])
        return pdu[:place] + bytes([value]) + pdu[place + 1 :]

    return change


class Liar:
    """Stands between a host and a target, and changes PDU number `at` of what the target says."""

    def __init__(self, port: int, at: int, change: Change) -> None:
        self._target, self._at, self._change = port, at, change
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += ours, writer
        for work in (self._pass(reader, ours), self._lie(theirs, writer)):
            self._tasks.append(asyncio.create_task(work))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.close()

    async def _lie(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(8)
                pdu = head + await reader.readexactly(int.from_bytes(head[4:], "little") - 8)
                self._at -= 1
                said = self._change(pdu) if self._at == 0 else pdu
                if said is None:
                    await asyncio.Event().wait()
                    return
                writer.write(said)
        writer.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        # What was aborted is closed in the next turn of the loop.
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def lying(target: ScriptedTarget, at: int, change: Change) -> AsyncIterator[str]:
    """Run a liar before a target; yields its URL."""
    liar = Liar(target.port, at, change)
    async with await asyncio.start_server(liar.accept, "127.0.0.1") as server:
        yield f"nvme+tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}/{NQN}"
        await liar.stop()


@contextlib.asynccontextmanager
async def serving(target: ScriptedTarget) -> AsyncIterator[ScriptedTarget]:
    """Run a target."""
    await target.start()
    try:
        yield target
    finally:
        await target.stop()


async def use(url: str, memory: bytes, digests: bool) -> None:
    """Use a target in many ways; what comes back is right, or one of the host's errors."""
    async with connect(url, header_digest=digests, data_digest=digests, **OPTIONS) as host:
        hints = Hints(host)
        for call in (
            lambda: host.read(1, slba=3, nlb=40),
            lambda: host.write(1, memory[: 8 * BLOCK], slba=0),
            lambda: host.read(1, slba=3, nlb=40),
            hints.open,
            hints.status,
            lambda: hints.define_set(5, [(0, 8)]),
            lambda: hints.intend([(8, 64)], deadline=1, late_ok=True),
            lambda: hints.residency([(8, 64)]),
        ):
            with contextlib.suppress(HostError):
                found = await call()
                if isinstance(found, bytearray):
                    assert found == memory[3 * BLOCK : 43 * BLOCK]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lie_ends_in_time_and_returns_no_wrong_byte(seed: int) -> None:
    rng = random.Random(seed)
    memory = rng.randbytes(64 * BLOCK)
    digests, at = rng.random() < 0.5, rng.randrange(1, PDUS)

    async def main() -> None:
        async with serving(PaxTarget(FakePax())) as target:
            target.memory[: len(memory)] = memory
            async with lying(target, at, lie(rng, digests)) as url, asyncio.timeout(WITHIN_S):
                try:
                    await use(url, memory, digests)
                except HostError as error:
                    assert not isinstance(error, InvalidRequest), "it is the peer's fault"

    asyncio.run(main())


def test_a_target_that_hangs_up_when_it_is_to_shut_down_is_closed() -> None:
    async def main() -> None:
        async with scripted() as target:

            def hang_up(command: Command) -> Any:
                if command.entry[4] == 0 and command.cdw(12) & SHUTDOWN:
                    target.drop()
                    return SILENCE
                return None

            target.handlers[True, FABRICS] = hang_up
            async with connect(target.url, **OPTIONS) as host:
                await host.read(1, slba=0, nlb=1)
            assert not host.connected.is_set()

    asyncio.run(main())


def test_events_without_end_are_not_asked_about_without_end() -> None:
    async def main() -> None:
        told = 0

        def tell(command: Command) -> Any:
            nonlocal told
            told += 1
            return Answer(dw0=EVENT) if told < 1000 else SILENCE

        async with scripted(oaes=1 << 8) as target:
            target.handlers[True, AER] = tell
            target.handlers[True, GET_LOG] = lambda command: SILENCE
            async with connect(target.url, **{**OPTIONS, "timeout_s": 30.0}) as host:
                await target.until(lambda: told == 1000)
                assert bytes(await host.read(1, slba=0, nlb=1)) == bytes(BLOCK)
                logs = [one for one in target.commands if one.opcode == GET_LOG]
                assert len([one for one in logs if one.link.qid == 0]) == 1

    asyncio.run(main())
