from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_data_path import (
    CC_ENABLED,
    DISCOVERY,
    HOST,
    NQN,
    Host,
    Rig,
    connect_data,
    connect_sqe,
    run,
    settings_in,
    settle,
    sqe,
    subsystem,
)


def test_connect_gives_the_lowest_free_controller_identifier() -> None:
    async def main() -> None:
        async with Rig() as rig:
            hosts = [Host(rig).connect() for _ in range(3)]
            assert [host.cntlid for host in hosts] == [1, 2, 3]
            rig.runtime.subsystems[NQN].controllers[2].close()
            assert Host(rig).connect().cntlid == 2

    run(main())


def test_a_host_without_an_nqn_goes_by_its_host_identifier() -> None:
    own = "nqn.2014-08.org.nvmexpress:uuid:0c0c0c0c-0c0c-0c0c-0c0c-0c0c0c0c0c0c"

    async def main() -> None:
        async with Rig() as rig:
            served = rig.runtime.subsystems[NQN]
            nameless = connect_data(hostnqn="", host_id=b"\x0c" * 16)
            admin = Host(rig)
            assert admin.do(connect_sqe(), nameless).code == "0/00"
            assert served.controllers[1].host_nqn == own
            assert rig.fake.bound[admin.admin].tenant == rig.runtime.tenants.number(own)
            served.allow_any_host = False
            assert Host(rig).do(connect_sqe(), nameless).code == "1/84 DNR"
            served.allow(own)
            assert Host(rig).do(connect_sqe(), nameless).code == "0/00"

    run(main())


def test_connect_binds_the_queue_before_it_is_answered() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig)
            host.do(connect_sqe(sqsize=31, cattr=4), connect_data())
            queue = rig.fake.bound[host.admin]
            assert (queue.qid, queue.sq_size, queue.flow_control_disabled) == (0, 32, True)
            assert (queue.controller, queue.tenant, queue.enabled) == (1, 1, False)

    run(main())


@pytest.mark.parametrize(
    ("entry", "data", "code", "dw0"),
    [
        ({"sqsize": 0}, {}, "1/82 DNR", 0x2C),
        ({"sqsize": 2000}, {}, "1/82 DNR", 0x2C),
        ({"recfmt": 1}, {}, "1/80 DNR", 0),
        ({}, {"subnqn": "nqn.2026-11.io.prestage:none"}, "1/82 DNR", 0x10100),
        ({}, {"subnqn": ""}, "1/82 DNR", 0x10100),
        ({}, {"subnqn": b"a" * 256}, "1/82 DNR", 0x10100),
        ({}, {"hostnqn": b"b" * 256}, "1/82 DNR", 0x10200),
        ({}, {"hostnqn": b"b" * 224}, "1/82 DNR", 0x10200),
        ({}, {"hostnqn": b"nqn.\xff\xfe"}, "1/82 DNR", 0x10200),
        ({}, {"cntlid": 1}, "1/82 DNR", 0x10010),
        ({}, {"cntlid": 0xFFFE}, "1/82 DNR", 0x10010),
        ({"qid": 200}, {"cntlid": 1}, "1/82 DNR", 0x2A),
        ({"qid": 1}, {"cntlid": 77}, "1/82 DNR", 0x10010),
        ({"qid": 1}, {"subnqn": DISCOVERY, "cntlid": 1}, "1/82 DNR", 0x2A),
    ],
)
def test_a_wrong_field_of_connect_is_named_by_its_offset(
    entry: dict[str, int], data: dict[str, Any], code: str, dw0: int
) -> None:
    async def main() -> None:
        async with Rig() as rig:
            answered = Host(rig).do(connect_sqe(**entry), connect_data(**data))
            assert (answered.code, answered.dw0) == (code, dw0)
            assert not rig.fake.bound
            assert Host(rig).connect().cntlid == 1, "a good Connect works afterwards"

    run(main())


def test_a_host_name_of_223_bytes_is_the_longest() -> None:
    async def main() -> None:
        async with Rig() as rig:
            assert Host(rig, host="n" * 223).connect().cntlid == 1

    run(main())


@pytest.mark.parametrize("length", [0, 512, 1023, 2048])
def test_connect_data_of_another_length_is_refused(length: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            entry = bytearray(connect_sqe())
            entry[32:36] = length.to_bytes(4, "little")
            assert Host(rig).do(bytes(entry), bytes(length)).code == "0/0F DNR"

    run(main())


def test_a_host_that_is_not_on_the_list_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        only = subsystem(NQN, 1, hosts=["nqn.2026-11.io.prestage:other"])
        async with Rig(settings_in(tmp_path, only)) as rig:
            answered = Host(rig).do(connect_sqe(), connect_data())
            assert (answered.code, answered.dw0) == ("1/84 DNR", 0x10200)
            Host(rig, host="nqn.2026-11.io.prestage:other").connect()

    run(main())


def test_only_connect_is_taken_before_connect() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig)
            assert host.get(0, 8).code == "0/0C DNR"
            assert host.identify(1).code == "0/0C DNR"
            assert host.do(sqe(0x18)).code == "0/0C DNR"

    run(main())


def test_a_second_connect_on_a_queue_is_a_sequence_error() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig).connect()
            assert host.do(connect_sqe(), connect_data()).code == "0/0C DNR"

    run(main())


def test_io_queues_come_after_enabling_and_run_at_once() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig).connect()
            assert host.connect_io(1).code == "0/0C DNR"
            host.enable()
            answered = host.connect_io(1, sqsize=127)
            assert (answered.code, answered.dw0) == ("0/00", host.cntlid)
            queue = rig.fake.bound[host.queues[1]]
            assert (queue.qid, queue.sq_size, queue.enabled) == (1, 128, True)

    run(main())


def test_an_io_queue_must_name_its_own_host() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            for other in (
                {"hostnqn": "nqn.2026-11.io.prestage:x"},
                {"host_id": bytes(16)},
            ):
                data = connect_data(cntlid=host.cntlid, **other)
                answered = host.do(connect_sqe(1), data, rig.open())
                assert (answered.code, answered.dw0) == ("1/82 DNR", 0x10010)

    run(main())


def test_a_duplicate_queue_is_refused_until_the_old_one_is_dead() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            old = host.queues[1]
            assert host.connect_io(1).code == "0/0C DNR"
            rig.fake.held["closed"] = []
            rig.runtime.close(rig.runtime.connections[old])
            assert host.connect_io(1).code == "0/00"
            del rig.fake.held["closed"]
            rig.fake.close(old, False)
            await settle()
            assert 1 in rig.runtime.subsystems[NQN].controllers[1].queues

    run(main())


def test_an_io_connect_after_the_admin_queue_is_gone_finds_no_controller() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            rig.fake.close(host.admin, False)
            await settle()
            answered = host.connect_io(1)
            assert (answered.code, answered.dw0) == ("1/82 DNR", 0x10010)

    run(main())


def test_disconnect_deletes_an_io_queue_and_only_that() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            host.connect_io(2)
            assert host.do(sqe(0x7F, nsid=8)).code == "1/85 DNR"
            other_format = sqe(0x7F, nsid=8, cdw10=1)
            assert host.do(other_format, connection=host.queues[1]).code == "1/80 DNR"
            assert host.do(sqe(0x7F, nsid=8), connection=host.queues[1]).code == "0/00"
            assert rig.fake.closes == [(host.queues[1], True)]
            await settle()
            controller = rig.runtime.subsystems[NQN].controllers[host.cntlid]
            assert list(controller.queues) == [2]
            assert host.identify(1).code == "0/00"

    run(main())


@pytest.mark.parametrize(
    ("offset", "size"),
    [(0x60, 4), (0x00, 4), (0x14, 8), (0x0C, 4), (0xFFFFFFFC, 4), (0x15, 4)],
)
def test_properties_that_are_not_there_are_invalid(offset: int, size: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            assert Host(rig).connect().get(offset, size).code == "0/02 DNR"

    run(main())


@pytest.mark.parametrize(("offset", "size"), [(0x08, 4), (0x1C, 4), (0x20, 4), (0x14, 8)])
def test_properties_that_cannot_be_set_are_invalid(offset: int, size: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            answered = Host(rig).connect().set_property(offset, CC_ENABLED, size)
            assert answered.code == "0/02 DNR"

    run(main())


def test_property_commands_belong_to_the_admin_queue() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            entry = host.property_sqe(4, 0x1C, 4)
            assert host.do(entry, connection=host.queues[1]).code == "0/01 DNR"

    run(main())


def test_unknown_fabrics_types_psdt_and_fuse_are_refused() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig).connect()
            assert host.do(sqe(0x7F, nsid=0x7E)).code == "0/01 DNR"
            assert host.do(sqe(0x7F, nsid=4, flags=0x00)).code == "0/02 DNR"
            assert host.do(sqe(0x7F, nsid=4, flags=0x41)).code == "0/02 DNR"

    run(main())


def test_a_bad_data_digest_ends_the_command_and_not_the_connection() -> None:
    async def main() -> None:
        from prestage.target.datapath import CommandNotice

        async with Rig() as rig:
            number = rig.open()
            rig.fake.receive(CommandNotice(number, 1, 0, connect_sqe(), connect_data(), True))
            assert rig.fake.answers[number, 1].code == "0/22"
            rig.fake.receive(CommandNotice(number, 2, 0, connect_sqe(), connect_data()))
            assert rig.fake.answers[number, 2].code == "0/00"

    run(main())


def test_the_same_host_is_one_tenant() -> None:
    async def main() -> None:
        async with Rig() as rig:
            first, second = rig.host(), rig.host()
            third = rig.host(host=HOST + "-other")
            tenants = [rig.fake.bound[host.admin].tenant for host in (first, second, third)]
            assert tenants == [1, 1, 2]

    run(main())
