"""The part of a fake data path that keeps what hosts say beside their commands."""

from __future__ import annotations

from collections.abc import Callable

from prestage.ext.names import Carrier, State
from prestage.ext.pages import (
    Capability,
    Event,
    EventLog,
    Status,
    encode_events,
    encode_status,
)
from prestage.target.datapath import HintBudget, Notice, WarmEventNotice

NO_HINTS = Status(Capability(Carrier(0)))


class FakeHints:
    """Shows what a test has put in, and records what it is told."""

    def __init__(self) -> None:
        self.receive: Callable[[Notice], None] = lambda _: None
        self.capability = b""
        self.benefit = b""
        self.budgets: dict[int, HintBudget | None] = {}
        self.statuses: dict[int, Status] = {}
        """Status pages by tenant."""
        self.events: dict[int, tuple[Event, ...]] = {}
        """Warm events by tenant, oldest first."""
        self.orders_resets = 0

    def tenant_stats(self, tenant: int) -> dict[str, int]:
        return {"frames": 0}

    def set_capability(self, capability: bytes) -> None:
        self.capability = capability

    def set_benefit(self, benefit: bytes) -> None:
        self.benefit = benefit

    def set_budget(self, tenant: int, budget: HintBudget | None) -> None:
        self.budgets[tenant] = budget

    def hint_status(self, tenant: int, subsystem: int) -> bytes:
        return encode_status(self.statuses.get(tenant, NO_HINTS))

    def hint_events(self, tenant: int, *, clear: bool) -> bytes:
        events = self.events.pop(tenant, ()) if clear else self.events.get(tenant, ())
        return encode_events(EventLog(events))

    def hint_trust(self, tenant: int) -> dict[str, dict[str, int]]:
        return {"intents": {"used": 8 * tenant, "unused": 0, "left_out": 0, "is_trusted": 1}}

    def hint_stats(self) -> dict[str, int]:
        return {"batches": 0, "sets": 0}

    def ring_fd(self) -> int:
        return -1

    def orders_fd(self) -> int:
        return -1

    def orders_wake_fd(self) -> int:
        return -1

    def ring_wake_fd(self) -> int:
        return -1

    def orders_reset(self) -> None:
        self.orders_resets += 1

    def orders_stats(self) -> dict[str, int]:
        return {"orders": 0, "pending": 0}

    def model_stats(self) -> dict[str, int]:
        return {"timely_hits": 0, "unread_frames": 0}

    def end_intent(self, tenant: int, intent_id: int) -> None:
        """An intent of a tenant ends: an event, and a notice when it is the first in the log."""
        before = self.events.get(tenant, ())
        self.events[tenant] = (*before, Event(intent_id, state=State.MET))
        if not before:
            self.receive(WarmEventNotice(tenant))
