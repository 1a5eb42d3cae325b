"""What a host finds of the extension: Identify, UUID list, log pages, feature, effects."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from fake_data_path import DISCOVERY, NQN, Host, Rig, ram, run, settings_in, subsystem

from prestage.ext import layout
from prestage.ext.names import Carrier
from prestage.ext.pages import (
    Capability,
    Status,
    decode_capability,
    decode_events,
    encode_status,
    find_capability,
)
from prestage.target.errors import AlreadyExists, Exhausted, Invalid
from prestage.target.extension import extension_uuid
from prestage.target.settings import HintSettings, TargetSettings

OTHER = "nqn.2026-11.io.prestage:other"
A, B = "nqn.2026-11.com.example:a", "nqn.2026-11.com.example:b"
STATUS, EVENTS, FEATURE = 0xD0, 0xD1, 0xD0
VENDOR_OPCODES = {0x81, 0x82, 0x92}


def extended(folder: Path, **more: Any) -> TargetSettings:
    """One subsystem with a namespace and an extension namespace, one with neither."""
    one = subsystem(NQN, 1, serial="S1", extension=True, **more)
    return settings_in(folder, one, subsystem(OTHER))


def off(folder: Path) -> TargetSettings:
    return settings_in(folder, subsystem(NQN, 1), hints=HintSettings(enabled=False))


def capability_of(host: Host) -> Capability:
    found = find_capability(host.identify(1).data)
    assert found is not None
    return found


def test_the_capability_says_what_there_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(extended(tmp_path)) as rig:
            found = capability_of(rig.host())
            assert found.carriers == sum(Carrier), "every carrier"
            assert (found.record_types, found.query_types) == (0b111110, 0b110)
            assert (found.extension_nsid, found.mailboxes) == (1024, 64)
            assert found.granularity_bytes == 64 << 10
            assert (found.status_log, found.event_log, found.feature) == (0xD0, 0xD1, 0xD0)
            assert found.uuid_index == 1
            opcodes = {found.submit_opcode, found.query_opcode, found.dated_read_opcode}
            assert opcodes == VENDOR_OPCODES
            assert found.max_ttl_ms == 86_400_000 and found.max_query_bytes == 1 << 28

    run(main())


def test_without_an_extension_namespace_every_other_carrier_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(extended(tmp_path)) as rig:
            found = capability_of(rig.host(OTHER))
            assert found.carriers == sum(Carrier) - Carrier.EXTENSION_NAMESPACE
            assert found.extension_nsid == 0
            assert decode_capability(rig.fake.capability).carriers == sum(Carrier), (
                "the data path knows which subsystem has one"
            )

    run(main())


def test_with_hints_off_there_is_nothing_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(off(tmp_path)) as rig:
            host = rig.host()
            page = host.identify(1)
            assert page.number(96, 4) == 0x41 and not any(page.data[3072:])
            assert rig.fake.capability == bytes(128), "tells the data path"
            assert host.identify(0x17).data == bytes(4096), "no UUID"
            effects = host.log(5, 4096)
            assert not any(effects.number(1024 + 4 * opcode, 4) for opcode in VENDOR_OPCODES)
            assert not any(effects.number(4 * opcode, 4) >> 19 for opcode in range(256))
            for lid in (STATUS, EVENTS):
                assert host.log(lid, 4096, uuid_index=1).code == "1/09 DNR"
                assert host.log(0, 1024).number(4 * lid, 4) == 0
            assert host.get_feature(FEATURE, cdw14=1).code == "0/02 DNR"
            assert host.log(0x12, 1024).number(4 * FEATURE, 4) == 0
            assert rig.target.hints()["enabled"] is False

    run(main())


def test_the_uuid_list_has_the_uuid_of_the_extension_as_its_first() -> None:
    async def main() -> None:
        async with Rig() as rig:
            page = rig.host().identify(0x17).data
            assert page[32] == 0, "associated with no vendor"
            assert page[48:64] == uuid.UUID(layout.UUID).bytes
            assert not any(page[:48]) and not any(page[64:])

    run(main())


def test_the_extension_namespace_is_identified_field_by_field(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(extended(tmp_path)) as rig:
            host = rig.host()
            for cns in (0, 0x11):
                page = host.identify(cns, 1024)
                assert [page.number(at, 8) for at in (0, 8, 16)] == [256] * 3
                assert (page.data[25], page.data[26]) == (1, 1), "NLBAF, FLBAS: 4096 bytes"
                assert page.number(132, 4) == 12 << 16
                assert page.data[24] == 0 and page.data[33] == 0, "NSFEAT, DLFEAT"
                assert page.data[30] == 1, "NMIC: shared"
                assert page.number(48, 16) == 1 << 20, "NVMCAP"
                assert page.number(92, 4) == 1, "ANAGRPID"
                assert page.data[104:128] == bytes(24), "no NGUID, no EUI64"
                assert page.data[384:388] == b"PAXC" and not any(page.data[388:])
            assert host.identify(5, 1024).data == bytes(4096)
            independent = host.identify(8, 1024)
            assert (independent.data[1], independent.data[8], independent.data[14]) == (1, 0, 1)
            assert host.identify(0x12, 1024).number(0, 2) == 1, "the controller is attached"

    run(main())


def test_the_extension_namespace_is_known_by_a_uuid_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(extended(tmp_path)) as rig:
            page = rig.host().identify(3, 1024).data
            assert page[0:4] == bytes([3, 16, 0, 0])
            number = uuid.UUID(bytes=page[4:20])
            assert number == extension_uuid(NQN, "S1")
            assert page[20:25] == bytes([4, 1, 0, 0, 0]) and not any(page[25:])

    run(main())


def test_the_uuid_is_of_version_8_begins_as_told_and_follows_the_subsystem() -> None:
    number = extension_uuid(NQN, "S1")
    assert str(number).startswith(layout.EXTENSION_UUID_PREFIX)
    assert number.version == 8 and number.variant == uuid.RFC_4122
    assert extension_uuid(NQN, "S1") == number
    assert len({number, extension_uuid(OTHER, "S1"), extension_uuid(NQN, "S2")}) == 3


def test_it_is_listed_where_namespaces_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(extended(tmp_path)) as rig:
            host = rig.host()
            for cns in (2, 7, 0x10):
                page = host.identify(cns, 0)
                assert [page.number(at, 4) for at in (0, 4, 8)] == [1, 1024, 0]
            assert host.identify(1).number(540, 4) == 257, "MNAN"
            ana = host.log(0x0C, 16 + 32 + 4 * 257)
            assert ana.number(20, 4) == 2
            assert [ana.number(at, 4) for at in (48, 52)] == [1, 1024]
            assert host.log(2, 512, nsid=1024).number(64, 16) == 0, "SMART: no reads"
            assert host.set_feature(5, 30, nsid=1024).code == "0/00"
            assert rig.fake.extensions == {0: 1024}

    run(main())


def test_it_takes_the_nsid_that_is_asked_for_and_nobody_else_gets_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(extended(tmp_path, extension_nsid=2, max_namespaces=3)) as rig:
            assert await rig.target.add_namespace(NQN, ram()) == 3, "the lowest free one"
            with pytest.raises(AlreadyExists):
                await rig.target.add_namespace(NQN, ram(nsid=2))
            assert await rig.target.add_namespace(NQN, ram()) == 4, "it takes no one's place"
            with pytest.raises(Exhausted):
                await rig.target.add_namespace(NQN, ram())

    run(main())


def test_it_goes_with_its_subsystem_and_comes_back_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        settings = extended(tmp_path)
        async with Rig(settings) as rig:
            before = rig.host().identify(3, 1024).data
            await rig.target.remove_subsystem(NQN)
            assert rig.fake.extensions == {}
            await rig.target.add_subsystem(settings.subsystems[0])
            assert rig.fake.extensions == {0: 1024}
            assert rig.host().identify(3, 1024).data == before
            report = rig.target.stats()
            (one,) = [s for s in report["subsystems"] if s["nqn"] == NQN]
            assert one["extension"]["nsid"] == 1024

    run(main())


def test_a_subsystem_that_cannot_be_added_leaves_no_extension_namespace(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(settings_in(tmp_path)) as rig:
            rig.fake.refuses_open = "ram"
            with pytest.raises(Exception, match="in use"):
                await rig.target.add_subsystem(subsystem(NQN, 1, extension=True))
            assert rig.fake.extensions == {} and not rig.target.subsystems

    run(main())


def test_an_extension_needs_hints(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(off(tmp_path)) as rig:
            with pytest.raises(Invalid, match=r"hints\.enabled"):
                await rig.target.add_subsystem(subsystem(OTHER, extension=True))

    run(main())


# ---- log pages ----


@pytest.mark.parametrize("lid", [STATUS, EVENTS])
def test_its_log_pages_are_selected_by_uuid_index(lid: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            assert host.log(lid, 4096).code == "1/09 DNR", "of no vendor"
            assert host.log(lid, 4096, uuid_index=2).code == "0/02 DNR", "of an unknown one"
            assert host.log(lid, 4096, uuid_index=1).code == "0/00"
            assert rig.host(DISCOVERY).log(lid, 4096, uuid_index=1).code == "1/09 DNR"
            assert host.log(2, 512, uuid_index=1).code == "0/00", "others do not look at it"

    run(main())


def test_a_host_sees_its_own_status_and_no_other() -> None:
    async def main() -> None:
        async with Rig() as rig:
            a, b = rig.host(host=A), rig.host(host=B)
            numbers = rig.runtime.tenants.numbers
            mine = Status(Capability(Carrier(0)), batches=7)
            rig.fake.statuses[numbers[A]] = mine
            assert a.log(STATUS, 4096, uuid_index=1).data == encode_status(mine)
            assert b.log(STATUS, 4096, uuid_index=1).number(240, 8) == 0
            piece = a.log(STATUS, 8, offset=240, uuid_index=1)
            assert piece.number(0, 8) == 7

    run(main())


def test_reading_the_event_log_clears_it_unless_events_are_retained() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host, other = rig.host(host=A), rig.host(host=B)
            number = rig.runtime.tenants.numbers[A]
            rig.fake.end_intent(number, 5)
            rig.fake.end_intent(number, 6)

            def read(reader: Host, **more: int) -> list[int]:
                log = reader.log(EVENTS, 4096, uuid_index=1, **more)
                return [event.intent_id for event in decode_events(log.data).events]

            assert read(other) == []
            assert read(host, rae=1) == [5, 6]
            assert host.log(EVENTS, 4096, offset=8192, uuid_index=1).code == "0/02 DNR"
            assert read(host) == [5, 6], "what was refused has cleared nothing"
            assert read(host) == []

    run(main())


# ---- feature and events ----


def test_the_feature_is_selected_by_uuid_index() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            for index in (0, 2):
                assert host.get_feature(FEATURE, cdw14=index).code == "0/02 DNR"
                assert host.set_feature(FEATURE, 1, cdw14=index).code == "0/02 DNR"
            assert host.get_feature(FEATURE, cdw14=1).dw0 == 0
            assert host.set_feature(FEATURE, 0xFF, cdw14=1).code == "0/00"
            assert host.get_feature(FEATURE, cdw14=1).dw0 == 1, "bit 0 alone means something"
            assert host.get_feature(FEATURE, select=1, cdw14=1).dw0 == 0, "default"
            assert host.get_feature(FEATURE, select=3, cdw14=1).dw0 == 4, "changeable"
            assert host.set_feature(FEATURE | 1 << 31, 1, cdw14=1).code == "1/0D DNR"
            assert host.get_feature(7, cdw14=1).code == "0/00", "others do not look at it"

    run(main())


def test_warm_events_reach_the_controllers_of_that_host_that_asked() -> None:
    async def main() -> None:
        async with Rig() as rig:
            asked, deaf, other = rig.host(host=A), rig.host(host=A), rig.host(host=B)
            for host in (asked, other):
                host.set_feature(FEATURE, 1, cdw14=1)
            slots = [host.request_event() for host in (asked, deaf, other)]
            rig.fake.end_intent(rig.runtime.tenants.numbers[A], 5)
            answered = asked.answer(slots[0])
            assert answered is not None
            assert answered.dw0 == 7 | 0 << 8 | EVENTS << 16, "vendor specific, and its log page"
            assert deaf.answer(slots[1]) is None and other.answer(slots[2]) is None

    run(main())


def test_a_warm_event_is_masked_until_its_log_is_read() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(host=A)
            number = rig.runtime.tenants.numbers[A]
            host.set_feature(FEATURE, 1, cdw14=1)
            first = host.request_event()
            rig.fake.end_intent(number, 1)
            assert host.answer(first) is not None
            second = host.request_event()
            rig.fake.end_intent(number, 2)
            host.log(EVENTS, 4096, rae=1, uuid_index=1)
            assert host.answer(second) is None
            host.log(EVENTS, 4096, uuid_index=1)
            assert host.answer(second) is None, "the log is empty"
            rig.fake.end_intent(number, 3)
            assert host.answer(second) is not None

    run(main())


def test_who_asks_late_is_told_of_what_is_in_the_log_already() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(host=A)
            slot = host.request_event()
            rig.fake.end_intent(rig.runtime.tenants.numbers[A], 1)
            assert host.answer(slot) is None
            host.set_feature(FEATURE, 1, cdw14=1)
            assert host.answer(slot) is not None

    run(main())


def test_a_reset_ends_the_wish_for_warm_events() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(host=A)
            host.set_feature(FEATURE, 1, cdw14=1)
            host.set_property(0x14, 0x460060)
            host.enable()
            assert host.get_feature(FEATURE, cdw14=1).dw0 == 0
            slot = host.request_event()
            rig.fake.end_intent(rig.runtime.tenants.numbers[A], 1)
            assert host.answer(slot) is None

    run(main())
