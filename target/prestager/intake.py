"""Facts to rows: what a batch of facts says about extents, in the model's own terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import CLASSES
from prestage.target.prestager.extents import EXTENT_BITS, I64, WAITING, ExtentMap, extent_keys
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Accesses, Bools
from prestage.target.prestager.groups import slices
from prestage.target.prestager.hazard import F64
from prestage.target.prestager.shared import OrderEnd
from prestage.target.ring import FactFlag, FactKind

__all__ = ["Evictions", "Fetched", "Intake", "Seen"]

MOST_EXTENTS: Final = 4096
"""Of one fact that are looked at; what is beyond is as if it were not said."""
_IS_ABOUT_EXTENTS: Final = np.zeros(256, bool)
_IS_ABOUT_EXTENTS[[FactKind.READ, FactKind.WRITE, FactKind.FETCHED, FactKind.EVICTED]] = True


@dataclass(frozen=True, slots=True)
class Evictions:
    """Extents that left the tier; arrays of shape (n,). `is_unread`: fetched, and never read."""

    rows: I64
    classes: NDArray[np.uint8]
    ages_s: F64
    is_unread: Bools
    times_s: F64


@dataclass(frozen=True, slots=True)
class Fetched:
    """Extents whose fetch has ended, and how."""

    rows: I64
    ends: NDArray[np.uint8]
    times_s: F64


@dataclass(frozen=True, slots=True)
class Seen:
    """What one batch says, in order of time."""

    accesses: Accesses
    gone: I64
    """Rows of extents that were discarded, or whose volume is gone."""
    evictions: Evictions
    fetched: Fetched


class Intake:
    """Turns facts into rows of `extents` and numbers of `flows`, and keeps what is resident."""

    def __init__(self, extents: ExtentMap, flows: Flows, slot_size: int) -> None:
        self._extents = extents
        self._flows = flows
        self._slot_size = slot_size

    def take(self, facts: NDArray[np.void]) -> Seen:
        """Return what `facts` (dtype FACT, in order of time) say about extents."""
        lost = self._lost(facts)
        facts = facts[_IS_ABOUT_EXTENTS[facts["kind"]]]
        which, keys = self._extents_of(facts)
        kind = facts["kind"][which]
        is_access = kind <= FactKind.WRITE
        rows = np.empty(len(keys), np.int64)
        rows[is_access] = self._extents.find_or_add(keys[is_access])
        rows[~is_access] = self._extents.find(keys[~is_access])
        is_known = rows >= 0
        if not is_known.all():
            rows, kind, which = rows[is_known], kind[is_known], which[is_known]
            is_access = kind <= FactKind.WRITE
        time_s = facts["time_ns"][which] * 1e-9
        end = np.minimum(facts["aux"][which], CLASSES - 1).astype(np.uint8)
        self._note_residence(rows, kind, end)
        accesses = self._accesses(facts, which[is_access], rows[is_access])
        gone, done = kind == FactKind.EVICTED, kind == FactKind.FETCHED
        unread = (facts["flags"][which] & FactFlag.UNREAD) != 0
        age_s = facts["value"][which[gone]] * 1e-9
        return Seen(
            accesses,
            lost,
            Evictions(rows[gone], end[gone], age_s, unread[gone], time_s[gone]),
            Fetched(rows[done], end[done], time_s[done]),
        )

    def _lost(self, facts: NDArray[np.void]) -> I64:
        kind = facts["kind"]
        gone = facts[(kind == FactKind.DISCARD) | (kind == FactKind.UNMAPPED)]
        if len(gone) == 0:
            return np.zeros(0, np.int64)
        found = []
        for fact in gone:
            first = int(fact["offset"]) // self._slot_size
            stop = first + int(fact["length"]) // self._slot_size
            if fact["kind"] == FactKind.UNMAPPED:
                first, stop = 0, 1 << EXTENT_BITS
            found.append(self._extents.in_range(int(fact["volume"]), first, stop))
        return np.concatenate(found)

    def _extents_of(self, facts: NDArray[np.void]) -> tuple[I64, NDArray[np.uint64]]:
        """Return (which fact, key) of all extents that the facts touch, in order."""
        size = np.uint64(self._slot_size)
        first = facts["offset"] // size
        last = (facts["offset"] + np.maximum(facts["length"], 1) - np.uint64(1)) // size
        which = np.arange(len(facts))
        if not np.array_equal(first, last):
            counts = np.minimum(last - first + 1, MOST_EXTENTS).astype(np.int64)
            which = np.repeat(which, counts)
            first = slices(first.astype(np.int64), counts).astype(np.uint64)
        return which, extent_keys(facts["volume"][which], first)

    def _note_residence(self, rows: I64, kind: NDArray[np.uint8], end: NDArray[np.uint8]) -> None:
        """Of several facts about an extent the last one stands."""
        extents = self._extents
        is_done = kind == FactKind.FETCHED
        came = (kind <= FactKind.WRITE) | (is_done & (end <= OrderEnd.WARM))
        says = came | (kind == FactKind.EVICTED)
        extents.resident[rows[says]] = came[says]
        done = rows[is_done]
        extents.marks[done] &= np.uint8(255 - WAITING)

    def _accesses(self, facts: NDArray[np.void], which: I64, rows: I64) -> Accesses:
        seen = facts[which]
        flow = self._flows.find(
            (seen["tenant"].astype(np.uint64) << np.uint64(32)) | seen["queue"].astype(np.uint64)
        )
        is_write = seen["kind"] == FactKind.WRITE
        is_hit = ~is_write & ((seen["flags"] & FactFlag.HIT) != 0)
        times_s = seen["time_ns"] * 1e-9
        return Accesses(rows, flow, times_s, is_write, is_hit, seen["tenant"].copy())
