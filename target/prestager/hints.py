"""What hosts say: sets make groups, signatures are kept, and what is announced is left to its hint.

The target acts on hints by itself (csrc/hints.h); here they teach what belongs together.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.announced import Announced
from prestage.target.prestager.extents import I64, ExtentMap, extent_keys
from prestage.target.prestager.formation import Formation
from prestage.target.prestager.groups import Groups
from prestage.target.prestager.neighbours import Neighbours
from prestage.target.ring import FactKind

__all__ = ["Hints"]

MOST_EXTENTS: Final = 4096
"""Of one range that are looked at."""
AFTER_S: Final = 10.0
"""For how long after its deadline what was announced is left alone."""


class Hints:
    """Takes facts of hints. Signatures get their memory when the first one comes."""

    def __init__(
        self, formation: Formation, extents: ExtentMap, groups: Groups, slot_size: int,
        announced: Announced, half_life_s: float,
    ) -> None:  # fmt: skip
        self._formation = formation
        self._extents = extents
        self._groups = groups
        self._slot_size = slot_size
        self._announced = announced
        self._half_life_s = half_life_s
        self._head: np.void | None = None
        """The SET, INTENT or RETAIN whose ranges come."""
        self._keys: list[NDArray[np.uint64]] = []
        self.neighbours: Neighbours | None = None

    def take(self, facts: NDArray[np.void]) -> None:
        """Learn from facts, of which some may be hints, in order of time."""
        for fact in facts[(facts["kind"] >= FactKind.SET) & (facts["kind"] <= FactKind.CANCEL)]:
            if fact["kind"] == FactKind.RANGE:
                self._keys.append(self._keys_of(fact))
                continue
            self._finish()
            if fact["kind"] in (FactKind.SET, FactKind.INTENT, FactKind.RETAIN):
                self._head = fact.copy()
            elif fact["kind"] == FactKind.SIGNATURE:
                self._sign(fact)
        if self._head is not None and len(self._keys) >= int(self._head["aux"]):
            self._finish()

    def _keys_of(self, fact: np.void) -> NDArray[np.uint64]:
        first = int(fact["offset"]) // self._slot_size
        stop = -(-(int(fact["offset"]) + int(fact["length"])) // self._slot_size)
        extents = np.arange(first, max(min(stop, first + MOST_EXTENTS), first + 1))
        return extent_keys(np.full(len(extents), fact["volume"]), extents)

    def _finish(self) -> None:
        head, self._head = self._head, None
        keys, self._keys = self._keys, []
        if head is None or not keys:
            return
        now_s = float(head["time_ns"]) * 1e-9
        every = np.concatenate(keys)
        first = np.sort(np.unique(every, return_index=True)[1])
        if head["kind"] == FactKind.SET:
            rows = self._extents.find_or_add(every[first])
            self._formation.adopt(rows, int(head["tenant"]), now_s)
        elif head["kind"] == FactKind.INTENT:
            rows = self._extents.find(every[first])
            owner = self._extents.group[rows[rows >= 0]]
            until_s = now_s + float(head["value"]) * 1e-6 + AFTER_S
            self._announced.announce(rows[rows >= 0], until_s)
            self._leave(np.unique(owner[owner >= 0]), until_s)

    def _leave(self, numbers: I64, until_s: float) -> None:
        """Do not speculate on what a hint has announced."""
        groups = self._groups
        groups.asked_s[numbers] = np.maximum(groups.asked_s[numbers], until_s)

    def _sign(self, fact: np.void) -> None:
        if self.neighbours is None:
            self.neighbours = Neighbours(1 << 16, self._half_life_s)
        row = int(self._extents.find_or_add(self._keys_of(fact)[:1])[0])
        vector = fact["id"].tobytes() + fact["value"].tobytes()
        bits, family = int(fact["aux"]) >> 16, int(fact["aux"]) & 0xFFFF
        if bits in (64, 128):
            self.neighbours.sign(row, vector, bits, family)
