"""What a host knows of its intents: what it said, what each may have become, and what the target
counts and tells of them.
"""

from __future__ import annotations

import dataclasses
import struct
from collections import Counter

from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.host import Controller

EVENTS_LID, EVENTS_FID, UUID_INDEX = 0xD1, 0xD0, 1
STATES = ("unknown", "pending", "met", "late", "dropped", "cancelled")
ENDS = STATES[2:]


@dataclasses.dataclass(frozen=True)
class Event:
    """An entry of the warm-event log: an intent has ended."""

    intent_id: int
    session: int
    ready_us: int
    state: str
    reason: str
    priority: int
    was_warm: bool


def read_events(controller: Controller, *, may_lose: bool = False) -> list[Event]:
    """What is in the warm-event log, which is empty then. Has nothing been lost?"""
    entry = nvme.sqe(nvme.GET_LOG, cdw10=EVENTS_LID | 1023 << 16, cdw14=UUID_INDEX)
    answer = controller.admin.execute(entry, expected=hints.PAGE)
    assert answer.is_ok, answer.text()
    magic, major, _, header, count, lost = struct.unpack_from("<4sBBHII", answer.data)
    assert (magic, major, header) == (b"PAXE", 1, 32), answer.data[:32].hex()
    assert may_lose or lost == 0, f"{lost} events are lost"
    events = []
    for number in range(count):
        fields = struct.unpack_from("<QQIBBBB", answer.data, header + 32 * number)
        intent_id, session, ready_us, state, reason, priority, flags = fields
        events.append(
            Event(
                intent_id,
                session,
                ready_us,
                STATES[state],
                hints.REASONS[reason],
                priority,
                bool(flags & 1),
            )
        )
    return events


def check_sums(counts: tuple[dict[str, int], ...]) -> None:
    """What has arrived is pending or has ended, in one way. True at every moment."""
    for priority, one in enumerate(counts):
        ended = sum(one[end] for end in ENDS)
        assert one["arrived"] == one["pending"] + ended, f"priority {priority}: {one}"
        assert one["met_warm"] <= one["met"], f"priority {priority}: {one}"


def pending(counts: tuple[dict[str, int], ...]) -> int:
    """Those of all priorities that have not ended."""
    return sum(one["pending"] for one in counts)


@dataclasses.dataclass(frozen=True)
class Said:
    """An intent that was submitted."""

    intent_id: int
    nsid: int
    deadline_us: int
    priority: int = 1
    flags: int = 0
    may_cancel: bool = False
    """Something happens to it, or to its namespace, that may cancel it."""
    may_drop: frozenset[str] = frozenset()
    """Reasons, beside a deadline that it has to keep, for which it may be dropped."""
    is_certain: bool = True
    """False: the batch may not have arrived."""

    def fault(self, event: Event) -> str | None:
        """What is wrong with how it has ended."""
        is_late_ok = bool(self.flags & hints.LATE_OK)
        if event.priority != self.priority:
            return "another priority"
        if event.state == "met" and event.ready_us > self.deadline_us:
            return "met after its deadline"
        if event.state == "late" and event.ready_us < self.deadline_us:
            return "late before its deadline"
        if event.state == "cancelled" and not self.may_cancel:
            return "nobody cancelled it"
        if event.state == "dropped":
            reasons = self.may_drop | (set() if is_late_ok else {"deadline"})
            return None if event.reason in reasons else "no reason to drop it"
        return None if event.reason == "none" else "a reason, and it was not dropped"


class Ledger:
    """The intents of one host, and the events about them."""

    def __init__(self) -> None:
        self.said: dict[int, list[Said]] = {}
        """By number, as often as it was said."""
        self.events: list[Event] = []

    def say(self, said: Said) -> None:
        """An intent is submitted."""
        self.said.setdefault(said.intent_id, []).append(said)

    def may_cancel(self, intent_id: int | None = None) -> None:
        """From now on those said so far, of this number or all, may have been cancelled."""
        numbers = list(self.said) if intent_id is None else [intent_id]
        for number in numbers:
            said = self.said.get(number, [])
            self.said[number] = [dataclasses.replace(one, may_cancel=True) for one in said]

    def hear(self, events: list[Event]) -> None:
        """Each event is of an intent that was said, and ends it as it may end."""
        for event in events:
            candidates = self.said.get(event.intent_id, [])
            faults = {said.fault(event) for said in candidates}
            assert None in faults, f"{event}: {faults or 'nobody said it'}; {candidates}"
        self.events += events

    def settle(self, counts: tuple[dict[str, int], ...]) -> None:
        """All have ended: each as often as it was said, and as the target counts them."""
        heard = Counter(event.intent_id for event in self.events)
        for number, said in self.said.items():
            least = sum(one.is_certain for one in said)
            assert least <= heard[number] <= len(said), f"{heard[number]} ends of {said}"
        for priority, one in enumerate(counts):
            mine = [event for event in self.events if event.priority == priority]
            ends = Counter(event.state for event in mine)
            assert one["pending"] == 0, one
            assert one["arrived"] == len(mine), f"priority {priority}: {one}, {len(mine)} events"
            assert {end: one[end] for end in ENDS} == {end: ends[end] for end in ENDS}
            assert one["met_warm"] == sum(event.was_warm for event in mine)
