"""A small prestager for tests: what followed a read once is fetched when it is read again.

Run as a program, with the settings that the target gives, it is the process of the prestager with
this one inside. What stands behind `PRESTAGE_TEST_TROUBLE` in the environment makes it misbehave:
`fail` (it raises when it sees a read), `hang` (it stays in a loop then), `native` (it stays in a
loop in which the interpreter is not), `wait` (it waits for what never comes), `greedy` (it wants
much memory then), `slow` (it sleeps before each decision), `die` (it ends at the start), `clock`
(its clock is set back by an hour again and again).
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prestage.target.errors import TargetError
from prestage.target.prestager.launch import Launch
from prestage.target.prestager.process import main
from prestage.target.prestager.shared import (
    AGE_BINS,
    CLASSES,
    ORDER,
    OWN_CLASSES,
    Gauges,
    OrderKind,
)
from prestage.target.ring import FactKind, RingWaits

AHEAD = 4
"""Reads that are fetched ahead."""
COMING, GONE = OWN_CLASSES, OWN_CLASSES + 1
"""Classes: what was fetched is worth more than another fetch, what was read is worth nothing."""
NEVER_NS = 1 << 62
GREED_BYTES = 400 << 20
LIFE_NS = 60 * 10**9
SLOW_S = 0.1
HOUR_NS = 3600 * 10**9
TROUBLE = "PRESTAGE_TEST_TROUBLE"


@dataclass(frozen=True)
class Decision:
    orders: NDArray[np.void]
    values: NDArray[np.float32] | None
    next_ns: int
    waits: RingWaits


@dataclass(frozen=True)
class Report:
    known: int
    """Reads of which it is known what follows."""
    seen: int
    """Facts of this life."""
    loaded: int
    """Of `known`, those from before this life."""
    holdout_share: float
    volumes: list[int]
    tenants: list[int]
    last_ns: int
    """When the last fact was."""
    fetched: int
    """Ends of orders that were heard of."""


Extent = tuple[int, int, int]
"""Volume, offset and length in bytes."""


class Follower:
    """Learns one successor of each read, whatever the flow."""

    def __init__(self, launch: Launch, trouble: str = "") -> None:
        self._launch, self._trouble = launch, trouble
        self._next: dict[Extent, Extent] = {}
        self._last: Extent | None = None
        self._due: list[tuple[OrderKind, Extent, int]] = []
        self._id = self._seen = self._loaded = self._last_ns = self._fetched = 0
        self._values: NDArray[np.float32] | None = np.zeros((CLASSES, AGE_BINS), np.float32)
        self._values[COMING] = 1.0
        self._volumes: set[int] = set()
        self._tenants: set[int] = set()
        if trouble == "die":
            raise TargetError("told to die")

    def observe(self, facts: NDArray[np.void]) -> None:
        self._seen += len(facts)
        self._last_ns = int(facts["time_ns"][-1])
        for fact in facts:
            if fact["kind"] == FactKind.FETCHED:
                self._fetched += 1
            if fact["kind"] == FactKind.READ:
                self._read(fact)

    def _read(self, fact: np.void) -> None:
        if self._trouble == "fail":
            raise ValueError("told to fail")
        if self._trouble == "greedy":
            np.ones(GREED_BYTES, np.uint8)
        while self._trouble == "hang":
            pass
        if self._trouble == "native":
            sum(itertools.repeat(0))
        if self._trouble == "wait":
            threading.Event().wait()
        extent = int(fact["volume"]), int(fact["offset"]), int(fact["length"])
        tenant = int(fact["tenant"])
        self._volumes.add(extent[0])
        self._tenants.add(tenant)
        if self._last is not None and self._last != extent:
            self._next[self._last] = extent
        self._last = extent
        self._due.append((OrderKind.CLASSIFY, extent, tenant))
        for _ in range(AHEAD):
            if extent not in self._next:
                break
            extent = self._next[extent]
            self._due.append((OrderKind.FETCH, extent, tenant))

    def decide(self, now_ns: int, gauges: Gauges) -> Decision:
        if self._trouble == "slow":
            time.sleep(SLOW_S)
        orders = np.zeros(len(self._due), ORDER)
        for order, (kind, extent, tenant) in zip(orders, self._due, strict=True):
            order["kind"], order["tenant"] = kind, tenant
            order["volume"], order["offset"], order["length"] = extent
            order["value_class"] = COMING if kind == OrderKind.FETCH else GONE
            if kind == OrderKind.FETCH:
                self._id += 1
                order["id"] = self._id
                order["value"] = 0.5
                order["expires_ns"] = now_ns + LIFE_NS
        self._due.clear()
        values, self._values = self._values, None
        return Decision(orders, values, NEVER_NS, RingWaits.ALL)

    def report(self) -> Report:
        return Report(
            known=len(self._next),
            seen=self._seen,
            loaded=self._loaded,
            holdout_share=self._launch.holdout_share,
            volumes=sorted(self._volumes),
            tenants=sorted(self._tenants),
            last_ns=self._last_ns,
            fetched=self._fetched,
        )

    def save(self) -> dict[str, NDArray[Any]]:
        pairs = [(*one, *other) for one, other in self._next.items()]
        return {"next": np.array(pairs, np.int64).reshape(-1, 6)}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        if state["next"].shape[1:] != (6,):
            raise TargetError("of another form", "next")
        for one in state["next"].tolist():
            self._next[one[0], one[1], one[2]] = one[3], one[4], one[5]
        self._loaded = len(self._next)


class SetBack:
    """A clock that is set back again and again."""

    def __init__(self) -> None:
        self._behind_ns = 0

    def __call__(self) -> int:
        self._behind_ns += HOUR_NS
        return time.monotonic_ns() - self._behind_ns


if __name__ == "__main__":
    told = os.environ.get(TROUBLE, "")
    sys.exit(
        main(
            sys.argv[1:],
            prestager_factory=lambda launch: Follower(launch, told),
            clock_ns=SetBack() if told == "clock" else time.monotonic_ns,
        )
    )
