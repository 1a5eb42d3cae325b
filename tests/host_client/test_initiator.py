"""The initiator against a real target: bytes, sizes, buffers, digests, many at a time."""

from __future__ import annotations

import array
import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from prestage import testing
from prestage.host_client import (
    Access,
    Controller,
    InvalidRequest,
    NvmeError,
    connect,
    discover,
)
from prestage.host_client.address import DISCOVERY_NQN
from prestage.host_client.engine import Batch

OTHER_HOST = "nqn.2026-11.org.example:other"


def run(url: str, body: Callable[[Controller], Awaitable[Any]], **options: Any) -> None:
    async def main() -> None:
        async with connect(url, **options) as controller:
            await body(controller)

    asyncio.run(main())


@pytest.mark.parametrize("header_digest", [False, True])
@pytest.mark.parametrize("data_digest", [False, True])
@pytest.mark.parametrize("sq_flow_control", [False, True])
def test_what_was_written_is_read(
    url: str,
    rng: random.Random,
    header_digest: bool,
    data_digest: bool,
    sq_flow_control: bool,
) -> None:
    async def body(controller: Controller) -> None:
        for size in (4096, 8192, 12288, 1 << 20, 5 << 20):
            data = rng.randbytes(size)
            offset = rng.randrange(0, (16 << 20) - size + 1, 4096)
            await controller.write(1, data, offset)
            assert await controller.read(1, offset, size) == data
            await controller.write(1, data[::-1], slba=offset // 4096, fua=True)
            assert await controller.read(1, slba=offset // 4096, nlb=size // 4096) == data[::-1]
        await controller.flush(1)

    run(
        url,
        body,
        header_digest=header_digest,
        data_digest=data_digest,
        sq_flow_control=sq_flow_control,
    )


def test_namespaces_have_sizes_and_block_sizes(url: str) -> None:
    async def body(controller: Controller) -> None:
        first, second = await controller.namespaces()
        assert (first.nsid, first.block_bytes, first.size_bytes) == (1, 4096, 16 << 20)
        assert (second.nsid, second.block_bytes, second.size_bytes) == (2, 512, 4 << 20)
        with pytest.raises(InvalidRequest, match="there is no namespace 7"):
            await controller.namespace(7)

    run(url, body)


def test_large_transfers_go_in_pieces_of_the_controllers_limit(
    url: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(controller: Controller) -> None:
        monkeypatch.setattr(controller._link, "max_transfer_bytes", 12288)
        sizes: list[int] = []
        real = controller._link.carry_out

        def carry_out(batch: Batch) -> Any:
            sizes.extend(batch.inner.pieces[i].nlb * 4096 for i in range(batch.inner.count))
            return real(batch)

        monkeypatch.setattr(controller._link, "carry_out", carry_out)
        data = rng.randbytes(40960)
        await controller.write(1, data, 4096)
        assert sizes == [12288, 12288, 12288, 4096]
        sizes.clear()
        assert await controller.read(1, 4096, 40960) == data
        assert sizes == [12288, 12288, 12288, 4096]

    run(url, body)


def test_any_contiguous_buffer_is_a_source_and_a_destination(url: str, rng: random.Random) -> None:
    data = rng.randbytes(8192)
    own = bytearray(12288)
    sources: list[Any] = [
        data,
        bytearray(data),
        memoryview(data),
        np.frombuffer(data, np.uint16).reshape(64, 64),
        array.array("Q", data),
    ]
    destinations: list[Any] = [
        bytearray(8192),
        memoryview(own)[2048:10240],
        np.zeros((32, 32), np.float64),
        array.array("Q", bytes(8192)),
    ]

    async def body(controller: Controller) -> None:
        for source in sources:
            await controller.write_zeroes(1, 0, 8192)
            await controller.write(1, source, 0)
            assert await controller.read(1, 0, 8192) == data
        for into in destinations:
            assert await controller.read(1, 0, into=into) is into
            assert memoryview(into).cast("B") == data if into is not destinations[2] else True
            assert bytes(memoryview(into).tobytes()) == data
        assert own[:2048] == bytes(2048) and own[10240:] == bytes(2048)

    run(url, body)


def test_a_buffer_may_change_its_size_once_the_request_has_ended(url: str) -> None:
    async def body(controller: Controller) -> None:
        into = bytearray(4096)
        await controller.read(1, 0, into=into)
        into += b"more"

    run(url, body)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"offset": 0, "length": 100}, "a multiple of 4096"),
        ({"offset": 1, "length": 4096}, "a multiple of 4096"),
        ({"offset": 0, "slba": 0, "length": 4096}, "one of them"),
        ({"length": 4096}, "one of them"),
        ({"offset": 0, "length": 0}, "at least one of its blocks"),
        ({"slba": 4095, "nlb": 2}, "blocks, 0 to 4095"),
        ({"slba": -1, "nlb": 1}, "blocks, 0 to 4095"),
        ({"offset": 0, "length": 8192, "into": bytearray(4096)}, "expected 8192 bytes"),
        ({"offset": 0, "into": bytes(4096)}, "a writable buffer"),
        ({"offset": 0, "into": np.zeros((64, 128), np.uint8)[:, ::2]}, "a buffer"),
        ({"offset": 0, "length": 4096, "priority": 4}, "0 to 3"),
        ({"offset": 0, "length": 4096, "deadline": -1.0}, "0 s or more"),
    ],
)
def test_a_wrong_read_says_what_was_expected_and_sends_nothing(
    url: str, arguments: dict[str, Any], text: str
) -> None:
    async def body(controller: Controller) -> None:
        with pytest.raises(InvalidRequest, match=text):
            await controller.read(1, **arguments)

    run(url, body)


def test_many_requests_are_in_flight_over_several_queues(url: str, rng: random.Random) -> None:
    async def body(controller: Controller) -> None:
        assert controller.queue_count == 3
        blocks = [rng.randbytes(4096) for _ in range(400)]
        await asyncio.gather(
            *(controller.write(1, data, index * 4096) for index, data in enumerate(blocks))
        )
        order = list(range(400))
        rng.shuffle(order)
        found = await asyncio.gather(*(controller.read(1, index * 4096, 4096) for index in order))
        assert all(data == blocks[index] for index, data in zip(order, found, strict=True))

    run(url, body, queues=3, queue_depth=16)


def test_compare_says_whether_the_bytes_are_those(url: str, rng: random.Random) -> None:
    async def body(controller: Controller) -> None:
        data = rng.randbytes(65536)
        await controller.write(1, data, 65536)
        assert await controller.compare(1, data, 65536) is True
        assert await controller.compare(1, data[:-1] + b"?", 65536) is False

    run(url, body)


def test_zeroed_and_deallocated_blocks_read_as_zeros(url: str, rng: random.Random) -> None:
    async def body(controller: Controller) -> None:
        await controller.write(1, rng.randbytes(1 << 20), 0)
        await controller.write_zeroes(1, slba=2, nlb=3)
        await controller.write_zeroes(1, 65536, 65536, deallocate=True)
        await controller.deallocate(1, [(64, 16), (128, 1)])
        assert not any(await controller.read(1, slba=2, nlb=3))
        for slba, nlb in ((16, 16), (64, 16), (128, 1)):
            assert not any(await controller.read(1, slba=slba, nlb=nlb))
        assert any(await controller.read(1, slba=5, nlb=1))

    run(url, body)


def test_ranges_that_belong_together_change_no_byte(url: str, rng: random.Random) -> None:
    async def body(controller: Controller) -> None:
        data = rng.randbytes(1 << 20)
        await controller.write(1, data, 0)
        ranges = [(index * 2, 1) for index in range(300)]
        await controller.dataset(1, ranges, integral_read=True, attributes=0x107)
        assert await controller.read(1, 0, 1 << 20, access=Access.SPECULATIVE) == data
        with pytest.raises(InvalidRequest, match="pairs of SLBA and NLB"):
            await controller.dataset(1, [(0, 1 << 40)], integral_read=True)

    run(url, body)


def test_a_read_with_a_deadline_is_a_read_on_any_target(url: str, rng: random.Random) -> None:
    async def body(controller: Controller) -> None:
        data = rng.randbytes(3 << 20)
        await controller.write(1, data, 0)
        found = await controller.read(1, 0, 3 << 20, deadline=0.05, priority=1, session=1 << 63)
        assert found == data

    run(url, body)


def test_the_status_of_a_command_is_an_error_with_its_name(url: str) -> None:
    async def body(controller: Controller) -> None:
        answer = await controller.command(0x02, nsid=1, cdw10=1 << 31, read_bytes=4096)
        assert (answer.status, answer.ok, answer.data) == (1 << 14 | 0x80, False, b"")
        with pytest.raises(NvmeError, match="Invalid Namespace or Format") as caught:
            await controller.flush(77)
        assert (caught.value.sct, caught.value.sc, caught.value.dnr) == (0, 0x0B, True)
        assert caught.value.where == "Flush on namespace 77"

    run(url, body)


def test_raw_commands_move_data_either_way_on_both_kinds_of_queue(
    url: str, rng: random.Random
) -> None:
    async def body(controller: Controller) -> None:
        data = rng.randbytes(4096)
        assert (await controller.command(0x01, nsid=1, cdw10=9, data=data)).ok
        answer = await controller.command(0x02, nsid=1, cdw10=9, read_bytes=4096)
        assert answer.ok and answer.data == data and answer.transferred == 4096
        page = await controller.command(0x06, cdw10=1, read_bytes=4096, admin=True)
        assert page.data == controller.identity.page
        queues = await controller.command(0x0A, cdw10=0x07, admin=True)
        assert queues.ok and queues.dw0 & 0xFFFF >= 1
        with pytest.raises(InvalidRequest, match="one of them"):
            await controller.command(0x02, data=b"x", read_bytes=1)
        with pytest.raises(InvalidRequest, match="32-bit"):
            await controller.command(0x02, cdw10=1 << 32)

    run(url, body)


def test_the_discovery_log_names_the_subsystem(target: testing.Target, url: str) -> None:
    entries = asyncio.run(discover(f"127.0.0.1:{target.port}"))
    (entry,) = (one for one in entries if one.nqn == target.nqn)
    assert entry.url == url
    assert (entry.transport, entry.family, entry.is_discovery) == ("tcp", "ipv4", False)
    assert {one.nqn for one in entries} == {target.nqn, DISCOVERY_NQN}


def test_hosts_have_names_of_their_own(url: str) -> None:
    async def body(controller: Controller) -> None:
        assert len(await controller.read(1, 0, 4096)) == 4096

    run(url, body, host_nqn=OTHER_HOST, host_id=bytes(range(16)))


def test_ipv6_targets_are_reached(rng: random.Random) -> None:
    from prestage.target.settings import (
        ListenerSettings,
        SubsystemSettings,
        TargetSettings,
        TierSettings,
    )

    settings = TargetSettings(
        listeners=[ListenerSettings(address="::1", port=0)],
        subsystems=[SubsystemSettings(namespaces=[testing.namespace_settings("1M")])],
        tier=TierSettings(size=4 << 20, huge_pages=False),
    )

    async def body(controller: Controller) -> None:
        data = rng.randbytes(8192)
        await controller.write(1, data, 0)
        assert await controller.read(1, 0, 8192) == data

    target = testing.Target(settings=settings)
    with testing.in_thread(target):
        run(f"nvme+tcp://[::1]:{target.port}/{target.nqn}", body)
