"""Get Log Page (Base 2.0, 5.16). Every log is made whole and then cut: any dword offset works."""

from __future__ import annotations

import time
from collections.abc import Callable

from prestage.target.controller import CHANGED_LIST_ENTRIES, ERROR_LOG_ENTRIES, Controller
from prestage.target.discovery import discovery_log
from prestage.target.errors import PeerFault
from prestage.target.features import KINDS
from prestage.target.identify import ANA_GROUP, FIRMWARE, NVM_COMMAND_SET
from prestage.target.nvme import (
    ALL_NAMESPACES,
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
RELIABILITY_DEGRADED = 1 << 2
"""SMART critical warning bit (figure 207)."""
DATA_UNIT_BYTES = 512_000
READS_BLOCKS = (IoOpcode.WRITE, IoOpcode.WRITE_ZEROES, IoOpcode.DATASET_MANAGEMENT, IoOpcode.COPY)


def get_log_page(controller: Controller, command: Command) -> Answer:
    """Return a piece of a log page; what stands beyond its end is zeros.

    LPO must be a dword offset within the log. RAE 0 says that the host has read it.
    """
    lid = command.cdw(10) & 0xFF
    makers = DISCOVERY_MAKERS if controller.subsystem.is_discovery else IO_MAKERS
    maker = makers.get(lid)
    if maker is None:
        raise PeerFault(Status.INVALID_LOG_PAGE, why=f"LID {lid:02X}h")
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
    if not command.cdw(10) >> 15 & 1:
        if lid == Lid.CHANGED_NAMESPACES:
            controller.changed_namespaces.clear()
        controller.events.log_was_read(lid)
    return Answer(data=log[offset : offset + size].ljust(size, b"\0"))


def _supported(controller: Controller, command: Command) -> bytes:
    """Supported Log Pages (figure 204): LSUPP of each LID."""
    page = Page(1024)
    for lid in DISCOVERY_MAKERS if controller.subsystem.is_discovery else IO_MAKERS:
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
        if not namespaces:
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
    for admin in AdminOpcode:
        page.put(admin * 4, 4, SUPPORTED)
    for io in IoOpcode:
        change = BLOCK_CHANGE if io in READS_BLOCKS else 0
        page.put(1024 + io * 4, 4, SUPPORTED | change)
    return bytes(page.bytes)


def ana_log_bytes(controller: Controller) -> int:
    """Return the longest that the ANA log may be: hosts read up to there (5.16.1.13)."""
    return 16 + 32 + 4 * controller.subsystem.max_namespaces


def _ana(controller: Controller, command: Command) -> bytes:
    """Asymmetric Namespace Access (figures 215, 216): one group, optimized, never changing.

    A group without namespaces is not reported.
    """
    page = Page(ana_log_bytes(controller))
    nsids = sorted(controller.subsystem.namespaces)
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
    for fid, kind in KINDS.items():
        change = CONTROLLER_CHANGE if kind.changeable else 0
        scope = NAMESPACE_SCOPE if kind.per_namespace else CONTROLLER_SCOPE
        page.put(fid * 4, 4, SUPPORTED | change | scope)
    return bytes(page.bytes)


def _mi_effects(controller: Controller, command: Command) -> bytes:
    """NVMe-MI Commands Supported and Effects: there are none."""
    return bytes(1024)


IO_MAKERS: dict[int, Callable[[Controller, Command], bytes]] = {
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
DISCOVERY_MAKERS: dict[int, Callable[[Controller, Command], bytes]] = {
    Lid.SUPPORTED: _supported,
    Lid.DISCOVERY: discovery_log,
}
