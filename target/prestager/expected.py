"""What is expected at a known time and is not all there: it is offered until it is, or should be.

The flash may bring in less at a time than what is expected at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import I64
from prestage.target.prestager.groups import FREE, Groups
from prestage.target.prestager.ledger import Source
from prestage.target.prestager.successors import Followers

__all__ = ["Expected"]

MOST: Final = 4096
"""Groups of a source that are expected at most: those that were heard of last."""


class Expected:
    """Followers by source."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._waiting: dict[Source, tuple[Followers, NDArray[np.float64]]] = {}
        """And until when each is waited for."""

    def add(self, source: Source, followers: Followers, now_s: float) -> None:
        """Expect these from now on; of a group that is expected already this stands."""
        fresh = followers, now_s + followers.lags_s
        before = self._waiting.get(source)
        every = fresh if before is None else _joined(before, fresh)
        self._waiting[source] = _part(every, _latest(every[0].groups))

    def take(self, now_s: float) -> list[tuple[Source, Followers]]:
        """Return what may not be there yet and is still to come; the rest is forgotten."""
        groups = self._groups
        for source, (followers, until_s) in self._waiting.items():
            number = followers.groups
            stays = (groups.kind[number] != FREE) & (groups.missing[number] != 0)
            stays &= until_s > now_s
            self._waiting[source] = _part((followers, until_s), np.flatnonzero(stays))
        return [(source, followers) for source, (followers, _) in self._waiting.items()]


def _joined(
    left: tuple[Followers, NDArray[np.float64]], right: tuple[Followers, NDArray[np.float64]]
) -> tuple[Followers, NDArray[np.float64]]:
    (one, one_s), (other, other_s) = left, right
    both = Followers(
        np.concatenate((one.groups, other.groups)),
        np.concatenate((one.chances, other.chances)),
        np.concatenate((one.lags_s, other.lags_s)),
        np.concatenate((one.given_up_s, other.given_up_s)),
    )
    return both, np.concatenate((one_s, other_s))


def _part(
    every: tuple[Followers, NDArray[np.float64]], which: I64
) -> tuple[Followers, NDArray[np.float64]]:
    followers, until_s = every
    return followers.where(which), until_s[which]


def _latest(numbers: I64) -> I64:
    """Return where each number stands last, in order; the last MOST of them."""
    last = len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1]
    return np.sort(last)[-MOST:]
