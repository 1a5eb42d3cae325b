from __future__ import annotations

import pytest
from fake_data_path import DISCOVERY, HOST_ID, Rig, run, sqe


def test_number_of_queues() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.set_feature(7, 0xFFFFFFFF).code == "0/02 DNR"
            assert host.set_feature(7, 0x0000FFFF).code == "0/02 DNR"
            assert host.set_feature(7, 0xFFFF0000).code == "0/02 DNR"
            assert host.set_feature(7, 0).dw0 == 0x007F007F
            assert host.get_feature(7, nsid=0xFFFFFFFF).dw0 == 0x007F007F
            host.connect_io(1)
            assert host.set_feature(7, 0x10001).code == "0/0C DNR"

    run(main())


def test_as_many_queues_connect_as_are_announced() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            for qid in range(1, 129):
                assert host.connect_io(qid).code == "0/00"
            assert host.connect_io(129).code == "1/82 DNR"

    run(main())


def test_nothing_can_be_saved() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.set_feature(0x0B | 1 << 31, 0x100).code == "1/0D DNR"
            assert host.get_feature(0x0B).dw0 == 0

    run(main())


@pytest.mark.parametrize(
    ("fid", "capabilities"),
    [(1, 4), (2, 4), (4, 4), (5, 6), (6, 0), (7, 4), (0x0A, 4), (0x0B, 4), (0x0E, 4), (0x0F, 4),
     (0x19, 4), (0x81, 0)],
)  # fmt: skip
def test_capabilities_of_features(fid: int, capabilities: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            assert rig.host().get_feature(fid, select=3).dw0 == capabilities

    run(main())


def test_defaults_are_kept_beside_current_values() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            for fid, value, default in (
                (1, 3, 0),
                (4, 0x160, 0xFFFF),
                (0x0A, 1, 0),
                (0x0B, 0x100, 0),
            ):
                assert host.set_feature(fid, value).code == "0/00"
                assert host.get_feature(fid).dw0 == value
                assert host.get_feature(fid, select=1).dw0 == default
                assert host.get_feature(fid, select=2).dw0 == default
            assert host.get_feature(7, select=4).code == "0/02 DNR"
            assert host.get_feature(4, cdw11=1 << 20).dw0 == 0, "the lower threshold is another"

    run(main())


def test_a_reset_brings_the_defaults_back() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.set_feature(0x0B, 0x100)
            host.set_property(0x14, 0x460060)
            host.enable()
            assert host.get_feature(0x0B).dw0 == 0

    run(main())


def test_the_host_identifier_is_what_connect_said() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            answered = host.get_feature(0x81, cdw11=1, length=16)
            assert (answered.code, answered.data) == ("0/00", HOST_ID)
            assert host.get_feature(0x81, cdw11=0, length=8).code == "0/02 DNR"
            assert host.get_feature(0x81, cdw11=1, length=8).code == "0/0F DNR"
            assert host.set_feature(0x81, 1).code == "0/0C DNR"

    run(main())


def test_features_without_a_structure_carry_no_data() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            for fid in (1, 2, 4, 6, 7, 0x0A, 0x0B, 0x0F, 0x19):
                assert host.get_feature(fid).data == b""
                assert host.get_feature(fid, length=4096).code == "0/0F DNR"

    run(main())


def test_the_timestamp_runs_from_what_was_set() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            before = host.get_feature(0x0E, length=8)
            assert before.number(6, 1) & 0xE == 0, "origin: cleared by a reset"
            moment = 0x0000_0199_AABB_CCDD
            assert host.set_feature(0x0E, data=moment.to_bytes(8, "little")).code == "0/00"
            after = host.get_feature(0x0E, length=8)
            assert moment <= after.number(0, 6) < moment + 60_000
            assert after.number(6, 1) & 0xE == 2, "origin: set by a host"
            assert host.set_feature(0x0E, data=bytes(4)).code == "0/0F DNR"
            assert host.get_feature(0x0E, select=1, length=8).data == bytes(8)

    run(main())


def test_what_cannot_change_says_so() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.get_feature(6).dw0 == 1
            assert host.set_feature(6, 1).code == "0/00"
            assert host.set_feature(6, 0).code == "1/0E DNR"
            assert host.set_feature(2, 0).code == "0/00"
            assert host.set_feature(2, 1).code == "0/02 DNR"
            assert host.set_feature(0x19, 0).code == "0/00"
            assert host.set_feature(0x19, 1).code == "1/2B DNR"
            assert host.set_feature(4, 1 << 16).code == "0/02 DNR"
            assert host.set_feature(4, 2 << 20).code == "0/02 DNR"

    run(main())


def test_there_is_no_temperature_sensor_but_the_composite_one() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.get_feature(4, cdw11=0).dw0 == 0xFFFF
            assert host.get_feature(4, cdw11=1 << 20).dw0 == 0
            for cdw11 in (1 << 16, 15 << 16, 2 << 20):
                assert host.get_feature(4, cdw11=cdw11).code == "0/02 DNR"

    run(main())


def test_error_recovery_is_per_namespace() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.set_feature(5, 30, nsid=1).code == "0/00"
            assert host.get_feature(5, nsid=1).dw0 == 30
            assert host.set_feature(5, 30, nsid=9).code == "0/0B DNR"
            assert host.get_feature(5, nsid=0).code == "0/0B DNR"
            assert host.set_feature(5, 1 << 16, nsid=1).code == "0/02 DNR", "DULBE"
            assert host.set_feature(5, 40, nsid=0xFFFFFFFF).code == "0/00"
            assert host.get_feature(5, nsid=1).dw0 == 40

    run(main())


def test_controller_features_belong_to_no_namespace() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.set_feature(0x0B, 0x100, nsid=1).code == "1/0F DNR"
            assert host.set_feature(0x0B, 0x100, nsid=0xFFFFFFFF).code == "0/00"

    run(main())


@pytest.mark.parametrize("fid", [0x00, 0x03, 0x08, 0x09, 0x0C, 0x10, 0x16, 0x7F, 0x82, 0xC0, 0xFF])
def test_features_that_do_not_apply_are_invalid(fid: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.get_feature(fid).code == "0/02 DNR"
            assert host.set_feature(fid, 1).code == "0/02 DNR"

    run(main())


def test_discovery_controllers_have_two_features() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(DISCOVERY)
            there = [fid for fid in range(256) if host.get_feature(fid).status == 0]
            assert there == [0x0B, 0x0F]
            assert host.set_feature(7, 0x10001).code == "0/02 DNR"
            assert host.do(sqe(0x08)).code == "0/01 DNR"

    run(main())
