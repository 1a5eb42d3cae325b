"""Facts in, orders out: between the shared memory and a prestager that knows lasting numbers."""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.launch import Words
from prestage.target.prestager.numbering import NOBODY, Clock, Numbering
from prestage.target.prestager.shared import ORDER, Gauges, OrderEnd, OrderKind, OrdersWriter, wake
from prestage.target.ring import FACT, FactKind, RingReader, RingWaits

__all__ = ["DecisionLike", "Exchange"]

VOLUMES: Final = 1024
TENANTS: Final = 4097
OTHER_TENANTS: Final = 0
HINT_KINDS: Final = (*range(FactKind.SET, FactKind.CANCEL + 1), FactKind.UNMAPPED)
"""What RingWaits.HINTS waits for."""
RANGED: Final = (OrderKind.FETCH, OrderKind.CLASSIFY)
"""Orders that are about a range of a volume."""


class DecisionLike(Protocol):
    """What the prestager wants now: `Decision` of prestage.target.prestager.engine."""

    @property
    def orders(self) -> NDArray[np.void]:
        """Orders, dtype ORDER."""

    @property
    def values(self) -> NDArray[np.float32] | None:
        """A value table, 64 classes by 64 age bins; None: as it was."""

    @property
    def next_ns(self) -> int:
        """When it wants to be asked again at latest."""

    @property
    def waits(self) -> RingWaits:
        """What it wants to be woken for before."""


class Exchange:
    """Both shared memories, and what numbers and times in them stand for."""

    def __init__(self, reader: RingReader, writer: OrdersWriter, wake: int, clock: Clock) -> None:
        """`wake` is the eventfd that tells the target of orders."""
        self._reader = reader
        self._writer = writer
        self._wake = wake
        self._clock = clock
        self.volumes = Numbering(VOLUMES)
        self.tenants = Numbering(TENANTS)
        self._values: NDArray[np.float32] | None = None
        """A value table that found no room yet."""
        self._nowhere: list[NDArray[np.void]] = []
        """Facts of our own: fetches from volumes that are not there have failed."""
        self.counters = dict.fromkeys(("facts", "orders", "orders_lost", "orders_nowhere"), 0)

    def remember(self, volumes: list[str], tenants: list[str]) -> None:
        """Give the lasting numbers of an earlier run to the names that had them."""
        self.volumes = Numbering(VOLUMES, volumes)
        self.tenants = Numbering(TENANTS, tenants)

    def name(self, names: Words) -> None:
        """Say what numbers of facts stand for."""
        self.volumes.name(names.volumes)
        self.tenants.name(names.tenants)

    @property
    def backlog(self) -> int:
        """Facts that wait."""
        return self._reader.backlog

    @property
    def lost(self) -> int:
        """Facts that found the ring full, since the target started."""
        return self._reader.lost

    @property
    def capacity(self) -> int:
        """Facts that the ring holds."""
        return self._reader.capacity

    def gauges(self) -> Gauges:
        """Return how the tier and the media are."""
        return self._writer.gauges()

    def fetch(self, most: int) -> NDArray[np.void]:
        """Take up to `most` facts out of the ring, as the data path put them, oldest first."""
        parts = self._reader.take(most)
        raw = np.concatenate(parts) if parts else np.empty(0, FACT)
        self._reader.release()
        self.counters["facts"] += len(raw)
        return raw

    def translate(self, raw: NDArray[np.void]) -> NDArray[np.void]:
        """Give facts their lasting numbers and times, in place; return them after our own."""
        raw["volume"] = self.volumes.lasting(raw["volume"])
        raw["tenant"] = self.tenants.lasting(raw["tenant"])
        raw["time_ns"] = self._clock.of_facts(raw["time_ns"])
        if self._nowhere:
            raw = np.concatenate([*self._nowhere, raw])
            self._nowhere.clear()
        return raw

    def wait_for(self, waits: RingWaits) -> bool:
        """Say what is waited for; True when it has come already, and nothing is waited for."""
        return self._reader.wait_for(waits)

    def give(self, decision: DecisionLike) -> None:
        """Put the orders of a decision where the target finds them, and wake it."""
        if decision.values is not None:
            self._values = decision.values
        before = self._values
        tables = before is not None and self._writer.publish(before)
        if tables:
            self._values = None
        orders = self._located(decision.orders)
        put = self._writer.put(orders)
        # A value table is an order too, and counted as one by the data path.
        self.counters["orders"] += put + tables
        self.counters["orders_lost"] += len(orders) - put
        if put or tables:
            wake(self._wake)

    def _located(self, given: NDArray[np.void]) -> NDArray[np.void]:
        """Return orders with numbers and times of this run, without those for no volume."""
        # Joining arrays takes away what is reserved between the fields of their type.
        orders = given.astype(ORDER)
        orders["volume"] = self.volumes.current(given["volume"])
        tenants = self.tenants.current(given["tenant"])
        orders["tenant"] = np.where(tenants == NOBODY, OTHER_TENANTS, tenants)
        orders["expires_ns"] = self._clock.of_data_path(given["expires_ns"])
        nowhere = np.isin(given["kind"], RANGED) & (orders["volume"] == NOBODY)
        if nowhere.any():
            self.counters["orders_nowhere"] += int(nowhere.sum())
            self._fail(given[nowhere & (given["kind"] == OrderKind.FETCH)])
            orders = orders[~nowhere]
        return orders

    def _fail(self, fetches: NDArray[np.void]) -> None:
        facts = np.zeros(len(fetches), FACT)
        for name in ("id", "offset", "length", "volume", "tenant"):
            facts[name] = fetches[name]
        facts["time_ns"] = self._clock.now()
        facts["kind"], facts["aux"] = FactKind.FETCHED, OrderEnd.FAILED
        self._nowhere.append(facts)


def wakes(facts: NDArray[Any], waits: RingWaits) -> bool:
    """Return whether among `facts` is what was waited for."""
    if waits == RingWaits.ALL:
        return len(facts) > 0
    return waits == RingWaits.HINTS and bool(np.isin(facts["kind"], HINT_KINDS).any())
