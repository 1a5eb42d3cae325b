"""How a host finds PAX (clauses 3.1 to 3.4)."""

from __future__ import annotations

import uuid

from ... import layout
from ...names import Carrier
from ...pages import IDENTIFY_OFFSET, encode_capability
from .. import nvme
from ..registry import Level, check, expect, expect_equal
from ..session import Session

UUID_LIST = 1 << 9
"""Of CTRATT (Base, figure 275)."""
IO_EFFECTS = 1024
SUPPORTED = 1 << 0
CHANGES = 0b11110 | 0b111 << 16
"""LBCC, NCC, NIC, CCC and CSE (Base, figure 210)."""


@check("3.1.1", Level.MUST)
async def capability_is_whole(session: Session) -> None:
    """The capability stands in Identify Controller, reserved bytes zero."""
    capability = session.needs(Carrier.NONE)
    data = (await session.first.identify(0x01))[IDENTIFY_OFFSET:]
    size = int.from_bytes(data[6:8], "little")
    if capability.minor == layout.MINOR:
        expect_equal(size, layout.CAPABILITY.size, "size")
        expect_equal(data[:size].hex(), encode_capability(capability).hex(), "bytes")


@check("3.1.3", Level.MUST)
async def granularity_is_a_power_of_two(session: Session) -> None:
    """The granularity is a power of two."""
    size = session.first.capability.granularity_bytes
    expect(size and size & (size - 1) == 0, f"granularity_bytes is {size}")


@check("3.1.4", Level.MUST)
async def extension_is_active(session: Session) -> None:
    """The extension_nsid is an active namespace exactly with its carrier."""
    capability = session.first.capability
    offered = Carrier.EXTENSION_NAMESPACE in capability.carriers
    expect_equal(bool(capability.extension_nsid), offered, "extension_nsid is not zero")
    if offered:
        active = await session.first.namespaces()
        expect(capability.extension_nsid in active, f"{capability.extension_nsid} of {active}")


@check("3.1.5", Level.MUST)
async def numbers_are_in_vendor_space(session: Session) -> None:
    """Numbers of logs, feature and opcodes are vendor's, with their carriers."""
    capability = session.first.capability
    numbers = [
        ("status_log", capability.status_log, Carrier.LOG_PAGES, 0xC0, None),
        ("event_log", capability.event_log, Carrier.LOG_PAGES, 0xC0, None),
        ("feature", capability.feature, Carrier.FEATURE, 0xC0, None),
        ("submit_opcode", capability.submit_opcode, Carrier.SUBMIT_QUERY, 0x80, 1),
        ("query_opcode", capability.query_opcode, Carrier.SUBMIT_QUERY, 0x80, 2),
        ("dated_read_opcode", capability.dated_read_opcode, Carrier.DATED_READ, 0x80, 2),
    ]
    for name, number, carrier, least, direction in numbers:
        offered = carrier in capability.carriers
        expect_equal(number >= least if offered else number, offered, f"{name} {number:02X}h")
        if offered and direction is not None:
            expect_equal(number & 3, direction, f"direction of {name} {number:02X}h")


@check("3.1.6", Level.SHOULD)
async def controllers_offer_the_same(session: Session) -> None:
    """Another controller offers the same."""
    await session.first.reconnect()
    data = await session.first.identify(0x01)
    found = data[IDENTIFY_OFFSET : IDENTIFY_OFFSET + layout.CAPABILITY.size]
    expect_equal(found.hex(), encode_capability(session.first.capability).hex(), "bytes")


def _has_numbers(carriers: Carrier) -> bool:
    return bool(carriers & (Carrier.LOG_PAGES | Carrier.FEATURE))


@check("3.2.1", Level.MUST)
async def uuid_is_listed(session: Session) -> None:
    """The UUID is in the UUID list at uuid_index."""
    capability = session.first.capability
    if not _has_numbers(capability.carriers):
        expect_equal(capability.uuid_index, 0, "uuid_index without log pages and feature")
        return
    identify = await session.first.identify(0x01)
    attributes = int.from_bytes(identify[96:100], "little")
    expect(attributes & UUID_LIST, f"CTRATT is {attributes:X}h")
    index = capability.uuid_index
    expect(0 < index < 128, f"uuid_index is {index}")
    entry = (await session.first.identify(0x17))[index * 32 + 16 : index * 32 + 32]
    expect_equal(str(uuid.UUID(bytes=entry)), layout.UUID, f"entry {index}")


@check("3.2.2", Level.MUST, Carrier.LOG_PAGES)
async def logs_are_selected_by_uuid(session: Session) -> None:
    """Without the UUID index the log pages are not those of PAX."""
    side = session.first
    for lid in (side.capability.status_log, side.capability.event_log):
        for index in {0, side.capability.uuid_index + 1}:
            done = await side.log(lid, uuid_index=index)
            refused = {nvme.INVALID_LOG_PAGE, nvme.INVALID_FIELD}
            is_other = not done.status and not done.data.startswith(b"PAX")
            expect(
                is_other or nvme.code(done.status) in refused,
                f"log page {lid:02X}h with UUID index {index}: {nvme.text(done.status)}",
            )


@check("3.2.2", Level.MUST, Carrier.FEATURE)
async def the_feature_is_selected_by_uuid(session: Session) -> None:
    """Without the UUID index the feature is not that of PAX."""
    side = session.first
    for index in {0, side.capability.uuid_index + 1}:
        done = await side.set_feature(1, uuid_index=index)
        expect_equal(nvme.code(done.status), nvme.INVALID_FIELD, f"status with UUID index {index}")


async def _effects(session: Session) -> dict[str, int]:
    """Return the effects of the opcodes that hints go by."""
    capability = session.first.capability
    done = await session.first.log(nvme.EFFECTS_LOG, uuid_index=0)
    expect_equal(done.status, 0, "status of the log page of effects")
    opcodes = {"Read": int(nvme.Io.READ)}
    if Carrier.DATASET_MANAGEMENT in capability.carriers:
        opcodes["Dataset Management"] = nvme.Io.DATASET_MANAGEMENT
    for name in ("submit_opcode", "query_opcode", "dated_read_opcode"):
        if number := getattr(capability, name):
            opcodes[name] = number
    places = {name: IO_EFFECTS + 4 * opcode for name, opcode in opcodes.items()}
    return {name: int.from_bytes(done.data[at : at + 4], "little") for name, at in places.items()}


@check("3.3.1", Level.MUST)
async def opcodes_are_supported(session: Session) -> None:
    """The effects log says that the opcodes are supported."""
    for name, effects in (await _effects(session)).items():
        expect(effects & SUPPORTED, f"{name}: {effects:08X}h has not CSUPP")


@check("3.3.2", Level.MUST)
async def opcodes_have_no_effects(session: Session) -> None:
    """The effects log says that vendor opcodes change nothing."""
    for name, effects in (await _effects(session)).items():
        if name.endswith("opcode"):
            expect_equal(effects & CHANGES, 0, f"{name}: {effects:08X}h, of these")


@check("3.4.1", Level.MUST, Carrier.EXTENSION_NAMESPACE)
async def extension_has_its_uuid(session: Session) -> None:
    """The extension namespace has its UUID."""
    data = await session.first.identify(0x03, session.first.capability.extension_nsid)
    at, found = 0, b""
    while at + 4 <= len(data) and data[at + 1]:
        if data[at] == 3:
            found = data[at + 4 : at + 20]
        at += 4 + data[at + 1]
    expect_equal(found[:4].hex(), layout.EXTENSION_UUID_PREFIX, "beginning of the UUID")


@check("3.4.2", Level.MUST, Carrier.EXTENSION_NAMESPACE)
async def extension_has_its_size(session: Session) -> None:
    """The extension namespace has 256 blocks of 4096."""
    page = await session.first.identify(0x00, session.first.capability.extension_nsid)
    index = page[26] & 0xF | page[26] >> 1 & 0x30
    lba_format = int.from_bytes(page[128 + 4 * index : 132 + 4 * index], "little")
    expect_equal(int.from_bytes(page[0:8], "little"), layout.EXTENSION_PAGES, "NSZE")
    expect_equal(lba_format >> 16 & 0xFF, 12, "LBADS")
    expect_equal(lba_format & 0xFFFF, 0, "metadata size")


@check("3.4.3", Level.SHOULD, Carrier.EXTENSION_NAMESPACE)
async def extension_is_marked(session: Session) -> None:
    """The extension namespace is marked."""
    page = await session.first.identify(0x00, session.first.capability.extension_nsid)
    expect_equal(page[384:388], b"PAXC", "bytes 384 to 387 of Identify Namespace")
