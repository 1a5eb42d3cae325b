"""A prestager whose clock runs faster or slower than that of the data path.

For replays at another speed: with a time scale of 20 a trace of an hour runs in three minutes, and
the prestager learns and plans as it would in an hour. Everything that is a time is scaled on its
way in and out; the medium has to be told of it too (`scale` of the medium `model`, or its
bandwidth).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import TIER_MIDDLES_S, tier_bins
from prestage.target.prestager.exchange import DecisionLike
from prestage.target.prestager.process import PrestagerLike
from prestage.target.prestager.shared import Gauges
from prestage.target.ring import FactKind, RingWaits

TIMED_VALUES: Final = (FactKind.EVICTED, FactKind.INTENT, FactKind.RETAIN, FactKind.OUTCOME)
"""Facts whose `value` is a time as a whole."""
TTL_MASK: Final = np.uint64(0xFFFFFFFF)
"""Of a SET fact's `value`: its time to live."""
MOST: Final = float(1 << 62)


@dataclass(frozen=True, slots=True)
class ScaledDecision:
    """A decision with the times of the data path."""

    orders: NDArray[np.void]
    values: NDArray[np.float32] | None
    next_ns: int
    waits: RingWaits


class ScaledPrestager:
    """Lets `prestager` see `time_scale` seconds for each one of the data path's clock."""

    def __init__(self, prestager: PrestagerLike, time_scale: float) -> None:
        assert time_scale > 0
        self._prestager = prestager
        self._scale = time_scale
        self._bins = tier_bins(TIER_MIDDLES_S * time_scale)

    def observe(self, facts: NDArray[np.void]) -> None:
        """Learn from facts, oldest first."""
        scaled = facts.copy()
        self._stretch(scaled, "time_ns", np.ones(len(scaled), np.bool_))
        self._stretch(scaled, "value", np.isin(scaled["kind"], TIMED_VALUES))
        sets = scaled["kind"] == FactKind.SET
        ttl = (scaled["value"][sets] & TTL_MASK) * self._scale
        longest = np.minimum(ttl, float(TTL_MASK)).astype(np.uint64)
        scaled["value"][sets] = scaled["value"][sets] & ~TTL_MASK | longest
        self._prestager.observe(scaled)

    def _stretch(self, facts: NDArray[np.void], name: str, which: NDArray[np.bool_]) -> None:
        times = facts[name][which].astype(np.float64) * self._scale
        facts[name][which] = np.minimum(times, MOST).astype(np.uint64)

    def decide(self, now_ns: int, gauges: Gauges) -> DecisionLike:
        """Return what is to be done now."""
        slow = dataclasses.replace(gauges, bandwidth=gauges.bandwidth / self._scale)
        found = self._prestager.decide(round(now_ns * self._scale), slow)
        orders = found.orders.copy()
        for name in ("age_ns", "expires_ns"):
            orders[name] = (orders[name] / self._scale).astype(np.uint64)
        values = None if found.values is None else found.values[:, self._bins]
        next_ns = min(found.next_ns / self._scale, MOST)
        return ScaledDecision(orders, values, round(next_ns), found.waits)

    def report(self) -> Any:
        """Return how it is doing, in its own time."""
        return self._prestager.report()

    def save(self) -> Mapping[str, NDArray[Any]]:
        """Return what was learned, in its own time."""
        return self._prestager.save()

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over what was learned. Raises TargetError when that cannot be."""
        self._prestager.load(state)
