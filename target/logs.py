"""Get Log Page (Base 2.0, 5.16). Every log is made whole and then cut: any dword offset works."""

from __future__ import annotations

import time
from collections.abc import Callable

from prestage.target.controller import CHANGED_LIST_ENTRIES, ERROR_LOG_ENTRIES, Controller
from prestage.target.discovery import discovery_log
from prestage.target.errors import PeerFault
from prestage.target.extension import UUID_INDEX, UUID_INDEX_MASK, VendorLid, VendorOpcode
from prestage.target.features import KINDS
from prestage.target.identify import ANA_GROUP, FIRMWARE, NVM_COMMAND_SET
from prestage.target.nvme import (
    ALL_NAMESPACES,
    PAGE_BYTES,
    TRTYPE_TCP,
    AdminOpcode,
    Answer,
    Command,
    IoOpcode,
    Lid,
    Page,
    Status,
)
from prestage.target.subsystem import Namespace

ANA_OPTIMIZED = 1
ANA_GROUPS_ONLY = 1
"""LSP bit 0 of log page 0Ch: Return Groups Only."""
# Commands Supported and Effects (figure 210), feature effects (figure 259).
SUPPORTED, BLOCK_CHANGE, CONTROLLER_CHANGE = 1 << 0, 1 << 1, 1 << 4
NAMESPACE_SCOPE, CONTROLLER_SCOPE = 1 << 20, 1 << 21
SELECTED_BY_UUID = 1 << 19
RELIABILITY_DEGRADED = 1 << 2
"""SMART critical warning bit (figure 207)."""
RETAIN_EVENT = 1 << 15
"""RAE in CDW10 (figure 197)."""
DATA_UNIT_BYTES = 512_000
TAKES_UUID = (AdminOpcode.GET_LOG_PAGE, AdminOpcode.SET_FEATURES, AdminOpcode.GET_FEATURES)
READS_BLOCKS = (IoOpcode.WRITE, IoOpcode.WRITE_ZEROES, IoOpcode.DATASET_MANAGEMENT, IoOpcode.COPY)


def get_log_page(controller: Controller, command: Command) -> Answer:
    """Return a piece of a log page; what stands beyond its end is zeros.

    LPO must be a dword offset within the log. RAE 0 says that the host has read it.
    """
    lid = command.cdw(10) & 0xFF
    maker = _maker(controller, command)
    size = ((command.cdw(10) >> 16 | (command.cdw(11) & 0xFFFF) << 16) + 1) * 4
    offset = command.cdw(12) | command.cdw(13) << 32
    if size > controller.runtime.settings.limits.max_transfer:
        raise PeerFault(Status.INVALID_FIELD, why=f"{size} bytes are more than MDTS allows")
    if offset % 4 or command.cdw(14) >> 23 & 1:
        raise PeerFault(Status.INVALID_FIELD, why="LPO, or an index offset")
    command.expect_transfer(size)
    log = maker(controller, command)
    if offset > len(log):
        raise PeerFault(Status.INVALID_FIELD, why=f"LPO {offset} of {len(log)}")
    if not command.cdw(10) & RETAIN_EVENT:
        if lid == Lid.CHANGED_NAMESPACES:
            controller.changed_namespaces.clear()
        controller.events.log_was_read(lid)
    return Answer(data=log[offset : offset + size].ljust(size, b"\0"))


Maker = Callable[[Controller, Command], bytes]


def makers_of(controller: Controller) -> dict[int, Maker]:
    """Return the log pages of a controller."""
    if controller.subsystem.is_discovery:
        return DISCOVERY_MAKERS
    return IO_MAKERS | VENDOR_MAKERS if controller.offers_hints else IO_MAKERS


def _maker(controller: Controller, command: Command) -> Maker:
    """Return who makes the page; a vendor's are selected by LID and UUID together (8.23)."""
    lid, index = command.cdw(10) & 0xFF, command.cdw(14) & UUID_INDEX_MASK
    maker = makers_of(controller).get(lid)
    if maker is None or (lid in VENDOR_MAKERS and index == 0):
        raise PeerFault(Status.INVALID_LOG_PAGE, why=f"LID {lid:02X}h")
    if lid in VENDOR_MAKERS and index != UUID_INDEX:
        raise PeerFault(Status.INVALID_FIELD, why=f"UUID index {index}")
    return maker


def _supported(controller: Controller, command: Command) -> bytes:
    """Supported Log Pages (figure 204): LSUPP of each LID."""
    page = Page(1024)
    for lid in makers_of(controller):
        page.put(lid * 4, 4, SUPPORTED)
    return bytes(page.bytes)


def _error(controller: Controller, command: Command) -> bytes:
    """Error Information (figure 206), newest first."""
    page = Page(64 * ERROR_LOG_ENTRIES)
    for index, (count, notice) in enumerate(controller.errors):
        at = index * 64
        page.put(at, 8, count)
        page.put(at + 8, 2, notice.qid)
        page.raw(at + 10, notice.entry[2:4])  # CID
        page.put(at + 12, 2, (notice.status << 1) & 0xFFFF)
        page.put(at + 14, 2, 0xFFFF)  # no parameter is at fault
        page.put(at + 16, 8, notice.lba)
        page.put(at + 24, 4, notice.nsid)
        page.put(at + 29, 1, TRTYPE_TCP)
    return bytes(page.bytes)


def _smart(controller: Controller, command: Command) -> bytes:
    """SMART / Health Information (figure 207), of a namespace or of all."""
    namespaces: list[Namespace] = list(controller.subsystem.namespaces.values())
    if command.nsid not in (0, ALL_NAMESPACES):
        namespaces = [n for n in namespaces if n.nsid == command.nsid]
        if command.nsid not in controller.subsystem.nsids:
            raise PeerFault(Status.INVALID_NAMESPACE, why=f"NSID {command.nsid}")
    runtime = controller.runtime
    counters = [runtime.data_path.volume_stats(n.volume) for n in namespaces]

    def total(*names: str) -> int:
        return sum(stats.get(name, 0) for stats in counters for name in names)

    page = Page(512)
    page.put(0, 1, RELIABILITY_DEGRADED if any(n.failing for n in namespaces) else 0)
    page.put(3, 1, 100)  # available spare, percent
    page.put(4, 1, 10)  # its threshold
    # Which commands count is in NVM 1.0, 1.4.2: User Data Out are Write and Copy.
    read, written = ("read_bytes", "compare_bytes", "verify_bytes"), ("write_bytes", "copy_bytes")
    page.put(32, 16, -(-total(*read) // DATA_UNIT_BYTES))
    page.put(48, 16, -(-total(*written) // DATA_UNIT_BYTES))
    page.put(64, 16, total("reads", "compares", "copies"))
    page.put(80, 16, total("writes", "copies"))
    page.put(112, 16, runtime.power_cycles)
    page.put(128, 16, int(time.monotonic() - runtime.started) // 3600)
    page.put(144, 16, runtime.unsafe_shutdowns)
    page.put(160, 16, total("errors"))
    page.put(176, 16, controller.error_count)
    return bytes(page.bytes)


def _firmware(controller: Controller, command: Command) -> bytes:
    """Firmware Slot Information (figure 208): slot 1 is active."""
    page = Page(512)
    page.put(0, 1, 1)
    page.text(8, 8, FIRMWARE)
    return bytes(page.bytes)


def _changed_namespaces(controller: Controller, command: Command) -> bytes:
    """Changed Namespace List (5.16.1.5): FFFFFFFFh alone when there are too many."""
    page = Page(4 * CHANGED_LIST_ENTRIES)
    changed = sorted(controller.changed_namespaces)
    if len(changed) > CHANGED_LIST_ENTRIES:
        changed = [ALL_NAMESPACES]
    for index, nsid in enumerate(changed):
        page.put(index * 4, 4, nsid)
    return bytes(page.bytes)


def _effects(controller: Controller, command: Command) -> bytes:
    """Commands Supported and Effects (figure 209): nothing here freezes a queue (CSE 0).

    Command scopes stay zero (LPA bit 5 clear): Linux logs every I/O command that has one.
    """
    if command.cdw(14) >> 24 != NVM_COMMAND_SET:
        raise PeerFault(Status.INVALID_FIELD, why="CSI")
    page = Page(4096)
    by_uuid = SELECTED_BY_UUID if controller.offers_hints else 0
    for admin in AdminOpcode:
        page.put(admin * 4, 4, SUPPORTED | (by_uuid if admin in TAKES_UUID else 0))
    for io in IoOpcode:
        change = BLOCK_CHANGE if io in READS_BLOCKS else 0
        page.put(1024 + io * 4, 4, SUPPORTED | change)
    for vendor in VendorOpcode if controller.offers_hints else ():
        page.put(1024 + vendor * 4, 4, SUPPORTED)
    return bytes(page.bytes)


def ana_log_bytes(controller: Controller) -> int:
    """Return the longest that the ANA log may be: hosts read up to there (5.16.1.13)."""
    return 16 + 32 + 4 * controller.subsystem.namespace_limit


def _ana(controller: Controller, command: Command) -> bytes:
    """Asymmetric Namespace Access (figures 215, 216): one group, optimized, never changing.

    A group without namespaces is not reported.
    """
    page = Page(ana_log_bytes(controller))
    nsids = controller.subsystem.nsids
    if not nsids:
        return bytes(page.bytes)
    page.put(8, 2, 1)  # groups
    page.put(16, 4, ANA_GROUP)
    page.put(32, 1, ANA_OPTIMIZED)
    if not command.cdw(10) >> 8 & ANA_GROUPS_ONLY:
        page.put(20, 4, len(nsids))
        for index, nsid in enumerate(nsids):
            page.put(48 + 4 * index, 4, nsid)
    return bytes(page.bytes)


def _feature_effects(controller: Controller, command: Command) -> bytes:
    """Feature Identifiers Supported and Effects (figure 258)."""
    page = Page(1024)
    for fid in controller.features.supported():
        kind = KINDS[fid]
        change = CONTROLLER_CHANGE if kind.changeable else 0
        scope = NAMESPACE_SCOPE if kind.per_namespace else CONTROLLER_SCOPE
        by_uuid = SELECTED_BY_UUID if kind.by_uuid else 0
        page.put(fid * 4, 4, SUPPORTED | change | by_uuid | scope)
    return bytes(page.bytes)


def _mi_effects(controller: Controller, command: Command) -> bytes:
    """NVMe-MI Commands Supported and Effects: there are none."""
    return bytes(1024)


def _hint_status(controller: Controller, command: Command) -> bytes:
    """Return the status page of the extension: this host's own."""
    return controller.runtime.data_path.hint_status(controller.tenant, controller.subsystem.index)


def _warm_events(controller: Controller, command: Command) -> bytes:
    """Return the warm-event log of this host; with RAE 0 what is returned is forgotten.

    One call does both, for events may end in between. So a wrong offset is refused before.
    """
    offset = command.cdw(12) | command.cdw(13) << 32
    if offset > PAGE_BYTES:
        raise PeerFault(Status.INVALID_FIELD, why=f"LPO {offset} of {PAGE_BYTES}")
    clear = not command.cdw(10) & RETAIN_EVENT
    return controller.runtime.data_path.hint_events(controller.tenant, clear=clear)


IO_MAKERS: dict[int, Maker] = {
    Lid.SUPPORTED: _supported,
    Lid.ERROR: _error,
    Lid.SMART: _smart,
    Lid.FIRMWARE: _firmware,
    Lid.CHANGED_NAMESPACES: _changed_namespaces,
    Lid.EFFECTS: _effects,
    Lid.ANA: _ana,
    Lid.FEATURE_EFFECTS: _feature_effects,
    Lid.MI_EFFECTS: _mi_effects,
}
VENDOR_MAKERS: dict[int, Maker] = {
    VendorLid.STATUS: _hint_status,
    VendorLid.EVENTS: _warm_events,
}
"""Those of the extension."""
DISCOVERY_MAKERS: dict[int, Maker] = {
    Lid.SUPPORTED: _supported,
    Lid.DISCOVERY: discovery_log,
}
