from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from fake_data_path import DISCOVERY, NQN, Rig, ram, run, settings_in, subsystem

from prestage.target.datapath import MEDIA_NO_PUNCH

UUID = "8d3f2a10-0c9c-4b5e-9b0e-0123456789ab"


def test_identify_controller_field_by_field(tmp_path: Path) -> None:
    async def main() -> None:
        settings = settings_in(tmp_path, subsystem(NQN, 1, serial="SERIAL7", model="a model"))
        async with Rig(settings) as rig:
            rig.host()
            page = rig.host().identify(1)
            assert len(page.data) == 4096
            assert page.data[4:24] == b"SERIAL7".ljust(20)
            assert page.data[24:64] == b"a model".ljust(40)
            assert page.data[64:72].strip(), "FR"
            assert page.data[76] == 0b1010, "CMIC: two controllers, ANA"
            assert page.data[77] == 8, "MDTS: 1 MiB"
            assert page.number(78, 2) == 2, "CNTLID"
            assert page.number(80, 4) == 0x20000, "VER"
            assert page.number(92, 4) == 0x900, "OAES"
            assert page.number(96, 4) == 0x241, "CTRATT: 128-bit host id, TBKAS, UUID list"
            assert page.data[111] == 1, "CNTRLTYPE"
            assert page.number(256, 2) == 0, "OACS"
            assert (page.data[258], page.data[259]) == (3, 3), "ACL, AERL"
            assert page.data[260] == 0b11, "FRMW"
            assert page.data[261] == 0x07, "LPA"
            assert page.data[262] == 63, "ELPE"
            assert page.number(320, 2) == 5, "KAS: 500 ms"
            assert page.data[342] > 0 and page.data[343] == 1, "ANATT, ANACAP"
            assert (page.number(344, 4), page.number(348, 4)) == (1, 1), "ANAGRPMAX, NANAGRPID"
            assert (page.data[512], page.data[513]) == (0x66, 0x44), "SQES, CQES"
            assert page.number(514, 2) == 128, "MAXCMD"
            assert page.number(516, 4) == 1024, "NN"
            assert page.number(520, 2) == 0x1DD, "ONCS"
            assert page.number(522, 2) == 1, "FUSES"
            assert page.data[525] == 7, "VWC"
            assert page.number(526, 2) == page.number(528, 2) == page.number(532, 2) == 0
            assert page.number(534, 2) == 1, "OCFS: format 0"
            assert page.number(536, 4) == 0x100001, "SGLS"
            assert page.number(540, 4) == 256, "MNAN"
            assert page.data[768:1024] == NQN.encode().ljust(256, b"\0")
            assert page.number(1792, 4) == (64 + 8192) // 16, "IOCCSZ"
            assert page.number(1796, 4) == 1, "IORCSZ"
            assert page.number(1800, 2) == 0, "ICDOFF"
            assert page.data[1802] == 0 and page.data[1803] == 1, "FCATT, MSDBD"
            assert page.number(1804, 2) == 1, "OFCS"
            assert page.data[3072:3076] == b"PAXC", "vendor specific: the extension"
            assert not any(page.data[3200:])

    run(main())


def test_identify_discovery_controller() -> None:
    async def main() -> None:
        async with Rig() as rig:
            page = rig.host(DISCOVERY).identify(1)
            assert page.data[111] == 2
            assert page.number(92, 4) == 1 << 31
            assert page.number(516, 4) == 0 and page.data[76] == 0
            assert page.data[261] == 0x04
            assert page.number(96, 4) == 0x41 and not any(page.data[3072:]), "no extension"
            assert page.number(320, 2) == 5
            assert page.data[768:1024] == DISCOVERY.encode().ljust(256, b"\0")
            assert page.data[4:24].strip()

    run(main())


@pytest.mark.parametrize("cns", [0, 2, 3, 5, 6, 0x1C])
def test_a_discovery_controller_has_no_namespaces_to_identify(cns: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            assert rig.host(DISCOVERY).identify(cns, 1).code == "0/02 DNR"

    run(main())


@pytest.mark.parametrize(("block", "flbas", "last"), [(512, 0, 7), (4096, 1, 0)])
def test_identify_namespace_field_by_field(
    tmp_path: Path, block: int, flbas: int, last: int
) -> None:
    async def main() -> None:
        one = subsystem(NQN).__class__(
            nqn=NQN, namespaces=[ram(1 << 30, block=block, uuid=UUID, read_only=True)]
        )
        async with Rig(settings_in(tmp_path, one)) as rig:
            page = rig.host().identify(0, 1)
            blocks = (1 << 30) // block
            assert [page.number(at, 8) for at in (0, 8, 16)] == [blocks] * 3
            assert page.data[24] == 0b10010, "NSFEAT: NSABP, OPTPERF"
            assert (page.data[25], page.data[26]) == (1, flbas), "NLBAF, FLBAS"
            assert page.data[30] == 1, "NMIC"
            assert page.data[33] == 0b1001, "DLFEAT: zeros, deallocation by Write Zeroes"
            assert page.number(34, 2) == last, "NAWUN: 4096 bytes"
            assert page.number(36, 2) == 0, "NAWUPF"
            assert page.number(38, 2) == last, "NACWU"
            assert page.number(40, 2) == last, "NABSN"
            assert page.number(48, 16) == 1 << 30, "NVMCAP"
            assert [page.number(at, 2) for at in (64, 66, 68, 70)] == [last] * 4
            assert page.number(72, 2) == (64 << 10) // block - 1, "NOWS: a slot"
            assert page.number(74, 2) == (1 << 20) // block, "MSSRL"
            assert page.number(76, 4) == 16 * (1 << 20) // block, "MCL"
            assert page.data[80] == 15, "MSRC"
            assert page.number(92, 4) == 1, "ANAGRPID"
            assert page.data[99] == 1, "NSATTR: write protected"
            assert page.data[104:120] == uuid.UUID(UUID).bytes, "NGUID"
            assert page.number(128, 4) == 9 << 16, "LBAF0: 512 bytes"
            assert page.number(132, 4) == 12 << 16, "LBAF1: 4096 bytes"

    run(main())


def test_a_medium_without_holes_promises_nothing_of_deallocated_blocks() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.warnings = MEDIA_NO_PUNCH
            assert rig.host().identify(0, 1).data[33] == 0, "DLFEAT"

    run(main())


def test_inactive_and_illegal_namespaces() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            for cns in (0, 5, 8, 0x11):
                assert host.identify(cns, 9).data == bytes(4096), "inactive"
                assert host.identify(cns, 0).code == "0/0B DNR"
                assert host.identify(cns, 1025).code == "0/0B DNR"
            for cns in (3, 0x12):
                assert host.identify(cns, 9).code == "0/0B DNR"
            common = host.identify(0, 0xFFFFFFFF)
            assert common.number(0, 8) == 0 and common.number(132, 4) == 12 << 16
            assert host.identify(5, 0xFFFFFFFF).code == "0/00"

    run(main())


def test_namespace_lists_start_after_the_given_one() -> None:
    async def main() -> None:
        async with Rig() as rig:
            for nsid in (7, 3, 1024):
                await rig.target.add_namespace(NQN, ram(nsid=nsid))
            host = rig.host()
            for cns in (2, 7, 0x10):
                page = host.identify(cns, 0)
                assert [page.number(at, 4) for at in range(0, 24, 4)] == [1, 3, 7, 1024, 0, 0]
                assert host.identify(cns, 3).number(0, 4) == 7
                assert host.identify(cns, 0xFFFFFFFE).code == "0/0B DNR"
                assert host.identify(cns, 0xFFFFFFFF).code == "0/0B DNR"

    run(main())


def test_namespace_descriptors_are_nguid_uuid_and_command_set() -> None:
    async def main() -> None:
        async with Rig() as rig:
            page = rig.host().identify(3, 1).data
            namespace = rig.target.subsystem(NQN).namespace(1)
            assert page[0:4] == bytes([2, 16, 0, 0]) and page[4:20] == namespace.nguid
            assert page[20:24] == bytes([3, 16, 0, 0]) and page[24:40] == namespace.uuid.bytes
            assert page[40:45] == bytes([4, 1, 0, 0, 0])
            assert not any(page[45:])

    run(main())


def test_command_set_structures() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            limits = host.identify(6)
            assert limits.data == bytes(4096), "DMRL, DMRSL and DMSL are all zero or none is"
            assert host.identify(6, cdw11=2 << 24).code == "0/02 DNR"
            assert host.identify(5, 1, cdw11=2 << 24).code == "0/02 DNR"
            assert host.identify(7, 0, cdw11=1 << 24).code == "0/02 DNR"
            sets = host.identify(0x1C | 0xFFFF << 16)
            assert sets.number(0, 8) == 1 and not any(sets.data[8:])
            assert host.identify(0x1C | 99 << 16).code == "0/02 DNR"
            independent = host.identify(8, 1)
            assert independent.data[1] == 1 and independent.number(4, 4) == 1
            assert independent.data[14] & 1 == 1, "NSTAT: ready"

    run(main())


def test_controller_lists() -> None:
    async def main() -> None:
        async with Rig() as rig:
            hosts = [rig.host() for _ in range(3)]
            page = hosts[0].identify(0x13)
            assert [page.number(at, 2) for at in (0, 2, 4, 6, 8)] == [3, 1, 2, 3, 0]
            page = hosts[0].identify(0x12 | 2 << 16, 1)
            assert [page.number(at, 2) for at in (0, 2, 4, 6)] == [2, 2, 3, 0]

    run(main())


@pytest.mark.parametrize("length", [0, 512, 8192])
@pytest.mark.parametrize("cns", [0, 1, 5])
def test_a_buffer_of_another_length_gets_no_data(cns: int, length: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            answered = rig.host().identify(cns, 1, length=length)
            assert (answered.code, answered.data) == ("0/0F DNR", b"")

    run(main())


def test_unknown_structures_and_descriptor_types_are_refused() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.identify(0xFF).code == "0/02 DNR"
            assert host.identify(0x18).code == "0/02 DNR"
            assert host.identify(1, sgl=0x30).code == "0/11 DNR"
            assert host.identify(1, sgl=0x01).code == "0/11 DNR", "in-capsule, to the host"

    run(main())
