"""A prestager whose clock runs at another speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prestage.target.prestager.ages import CLASSES, TIER_BINS
from prestage.target.prestager.shared import ORDER, Gauges
from prestage.target.prestager.timescale import ScaledDecision, ScaledPrestager
from prestage.target.ring import FACT, FactKind, RingWaits

GAUGES = Gauges(
    bandwidth=1e6, fetch_bytes=0, fetches=0, frame_count=8, frames_free=8, slot_size=65536
)


class Recorder:
    """Remembers what it was told, and decides what it was given."""

    def __init__(self, decision: ScaledDecision) -> None:
        self.decision = decision
        self.facts: NDArray[np.void] = np.empty(0, FACT)
        self.asked: list[tuple[int, Gauges]] = []

    def observe(self, facts: NDArray[np.void]) -> None:
        self.facts = facts

    def decide(self, now_ns: int, gauges: Gauges) -> ScaledDecision:
        self.asked.append((now_ns, gauges))
        return self.decision

    def report(self) -> Any:
        return "report"

    def save(self) -> Mapping[str, NDArray[Any]]:
        return {"known": np.arange(3)}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        self.loaded = state


def decision(values: NDArray[np.float32] | None = None) -> ScaledDecision:
    orders = np.zeros(1, ORDER)
    orders["age_ns"], orders["expires_ns"] = 4_000, 20_000
    return ScaledDecision(orders, values, 50_000, RingWaits.HINTS)


def test_facts_come_later_and_their_times_are_longer() -> None:
    inner = Recorder(decision())
    facts = np.zeros(4, FACT)
    facts["time_ns"] = [10, 20, 30, 40]
    facts["kind"] = [FactKind.READ, FactKind.EVICTED, FactKind.INTENT, FactKind.SET]
    facts["value"] = [7, 100, 3, (2 << 32) | 1000]
    ScaledPrestager(inner, 10).observe(facts)
    assert inner.facts["time_ns"].tolist() == [100, 200, 300, 400]
    assert inner.facts["value"].tolist() == [7, 1000, 30, (2 << 32) | 10000]
    assert facts["time_ns"].tolist() == [10, 20, 30, 40]


def test_times_that_would_be_too_long_are_the_longest() -> None:
    inner = Recorder(decision())
    facts = np.zeros(2, FACT)
    facts["kind"] = [FactKind.SET, FactKind.RETAIN]
    facts["value"] = [(1 << 32) | 0xFFFFFFF0, 2**64 - 1]
    ScaledPrestager(inner, 100).observe(facts)
    assert inner.facts["value"].tolist() == [(1 << 32) | 0xFFFFFFFF, 1 << 62]


def test_decisions_are_in_the_time_of_the_data_path() -> None:
    inner = Recorder(decision())
    found = ScaledPrestager(inner, 10).decide(1000, GAUGES)
    ((now_ns, gauges),) = inner.asked
    assert now_ns == 10_000
    assert gauges.bandwidth == pytest.approx(1e5)
    assert (found.next_ns, found.waits) == (5_000, RingWaits.HINTS)
    assert found.orders["age_ns"].tolist() == [400]
    assert found.orders["expires_ns"].tolist() == [2_000]
    assert inner.decision.orders["age_ns"].tolist() == [4_000]


@pytest.mark.parametrize(("scale", "bins"), [(0.25, -4), (1, 0), (2, 2), (16, 8)])
def test_what_has_an_age_is_worth_what_it_would_be_worth_at_its_scaled_age(
    scale: float, bins: int
) -> None:
    values = np.tile(np.arange(TIER_BINS, dtype=np.float32), (CLASSES, 1))
    found = ScaledPrestager(Recorder(decision(values)), scale).decide(0, GAUGES)
    assert found.values is not None
    assert found.values.shape == (CLASSES, TIER_BINS)
    wanted = np.clip(np.arange(TIER_BINS) + bins, 0, TIER_BINS - 1)
    assert found.values[3].tolist() == wanted.tolist()


def test_what_was_learned_is_in_its_own_time() -> None:
    inner = Recorder(decision())
    outer = ScaledPrestager(inner, 3)
    assert outer.report() == "report"
    outer.load(dict(outer.save()))
    assert inner.loaded["known"].tolist() == [0, 1, 2]
