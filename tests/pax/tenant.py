"""What a target in memory knows of one tenant: sets, signatures, intents, mailboxes, counters."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pax.tier import GRANULE_BYTES, Granule, Tier, granules, size_of
from prestage.ext.answers import AnswerPage
from prestage.ext.codec import Batch, decode_batch
from prestage.ext.errors import Malformed
from prestage.ext.layout import READY_NEVER, REFUSALS
from prestage.ext.names import (
    AnswerState,
    CancelWhat,
    IntentFlag,
    OutcomeFlag,
    Reason,
    SetFlag,
    SetOp,
    State,
    Verdict,
)
from prestage.ext.pages import Budget, Capability, Counts, Event, Refusal, Status
from prestage.ext.records import (
    Answer,
    Cancel,
    Intent,
    Outcome,
    OutcomeAnswer,
    Range,
    Record,
    Residency,
    ResidencyAnswer,
    Retain,
    SetRecord,
    Signature,
    Unknown,
)

MAX_SET_RANGES = 300
MAX_QUERY_BYTES = 1 << 26
MAX_TTL_MS = 60_000
SETS = 100
INTENT_BYTES = 1 << 26
EVENTS = 127
Blocks = dict[int, int]
"""Blocks of each namespace for data."""


@dataclass
class KnownSet:
    nsid: int
    ranges: tuple[Range, ...]
    is_ordered: bool
    ends_at: float

    def granules(self) -> list[Granule]:
        return [each for where in self.ranges for each in granules(self.nsid, where)]


@dataclass
class KnownIntent:
    record: Intent
    arrived_at: float
    wanted: list[Granule]
    total_bytes: int
    ready_at: float
    state: State = State.PENDING
    verdict: Verdict = Verdict.ACCEPTED
    reason: Reason = Reason.NONE
    was_warm: bool = False
    ended_at: float = 0.0

    @property
    def deadline_at(self) -> float:
        return self.arrived_at + self.record.deadline_us / 1e6


@dataclass
class Mailbox:
    writer: int
    sequence: int
    records: tuple[Record, ...] = ()
    header: AnswerPage = field(default_factory=AnswerPage)


class Tenant:
    """One tenant; `on_event` is called when its log gets an event."""

    def __init__(self, tier: Tier, blocks: Blocks, on_event: Callable[[Tenant], None]) -> None:
        self.tier = tier
        self.blocks = blocks
        self.on_event = on_event
        self.sets: dict[int, KnownSet] = {}
        self.signatures: dict[tuple[int, int], Signature] = {}
        self.intents: dict[int, KnownIntent] = {}
        self.mailboxes: dict[int, Mailbox] = {}
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[Reason] = Counter()
        self.intent_counts = [Counter[str]() for _ in range(4)]
        self.read_counts = [Counter[str]() for _ in range(4)]
        self.refusals: deque[Refusal] = deque(maxlen=REFUSALS)

    @property
    def now(self) -> float:
        return self.tier.clock()

    # ---- batches ----

    def submit(self, data: bytes, mailbox: int) -> AnswerPage:
        self.advance()
        try:
            batch = self.checked(data)
        except Malformed as error:
            page = self.refuse(data, mailbox, error)
            self.mailboxes[mailbox] = Mailbox(page.writer, page.sequence, (), page)
            return page
        page = self.apply(batch)
        self.mailboxes[mailbox] = Mailbox(batch.writer, batch.sequence, batch.records, page)
        return page

    def checked(self, data: bytes) -> Batch:
        return decode_batch(data)

    def refuse(self, data: bytes, mailbox: int, error: Malformed) -> AnswerPage:
        self.counts["refused"] += 1
        writer = int.from_bytes(data[16:24], "little")
        sequence = int.from_bytes(data[24:28], "little")
        self.refusals.appendleft(Refusal(writer, sequence, error.offset, error.fault, mailbox))
        return AnswerPage(
            writer, sequence, AnswerState.REFUSED, fault=error.fault, fault_offset=error.offset
        )

    def apply(self, batch: Batch) -> AnswerPage:
        results = [(record, self.take(record)) for record in batch.records]
        unknown = sum(isinstance(record, Unknown) for record in batch.records)
        dropped = [(record, reason) for record, reason in results if reason]
        self.counts["batches"] += 1
        self.counts["records"] += len(results)
        self.counts["unknown"] += unknown
        self.dropped.update(reason for _, reason in dropped)
        return AnswerPage(
            batch.writer,
            batch.sequence,
            AnswerState.APPLIED,
            accepted=len(results) - unknown - len(dropped),
            dropped=len(dropped),
            unknown=unknown,
            dropped_tag=dropped[0][0].tag if dropped else 0,
            dropped_reason=dropped[0][1] if dropped else Reason.NONE,
        )

    def take(self, record: Record) -> Reason:
        match record:
            case SetRecord():
                return self.take_set(record)
            case Signature():
                return self.take_signature(record)
            case Intent():
                return self.take_intent(record)
            case Retain():
                return self.take_retain(record)
            case Cancel():
                self.take_cancel(record)
        return Reason.NONE

    def where(self, nsid: int, ranges: tuple[Range, ...]) -> Reason:
        blocks = self.blocks.get(nsid, 0)
        is_within = all(each.slba + each.nlb <= blocks for each in ranges)
        return Reason.NONE if blocks and is_within else Reason.NAMESPACE

    # ---- sets, signatures, retain ----

    def take_set(self, record: SetRecord) -> Reason:
        if record.op == SetOp.DROP:
            return Reason.NONE if self.sets.pop(record.set_id, None) else Reason.SET
        old = self.known_set(record.set_id) if record.op == SetOp.EXTEND else None
        reason = self.where(record.nsid, record.ranges)
        if reason or (old is not None and old.nsid != record.nsid):
            return Reason.NAMESPACE
        ranges = (old.ranges if old else ()) + record.ranges
        is_new = record.set_id not in self.sets
        if len(ranges) > self.max_set_ranges or (is_new and len(self.sets) >= SETS):
            return Reason.BUDGET
        ends_at = self.now + self.lifetime_s(record.ttl_ms)
        is_ordered = bool(record.flags & SetFlag.ORDERED)
        self.sets[record.set_id] = KnownSet(record.nsid, ranges, is_ordered, ends_at)
        return Reason.NONE

    max_set_ranges = MAX_SET_RANGES

    def lifetime_s(self, ttl_ms: int) -> float:
        return min(ttl_ms or MAX_TTL_MS, MAX_TTL_MS) / 1000

    def known_set(self, set_id: int) -> KnownSet | None:
        found = self.sets.get(set_id)
        if found is not None and found.ends_at <= self.now:
            del self.sets[set_id]
            return None
        return found

    def take_signature(self, record: Signature) -> Reason:
        where = Range(record.slba, record.nlb)
        reason = self.where(record.nsid, (where,))
        if not reason:
            self.signatures[record.nsid, record.slba] = record
        return reason

    def take_retain(self, record: Retain) -> Reason:
        if record.set_id:
            return Reason.NONE if self.known_set(record.set_id) else Reason.SET
        return self.where(record.nsid, record.ranges)

    def touch(self, nsid: int, where: Range) -> None:
        """A Read: what follows it in an ordered set is loaded."""
        touched = set(granules(nsid, where))
        for each in [*self.sets.values()]:
            wanted = each.granules()
            if each.nsid == nsid and each.is_ordered and touched & set(wanted):
                self.tier.load(wanted)

    # ---- intents ----

    def take_intent(self, record: Intent) -> Reason:
        known = self.known_set(record.set_id) if record.set_id else None
        if record.set_id and known is None:
            return self.drop_intent(record, Reason.SET)
        nsid, ranges = (known.nsid, known.ranges) if known else (record.nsid, record.ranges)
        if reason := self.where(nsid, ranges):
            return self.drop_intent(record, reason)
        total = size_of(ranges)
        pending = sum(i.total_bytes for i in self.intents.values() if i.state == State.PENDING)
        if pending + total > INTENT_BYTES:
            return self.drop_intent(record, Reason.BUDGET)
        wanted = [each for where in ranges for each in granules(nsid, where)]
        ready_at = self.tier.ready_at(wanted)
        intent = KnownIntent(record, self.now, wanted, total, ready_at)
        return self.admit(intent)

    def admit(self, intent: KnownIntent) -> Reason:
        if all(self.tier.is_warm(each) for each in intent.wanted):
            intent.was_warm = True
            intent.ready_at = self.now
        elif intent.ready_at > intent.deadline_at:
            if not intent.record.flags & IntentFlag.LATE_OK:
                return self.drop_intent(intent.record, Reason.DEADLINE, intent.total_bytes)
            intent.verdict = Verdict.LATE
        self.keep(intent)
        self.hydrate(intent.wanted)
        self.advance()
        return Reason.NONE

    def hydrate(self, wanted: list[Granule]) -> None:
        self.tier.load(wanted)

    def keep(self, intent: KnownIntent) -> None:
        number = intent.record.intent_id
        if number in self.intents:
            self.end(self.intents[number], State.CANCELLED)
        self.intents[number] = intent
        self.intent_counts[intent.record.priority]["arrived"] += 1

    def drop_intent(self, record: Intent, reason: Reason, total: int = 0) -> Reason:
        intent = KnownIntent(record, self.now, [], total, self.now, verdict=Verdict.DROPPED)
        intent.reason = reason
        self.keep(intent)
        self.end(intent, State.DROPPED)
        return reason

    def end(self, intent: KnownIntent, state: State) -> None:
        if intent.state != State.PENDING:
            return
        intent.state = state
        intent.ended_at = min(intent.ready_at, self.now)
        counts = self.intent_counts[intent.record.priority]
        counts[state.name.lower()] += 1
        counts["met_warm"] += intent.was_warm
        self.counts["event_count"] += 1
        self.log(intent)

    def log(self, intent: KnownIntent) -> None:
        self.events.append(
            Event(
                intent.record.intent_id,
                intent.record.session,
                round((intent.ended_at - intent.arrived_at) * 1e6),
                intent.state,
                intent.reason,
                intent.record.priority,
                OutcomeFlag.WAS_WARM if intent.was_warm else OutcomeFlag.NONE,
            )
        )
        self.on_event(self)

    def advance(self) -> None:
        """End what has become ready, or can no longer."""
        for intent in [each for each in self.intents.values() if each.state == State.PENDING]:
            if all(self.tier.is_warm(each) for each in intent.wanted):
                in_time = intent.was_warm or intent.ready_at <= intent.deadline_at
                self.end(intent, State.MET if in_time else State.LATE)
            elif self.now >= intent.deadline_at and intent.verdict != Verdict.LATE:
                intent.reason = Reason.DEADLINE
                self.end(intent, State.DROPPED)

    def take_cancel(self, record: Cancel) -> None:
        for intent in self.intents.values():
            if self.is_cancelled(intent, record):
                self.end(intent, State.CANCELLED)
        if record.what == CancelWhat.EVERYTHING:
            self.sets.clear()
            self.signatures.clear()

    def is_cancelled(self, intent: KnownIntent, record: Cancel) -> bool:
        match record.what:
            case CancelWhat.INTENT:
                return intent.record.intent_id == record.id
            case CancelWhat.SESSION:
                return 0 < intent.record.session == record.id
        return True

    # ---- answers ----

    def answer(self, mailbox: int) -> AnswerPage:
        self.advance()
        found = self.mailboxes.get(mailbox)
        if found is None:
            return AnswerPage()
        answers = tuple(each for record in found.records for each in self.answers_to(record))
        return dataclasses.replace(found.header, answers=answers)

    def answers_to(self, record: Record) -> list[Answer]:
        match record:
            case Residency():
                return [dataclasses.replace(self.residency(record), tag=record.tag)]
            case Outcome() | Intent():
                return [dataclasses.replace(self.outcome(record.intent_id), tag=record.tag)]
        return []

    def residency(self, record: Residency) -> ResidencyAnswer:
        known = self.known_set(record.set_id) if record.set_id else None
        if record.set_id and known is None:
            return ResidencyAnswer(reason=Reason.SET)
        nsid, ranges = (known.nsid, known.ranges) if known else (record.nsid, record.ranges)
        if reason := self.where(nsid, ranges):
            return ResidencyAnswer(reason=reason)
        if size_of(ranges) > MAX_QUERY_BYTES:
            return ResidencyAnswer(reason=Reason.BUDGET)
        return self.measured(nsid, ranges)

    def measured(self, nsid: int, ranges: tuple[Range, ...]) -> ResidencyAnswer:
        warm = coming = 0
        wanted = [each for where in ranges for each in granules(nsid, where)]
        for each in wanted:
            warm += self.tier.is_warm(each)
            coming += self.tier.is_coming(each)
        arriving = [each for each in wanted if self.tier.is_coming(each)]
        total = size_of(ranges)
        warm_bytes = min(warm * GRANULE_BYTES, total)
        wait_us = 0 if warm_bytes == total else READY_NEVER
        if arriving:
            wait_us = round((self.tier.ready_at(arriving) - self.now) * 1e6)
        coming_bytes = min(coming * GRANULE_BYTES, total - warm_bytes)
        return ResidencyAnswer(total, warm_bytes, coming_bytes, wait_us)

    def ready_us(self, intent: KnownIntent) -> int:
        if intent.state not in {State.MET, State.LATE}:
            return READY_NEVER
        return round((intent.ready_at - intent.arrived_at) * 1e6)

    def outcome(self, intent_id: int) -> OutcomeAnswer:
        intent = self.intents.get(intent_id)
        if intent is None:
            return OutcomeAnswer(intent_id)
        admitted = 0 if intent.verdict == Verdict.DROPPED else intent.total_bytes
        warm = sum(self.tier.is_warm(each) for each in intent.wanted) * GRANULE_BYTES
        return OutcomeAnswer(
            intent_id,
            intent.total_bytes,
            admitted,
            admitted if intent.state in {State.MET, State.LATE} else min(warm, admitted),
            round((intent.ready_at - intent.arrived_at) * 1e6),
            self.ready_us(intent),
            intent.state,
            intent.verdict,
            intent.reason,
            OutcomeFlag.WAS_WARM if intent.was_warm else OutcomeFlag.NONE,
        )

    def status(self, capability: Capability) -> Status:
        self.advance()
        pending = [each for each in self.intents.values() if each.state == State.PENDING]
        for set_id in list(self.sets):
            self.known_set(set_id)
        ranges = sum(len(each.ranges) for each in self.sets.values())
        return Status(
            capability,
            sets=Budget(SETS, len(self.sets)),
            set_ranges=Budget(SETS * MAX_SET_RANGES, ranges),
            signatures=Budget(1000, len(self.signatures)),
            intents=Budget(1000, len(pending)),
            intent_bytes=Budget(INTENT_BYTES, sum(each.total_bytes for each in pending)),
            tier_bytes=Budget(1 << 30, 0),
            records_per_s=Budget(1_000_000, 0),
            dropped=tuple(self.dropped[reason] for reason in Reason),
            batches=self.counts["batches"],
            refused=self.counts["refused"],
            records=self.counts["records"],
            unknown=self.counts["unknown"],
            read_hints=self.counts["read_hints"],
            dataset_sets=self.counts["dataset_sets"],
            event_count=self.counts["event_count"],
            intent_counts=tuple(self.counted(each) for each in self.intent_counts),
            read_counts=tuple(self.counted(each) for each in self.read_counts),
            refusals=tuple(self.refusals),
        )

    def counted(self, counts: Counter[str]) -> Counts:
        ended = sum(counts[name] for name in ("met", "late", "dropped", "cancelled"))
        return Counts(**counts, pending=counts["arrived"] - ended)
