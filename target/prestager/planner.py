"""What to fetch now: whole groups, in chain order, as far as flash is left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from prestage.target.prestager.ages import age_bins
from prestage.target.prestager.extents import I64, WAITING, ExtentMap
from prestage.target.prestager.formation import Bools
from prestage.target.prestager.groups import FREE, Groups
from prestage.target.prestager.hazard import F64
from prestage.target.prestager.prices import Outlook
from prestage.target.prestager.shared import Gauges
from prestage.target.prestager.successors import LONGEST_S, SHORTEST_S, Followers

__all__ = ["Candidates", "Plan", "Planner", "by_date", "room_for"]

STRIPE: Final = 1 << 17
"""Groups that are looked at in one turn."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Groups that are worth a fetch; arrays of shape (n,).

    `gains` is what a frame gains by it over what it gains now, `chances` how likely the group is
    read before its deadline.
    """

    groups: I64
    gains: F64
    chances: F64
    deadlines_s: F64

    def where(self, which: Bools) -> Candidates:
        """Return some of them."""
        return Candidates(
            self.groups[which], self.gains[which], self.chances[which], self.deadlines_s[which]
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Extents to fetch: the index of the candidate of each, and its row."""

    candidate: I64
    rows: I64


class Planner:
    """Looks through the groups, a stripe a turn."""

    def __init__(self, extents: ExtentMap, groups: Groups) -> None:
        self._extents = extents
        self._groups = groups
        self._next = 0

    def by_return(self, now_s: float, view: Outlook, memory_price: float) -> Candidates:
        """Return groups whose return is due: their fetch index is above the memory price."""
        groups = self._groups
        start = self._next if self._next < groups.high else 0
        stop = min(start + STRIPE, groups.high)
        self._next = stop
        part = slice(start, stop)
        may = (groups.missing[part] != 0) & (groups.asked_s[part] <= now_s)
        number = start + np.flatnonzero(may & (groups.kind[part] != FREE))
        age_s = now_s - groups.touched_s[number]
        where = (groups.value_class[number], age_bins(age_s))
        gains = view.fetch[where] / max(memory_price, 1e-12)
        good = gains > 1
        number, age_s = number[good], age_s[good]
        where = (where[0][good], where[1][good])
        until_s = np.minimum(view.until_s[where] - age_s, LONGEST_S)
        return Candidates(
            number, gains[good], view.chance[where], now_s + np.maximum(until_s, SHORTEST_S)
        )

    def plan(self, candidates: Candidates, room: int) -> Plan:
        """Return the missing extents of the candidates, the best first, at most `room`.

        Groups of which nothing is missing are noted as such.
        """
        order = np.lexsort((candidates.groups, -candidates.gains))
        sizes = np.cumsum(self._groups.size[candidates.groups[order]])
        order = order[: int(np.searchsorted(sizes, 4 * room)) + 1]
        number = candidates.groups[order]
        owner, rows = self._groups.latest(number, self._extents)
        is_gone = self._extents.resident[rows] == 0
        missing = np.bincount(owner[is_gone], minlength=len(number))
        self._groups.missing[number] = missing > 0
        wanted = is_gone & (self._extents.marks[rows] & WAITING == 0)
        return Plan(order[owner[wanted][:room]], rows[wanted][:room])


def room_for(gauges: Gauges, horizon_s: float) -> int:
    """Return how many extents more are read within the horizon, as the media go."""
    free = gauges.bandwidth * horizon_s - gauges.fetch_bytes
    return max(0, int(free / gauges.slot_size))


def by_date(
    followers: Followers, now_s: float, memory_price: float, flash_price: float
) -> Candidates:
    """Return groups that are wanted at a known time, of which a fetch is worth its prices.

    Held from now on, each costs memory until its time, or until it is given up; what a second of
    it gains is the index. What is there already costs no flash.
    """
    chances, lags_s = followers.chances, np.maximum(followers.lags_s, SHORTEST_S)
    given_up_s = followers.given_up_s
    held_s = chances * lags_s + (1 - chances) * given_up_s
    gains = (chances - flash_price) / held_s / max(memory_price, 1e-12)
    found = Candidates(followers.groups, gains, chances, now_s + given_up_s)
    return found.where(gains > 1)
