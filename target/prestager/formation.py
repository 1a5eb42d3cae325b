"""How groups are formed: which group a burst goes on with, and which extents move to it.

A piece is what one flow accessed without a long gap, of one session as far as that is known
(strands.py); where hosts sign what they store, of one document: which documents are read beside
each other is another matter. It goes on with the group
of the flow's open burst; else with the group that most of its known extents are of, if at least
half of that group is in it; else it begins a group of its own, which takes over what it touched
and, when it touched a good part of that group, its history. Writes thus extend the chain that was
read before them. An extent that groups go on taking from each other becomes a group of its own,
rated by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import ABSENT, I64, ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.groups import FREE, LIVE, SHARED, TAIL, Groups
from prestage.target.prestager.hazard import F64
from prestage.target.prestager.strands import COVERAGE, strands

__all__ = ["Accesses", "Bools", "Formation", "Touches"]

SPARE: Final = 1
"""Extents of a group that may be left out anyway: the last of a chain is often written anew."""
HISTORY: Final = 0.3
"""Of a group, in a piece that takes over its history."""
SHARERS: Final = 2
"""Times that an extent left a group that lived on before it counts as shared."""
NEW: Final = -2
TAIL_MEMORY: Final = 0.999
"""What is left of what was counted of chains' ends, by each return."""
TAIL_SHARE: Final = 0.3
"""Of chains that came back with their last extent, below which it is not kept with its chain."""

Bools = NDArray[np.bool_]
OnReturn = Callable[[I64, F64], None]
Documents = Callable[[I64], I64]
"""By row, the number of what hosts have signed as one; ABSENT: nobody has."""


@dataclass(frozen=True, slots=True)
class Accesses:
    """Accesses by flow, and in order of time within each; arrays of one shape (n,)."""

    rows: I64
    flows: I64
    times_s: F64
    is_write: Bools
    is_hit: Bools
    """It is a read that was warm."""
    tenants: NDArray[np.uint16]

    def where(self, which: I64) -> Accesses:
        """Return some of them, in that order."""
        return Accesses(
            self.rows[which], self.flows[which], self.times_s[which], self.is_write[which],
            self.is_hit[which], self.tenants[which],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Touches:
    """What a batch touched: extents, each once, and the groups that own them now.

    Of extents (n,): `before` is the group until now (ABSENT: nobody's), with its class and age;
    `is_return` where that group had not been touched in this burst yet. Of groups (m,), each once:
    `begins` where a burst began; `parents` the group whose history it took (ABSENT: none).
    """

    rows: I64
    before: I64
    before_class: NDArray[np.uint8]
    before_age_s: F64
    is_return: Bools
    is_write: Bools
    is_hit: Bools
    times_s: F64
    groups: I64
    begins: Bools
    returned: I64
    """Groups that came back, by their numbers until now."""
    freed: I64
    """Groups that are no more: others took all of their extents."""
    sources: I64
    targets: I64
    lags_s: F64
    """On one flow the burst of a target began so much later than that of its source."""


@dataclass(slots=True)
class _Pieces:
    of_access: I64
    flows: I64
    is_open: Bools
    times_s: F64
    tenants: NDArray[np.uint16]
    history: F64
    target: I64
    returned: I64
    returned_s: F64
    last_s: F64


@dataclass(slots=True)
class _Rows:
    """Extents of the pieces, each once."""

    rows: I64
    piece: I64
    times_s: F64
    is_write: Bools
    is_hit: Bools
    before: I64
    is_shared: Bools


def _by_strand(burst: I64, strand: I64) -> I64:
    """Return the order by burst, by which strand began first, and as they are."""
    pair = burst * (int(strand.max()) + 2) + strand + 1
    _, first, inverse = np.unique(pair, return_index=True, return_inverse=True)
    return np.lexsort((first[inverse], burst))


def _unsigned(rows: I64) -> I64:
    return np.full(len(rows), ABSENT, np.int64)


class Formation:
    """Keeps `extents` and `groups` as bursts come in on `flows`."""

    def __init__(
        self,
        extents: ExtentMap,
        groups: Groups,
        flows: Flows,
        on_return: OnReturn,
        documents: Documents = _unsigned,
    ) -> None:
        """`on_return` hears of groups that came back, and when, before their records change."""
        self._on_return = on_return
        self._documents = documents
        self._extents = extents
        self._groups = groups
        self._flows = flows
        self.ends = np.zeros(2)
        """Chains that came back, fading, and how many of them with their last extent."""

    def take(self, accesses: Accesses) -> Touches:
        """Form groups of one batch of accesses; what stands there once is seen once."""
        accesses, pieces = self._cut(accesses)
        rows = self._distinct(accesses, pieces)
        self._find_targets(rows, pieces)
        groups = self._groups
        known = np.maximum(rows.before, 0)
        age_s = np.maximum(rows.times_s - groups.touched_s[known], 0)
        before_class = groups.value_class[known]
        same = pieces.is_open[rows.piece] & (rows.before == pieces.target[rows.piece])
        is_return = (rows.before >= 0) & ~same
        is_return &= ~rows.is_shared | (age_s > self._flows.gap_s[pieces.flows[rows.piece]])
        returned = self._tell_returns(rows, pieces, is_return)
        touched, begins = self._touch(rows, pieces, is_return)
        edges = self._follow(pieces)
        shared, freed = self._settle(rows, pieces)
        tails = self._part_tails(rows, pieces)
        touched = np.concatenate((touched, shared, tails))
        begins = np.concatenate((begins, np.ones(len(shared), bool), np.zeros(len(tails), bool)))
        alive = groups.kind[touched] != FREE
        return Touches(
            rows.rows, rows.before, before_class, age_s, is_return, rows.is_write, rows.is_hit,
            rows.times_s, touched[alive], begins[alive], returned, freed, *edges,
        )  # fmt: skip

    def _cut(self, accesses: Accesses) -> tuple[Accesses, _Pieces]:
        """Return the accesses by piece, and the pieces."""
        flow, time_s, flows = accesses.flows, accesses.times_s, self._flows
        is_first = np.ones(len(flow), bool)
        is_first[1:] = flow[1:] != flow[:-1]
        previous_s = np.empty(len(flow))
        previous_s[1:] = time_s[:-1]
        previous_s[is_first] = flows.last_s[flow[is_first]]
        gap_s = np.maximum(time_s - previous_s, 0)
        is_long = gap_s > flows.gap_s[flow]
        seen = np.isfinite(gap_s)
        flows.learn_gaps(flow[seen], gap_s[seen])
        is_last = np.ones(len(flow), bool)
        is_last[:-1] = is_first[1:]
        flows.last_s[flow[is_last]] = time_s[is_last]
        document = self._documents(accesses.rows)
        is_long |= document != np.where(is_first, ABSENT, np.roll(document, 1))
        return self._part(accesses, is_first | is_long, is_long)

    def _part(self, accesses: Accesses, begins: Bools, is_long: Bools) -> tuple[Accesses, _Pieces]:
        """Take bursts apart that several sessions have on one flow."""
        burst = np.cumsum(begins) - 1
        starts = np.flatnonzero(begins)
        is_open = ~is_long[starts]
        current = np.where(is_open, self._flows.group[accesses.flows[starts]], ABSENT)
        gap_s = self._flows.gap_s[accesses.flows[starts]]
        strand = strands(accesses.rows, burst, current, gap_s, self._extents, self._groups)
        if (strand >= 0).any():
            order = _by_strand(burst, strand)
            accesses, burst, strand = accesses.where(order), burst[order], strand[order]
            begins = np.append(True, (burst[1:] != burst[:-1]) | (strand[1:] != strand[:-1]))
            starts = np.flatnonzero(begins)
            of_burst, of_strand = burst[starts], strand[starts]
            is_open = is_open[of_burst] & ((of_strand == current[of_burst]) | (of_strand < 0))
        none, zero = np.full(len(starts), ABSENT, np.int64), np.zeros(len(starts))
        return accesses, _Pieces(
            np.cumsum(begins) - 1, accesses.flows[starts], is_open, accesses.times_s[starts],
            accesses.tenants[starts], zero, none, none, zero, zero,
        )  # fmt: skip

    def _distinct(self, accesses: Accesses, pieces: _Pieces) -> _Rows:
        first = np.unique(accesses.rows, return_index=True)[1]
        first.sort()
        rows = accesses.rows[first]
        before = self._extents.group[rows].astype(np.int64)
        is_shared = (before >= 0) & (self._groups.kind[before] == SHARED)
        return _Rows(
            rows, pieces.of_access[first], accesses.times_s[first], accesses.is_write[first],
            accesses.is_hit[first], before, is_shared,
        )  # fmt: skip

    def _find_targets(self, rows: _Rows, pieces: _Pieces) -> None:
        """Set the targets of the pieces; make groups where there is none."""
        groups, count = self._groups, len(pieces.flows)
        candidate, covers = self._candidates(rows, pieces)
        current = self._flows.group[pieces.flows]
        pieces.is_open &= current >= 0
        has_own = np.bincount(rows.piece[~rows.is_shared], minlength=count) > 0
        found = np.where(covers, candidate, NEW)
        target = np.where(pieces.is_open, current, np.where(has_own, found, ABSENT))
        is_new = target == NEW
        made = groups.make(int(is_new.sum()))
        target[is_new] = made
        pieces.target = target
        self._count_ends(rows, pieces, is_new)
        groups.kind[target[target >= 0]] = LIVE
        groups.tenant[made] = pieces.tenants[is_new]
        groups.touched_s[made] = pieces.times_s[is_new]
        self._inherit(candidate[is_new], made, pieces.history[is_new])

    def _candidates(self, rows: _Rows, pieces: _Pieces) -> tuple[I64, Bools]:
        """Return of each piece the group that most of it was of, and whether it goes on with it.

        Sets which groups came back in a piece, and how much of the candidate each has.
        """
        groups, count = self._groups, len(pieces.flows)
        own = np.flatnonzero((rows.before >= 0) & ~rows.is_shared)
        pair = rows.piece[own] * len(groups.kind) + rows.before[own]
        pairs, held = np.unique(pair, return_counts=True)
        piece, number = np.divmod(pairs, len(groups.kind))
        left = groups.size[number] - held
        share = held / np.maximum(groups.size[number], 1)
        covers = (share >= COVERAGE) | ((left <= SPARE) & (share >= HISTORY))
        order = np.lexsort((held, piece))
        candidate = np.full(count, ABSENT, np.int64)
        candidate[piece[order]] = number[order]  # of several the last, which is the largest
        does = np.zeros(count, bool)
        does[piece[order]] = covers[order]
        pieces.history[piece[order]] = share[order]
        came = covers & ~pieces.is_open[piece]
        pieces.returned, pieces.returned_s = number[came], pieces.times_s[piece[came]]
        # Of several that came together the one touched last says how long ago that was.
        last_s = np.full(count, -np.inf)
        np.maximum.at(last_s, piece[covers], groups.touched_s[number[covers]])
        pieces.last_s = last_s
        return candidate, does

    def _tell_returns(self, rows: _Rows, pieces: _Pieces, is_return: Bools) -> I64:
        """Return groups that came back: a good part of them is in a burst that has begun."""
        again = rows.is_shared & is_return
        numbers = np.concatenate((pieces.returned, rows.before[again]))
        times_s = np.concatenate((pieces.returned_s, rows.times_s[again]))
        numbers, first = np.unique(numbers, return_index=True)
        if len(numbers):
            self._on_return(numbers, times_s[first])
        return numbers

    def _inherit(self, parent: I64, child: I64, share: F64) -> None:
        groups = self._groups
        heir = (parent >= 0) & (share >= HISTORY)
        child, parent = child[heir], parent[heir]
        groups.touches[child] = groups.touches[parent]
        groups.touched_s[child] = groups.touched_s[parent]
        groups.gap_s[child] = groups.gap_s[parent]

    def _touch(self, rows: _Rows, pieces: _Pieces, is_return: Bools) -> tuple[I64, Bools]:
        """Write down the touch in the records of all groups; return them, and whose burst began."""
        groups = self._groups
        is_any = pieces.target >= 0
        target, begins = pieces.target[is_any], ~pieces.is_open[is_any]
        last_s = np.maximum(groups.touched_s[target], pieces.last_s[is_any])
        known = groups.touches[target] > 0
        groups.touched_s[target] = np.where(known, last_s, groups.touched_s[target])
        self._touch_groups(target[begins], pieces.times_s[is_any][begins])
        groups.touched_s[target] = pieces.times_s[is_any]
        again = rows.is_shared & is_return
        self._touch_groups(rows.before[again], rows.times_s[again])
        written = np.bincount(rows.piece[rows.is_write], minlength=len(pieces.flows))[is_any]
        groups.fresh[target] = np.where(begins, written, groups.fresh[target] + written)
        unique, index = np.unique(target, return_index=True)
        shared = rows.before[again]
        touched = np.concatenate((unique, shared))
        return touched, np.concatenate((begins[index], np.ones(len(shared), bool)))

    def _touch_groups(self, numbers: I64, times_s: F64) -> None:
        groups = self._groups
        again = groups.touches[numbers] > 0
        gap_s = np.maximum(times_s - groups.touched_s[numbers], 0)
        groups.past_gap_s[numbers] = groups.gap_s[numbers]
        groups.gap_s[numbers] = np.where(again, gap_s, 0)
        groups.looked_s[numbers] = 0
        groups.touched_s[numbers] = times_s
        groups.touches[numbers] = np.minimum(groups.touches[numbers] + 1, 60000)

    def _settle(self, rows: _Rows, pieces: _Pieces) -> tuple[I64, I64]:
        """Give the extents to their groups; return what became shared, and who has none left."""
        groups, extents, flows = self._groups, self._extents, self._flows
        first = np.searchsorted(rows.piece, rows.piece, side="left")
        base = np.where(pieces.is_open, flows.position[pieces.flows], 0)
        position = np.arange(len(rows.rows)) - first + base[rows.piece]
        extents.position[rows.rows] = position
        owner = pieces.target[rows.piece]
        gained = ~rows.is_shared & (rows.before != owner)
        old, shared = self._lose(rows, gained)
        number = extents.group[rows.rows]
        gained &= number == rows.before  # what became shared just now is not gained
        numbers, counts = np.unique(owner[gained], return_counts=True)
        groups.size[numbers] += counts.astype(np.int32)
        extents.group[rows.rows[gained]] = owner[gained]
        groups.append(owner[gained], rows.rows[gained])
        number = np.maximum(extents.group[rows.rows], 0)
        extents.turn[rows.rows] = groups.touches[number] & 255
        flows.group[pieces.flows] = pieces.target
        flows.position[pieces.flows[rows.piece]] = position + 1
        made_or_lost = np.union1d(old, pieces.target[pieces.target >= 0])
        freed = made_or_lost[groups.size[made_or_lost] == 0]
        if len(freed):
            groups.forget(freed)
            is_gone = groups.kind == FREE
            flows.forget_groups(is_gone)
        return shared, freed

    def _lose(self, rows: _Rows, gained: Bools) -> tuple[I64, I64]:
        """Take extents from their groups, and make shared what has left too often."""
        groups, extents = self._groups, self._extents
        moved = np.flatnonzero(gained & (rows.before >= 0))
        old, inverse, counts = np.unique(
            rows.before[moved], return_inverse=True, return_counts=True
        )
        lives_on = (counts < groups.size[old])[inverse]
        groups.size[old] -= counts.astype(np.int32)
        left = rows.rows[moved]
        extents.moves[left] = np.minimum(extents.moves[left] + lives_on, 250)
        shared = moved[lives_on & (extents.moves[left] >= SHARERS)]
        made = groups.make(len(shared))
        self._share(made, shared, rows)
        return old, made

    def _share(self, made: I64, which: I64, rows: _Rows) -> None:
        groups, extents = self._groups, self._extents
        row, before, time_s = rows.rows[which], rows.before[which], rows.times_s[which]
        groups.kind[made] = SHARED
        groups.size[made] = 1
        groups.touches[made] = extents.moves[row] + 1
        groups.gap_s[made] = np.maximum(time_s - groups.touched_s[before], 0)
        groups.touched_s[made] = time_s
        groups.tenant[made] = groups.tenant[before]
        extents.group[row] = made
        groups.append(made, row)

    def _count_ends(self, rows: _Rows, pieces: _Pieces, is_new: Bools) -> None:
        """Count chains that came back, and those that came with their last extent."""
        piece = np.flatnonzero(~pieces.is_open & (pieces.target >= 0) & ~is_new)
        last = self._groups.last_row[pieces.target[piece]]
        piece, last = piece[last >= 0], last[last >= 0]
        came = np.isin(piece * len(self._extents.key) + last,
                       rows.piece * len(self._extents.key) + rows.rows)  # fmt: skip
        self.ends *= TAIL_MEMORY ** len(piece)
        self.ends += len(piece), came.sum()

    def _part_tails(self, rows: _Rows, pieces: _Pieces) -> I64:
        """Note the last extents of the pieces; while these seldom come back, set them apart."""
        groups, extents = self._groups, self._extents
        is_last = np.append(rows.piece[1:] != rows.piece[:-1], len(rows.piece) > 0)
        row, target = rows.rows[is_last], pieces.target[rows.piece[is_last]]
        row, target = row[target >= 0], target[target >= 0]
        mine = extents.group[row] == target
        groups.last_row[target] = np.where(mine, row, ABSENT)
        row, target = row[mine], target[mine]
        if self.ends[1] + 1 > TAIL_SHARE * (self.ends[0] + 2):
            return np.zeros(0, np.int64)
        # Of a group that two pieces go on with, the later one says where it ends.
        target, index = np.unique(target[::-1], return_index=True)
        row = row[::-1][index]
        row, target = row[groups.size[target] > 1], target[groups.size[target] > 1]
        made = groups.make(len(row))
        for name in ("touches", "touched_s", "gap_s", "past_gap_s", "fresh", "tenant"):
            getattr(groups, name)[made] = getattr(groups, name)[target]
        groups.kind[made], groups.size[made] = TAIL, 1
        groups.size[target] -= 1
        extents.group[row] = made
        groups.append(made, row)
        return made

    def _follow(self, pieces: _Pieces) -> tuple[I64, I64, F64]:
        """Return which groups came after which on their flows, and how much later."""
        flows, flow = self._flows, pieces.flows
        before, began_s = flows.group[flow], flows.began_s[flow]
        again = np.flatnonzero(flow[1:] == flow[:-1]) + 1
        before[again], began_s[again] = pieces.target[again - 1], pieces.times_s[again - 1]
        starts = ~pieces.is_open
        flows.began_s[flow[starts]] = pieces.times_s[starts]
        known = starts & (before >= 0) & (pieces.target >= 0) & np.isfinite(began_s)
        return before[known], pieces.target[known], (pieces.times_s - began_s)[known]

    def adopt(self, rows: I64, tenant: int, now_s: float) -> None:
        """Make a group of extents that a host says belong together, each once, in their order.

        Nothing happens when most of them are of one group already.
        """
        groups, extents = self._groups, self._extents
        owner = extents.group[rows].astype(np.int64)
        held = np.unique(owner[owner >= 0], return_counts=True)[1]
        if len(held) and held.max() >= COVERAGE * len(rows):
            return
        free = (owner < 0) | (groups.kind[np.maximum(owner, 0)] != SHARED)
        rows, owner = rows[free], owner[free]
        if len(rows) == 0:
            return
        lost, counts = np.unique(owner[owner >= 0], return_counts=True)
        made = groups.make(1)
        groups.size[lost] -= counts.astype(np.int32)
        groups.size[made] = len(rows)
        groups.tenant[made], groups.touched_s[made], groups.missing[made] = tenant, now_s, 1
        extents.group[rows] = made[0]
        extents.position[rows] = np.arange(len(rows))
        extents.turn[rows] = 0
        groups.append(np.full(len(rows), made[0]), rows)
        groups.forget(lost[groups.size[lost] == 0])
        self._flows.forget_groups(groups.kind == FREE)

    def forget(self, rows: I64) -> None:
        """Forget extents, each once; groups that have none left go too."""
        groups, extents = self._groups, self._extents
        owner = extents.group[rows]
        numbers, counts = np.unique(owner[owner >= 0], return_counts=True)
        groups.size[numbers] -= counts.astype(np.int32)
        extents.remove(rows)
        empty = numbers[groups.size[numbers] == 0]
        groups.forget(empty)
        self._flows.forget_groups(groups.kind == FREE)
