"""Strands: bursts of several sessions that ran into each other on one flow, taken apart again.

A connection of a host carries many sessions; where two come at once, no gap is between their
accesses. What is known tells them apart: a burst that goes on with several groups, each in good
part, is as many bursts, unless these came together the last time too. What is not known yet goes
with what came before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import ABSENT, I64, ExtentMap
from prestage.target.prestager.groups import LIVE, Groups
from prestage.target.prestager.hazard import F64

__all__ = ["COVERAGE", "strands"]

COVERAGE: Final = 0.5
"""Of a group, in a piece that goes on with it, and in a burst that it is a strand of."""
LEAST: Final = 2
"""Extents of a group, below which it is no strand of its own."""


def strands(
    rows: I64, burst: I64, current: I64, gap_s: F64, extents: ExtentMap, groups: Groups
) -> I64:
    """Return of each access the group whose strand it is of; ABSENT where its burst is one strand.

    `burst` of each access ascends. By burst, `current` is the group that it goes on with already
    (ABSENT: it has begun), and less than `gap_s` was between two accesses of it.
    """
    number = extents.group[rows].astype(np.int64)
    own = np.flatnonzero((number >= 0) & (groups.kind[np.maximum(number, 0)] == LIVE))
    size = len(groups.kind)
    pair_of = burst[own] * size + number[own]
    pair, held = _held(pair_of, rows[own])
    of_burst, of_group = np.divmod(pair, size)
    is_current = current[of_burst] == of_group
    is_strand = is_current | ((held >= COVERAGE * groups.size[of_group]) & (held >= LEAST))
    pair, of_burst, of_group = pair[is_strand], of_burst[is_strand], of_group[is_strand]
    strand = _joined(of_burst, of_group, current, gap_s[of_burst], groups)
    first = np.unique(of_burst * size + strand)
    count = np.bincount(first // size, minlength=len(current))
    goes_on = current >= 0
    goes_on[of_burst[strand == current[of_burst]]] = False
    is_parted = count + goes_on > 1
    label = np.full(len(rows), ABSENT, np.int64)
    if not is_parted.any():
        return label
    at = np.minimum(np.searchsorted(pair, pair_of), len(pair) - 1)
    label[own] = np.where(pair[at] == pair_of, strand[at], ABSENT)
    return _filled(label, burst, current, is_parted)


def _held(pairs: I64, rows: I64) -> tuple[I64, I64]:
    """Return the pairs, each once, in order, and how many different rows each has."""
    order = np.lexsort((rows, pairs))
    pairs, rows = pairs[order], rows[order]
    is_new = np.ones(len(pairs), bool)
    is_new[1:] = (pairs[1:] != pairs[:-1]) | (rows[1:] != rows[:-1])
    return np.unique(pairs[is_new], return_counts=True)


def _joined(of_burst: I64, of_group: I64, current: I64, gap_s: F64, groups: Groups) -> I64:
    """Return the strand of each group of a burst: those last touched at once are one."""
    order = np.lexsort((groups.touched_s[of_group], of_burst))
    burst, touched_s = of_burst[order], groups.touched_s[of_group[order]]
    begins = np.ones(len(order), bool)
    begins[1:] = burst[1:] != burst[:-1]
    begins[1:] |= touched_s[1:] - touched_s[:-1] > gap_s[order[1:]]
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins) - 1
    strand = of_group[order][begins]
    is_current = of_group == current[of_burst]
    strand[number[is_current]] = of_group[is_current]
    return strand[number]


def _filled(label: I64, burst: I64, current: I64, is_parted: NDArray[np.bool_]) -> I64:
    """Give what has no label that of what came before it in its burst; the first, the next."""
    known = label >= 0
    at = np.maximum.accumulate(np.where(known, np.arange(len(label)), -1))
    is_before = at >= np.searchsorted(burst, burst, side="left")
    head = np.full(len(current), ABSENT, np.int64)
    where = np.flatnonzero(known)[::-1]
    head[burst[where]] = label[where]
    head = np.where(current >= 0, current, head)
    filled = np.where(is_before, label[at], head[burst])
    return np.where(is_parted[burst], filled, ABSENT)
