"""Identify (Base 2.0, 5.17; NVM Command Set 1.0, 4.1.5)."""

from __future__ import annotations

from collections.abc import Callable

from prestage.ext.pages import IDENTIFY_OFFSET
from prestage.target.controller import (
    ABORT_LIMIT,
    ERROR_LOG_ENTRIES,
    Controller,
)
from prestage.target.datapath import ATOMIC_BYTES, COPY_RANGES, MAX_NSID, MEDIA_NO_PUNCH
from prestage.target.errors import PeerFault
from prestage.target.events import ASYNC_EVENT_LIMIT
from prestage.target.extension import (
    Extension,
    capability,
    fill_extension_namespace,
    fill_uuid_list,
)
from prestage.target.features import DISCOVERY_EVENTS, IO_EVENTS
from prestage.target.keepalive import GRANULARITY_MS
from prestage.target.nvme import (
    ALL_NAMESPACES,
    PAGE_BYTES,
    VERSION,
    Answer,
    Cns,
    Command,
    Page,
    Status,
)
from prestage.target.subsystem import Namespace

FIRMWARE = "0.1.0"
NVM_COMMAND_SET = 0
BLOCK_SHIFTS = (9, 12)
"""LBA formats 0 and 1: 512 and 4096 bytes."""
ANA_GROUP = 1
ANA_TRANSITION_S = 10
UNITS_A_SLOT = 16
MANY_NAMESPACES = ALL_NAMESPACES - 1
"""Lists start after the given NSID; this and above are illegal (figure 273)."""
ONCS = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 8
"""Compare, DSM, Write Zeroes, Save and Select, Timestamp, Verify, Copy (figure 275)."""
SGLS = 1 << 0
"""SGLs without alignment (figure 275); longer ones than the data (bit 18) are refused."""
SGLS_OFFSET = 1 << 20
"""Data blocks by offset, which is how in-capsule data is described (TCP 1.0, 3.3.1)."""
DEALLOCATED_READS_ZEROS = 1 << 0
"""DLFEAT bits 2:0; true of every block that Dataset Management was told to deallocate."""
DEALLOCATE_IN_WRITE_ZEROES = 1 << 3
HOST_ID_128_BIT = 1 << 0
TRAFFIC_KEEP_ALIVE = 1 << 6
UUID_LIST = 1 << 9


def identify(controller: Controller, command: Command) -> Answer:
    """Return the structure that CNS asks for, always 4096 bytes."""
    cns = command.cdw(10) & 0xFF
    discovery = {Cns.CONTROLLER}
    maker = MAKERS.get(cns)
    if maker is None or (controller.subsystem.is_discovery and cns not in discovery):
        raise PeerFault(Status.INVALID_FIELD, why=f"CNS {cns:02X}h")
    command.expect_transfer(PAGE_BYTES)
    page = Page()
    maker(controller, command, page)
    return Answer(data=bytes(page.bytes))


# ---- controllers ----


def _controller(controller: Controller, command: Command, page: Page) -> None:
    """Identify Controller (figure 275)."""
    subsystem = controller.subsystem
    limits = controller.runtime.settings.limits
    page.text(4, 20, subsystem.serial)
    page.text(24, 40, subsystem.model)
    page.text(64, 8, FIRMWARE)
    page.put(77, 1, (limits.max_transfer // PAGE_BYTES).bit_length() - 1)  # MDTS
    page.put(78, 2, controller.cntlid)
    page.put(80, 4, VERSION)
    page.put(92, 4, DISCOVERY_EVENTS if subsystem.is_discovery else IO_EVENTS)  # OAES
    page.put(96, 4, _attributes(controller))  # CTRATT
    page.put(111, 1, subsystem.kind.value)  # CNTRLTYPE
    page.put(258, 1, ABORT_LIMIT)  # ACL
    page.put(259, 1, ASYNC_EVENT_LIMIT)  # AERL
    page.put(261, 1, 0x04 if subsystem.is_discovery else 0x07)  # LPA
    page.put(320, 2, GRANULARITY_MS // 100)  # KAS
    page.put(514, 2, limits.queue_depth)  # MAXCMD
    page.put(536, 4, SGLS | (SGLS_OFFSET if limits.in_capsule else 0))
    page.text(768, 256, subsystem.nqn, b"\0")
    page.put(1792, 4, (64 + limits.in_capsule) // 16)  # IOCCSZ
    page.put(1796, 4, 1)  # IORCSZ
    page.put(1803, 1, 1)  # MSDBD
    if not subsystem.is_discovery:
        page.put(1804, 2, 1)  # OFCS: Disconnect
        _io_controller(controller, page)


def _attributes(controller: Controller) -> int:
    has_uuids = controller.offers_hints
    return HOST_ID_128_BIT | TRAFFIC_KEEP_ALIVE | (UUID_LIST if has_uuids else 0)


def _io_controller(controller: Controller, page: Page) -> None:
    """What only an I/O controller has (figure 275)."""
    subsystem = controller.subsystem
    page.put(76, 1, 1 << 1 | 1 << 3)  # CMIC: several controllers, ANA
    page.put(260, 1, 1 << 1 | 1)  # FRMW: one slot, read only
    page.put(262, 1, ERROR_LOG_ENTRIES - 1)  # ELPE
    page.put(342, 1, ANA_TRANSITION_S)  # ANATT
    page.put(343, 1, 1 << 0)  # ANACAP: optimized
    page.put(344, 4, ANA_GROUP)  # ANAGRPMAX
    page.put(348, 4, 1)  # NANAGRPID
    page.put(512, 1, 0x66)  # SQES
    page.put(513, 1, 0x44)  # CQES
    page.put(516, 4, MAX_NSID)  # NN
    page.put(520, 2, ONCS)
    page.put(522, 2, 1)  # FUSES: compare and write
    page.put(525, 1, 0b111)  # VWC: present, Flush takes FFFFFFFFh
    page.put(526, 2, 0)  # AWUN, 0-based: one block whatever the format; NAWUN says more
    page.put(528, 2, 0)  # AWUPF
    page.put(532, 2, 0)  # ACWU
    page.put(534, 2, 1)  # OCFS: copy format 0
    page.put(540, 4, subsystem.namespace_limit)  # MNAN
    page.raw(IDENTIFY_OFFSET, capability(controller.runtime.settings, subsystem.extension))


def _csi_controller(controller: Controller, command: Command, page: Page) -> None:
    """NVM-specific Identify Controller (NVM 1.0, figure 100): zeros mean no limit but MDTS."""
    _expect_csi(command)


def _controllers(controller: Controller, command: Command, page: Page) -> None:
    """Controller list (figure 274): count, then identifiers from CDW10.CNTID on."""
    first = command.cdw(10) >> 16
    ids = [cntlid for cntlid in sorted(controller.subsystem.controllers) if cntlid >= first][:2047]
    page.put(0, 2, len(ids))
    for index, cntlid in enumerate(ids, 1):
        page.put(index * 2, 2, cntlid)


def _attached_controllers(controller: Controller, command: Command, page: Page) -> None:
    """Every controller is attached to every namespace."""
    _require(controller, command.nsid)
    _controllers(controller, command, page)


def _uuid_list(controller: Controller, command: Command, page: Page) -> None:
    """UUID list (figure 281): the one that selects the pages and the feature of the extension."""
    if controller.offers_hints:
        fill_uuid_list(page)


def _command_sets(controller: Controller, command: Command, page: Page) -> None:
    """I/O command set vectors (figure 289): one combination, the NVM command set."""
    cntid = command.cdw(10) >> 16
    if cntid not in (0xFFFF, controller.cntlid, *controller.subsystem.controllers):
        raise PeerFault(Status.INVALID_FIELD, why=f"CNTID {cntid}")
    page.put(0, 8, 1 << NVM_COMMAND_SET)


# ---- namespaces ----


def _expect_csi(command: Command) -> None:
    if command.cdw(11) >> 24 != NVM_COMMAND_SET:
        raise PeerFault(Status.INVALID_FIELD, why="CSI")


def _find(controller: Controller, nsid: int) -> Namespace | Extension | None:
    """Return a namespace, or None for an inactive NSID, whose structures are all zeros (3.2.1)."""
    if not 1 <= nsid <= MAX_NSID:
        raise PeerFault(Status.INVALID_NAMESPACE, why=f"NSID {nsid:X}h")
    extension = controller.subsystem.extension
    if extension is not None and nsid == extension.nsid:
        return extension
    return controller.subsystem.namespaces.get(nsid)


def _require(controller: Controller, nsid: int) -> Namespace | Extension:
    namespace = _find(controller, nsid)
    if namespace is None:
        raise PeerFault(Status.INVALID_NAMESPACE, why=f"NSID {nsid} is not active")
    return namespace


def _formats(page: Page) -> None:
    page.put(25, 1, len(BLOCK_SHIFTS) - 1)  # NLBAF
    for index, shift in enumerate(BLOCK_SHIFTS):
        page.put(128 + 4 * index + 2, 1, shift)  # LBADS


def _namespace(controller: Controller, command: Command, page: Page) -> None:
    """Identify Namespace (NVM 1.0, figure 97); FFFFFFFFh is what all have in common."""
    if command.nsid == ALL_NAMESPACES:
        _formats(page)
        return
    _allocated_namespace(controller, command, page)


def fill_namespace(controller: Controller, namespace: Namespace, page: Page) -> None:
    """Fill in the structure of an active namespace."""
    settings = controller.runtime.settings
    block = namespace.block_bytes
    atomic = ATOMIC_BYTES // block - 1
    granularity = max(settings.tier.slot // UNITS_A_SLOT, ATOMIC_BYTES) // block - 1
    longest_copy = min(settings.limits.max_transfer // block, 0xFFFF)
    slot_blocks = min(settings.tier.slot, settings.limits.max_transfer) // block
    can_deallocate = not (
        controller.runtime.data_path.volume_limits(namespace.volume).warnings & MEDIA_NO_PUNCH
    )
    _formats(page)
    for offset in (0, 8, 16):  # NSZE, NCAP, NUSE
        page.put(offset, 8, namespace.blocks)
    page.put(24, 1, 1 << 1 | 1 << 4)  # NSFEAT: NAWUN and friends, NPWG and friends
    page.put(26, 1, BLOCK_SHIFTS.index(block.bit_length() - 1))  # FLBAS
    page.put(30, 1, 1)  # NMIC: shared
    page.put(33, 1, DEALLOCATED_READS_ZEROS | DEALLOCATE_IN_WRITE_ZEROES if can_deallocate else 0)
    page.put(34, 2, atomic)  # NAWUN
    page.put(36, 2, 0)  # NAWUPF: a power cut may tear between blocks
    page.put(38, 2, atomic)  # NACWU
    page.put(40, 2, atomic)  # NABSN: what is atomic stands in one unit
    page.raw(48, namespace.size_bytes.to_bytes(16, "little"))  # NVMCAP
    for offset in (64, 66, 68, 70):  # NPWG, NPWA, NPDG, NPDA
        page.put(offset, 2, granularity)
    page.put(72, 2, slot_blocks - 1)  # NOWS
    page.put(74, 2, longest_copy)  # MSSRL
    page.put(76, 4, longest_copy * COPY_RANGES)  # MCL
    page.put(80, 1, COPY_RANGES - 1)  # MSRC
    page.put(92, 4, ANA_GROUP)
    page.put(99, 1, int(namespace.settings.read_only))  # NSATTR
    page.raw(104, namespace.nguid)


def _allocated_namespace(controller: Controller, command: Command, page: Page) -> None:
    """All allocated namespaces are attached: CNS 11h is CNS 00h."""
    namespace = _find(controller, command.nsid)
    if isinstance(namespace, Namespace):
        fill_namespace(controller, namespace, page)
    elif namespace is not None:
        _formats(page)
        fill_extension_namespace(namespace, ANA_GROUP, len(BLOCK_SHIFTS) - 1, page)


def _namespace_list(controller: Controller, command: Command, page: Page) -> None:
    """Up to 1024 NSIDs above the given one, ascending (figure 273, CNS 02h, 07h, 10h)."""
    if command.nsid >= MANY_NAMESPACES:
        raise PeerFault(Status.INVALID_NAMESPACE, why=f"NSID {command.nsid:X}h")
    after = [nsid for nsid in controller.subsystem.nsids if nsid > command.nsid]
    for index, nsid in enumerate(after[:1024]):
        page.put(index * 4, 4, nsid)


def _csi_namespace_list(controller: Controller, command: Command, page: Page) -> None:
    _expect_csi(command)
    _namespace_list(controller, command, page)


def _descriptors(controller: Controller, command: Command, page: Page) -> None:
    """Namespace Identification Descriptors (figure 277): NGUID if there is one, UUID, CSI."""
    namespace = _require(controller, command.nsid)
    nguid = [(2, namespace.nguid)] if isinstance(namespace, Namespace) else []
    offset = 0
    for kind, value in (*nguid, (3, namespace.uuid.bytes), (4, bytes([NVM_COMMAND_SET]))):
        page.put(offset, 1, kind)
        page.put(offset + 1, 1, len(value))
        page.raw(offset + 4, value)
        offset += 4 + len(value)


def _csi_namespace(controller: Controller, command: Command, page: Page) -> None:
    """NVM-specific Identify Namespace (NVM 1.0, figure 98): no protection, so all zeros."""
    _expect_csi(command)
    if command.nsid != ALL_NAMESPACES:
        _find(controller, command.nsid)


def _independent_namespace(controller: Controller, command: Command, page: Page) -> None:
    """I/O Command Set Independent Identify Namespace (figure 280)."""
    namespace = _find(controller, command.nsid)
    if namespace is None:
        return
    page.put(1, 1, 1)  # NMIC: shared
    page.put(4, 4, ANA_GROUP)
    if isinstance(namespace, Namespace):
        page.put(8, 1, int(namespace.settings.read_only))  # NSATTR
    page.put(14, 1, 1)  # NSTAT: ready


MAKERS: dict[int, Callable[[Controller, Command, Page], None]] = {
    Cns.NAMESPACE: _namespace,
    Cns.CONTROLLER: _controller,
    Cns.ACTIVE_NAMESPACES: _namespace_list,
    Cns.DESCRIPTORS: _descriptors,
    Cns.CSI_NAMESPACE: _csi_namespace,
    Cns.CSI_CONTROLLER: _csi_controller,
    Cns.CSI_ACTIVE_NAMESPACES: _csi_namespace_list,
    Cns.INDEPENDENT_NAMESPACE: _independent_namespace,
    Cns.ALLOCATED_NAMESPACES: _namespace_list,
    Cns.ALLOCATED_NAMESPACE: _allocated_namespace,
    Cns.ATTACHED_CONTROLLERS: _attached_controllers,
    Cns.CONTROLLERS: _controllers,
    Cns.UUID_LIST: _uuid_list,
    Cns.COMMAND_SETS: _command_sets,
}
