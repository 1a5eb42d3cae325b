"""Connecting, losing the connection and coming back; and servers that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_support import c2h_data, common, icresp, r2t, response, term_req

from prestage import testing
from prestage.host_client import (
    ConnectFailed,
    ConnectionLost,
    InvalidRequest,
    NvmeError,
    ProtocolError,
    RequestTimeout,
    connect,
)
from prestage.host_client.address import parse_url

from .scripted import BLOCK, FABRICS, READ, SILENCE, WRITE, Answer, ScriptedTarget, scripted

NQN = "nqn.2026-11.org.example:evil"
FAST: dict[str, Any] = {"backoff_s": (0.01, 0.05)}


def run(main: Awaitable[None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(limited())


# ---- servers that mean no good ----


@contextlib.asynccontextmanager
async def raw_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server whose connections are handled by `serve`, and closed by it or by us."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"nvme+tcp://127.0.0.1:{port}/{NQN}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


EVIL = {
    "an ICResp of another version": icresp(pfv=1),
    "an ICResp with alignment": icresp(cpda=3),
    "digests that nobody asked for": icresp(digests=3),
    "a MAXH2CDATA below 4 KiB": icresp(limit=512),
    "no PDU at all": b"HTTP/1.1 400 Bad Request\r\n\r\n".ljust(200),
    "a response before the ICResp": response(0),
    "a second ICResp": icresp() + icresp(),
    "an unknown type": icresp() + common(0x55, 0, 24, 0, 24) + bytes(16),
    "a wrong header length": icresp() + common(5, 0, 16, 0, 24) + bytes(16),
    "a response to nothing": icresp() + response(17),
    "data for nothing": icresp() + c2h_data(9, 0, b"x" * 512),
    "data for a command that wants none": icresp() + c2h_data(0, 0, b"x" * 512),
    "an R2T for a command that has none": icresp() + r2t(0, 1, 0, 4096),
}


@pytest.mark.parametrize("name", sorted(EVIL))
def test_an_evil_server_is_told_and_left(name: str) -> None:
    told = asyncio.Queue[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVIL[name])
        await reader.readexactly(128)
        told.put_nowait(await reader.read())

    async def main() -> None:
        async with raw_server(serve) as url:
            with pytest.raises(ProtocolError, match="the target sent a wrong PDU"):
                await connect(url, timeout_s=10).open()
            # The end of the stream has come: whatever else was sent, an H2CTermReq is the last.
            stream = await told.get()
            assert b"\x02\x00\x18\x00" in stream

    run(main())


def test_a_server_that_says_why_it_ends_the_connection_is_quoted() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(128)
        writer.write(icresp() + term_req(3, fes=6, fei=5, size=0))
        await reader.read()

    async def main() -> None:
        async with raw_server(serve) as url:
            with pytest.raises(ConnectionLost, match="Unsupported Parameter, FEI 5h"):
                await connect(url).open()

    run(main())


def test_random_bytes_never_do_harm(rng: random.Random) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        prefix = icresp() if rng.random() < 0.7 else b""
        kind = rng.choice([1, 3, 5, 7, 9, rng.randrange(256)])
        head = common(kind, rng.randrange(16), rng.choice([24, 128]), 24, rng.randrange(600))
        writer.write(prefix + head + rng.randbytes(rng.randrange(600)))
        writer.write_eof()
        await reader.read()

    async def main() -> None:
        async with raw_server(serve) as url:
            for _ in range(150):
                with pytest.raises(ConnectionLost):
                    await connect(url, timeout_s=30).open()

    run(main())


def test_a_silent_server_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with raw_server(serve) as url:
            with pytest.raises(RequestTimeout, match=r"no association in 0.2 s"):
                await connect(url, timeout_s=0.2).open()

    run(main())


def test_a_server_that_closes_is_named() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(128)
        writer.close()

    async def main() -> None:
        async with raw_server(serve) as url:
            with pytest.raises(ConnectionLost, match="the target closed the connection"):
                await connect(url).open()

    run(main())


# ---- connecting ----


def test_where_nobody_listens_nothing_connects() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with raw_server(serve) as url:
            free = url
        with pytest.raises(ConnectFailed, match="Connect.* refused|refused"):
            await connect(free).open()
        with pytest.raises(ConnectFailed, match="no such host"):
            await connect(f"nvme+tcp://no-such-host.invalid/{NQN}").open()

    run(main())


def test_a_host_that_may_not_connect_hears_why() -> None:
    async def main() -> None:
        refusal = Answer(status=1 << 14 | 0x184, dw0=0x10200)

        def refuse(command: Any) -> Answer | None:
            return refusal if command.entry[4] == 1 else None

        async with scripted(handlers={(True, FABRICS): refuse}) as target:
            with pytest.raises(ConnectFailed, match="Connect Invalid Host") as caught:
                await connect(target.url).open()
            error = caught.value
            assert isinstance(error, NvmeError)
            assert (error.sct, error.sc, error.dnr, error.dw0) == (1, 0x84, True, 0x10200)

    run(main())


def test_a_controller_that_fails_to_start_is_named() -> None:
    async def main() -> None:
        def fatal(command: Any) -> Answer | None:
            is_csts = command.entry[4] == 4 and command.cdw(11) == 0x1C
            return Answer(dw0=2) if is_csts else None

        async with scripted(handlers={(True, FABRICS): fatal}) as target:
            with pytest.raises(ConnectFailed, match="the controller failed, CSTS 2h"):
                await connect(target.url).open()

    run(main())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queues", -1),
        ("queue_depth", 0),
        ("queue_depth", 5000),
        ("timeout_s", 0),
        ("host_nqn", "me"),
        ("host_id", b"short"),
        ("backoff_s", (1.0, 0.5)),
    ],
)
def test_wrong_options_are_named(option: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=option):
        connect(f"nvme+tcp://127.0.0.1/{NQN}", **{option: value})


def test_an_address_and_an_nqn_are_as_good_as_a_url() -> None:
    async def main() -> None:
        async with scripted() as target:
            address = parse_url(target.url)
            short = f"{address.host}:{address.port}"
            async with connect(short, nqn=address.nqn) as controller:
                assert controller.address == address
            with pytest.raises(InvalidRequest, match="names no subsystem"):
                connect(short)
            with pytest.raises(InvalidRequest, match="an NQN"):
                connect(short, nqn="disk")

    run(main())


def test_closing_tells_the_controller_and_ends_what_waits() -> None:
    async def main() -> None:
        async with scripted() as target:
            controller = await connect(target.url).open()
            target.handlers[False, READ] = lambda command: SILENCE
            task = asyncio.create_task(controller.read(1, 0, BLOCK))
            await target.until(lambda: bool(target.io(READ)))
            await controller.close()
            with pytest.raises(ConnectionLost, match="the controller was closed"):
                await task
            with pytest.raises(ConnectionLost, match="the controller was closed"):
                await controller.read(1, 0, BLOCK)
            notified = [one for one in target.commands if one.cdw(11) == 0x14]
            assert notified[-1].cdw(12) >> 14 & 3 == 1
            await controller.close()

    run(main())


# ---- coming back ----


def test_a_read_survives_the_loss_of_its_connection(rng: random.Random) -> None:
    async def main() -> None:
        async with scripted() as target, connect(target.url, queues=2, **FAST) as controller:
            target.memory[:] = rng.randbytes(len(target.memory))
            target.handlers[False, READ] = lambda command: SILENCE
            into = bytearray(8 * BLOCK)
            tasks = [asyncio.create_task(controller.read(1, 0, into=into))]
            tasks += [asyncio.create_task(controller.read(1, 0, BLOCK)) for _ in range(5)]
            await target.until(lambda: len(target.io(READ)) == 6)
            target.handlers.clear()
            target.drop()
            assert all(one[:BLOCK] == target.memory[:BLOCK] for one in await asyncio.gather(*tasks))
            assert into == target.memory[: 8 * BLOCK]
            assert controller.connects == 2

    run(main())


def more(target: ScriptedTarget, opcode: int, count: int) -> bool:
    return len(target.io(opcode)) > count


def test_what_may_have_been_carried_out_is_not_sent_again() -> None:
    async def main() -> None:
        async with scripted() as target, connect(target.url, **FAST) as controller:
            for opcode, send in (
                (WRITE, lambda: controller.write(1, bytes(BLOCK), 0)),
                (0x00, lambda: controller.flush(1)),
                (0x08, lambda: controller.write_zeroes(1, 0, BLOCK)),
                (0x80, lambda: controller.command(0x80, nsid=1)),
            ):
                await controller.wait_connected()
                target.handlers[False, opcode] = lambda command: SILENCE
                before = len(target.io(opcode))
                task = asyncio.ensure_future(send())
                await target.until(partial(more, target, opcode, before))
                target.drop()
                with pytest.raises(ConnectionLost, match="closed|failed"):
                    await task
                assert len(target.io(opcode)) == before + 1

    run(main())


def test_what_was_not_sent_yet_waits_for_the_controller() -> None:
    async def main() -> None:
        async with scripted() as target, connect(target.url, queue_depth=1, **FAST) as controller:
            await controller.namespace(1)
            target.handlers[False, READ] = lambda command: SILENCE
            held = asyncio.create_task(controller.read(1, 0, BLOCK))
            await target.until(lambda: bool(target.io(READ)))
            waiting = asyncio.create_task(controller.write(1, b"\x11" * BLOCK, BLOCK))
            await asyncio.sleep(0)
            target.handlers.clear()
            target.drop()
            await asyncio.gather(held, waiting)
            assert target.memory[BLOCK : 2 * BLOCK] == b"\x11" * BLOCK
            assert len(target.io(WRITE)) == 1

    run(main())


def test_a_controller_that_stays_away_is_lost() -> None:
    async def main() -> None:
        async with scripted() as target:
            controller = await connect(target.url, loss_timeout_s=0.2, **FAST).open()
            await controller.namespace(1)
            await target.stop()
            with pytest.raises(ConnectionLost, match="the controller is lost: .*refused"):
                await controller.read(1, 0, BLOCK)
            with pytest.raises(ConnectionLost, match="lost"):
                await controller.wait_connected()
            assert not controller.connected.is_set()
            await controller.close()

    run(main())


def test_a_host_that_is_shut_out_does_not_knock_again() -> None:
    async def main() -> None:
        async with scripted() as target:
            controller = await connect(target.url, **FAST).open()
            refusal = Answer(status=1 << 14 | 0x184)
            target.handlers[True, FABRICS] = lambda command: (
                refusal if command.entry[4] == 1 else None
            )
            target.drop()
            with pytest.raises(ConnectionLost, match="Connect Invalid Host"):
                await controller.read(1, 0, BLOCK)
            assert controller.connects == 1
            await controller.close()

    run(main())


def test_a_host_says_that_it_lives() -> None:
    async def main() -> None:
        async with scripted() as target, connect(target.url, keep_alive_s=0.1):
            (opened,) = (one for one in target.commands if one.entry[4] == 1 and one.link.qid == 0)
            assert opened.cdw(12) == 100  # KATO in milliseconds
            await target.until(lambda: sum(one.opcode == 0x18 for one in target.commands) >= 3)

    run(main())


def test_a_keep_alive_that_is_not_answered_ends_the_association() -> None:
    async def main() -> None:
        async with (
            scripted() as target,
            connect(target.url, keep_alive_s=0.1, **FAST) as controller,
        ):
            back = asyncio.Event()
            controller.on_connect(back.set)
            target.handlers[True, 0x18] = lambda command: SILENCE
            await back.wait()
            target.handlers.clear()
            assert len(await controller.read(1, 0, BLOCK)) == BLOCK

    run(main())


def test_a_target_that_was_killed_and_started_again_is_found(
    tmp_path: Any, rng: random.Random
) -> None:
    image = f"{tmp_path}/disk.img,size=4M"
    data = rng.randbytes(1 << 20)

    async def main() -> None:
        with testing.spawn_target(namespaces=[image], directory=tmp_path / "state") as first:
            port, nqn = first.port, first.nqn
            controller = await connect(f"nvme+tcp://127.0.0.1:{port}/{nqn}", **FAST).open()
            await controller.write(1, data, 0)
            await controller.flush(1)
            await asyncio.to_thread(first.kill)
        task = asyncio.create_task(controller.read(1, 0, 1 << 20))
        again = testing.spawn_target(
            "--listen",
            f"127.0.0.1:{port}",
            namespaces=[image],
            directory=tmp_path / "state",
        )
        target = await asyncio.to_thread(again.__enter__)
        try:
            assert await task == data
            assert controller.connects == 2
            await controller.close()
            assert await asyncio.to_thread(target.terminate) == 0
        finally:
            await asyncio.to_thread(again.__exit__, None, None, None)

    run(main())


def test_losing_the_connection_at_random_moments_loses_no_read(rng: random.Random) -> None:
    async def main() -> None:
        async with (
            scripted() as target,
            connect(target.url, queues=2, queue_depth=8, **FAST) as controller,
        ):
            target.memory[:] = rng.randbytes(len(target.memory))

            async def reader(seed: int) -> None:
                own = random.Random(seed)
                for _ in range(30):
                    slba = own.randrange(240)
                    found = await controller.read(1, slba=slba, nlb=8)
                    assert found == target.memory[slba * BLOCK : (slba + 8) * BLOCK]

            readers = [asyncio.create_task(reader(rng.randrange(1 << 30))) for _ in range(8)]
            for _ in range(8):
                for _ in range(rng.randrange(40)):
                    await asyncio.sleep(0)
                target.drop()
                await asyncio.sleep(0)
                await controller.wait_connected()
            await asyncio.gather(*readers)

    run(main())


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_connecting_and_leaving_many_times_leaves_no_descriptor() -> None:
    async def main() -> None:
        async with scripted() as target:
            for _ in range(3):  # what the event loop and the target open once
                async with connect(target.url, queues=2):
                    pass
            before = descriptors()
            for index in range(40):
                controller = await connect(target.url, queues=2, **FAST).open()
                task = asyncio.create_task(controller.read(1, 0, BLOCK))
                if index % 2:
                    target.drop()
                await asyncio.sleep(0)
                await controller.close()
                await asyncio.gather(task, return_exceptions=True)
            target.drop()
            await asyncio.gather(*target._tasks, return_exceptions=True)
            assert descriptors() <= before

    run(main())
