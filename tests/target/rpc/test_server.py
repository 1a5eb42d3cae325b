"""The control socket: its file, its lock, its limits, and clients that behave badly."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rpc_tools import Rig_in_loop, with_server

from prestage.target.errors import AlreadyExists, Invalid
from prestage.target.rpc import server as module
from prestage.target.rpc.client import CallFailed, Client, ClientError
from prestage.target.rpc.server import ControlServer

PING = b'{"id":1,"method":"framework_wait_init"}'
PONG = b'{"jsonrpc":"2.0","id":1,"result":true}\n'


async def dial(server: ControlServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(server.path)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds that has no event of its own."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - as said
            await asyncio.sleep(0.001)


async def exchange(server: ControlServer, data: bytes = PING) -> bytes:
    """Send data on a fresh connection and return the first line that comes back."""
    reader, writer = await dial(server)
    writer.write(data)
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return line


def test_a_request_is_answered_with_a_line(tmp_path: Path) -> None:
    assert with_server(tmp_path, exchange) == PONG


def test_the_socket_is_for_its_owner_only_and_goes_with_the_server(tmp_path: Path) -> None:
    modes = []

    async def body(server: ControlServer) -> None:
        modes.append(stat.S_IMODE(os.stat(server.path).st_mode))  # noqa: PTH116 - short

    with_server(tmp_path, body)
    assert modes == [0o600]
    assert list(tmp_path.iterdir()) == []


def test_binding_leaves_the_umask_of_the_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several targets in one process bind at the same time, and others make files meanwhile.
    asked: list[int] = []
    monkeypatch.setattr(os, "umask", asked.append)
    module.bind(str(tmp_path / "socket")).close()
    assert not asked


def test_requests_in_one_piece_are_answered_in_order(tmp_path: Path) -> None:
    async def body(server: ControlServer) -> list[int]:
        reader, writer = await dial(server)
        writer.write(b"".join(PING.replace(b"1", b"%d" % n) for n in range(1, 51)))
        lines = [await asyncio.wait_for(reader.readline(), 10) for _ in range(50)]
        writer.close()
        return [json.loads(line)["id"] for line in lines]

    assert with_server(tmp_path, body) == list(range(1, 51))


def test_a_request_in_single_bytes_is_answered(tmp_path: Path) -> None:
    async def body(server: ControlServer) -> bytes:
        reader, writer = await dial(server)
        for n in range(len(PING)):
            writer.write(PING[n : n + 1])
            await writer.drain()
        line = await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        return line

    assert with_server(tmp_path, body) == PONG


@pytest.mark.parametrize(
    "data", [b"[}", b"{'a':1}", b'{"id":1,}', b'"' + b"x" * (300 << 10), b"[" * 100]
)
def test_what_is_not_json_ends_its_connection_and_no_other(data: bytes, tmp_path: Path) -> None:
    async def body(server: ControlServer) -> tuple[Any, bytes, bytes]:
        other_reader, other = await dial(server)
        reader, writer = await dial(server)
        writer.write(PING + data)
        assert await asyncio.wait_for(reader.readline(), 10) == PONG
        answer = json.loads(await asyncio.wait_for(reader.readline(), 10))
        try:
            rest = await asyncio.wait_for(reader.read(), 10)
        except ConnectionResetError:
            rest = b""
        writer.close()
        other.write(PING)
        line = await asyncio.wait_for(other_reader.readline(), 10)
        other.close()
        return answer, rest, line

    answer, rest, line = with_server(tmp_path, body)
    assert answer["error"]["code"] == -32700
    assert answer["id"] is None
    assert rest == b""
    assert line == PONG


def test_a_client_that_goes_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    async def body(server: ControlServer) -> bytes:
        for data in (b"", PING[:10], PING, PING * 100):
            _, writer = await dial(server)
            writer.write(data)
            await writer.drain()
            writer.transport.abort()
        line = await exchange(server)
        await until(lambda: not server.clients)
        return line

    assert with_server(tmp_path, body) == PONG


def test_a_client_that_reads_nothing_holds_nobody_up_and_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEND_TIMEOUT_S", 0.2)

    async def body(server: ControlServer) -> bytes:
        _, slow = await dial(server)
        request = b'{"id":1,"method":"rpc_get_methods"}'
        slow.transport.pause_reading()  # type: ignore[attr-defined]
        slow.write(request * 4000)
        line = await exchange(server)
        await until(lambda: not server.clients)
        slow.transport.abort()
        return line

    assert with_server(tmp_path, body) == PONG


def test_the_65th_connection_is_told_that_there_are_too_many(tmp_path: Path) -> None:
    async def body(server: ControlServer) -> tuple[Any, bytes]:
        held = [await dial(server) for _ in range(module.MAX_CONNECTIONS)]
        await until(lambda: not (len(server.clients) < module.MAX_CONNECTIONS))
        refused = json.loads(await exchange(server, b""))
        held[0][1].close()
        await until(lambda: len(server.clients) != module.MAX_CONNECTIONS)
        line = await exchange(server)
        for _, writer in held:
            writer.close()
        return refused, line

    refused, line = with_server(tmp_path, body)
    assert refused["error"]["message"] == "there are 64 control connections already"
    assert line == PONG


def test_a_long_idle_connection_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_BEFORE_EVICTION_S", 0.0)

    async def body(server: ControlServer) -> tuple[bytes, bytes]:
        held = [await dial(server) for _ in range(module.MAX_CONNECTIONS)]
        await until(lambda: not (len(server.clients) < module.MAX_CONNECTIONS))
        line = await exchange(server)
        first = await asyncio.wait_for(held[0][0].read(), 10)
        for _, writer in held:
            writer.close()
        return line, first

    assert with_server(tmp_path, body) == (PONG, b"")


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "c.sock"))
    assert with_server(tmp_path, exchange) == PONG


def test_anything_but_a_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "c.sock").write_text("mine")
    with pytest.raises(Invalid, match="something else is there already"):
        with_server(tmp_path, exchange)
    assert (tmp_path / "c.sock").read_text() == "mine"
    assert not (tmp_path / "c.sock.lock").exists()


def test_a_running_targets_socket_is_not_taken(tmp_path: Path) -> None:
    async def body(server: ControlServer) -> bytes:
        second = ControlServer(Rig_in_loop().context, server.path)
        with pytest.raises(AlreadyExists, match=f"a running target, process {os.getpid()} "):
            second.claim()
        await second.stop()
        return await exchange(server)

    assert with_server(tmp_path, body) == PONG


def test_a_lock_file_without_its_holder_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "c.sock.lock").write_text("")
    assert with_server(tmp_path, exchange) == PONG


def test_a_lock_file_that_was_removed_meanwhile_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.lock"
    real = fcntl.flock
    calls = []

    def racing(fd: int, operation: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            # Its holder ends between our open and our lock.
            path.unlink()
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", racing)
    fd = module.take_lock(str(path))
    assert len(calls) == 2
    assert os.path.samestat(os.fstat(fd), path.stat())
    os.close(fd)


def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    server = ControlServer(Rig_in_loop().context, "/tmp/" + "x" * 120)
    with pytest.raises(Invalid, match="the path of the control socket is too long"):
        server.claim()


def test_the_client_calls_and_reports_errors(tmp_path: Path) -> None:
    async def body(server: ControlServer) -> None:
        def blocking() -> None:
            with Client(server.path) as client:
                assert client.call("framework_wait_init") is True
                with pytest.raises(CallFailed, match="Method not found") as caught:
                    client.call("nope")
                assert caught.value.code == -32601
                assert client.call("spdk_get_version")["version"].startswith("prestage")

        await asyncio.to_thread(blocking)

    with_server(tmp_path, body)


def test_the_client_says_that_no_target_runs(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="no target runs there \\(no such socket\\)"):
        Client(tmp_path / "c.sock")
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "c.sock"))
    with pytest.raises(ClientError, match="no target runs there \\(a socket is left over\\)"):
        Client(tmp_path / "c.sock")
    with pytest.raises(ClientError, match="cannot reach a target"):
        Client("/tmp/" + "x" * 200)


def test_the_client_does_not_wait_for_ever(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "c.sock"))
        silent.listen()
        with (
            Client(tmp_path / "c.sock", timeout_s=0.05) as client,
            pytest.raises(ClientError, match=r"no answer from .* in 0.05 s"),
        ):
            client.call("framework_wait_init")
