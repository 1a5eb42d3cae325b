"""Get and Set Features (Base 2.0, 5.15 and 5.27).

Nothing is saveable: a host sets what it wants after every connect. What a controller of this
target cannot do differently (interrupts, power states, write cache) has one value.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prestage.ext import layout
from prestage.ext.pages import decode_events
from prestage.target.errors import PeerFault
from prestage.target.extension import UUID_INDEX, UUID_INDEX_MASK, WARM_EVENTS_FID
from prestage.target.nvme import ALL_NAMESPACES, Answer, Command, Fid, Status

if TYPE_CHECKING:
    from prestage.target.controller import Controller

TIMESTAMP_BYTES = 8
TIMESTAMP_SET = 1 << 1
"""Timestamp origin: set by Set Features (figure 337)."""
THRESHOLD_DEFAULT = 0xFFFF
SMART_MASK = 0xFF
IO_EVENTS = 1 << 8 | 1 << 11
"""OAES of an I/O controller: namespace attributes and asymmetric namespace access."""
DISCOVERY_EVENTS = 1 << 31


@dataclass(frozen=True)
class Kind:
    """What a feature can do (CDW10.SEL = 3), and who has it."""

    changeable: bool = True
    per_namespace: bool = False
    discovery: bool = False
    by_uuid: bool = False
    """Selected by the UUID index as well: a feature of the extension."""


KINDS: dict[int, Kind] = {
    Fid.ARBITRATION: Kind(),
    Fid.POWER: Kind(),
    Fid.TEMPERATURE: Kind(),
    Fid.ERROR_RECOVERY: Kind(per_namespace=True),
    Fid.VOLATILE_WRITE_CACHE: Kind(changeable=False),
    Fid.QUEUES: Kind(),
    Fid.WRITE_ATOMICITY: Kind(),
    Fid.ASYNC_EVENTS: Kind(discovery=True),
    Fid.TIMESTAMP: Kind(),
    Fid.KEEP_ALIVE: Kind(discovery=True),
    Fid.COMMAND_SET_PROFILE: Kind(),
    Fid.HOST_IDENTIFIER: Kind(changeable=False),
    WARM_EVENTS_FID: Kind(by_uuid=True),
}


def has_events(controller: Controller) -> bool:
    """Whether the warm-event log of the host is not empty."""
    log = controller.runtime.data_path.hint_events(controller.tenant, clear=False)
    return bool(decode_events(log).events)


class Features:
    """The feature values of one controller."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.event_mask = 0
        self.warm_events = False
        """Whether the host asked for warm events."""
        self._setters: dict[int, Callable[[Command], Answer]] = {
            Fid.ARBITRATION: self._set_arbitration,
            Fid.POWER: self._set_power,
            Fid.TEMPERATURE: self._set_temperature,
            Fid.ERROR_RECOVERY: self._set_error_recovery,
            Fid.VOLATILE_WRITE_CACHE: self._set_write_cache,
            Fid.QUEUES: self._set_queues,
            Fid.WRITE_ATOMICITY: self._set_write_atomicity,
            Fid.ASYNC_EVENTS: self._set_async_events,
            Fid.TIMESTAMP: self._set_timestamp,
            Fid.KEEP_ALIVE: self._set_keep_alive,
            Fid.COMMAND_SET_PROFILE: self._set_command_set_profile,
            Fid.HOST_IDENTIFIER: self._set_host_identifier,
            WARM_EVENTS_FID: self._set_warm_events,
        }
        self.reset()

    def reset(self) -> None:
        """Return to the defaults, as a controller reset does; the keep-alive timeout stays."""
        self.event_mask = 0
        self.warm_events = False
        self._arbitration = 0
        self._write_atomicity = 0
        self._thresholds: dict[int, int] = {}
        self._recovery: dict[int, int] = {}
        self._clock_base_ms = 0
        self._clock_origin = 0
        self._clock_at = time.monotonic()

    @property
    def allowed_events(self) -> int:
        """The bits of feature 0Bh that mean something here."""
        if self._controller.subsystem.is_discovery:
            return DISCOVERY_EVENTS
        return IO_EVENTS | SMART_MASK

    def supported(self) -> list[int]:
        """Return the feature identifiers of this controller."""
        is_discovery = self._controller.subsystem.is_discovery
        return [
            int(fid)
            for fid, kind in KINDS.items()
            if (kind.discovery or not is_discovery)
            and (self._controller.offers_hints or not kind.by_uuid)
        ]

    def _kind(self, command: Command) -> Kind:
        """Return what the feature of a command can do; a vendor's are selected by UUID (8.23)."""
        fid = command.cdw(10) & 0xFF
        if fid not in self.supported():
            raise PeerFault(Status.INVALID_FIELD, why=f"feature {fid:02X}h")
        kind, index = KINDS[fid], command.cdw(14) & UUID_INDEX_MASK
        if kind.by_uuid and index != UUID_INDEX:
            raise PeerFault(Status.INVALID_FIELD, why=f"feature {fid:02X}h, UUID index {index}")
        return kind

    # ---- Get Features ----

    def get(self, command: Command) -> Answer:
        """Get Features. SEL: 0 current, 1 default, 2 saved (the default), 3 capabilities."""
        fid, select = command.cdw(10) & 0xFF, command.cdw(10) >> 8 & 7
        kind = self._kind(command)
        if select == 3:
            command.expect_transfer(self._data_bytes(fid, command) if command.transfer_bytes else 0)
            return Answer(
                dw0=kind.per_namespace << 1 | kind.changeable << 2,
                data=bytes(command.transfer_bytes),
            )
        if select > 3:
            raise PeerFault(Status.INVALID_FIELD, why="SEL")
        if kind.per_namespace and command.nsid != ALL_NAMESPACES:
            self._expect_namespace(command.nsid)
        if fid == Fid.TEMPERATURE:
            self._expect_sensor(command, sensors=(0,))
        command.expect_transfer(self._data_bytes(fid, command))
        if fid == Fid.HOST_IDENTIFIER:
            return Answer(data=self._controller.host_id)
        if fid == Fid.TIMESTAMP:
            return Answer(data=self._timestamp(default=select != 0))
        return Answer(dw0=self._value(fid, command, default=select != 0))

    def _data_bytes(self, fid: int, command: Command) -> int:
        """Bytes that Get Features returns (figures 185, 337, 374)."""
        if fid == Fid.HOST_IDENTIFIER:
            if not command.cdw(11) & 1:
                raise PeerFault(Status.INVALID_FIELD, why="EXHID must be set over fabrics")
            return 16
        return TIMESTAMP_BYTES if fid == Fid.TIMESTAMP else 0

    def _value(self, fid: int, command: Command, *, default: bool) -> int:
        queues = self._controller.runtime.settings.limits.io_queues - 1
        threshold = command.cdw(11) & 0x300000
        fixed: dict[int, int] = {
            Fid.VOLATILE_WRITE_CACHE: 1,
            Fid.QUEUES: queues | queues << 16,
            Fid.POWER: 0,
            Fid.COMMAND_SET_PROFILE: 0,
        }
        if fid in fixed:
            return fixed[fid]
        standard = 0 if threshold else THRESHOLD_DEFAULT
        values: dict[int, tuple[int, int]] = {
            Fid.ARBITRATION: (self._arbitration, 0),
            Fid.TEMPERATURE: (self._thresholds.get(threshold, standard), standard),
            Fid.ERROR_RECOVERY: (self._recovery.get(command.nsid, 0), 0),
            Fid.WRITE_ATOMICITY: (self._write_atomicity, 0),
            Fid.ASYNC_EVENTS: (self.event_mask, 0),
            Fid.KEEP_ALIVE: (self._controller.keep_alive.kato_ms, 0),
            WARM_EVENTS_FID: (layout.FEATURE_WARM_EVENTS if self.warm_events else 0, 0),
        }
        return values[fid][default]

    def _timestamp(self, *, default: bool) -> bytes:
        """Milliseconds in 48 bits, then the origin in bits 3:1 (figure 338)."""
        if default:
            return bytes(TIMESTAMP_BYTES)
        passed_ms = round((time.monotonic() - self._clock_at) * 1000)
        now = (self._clock_base_ms + passed_ms) & (1 << 48) - 1
        return now.to_bytes(6, "little") + bytes([self._clock_origin, 0])

    # ---- Set Features ----

    def set(self, command: Command) -> Answer:
        """Set Features."""
        fid = command.cdw(10) & 0xFF
        kind = self._kind(command)
        if command.cdw(10) >> 31:
            raise PeerFault(Status.NOT_SAVEABLE)
        command.expect_transfer(TIMESTAMP_BYTES if fid == Fid.TIMESTAMP else 0, to_host=False)
        if not kind.per_namespace and command.nsid not in (0, ALL_NAMESPACES):
            raise PeerFault(Status.NOT_NAMESPACE_SPECIFIC)
        return self._setters[fid](command)

    def _expect_namespace(self, nsid: int) -> None:
        if nsid not in self._controller.subsystem.nsids:
            raise PeerFault(Status.INVALID_NAMESPACE, why=f"NSID {nsid}")

    def _set_arbitration(self, command: Command) -> Answer:
        """Weights are kept; queues are served round robin, the only AMS there is (5.27.1.1)."""
        self._arbitration = command.cdw(11)
        return Answer()

    def _set_power(self, command: Command) -> Answer:
        """There is power state 0 alone (NPSS 0)."""
        if command.cdw(11) & 0x1F:
            raise PeerFault(Status.INVALID_FIELD, why="power state")
        return Answer()

    def _set_temperature(self, command: Command) -> Answer:
        """No sensor reports here: thresholds are kept and never crossed (5.27.1.3)."""
        kind = self._expect_sensor(command, sensors=(0, 15))
        self._thresholds[kind << 20] = command.cdw(11) & 0xFFFF
        return Answer()

    @staticmethod
    def _expect_sensor(command: Command, sensors: tuple[int, ...]) -> int:
        """Return THSEL, checked with TMPSEL: 0 is the composite temperature, 15 all (Set only)."""
        sensor, kind = command.cdw(11) >> 16 & 15, command.cdw(11) >> 20 & 3
        if kind > 1 or sensor not in sensors:
            raise PeerFault(Status.INVALID_FIELD, why="TMPSEL or THSEL")
        return kind

    def _set_error_recovery(self, command: Command) -> Answer:
        """TLER is kept; DULBE is not offered (NSFEAT.DAE 0)."""
        if command.cdw(11) >> 16 & 1:
            raise PeerFault(Status.INVALID_FIELD, why="DULBE")
        if command.nsid != ALL_NAMESPACES:
            self._expect_namespace(command.nsid)
            self._recovery[command.nsid] = command.cdw(11) & 0xFFFF
            return Answer()
        for nsid in (*self._controller.subsystem.nsids, ALL_NAMESPACES):
            self._recovery[nsid] = command.cdw(11) & 0xFFFF
        return Answer()

    def _set_write_cache(self, command: Command) -> Answer:
        """The write policy is the operator's: only the present value may be set."""
        if not command.cdw(11) & 1:
            raise PeerFault(Status.NOT_CHANGEABLE)
        return Answer()

    def _set_queues(self, command: Command) -> Answer:
        """NSQR and NCQR are 0-based; FFFFh is illegal, and so is any once queues exist."""
        asked = command.cdw(11)
        if 0xFFFF in (asked & 0xFFFF, asked >> 16):
            raise PeerFault(Status.INVALID_FIELD, why="NSQR or NCQR")
        if self._controller.queues:
            raise PeerFault(Status.SEQUENCE_ERROR, why="I/O queues exist")
        return Answer(dw0=self._value(Fid.QUEUES, command, default=False))

    def _set_write_atomicity(self, command: Command) -> Answer:
        self._write_atomicity = command.cdw(11) & 1
        return Answer()

    def _set_async_events(self, command: Command) -> Answer:
        """Bits of events that do not exist here are accepted and never come."""
        self.event_mask = command.cdw(11) & self.allowed_events
        return Answer()

    def _set_warm_events(self, command: Command) -> Answer:
        """Bit 0; the others are reserved. A log that holds events already is told of at once."""
        self.warm_events = bool(command.cdw(11) & layout.FEATURE_WARM_EVENTS)
        if self.warm_events and has_events(self._controller):
            self._controller.warm_event()
        return Answer()

    def _set_timestamp(self, command: Command) -> Answer:
        self._clock_base_ms = int.from_bytes(command.data[:6], "little")
        self._clock_origin = TIMESTAMP_SET
        self._clock_at = time.monotonic()
        return Answer()

    def _set_keep_alive(self, command: Command) -> Answer:
        """A discovery controller always has a timer (NVMe-oF): 0 is its default there."""
        asked = command.cdw(11)
        limits = self._controller.runtime.settings.limits
        if asked == 0 and self._controller.subsystem.is_discovery:
            asked = round(limits.discovery_keep_alive_s * 1000)
        self._controller.keep_alive.set(asked)
        return Answer()

    def _set_command_set_profile(self, command: Command) -> Answer:
        """One combination exists: the NVM command set alone (CNS 1Ch, index 0)."""
        if command.cdw(11) & 0x1FF:
            raise PeerFault(Status.COMMAND_SET_COMBINATION)
        return Answer()

    def _set_host_identifier(self, command: Command) -> Answer:
        """Connect has set it (5.27.1.25)."""
        raise PeerFault(Status.SEQUENCE_ERROR, why="set by Connect")
