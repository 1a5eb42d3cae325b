from __future__ import annotations

from pathlib import Path

import pytest
from fake_data_path import DISCOVERY, NQN, Rig, ram, run, settle, sqe

from prestage.target.datapath import IoErrorNotice


def test_supported_log_pages() -> None:
    async def main() -> None:
        async with Rig() as rig:
            page = rig.host().log(0, 1024)
            there = [lid for lid in range(256) if page.number(lid * 4, 4) & 1]
            assert there == [0, 1, 2, 3, 4, 5, 0x0C, 0x12, 0x13, 0xD0, 0xD1]
            page = rig.host(DISCOVERY).log(0, 1024)
            assert [lid for lid in range(256) if page.number(lid * 4, 4) & 1] == [0, 0x70]

    run(main())


@pytest.mark.parametrize("lid", [0x06, 0x0D, 0x70, 0x99, 0xC0, 0xFF])
def test_unknown_log_pages_have_their_own_status(lid: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            assert rig.host().log(lid, 512).code == "1/09 DNR"

    run(main())


def test_the_error_log_names_the_failing_block_newest_first() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(2)
            assert host.log(1, 64).data == bytes(64)
            for lba in range(70):
                entry = sqe(2, nsid=1, cid=0x1234)
                rig.fake.receive(IoErrorNotice(host.queues[2], 2, 1, 0x281 | 0x4000, lba, entry))
            page = host.log(1, 64 * 64)
            assert page.number(0, 8) == 70, "error count"
            assert page.number(8, 2) == 2, "SQID"
            assert page.number(10, 2) == 0x1234, "CID"
            assert page.number(12, 2) == (0x281 | 0x4000) << 1, "status field, phase 0"
            assert page.number(16, 8) == 69, "LBA"
            assert page.number(24, 4) == 1, "NSID"
            assert page.data[29] == 3, "TRTYPE"
            assert page.number(63 * 64, 8) == 7, "64 entries"
            assert host.log(1, 64, offset=64).number(16, 8) == 68
            assert host.log(2, 512).number(176, 8) == 70
            other = rig.host()
            assert other.log(1, 64).data == bytes(64), "each controller has its own"

    run(main())


def test_smart_counts_what_the_volumes_count() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.target.add_namespace(NQN, ram())
            host = rig.host()
            rig.fake.volumes[0].stats = {
                "read_bytes": 512_001, "write_bytes": 5_120_000, "reads": 3, "compares": 1,
                "writes": 7, "errors": 2, "verifies": 90, "verify_bytes": 1_024_000,
            }  # fmt: skip
            rig.fake.volumes[1].stats = {
                "read_bytes": 512_000, "compare_bytes": 512_000, "reads": 10,
                "copies": 2, "copy_bytes": 1_024_000,
            }  # fmt: skip
            page = host.log(2, 512)
            assert page.data[0] == 0 and page.data[3] == 100, "warning, spare"
            assert page.number(32, 16) == 6, "data units read, in thousands of 512 B, rounded up"
            assert page.number(48, 16) == 12, "data units written: Write and Copy"
            assert page.number(64, 16) == 16, "host reads: Read, Compare and Copy"
            assert page.number(80, 16) == 9, "host writes: Write and Copy"
            assert page.number(112, 16) == 1, "power cycles"
            assert page.number(160, 16) == 2, "media errors"
            assert host.log(2, 512, nsid=2).number(64, 16) == 12
            assert host.log(2, 512, nsid=0).number(64, 16) == 16
            assert host.log(2, 512, nsid=9).code == "0/0B DNR"

    run(main())


def test_firmware_slot_log() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            page = host.log(3, 512)
            assert page.data[0] == 1, "AFI"
            assert page.data[8:16] == host.identify(1).data[64:72], "FRS1 is FR"

    run(main())


def test_changed_namespaces_overflow_is_said() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            controller = rig.runtime.subsystems[NQN].controllers[1]
            for nsid in range(1, 1025):
                controller.namespace_changed(nsid)
            full = host.log(4, 4096, rae=1)
            assert full.number(0, 4) == 1 and full.number(4092, 4) == 1024
            controller.namespace_changed(1025)
            page = host.log(4, 4096)
            assert page.data == b"\xff" * 4 + bytes(4092)
            assert host.log(4, 4096).data == bytes(4096), "cleared by reading"

    run(main())


def test_effects_log_supports_what_exists_and_freezes_nothing() -> None:
    async def main() -> None:
        async with Rig() as rig:
            page = rig.host().log(5, 4096)
            admin = {n: page.number(n * 4, 4) for n in range(256) if page.number(n * 4, 4)}
            io = {
                n: page.number(1024 + n * 4, 4) for n in range(256) if page.number(1024 + n * 4, 4)
            }
            assert {0x02, 0x06, 0x08, 0x09, 0x0A, 0x0C, 0x18} <= set(admin)
            assert set(io) == {0, 1, 2, 5, 8, 9, 0x0C, 0x19, 0x81, 0x82, 0x92}
            assert all(entry & 1 for entry in (*admin.values(), *io.values())), "CSUPP"
            assert not any(entry >> 16 & 7 for entry in (*admin.values(), *io.values())), "CSE"
            assert not any(entry & ~3 for entry in io.values()), "Linux logs anything else"
            assert {opcode for opcode, entry in io.items() if entry & 2} == {1, 8, 9, 0x19}
            by_uuid = {opcode for opcode, entry in admin.items() if entry >> 19 & 1}
            assert by_uuid == {0x02, 0x09, 0x0A}, "UUID selection"

    run(main())


def test_ana_log_is_one_optimized_group_padded_to_its_maximum() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.target.add_namespace(NQN, ram(nsid=5))
            host = rig.host()
            whole = 16 + 32 + 4 * 256
            page = host.log(0x0C, whole)
            assert page.number(0, 8) == 0 and page.number(8, 2) == 1
            assert page.number(16, 4) == 1 and page.number(20, 4) == 2
            assert page.data[32] == 1, "optimized"
            assert [page.number(at, 4) for at in (48, 52, 56)] == [1, 5, 0]
            assert len(page.data) == whole
            pieces = b"".join(host.log(0x0C, 16, offset=at).data for at in range(0, whole, 16))
            assert pieces == page.data
            groups = host.log(0x0C, 64, lsp=1)
            assert groups.number(8, 2) == 1 and groups.number(20, 4) == 0
            assert not any(groups.data[48:])
            assert host.log(0x0C, 4096).data == page.data.ljust(4096, b"\0")

    run(main())


def test_ana_log_without_namespaces_has_no_groups() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.target.remove_namespace(NQN, 1)
            assert rig.host().log(0x0C, 48).data == bytes(48)

    run(main())


def test_feature_effects_log() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            page = host.log(0x12, 1024)
            there = [fid for fid in range(256) if page.number(fid * 4, 4) & 1]
            assert there == [1, 2, 4, 5, 6, 7, 0x0A, 0x0B, 0x0E, 0x0F, 0x19, 0x81, 0xD0]
            assert [fid for fid in there if page.number(fid * 4, 4) >> 19 & 1] == [0xD0], "UUID"
            for fid in range(256):
                more = {"length": 16, "cdw11": 1} if fid == 0x81 else {}
                more = {"length": 8} if fid == 0x0E else more
                more = {"cdw14": 1} if fid == 0xD0 else more
                answered = host.get_feature(fid, nsid=1, **more)
                assert (answered.status == 0) == (fid in there), fid

    run(main())


@pytest.mark.parametrize("lid", [1, 2, 3, 5, 0x0C])
def test_offsets_are_dwords_within_the_log(lid: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            whole = host.log(lid, 4096, rae=1)
            assert host.log(lid, 256, offset=4).data == whole.data[4:260]
            assert host.log(lid, 64, offset=2).code == "0/02 DNR"
            assert host.log(lid, 64, offset=1 << 20).code == "0/02 DNR"
            assert host.log(lid, 64, offset=1 << 40).code == "0/02 DNR"

    run(main())


def test_transfers_must_fit_the_buffer_and_mdts() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            entry = sqe(2, nsid=0xFFFFFFFF, length=512, cdw10=2 | 255 << 16)
            answered = host.do(entry)
            assert (answered.code, answered.data) == ("0/0F DNR", b"")
            assert host.log(2, (1 << 20) + 4).code == "0/02 DNR"
            assert len(host.log(2, 1 << 20).data) == 1 << 20
            index_offset = sqe(2, length=512, cdw10=2 | 127 << 16, cdw14=1 << 23)
            assert host.do(index_offset).code == "0/02 DNR"

    run(main())


def test_power_cycles_and_unsafe_shutdowns_are_counted_over_restarts_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        from fake_data_path import settings_in, subsystem

        settings = settings_in(tmp_path, subsystem(NQN, 1))
        async with Rig(settings):
            await settle()
        killed = Rig(settings)
        await killed.target.start()
        before = (tmp_path / "identity.json").read_bytes()
        await killed.__aexit__()
        (tmp_path / "identity.json").write_bytes(before)  # ... as if nothing had stopped it.
        assert "did not end in order" not in caplog.text
        async with Rig(settings) as rig:
            assert caplog.text.count("the last run did not end in order") == 1
            page = rig.host().log(2, 512)
            assert (page.number(112, 16), page.number(144, 16)) == (3, 1)

    run(main())
