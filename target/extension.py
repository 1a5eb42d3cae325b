"""The extension as a host finds it: capability, namespace, numbers (ext/SPECIFICATION.md).

With `hints.enabled` off there is none of it: no capability, no UUID, no opcodes, no pages.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import uuid
from dataclasses import dataclass
from enum import IntEnum

from prestage.ext import layout
from prestage.ext.names import Carrier, Magic
from prestage.ext.pages import Capability, encode_capability
from prestage.target.nvme import Page
from prestage.target.settings import MAX_NSID, SubsystemSettings, TargetSettings

NAMESPACE_MAGIC_OFFSET = 384
"""In Identify Namespace: the first of its vendor specific bytes (NVM 1.0, figure 97)."""
PAX_UUID = uuid.UUID(layout.UUID)
UUID_INDEX = 1
"""Of the PAX UUID in the UUID list: the only one there (8.23)."""
UUID_INDEX_MASK = 0x7F
"""CDW14 of Get Log Page, Get Features and Set Features (8.23)."""
MAX_QUERY_BYTES = 1 << 28
"""PS_HINTS_QUERY_BYTES."""
BLOCK_BYTES = layout.PAGE_BYTES
EVERY_CARRIER = functools.reduce(operator.or_, Carrier)


class VendorOpcode(IntEnum):
    """I/O commands of the extension."""

    SUBMIT = layout.OPCODE_SUBMIT
    QUERY = layout.OPCODE_QUERY
    DATED_READ = layout.OPCODE_DATED_READ


class VendorLid(IntEnum):
    """Log pages of the extension; below D0h stand those of other people's tools."""

    STATUS = 0xD0
    EVENTS = 0xD1


WARM_EVENTS_FID = 0xD0


@dataclass(frozen=True)
class Extension:
    """The extension namespace of a subsystem: pages to write hints to and read answers from."""

    nsid: int
    uuid: uuid.UUID

    @property
    def blocks(self) -> int:
        """Logical blocks of 4096 bytes."""
        return layout.EXTENSION_PAGES


def extension_of(settings: SubsystemSettings, serial: str) -> Extension | None:
    """Return the extension namespace that a subsystem is to have."""
    if not settings.extension:
        return None
    return Extension(settings.extension_nsid or MAX_NSID, extension_uuid(settings.nqn, serial))


def extension_uuid(nqn: str, serial: str) -> uuid.UUID:
    """Return the UUID of a subsystem's extension namespace: version 8, and always the same.

    It begins so that a udev rule knows the node.
    """
    number = bytearray(hashlib.sha256(f"{nqn}\0{serial}".encode()).digest()[:16])
    number[0:4] = bytes.fromhex(layout.EXTENSION_UUID_PREFIX)
    number[6] = 0x80 | number[6] & 0x0F
    number[8] = 0x80 | number[8] & 0x3F
    return uuid.UUID(bytes=bytes(number))


def capability(settings: TargetSettings, extension: Extension | None) -> bytes:
    """Return the capability of a subsystem's controllers: 128 bytes, zeros while hints are off."""
    without = Carrier.EXTENSION_NAMESPACE if extension is None else Carrier(0)
    return _encoded(settings, EVERY_CARRIER ^ without, extension.nsid if extension else 0)


def data_path_capability(settings: TargetSettings) -> bytes:
    """Return what the data path is to offer: every carrier, or zeros while hints are off.

    It knows itself which subsystem has an extension namespace.
    """
    return _encoded(settings, EVERY_CARRIER, 0)


def _encoded(settings: TargetSettings, carriers: Carrier, extension_nsid: int) -> bytes:
    if not settings.hints.enabled:
        return bytes(layout.CAPABILITY.size)
    return encode_capability(
        Capability(
            carriers=carriers,
            extension_nsid=extension_nsid,
            granularity_bytes=settings.tier.slot,
            max_set_ranges=settings.hints.max_set_ranges,
            max_query_bytes=MAX_QUERY_BYTES,
            max_ttl_ms=round(settings.hints.max_ttl_s * 1000),
            mailboxes=layout.MAILBOXES,
            status_log=VendorLid.STATUS,
            event_log=VendorLid.EVENTS,
            feature=WARM_EVENTS_FID,
            uuid_index=UUID_INDEX,
            submit_opcode=VendorOpcode.SUBMIT,
            query_opcode=VendorOpcode.QUERY,
            dated_read_opcode=VendorOpcode.DATED_READ,
        )
    )


def fill_uuid_list(page: Page) -> None:
    """Fill in a UUID list: entry 0 is reserved, ours is entry 1 (figure 281)."""
    page.raw(UUID_INDEX * 32 + 16, PAX_UUID.bytes)


def fill_extension_namespace(extension: Extension, group: int, lba_format: int, page: Page) -> None:
    """Fill in Identify Namespace of an extension namespace; its formats are there already.

    It has a UUID and no NGUID, and nothing of it can be deallocated.
    """
    for offset in (0, 8, 16):  # NSZE, NCAP, NUSE
        page.put(offset, 8, extension.blocks)
    page.put(26, 1, lba_format)  # FLBAS
    page.put(30, 1, 1)  # NMIC: shared
    page.put(48, 16, extension.blocks * BLOCK_BYTES)  # NVMCAP
    page.put(92, 4, group)  # ANAGRPID
    page.put(NAMESPACE_MAGIC_OFFSET, 4, Magic.CAPABILITY)
