from __future__ import annotations

import asyncio
import errno
import socket

import pytest
from fake_data_path import until

from prestage.target.errors import AlreadyExists, Invalid, TargetError
from prestage.target.listener import Address, Listener
from prestage.target.settings import ListenerSettings


@pytest.mark.parametrize(
    ("address", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_port_0_takes_a_free_port_and_sockets_are_handed_over(address: str, family: int) -> None:
    async def main() -> None:
        got: list[socket.socket] = []
        listener = Listener.open(ListenerSettings(address=address, port=0), got.append)
        assert listener.address.address == address and listener.address.port > 0
        clients = [socket.create_connection(listener.address) for _ in range(40)]
        await until(lambda: len(got) == 40)
        assert all(sock.family == family and not sock.getblocking() for sock in got)
        listener.close()
        for sock in (*clients, *got):
            sock.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.address)

    asyncio.run(main())


def test_both_wildcards_share_a_port() -> None:
    async def main() -> None:
        got: list[socket.socket] = []
        six = Listener.open(ListenerSettings(address="::", port=0), got.append)
        port = six.address.port
        four = Listener.open(ListenerSettings(address="0.0.0.0", port=port), got.append)
        clients = [socket.create_connection((a, port)) for a in ("127.0.0.1", "::1")]
        await until(lambda: len(got) == 2)
        assert {sock.getsockname()[0] for sock in got} == {"127.0.0.1", "::1"}
        six.close()
        four.close()
        for sock in (*clients, *got):
            sock.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("127.0.0.1", 70000),
        ("127.0.0.1", -1),
        ("localhost", 4420),
        ("", 4420),
        ("1.2.3", 4420),
        ("::g", 1),
    ],
)
def test_addresses_that_are_none_are_invalid(address: str, port: int) -> None:
    async def main() -> None:
        with pytest.raises(Invalid) as caught:
            Listener.open(ListenerSettings(address=address, port=port), lambda _: None)
        assert caught.value.where and caught.value.expected

    asyncio.run(main())


def test_an_address_in_use_and_one_of_another_machine() -> None:
    async def main() -> None:
        listener = Listener.open(ListenerSettings(port=0), lambda _: None)
        with pytest.raises(AlreadyExists, match="in use"):
            Listener.open(ListenerSettings(port=listener.address.port), lambda _: None)
        listener.close()
        with pytest.raises(TargetError, match=r"192\.0\.2\.1.*an address of this machine"):
            Listener.open(ListenerSettings(address="192.0.2.1", port=0), lambda _: None)

    asyncio.run(main())


class FailingSocket:
    """The listening socket, whose accept fails as often as it is told to."""

    def __init__(self, inner: socket.socket, error: int, times: int) -> None:
        self.inner, self.error, self.times, self.calls = inner, error, times, 0

    def accept(self) -> tuple[socket.socket, object]:
        self.calls += 1
        if self.times:
            self.times -= 1
            raise OSError(self.error, "for the test")
        return self.inner.accept()

    def fileno(self) -> int:
        return self.inner.fileno()

    def close(self) -> None:
        self.inner.close()


def test_without_descriptors_connections_are_refused_and_later_ones_taken() -> None:
    async def main() -> None:
        got: list[socket.socket] = []
        listener = Listener.open(ListenerSettings(port=0), got.append)
        failing = FailingSocket(listener._socket, errno.EMFILE, 1)
        listener._socket = failing  # type: ignore[assignment]
        refused = socket.create_connection(listener.address)
        refused.setblocking(False)
        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.sock_recv(refused, 1), 20) == b"", "closed, not stuck"
        assert not got and listener._reserve is not None
        taken = socket.create_connection(listener.address)
        await until(lambda: len(got) == 1)
        listener.close()
        for sock in (refused, taken, *got):
            sock.close()

    asyncio.run(main())


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENOBUFS])
def test_an_error_that_lasts_is_not_polled_busily(
    error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        got: list[socket.socket] = []
        listener = Listener.open(ListenerSettings(port=0), got.append)
        failing = FailingSocket(listener._socket, error, 1 << 30)
        listener._socket = failing  # type: ignore[assignment]
        monkeypatch.setattr("prestage.target.listener._open_reserve", lambda: None)
        client = socket.create_connection(listener.address)
        await until(lambda: listener._pause is not None)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert failing.calls <= 3
        failing.times = 0
        await until(lambda: len(got) == 1)
        listener.close()
        client.close()
        got[0].close()

    asyncio.run(main())


def test_a_connection_that_died_in_the_queue_does_not_stop_the_others() -> None:
    async def main() -> None:
        got: list[socket.socket] = []
        listener = Listener.open(ListenerSettings(port=0), got.append)
        failing = FailingSocket(listener._socket, errno.ECONNABORTED, 1)
        listener._socket = failing  # type: ignore[assignment]
        client = socket.create_connection(listener.address)
        await until(lambda: len(got) == 1)
        listener.close()
        client.close()
        got[0].close()

    asyncio.run(main())


def test_addresses_are_written_as_people_write_them() -> None:
    assert str(Address("127.0.0.1", 4420)) == "127.0.0.1:4420"
    assert str(Address("::1", 4420)) == "[::1]:4420"
