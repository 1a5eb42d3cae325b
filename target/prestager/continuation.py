"""What a flow will read next of the chain that it is reading: from its own pace."""

from __future__ import annotations

from typing import Final

import numpy as np

from prestage.target.prestager.bursts import Bursts
from prestage.target.prestager.extents import I64, ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.groups import SHARED, Groups
from prestage.target.prestager.successors import Followers, at_time

__all__ = ["continuing"]

LEAST_READ: Final = 2
"""Extents of a chain that were read, one after the other, before the next are expected."""
LEAST_PACE_S: Final = 1e-5
"""Between reads: what is read at a faster pace is read before anything could be done."""
CHANCE: Final = 0.8
"""That the chain is read to its end, before it is known how that goes here."""


def continuing(
    bursts: Bursts, extents: ExtentMap, groups: Groups, flows: Flows, now_s: float
) -> Followers:
    """Return groups whose chains are being read, and for how long that will go on.

    The lag of a group is the time until its last extent is wanted, at the pace so far.
    """
    none = np.zeros(0, np.int64)
    waits = bursts.open()
    if waits is None:
        return at_time(none, np.zeros(0), np.zeros(0))
    order = np.argsort(waits.flows, kind="stable")
    order = order[~waits.is_write[order]]
    flow, time_s = waits.flows[order], waits.times_s[order]
    if len(flow) == 0:
        return at_time(none, np.zeros(0), np.zeros(0))
    last = np.flatnonzero(np.append(flow[1:] != flow[:-1], True))
    first = np.append(0, last[:-1] + 1)
    row = waits.rows[order[last]]
    number = extents.group[row].astype(np.int64)
    read = last - first + 1
    span_s = time_s[last] - time_s[first]
    is_still = time_s[last] + flows.gap_s[flow[last]] < now_s
    may = (number >= 0) & (read >= LEAST_READ) & ~is_still
    may &= span_s >= LEAST_PACE_S * (read - 1)
    may &= groups.kind[np.maximum(number, 0)] != SHARED
    number, row, read, span_s = number[may], row[may], read[may], span_s[may]
    left: I64 = groups.size[number] - 1 - extents.position[row]
    pace_s = span_s / (read - 1)
    goes_on = left > 0
    number, first_of = np.unique(number[goes_on], return_index=True)
    lags_s = (left * pace_s)[goes_on][first_of]
    return at_time(number, np.full(len(number), CHANCE), lags_s)
