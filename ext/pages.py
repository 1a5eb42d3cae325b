"""Capability, status page and warm-event log (specification, clauses 3.1, 5.6 and 5.7)."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from . import layout
from .errors import Malformed
from .names import Carrier, Fault, Magic, OutcomeFlag, Reason, State
from .packing import packer

LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""Of signed numbers of 64 bits."""
IDENTIFY_OFFSET: Final = 3072
"""Of the capability in the Identify Controller data (Base 2.0, figure 275, vendor specific)."""


@dataclass(frozen=True, slots=True)
class Capability:
    """What a controller offers (3.1). Sizes in bytes; an opcode or identifier of 0: there is none.

    `record_types` and `query_types` are bits: n for records of type n, queries of type 0100h + n.
    """

    carriers: Carrier
    max_batch_bytes: int = layout.MAX_BATCH_BYTES
    record_types: int = 0b111110
    query_types: int = 0b110
    extension_nsid: int = 0
    granularity_bytes: int = layout.PAGE_BYTES
    max_set_ranges: int = 0
    max_query_bytes: int = 0
    max_ttl_ms: int = 0
    mailboxes: int = 0
    status_log: int = 0
    event_log: int = 0
    feature: int = 0
    uuid_index: int = 0
    submit_opcode: int = 0
    query_opcode: int = 0
    dated_read_opcode: int = 0
    minor: int = layout.MINOR


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit of the tenant, and what of it is used."""

    limit: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Intents, or dated reads, of one priority; `arrived` is the sum of all but `met_warm`."""

    arrived: int = 0
    pending: int = 0
    met: int = 0
    met_warm: int = 0
    late: int = 0
    dropped: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A malformed batch: whose, where it was submitted, and what was wrong with it."""

    writer: int = 0
    sequence: int = 0
    fault_offset: int = 0
    fault: Fault = Fault.NONE
    mailbox: int = 0


@dataclass(frozen=True, slots=True)
class Benefit:
    """What predictions of the target's own gained, in reads; `low` to `high` with 95 % confidence.

    All zeros: nothing is measured; from the least to the most of all numbers: not known yet.
    """

    acted: int = 0
    held: int = 0
    hits: int = 0
    low: int = 0
    high: int = 0

    @property
    def is_known(self) -> bool:
        """Whether there is an interval."""
        return self.held > 0 and LEAST < self.low <= self.hits <= self.high < MOST


_NO_COUNTS: Final = (Counts(),) * layout.PRIORITIES


@dataclass(frozen=True, slots=True)
class Status:
    """The tenant's status (5.6).

    `dropped` is by reason, `intent_counts` and `read_counts` are by priority, `refusals` has the
    latest first.
    """

    capability: Capability
    sets: Budget = Budget()
    set_ranges: Budget = Budget()
    signatures: Budget = Budget()
    intents: Budget = Budget()
    intent_bytes: Budget = Budget()
    tier_bytes: Budget = Budget()
    records_per_s: Budget = Budget()
    batches: int = 0
    refused: int = 0
    records: int = 0
    unknown: int = 0
    dropped: tuple[int, ...] = (0,) * 8
    read_hints: int = 0
    dataset_sets: int = 0
    timely_hits: int = 0
    late_hits: int = 0
    wasted_bytes: int = 0
    hydrated_bytes: int = 0
    event_count: int = 0
    events_lost: int = 0
    intent_counts: tuple[Counts, ...] = _NO_COUNTS
    read_counts: tuple[Counts, ...] = _NO_COUNTS
    refusals: tuple[Refusal, ...] = ()
    benefit: Benefit = Benefit()


@dataclass(frozen=True, slots=True)
class Event:
    """An intent has ended (5.7)."""

    intent_id: int
    session: int = 0
    ready_us: int = layout.READY_NEVER
    state: State = State.MET
    reason: Reason = Reason.NONE
    priority: int = 0
    flags: OutcomeFlag = OutcomeFlag.NONE


@dataclass(frozen=True, slots=True)
class EventLog:
    """The warm-event log: events, oldest first, and how many more were overwritten before."""

    events: tuple[Event, ...] = ()
    lost: int = 0


def _plain(value: Any) -> Any:
    """Return a value as dictionaries and lists of integers."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if is_dataclass(value):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return value


def encode_capability(capability: Capability) -> bytes:
    """Return the 128 bytes of a capability. BadRecord: a value does not fit its field."""
    return packer("capability").pack(_capability_values(capability))


def _capability_values(capability: Capability) -> dict[str, Any]:
    fixed = {"magic": Magic.CAPABILITY, "major": layout.MAJOR, "size": layout.CAPABILITY.size}
    values: dict[str, Any] = _plain(capability)
    return values | fixed


def decode_capability(data: bytes | bytearray | memoryview) -> Capability:
    """Return the capability at the start of `data`. Raises Malformed when there is none."""
    if len(data) < layout.CAPABILITY.size:
        raise Malformed(Fault.SIZE, 0)
    return _capability(packer("capability").unpack(data))


def find_capability(identify: bytes | bytearray | memoryview) -> Capability | None:
    """Return what Identify Controller data (4096 bytes) says of PAX; None: no PAX that we know.

    Any other magic or major version is a controller without PAX (3.1.2).
    """
    try:
        return decode_capability(memoryview(identify)[IDENTIFY_OFFSET:])
    except Malformed:
        return None


def _capability(values: dict[str, Any]) -> Capability:
    if values["magic"] != Magic.CAPABILITY:
        raise Malformed(Fault.MAGIC, 0)
    if values["major"] != layout.MAJOR:
        raise Malformed(Fault.VERSION, 4)
    if values["size"] < layout.CAPABILITY.size:
        raise Malformed(Fault.SIZE, 6)
    known = {each.name: values[each.name] for each in fields(Capability)}
    return Capability(**known | {"carriers": Carrier(known["carriers"])})


def encode_benefit(benefit: Benefit) -> bytes:
    """Return the 40 bytes of a benefit. BadRecord: a value does not fit its field."""
    return packer("benefit").pack(_plain(benefit))


def encode_status(status: Status) -> bytes:
    """Return the 4096 bytes of a status page. BadRecord: a value does not fit its field."""
    missing = layout.REFUSALS - len(status.refusals)
    values = _plain(status) | {
        "capability": _capability_values(status.capability),
        "refusals": [_plain(each) for each in status.refusals] + [{}] * missing,
    }
    return packer("status").pack(values).ljust(layout.PAGE_BYTES, b"\0")


def decode_status(data: bytes | bytearray | memoryview) -> Status:
    """Return the status page, or status log, in `data` (1600 bytes or more).

    Raises Malformed when it does not begin with a capability, or is too short.
    """
    if len(data) < layout.STATUS.size:
        raise Malformed(Fault.SIZE, 0)
    values = packer("status").unpack(data)
    budgets = (each.name for each in layout.STATUS.fields if each.kind == "budget")
    refusals = [each for each in values["refusals"] if each["fault"]]
    return Status(
        **values
        | {name: Budget(**values[name]) for name in budgets}
        | {
            "capability": _capability(values["capability"]),
            "dropped": tuple(values["dropped"]),
            "intent_counts": tuple(Counts(**each) for each in values["intent_counts"]),
            "read_counts": tuple(Counts(**each) for each in values["read_counts"]),
            "refusals": tuple(Refusal(**e | {"fault": Fault(e["fault"])}) for e in refusals),
            "benefit": Benefit(**values["benefit"]),
        }
    )


def encode_events(log: EventLog) -> bytes:
    """Return the 4096 bytes of a warm-event log of at most 127 events."""
    head = {
        "magic": Magic.EVENTS,
        "major": layout.MAJOR,
        "minor": layout.MINOR,
        "header_size": layout.EVENTS.size,
        "event_count": len(log.events),
        "lost": log.lost,
    }
    parts = [packer("event").pack(_plain(each)) for each in log.events]
    data = packer("events").pack(head) + b"".join(parts)
    assert len(data) <= layout.PAGE_BYTES, "more events than a page takes"
    return data.ljust(layout.PAGE_BYTES, b"\0")


def decode_events(data: bytes | bytearray | memoryview) -> EventLog:
    """Return the warm-event log in `data`; events beyond its end are left out.

    Raises Malformed when it is no such log.
    """
    view = memoryview(data)
    if len(view) < layout.EVENTS.size:
        raise Malformed(Fault.SIZE, 0)
    head = packer("events").unpack(view)
    if head["magic"] != Magic.EVENTS:
        raise Malformed(Fault.MAGIC, 0)
    if head["major"] != layout.MAJOR:
        raise Malformed(Fault.VERSION, 4)
    if head["header_size"] < layout.EVENTS.size:
        raise Malformed(Fault.SIZE, 6)
    room = max(len(view) - head["header_size"], 0) // layout.EVENT.size
    count = min(room, head["event_count"])
    starts = (head["header_size"] + number * layout.EVENT.size for number in range(count))
    events = tuple(_event(packer("event").unpack(view, at)) for at in starts)
    return EventLog(events, head["lost"])


def _event(values: dict[str, Any]) -> Event:
    typed = {
        "state": State(values["state"]),
        "reason": Reason(values["reason"]),
        "flags": OutcomeFlag(values["flags"]),
    }
    return Event(**values | typed)
