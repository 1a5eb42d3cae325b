"""The prestager under facts that make no sense together: it goes on, and can be restored."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from prestage.target.prestager.engine import Prestager, PrestagerConfig
from prestage.target.prestager.neighbours import Neighbours
from prestage.target.prestager.shared import CLASSES, Gauges
from prestage.target.ring import FACT, FactKind

SLOT = 65536
SECOND_NS = 10**9
ROUNDS = 20
SEEDS = range(8)


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """What overflows or is no number is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def random_facts(rng: np.random.Generator, start_ns: int, span: int) -> NDArray[np.void]:
    """Facts of every kind, of a few volumes of `span` slots, from a time on."""
    count = int(rng.choice([1, 3, 50, 600]))
    facts = np.zeros(count, FACT)
    weights = rng.random(max(FactKind) + 1)
    weights[0] = 0
    weights[FactKind.READ] *= rng.choice([1, 5, 20])
    facts["kind"] = rng.choice(len(weights), count, p=weights / weights.sum())
    facts["time_ns"] = start_ns + np.sort(rng.integers(0, rng.choice([1, 10**6, 10**9]), count))
    facts["offset"] = rng.integers(0, span * SLOT, count) // 512 * 512
    facts["length"] = rng.choice([512, 4096, SLOT, SLOT * 10, 1 << 27], count)
    facts["value"] = rng.choice([0, 1000, 10**6, (1 << 32) - 1], count)
    for name, most in (("session", 4), ("id", 100), ("aux", 9), ("volume", 3), ("tenant", 3)):
        facts[name] = rng.integers(0, most, count)
    facts["flags"], facts["queue"] = rng.integers(0, 128, count), rng.integers(0, 4, count)
    signs = facts["kind"] == FactKind.SIGNATURE
    facts["aux"][signs] = rng.choice([64, 128], signs.sum()) << 16
    left = facts["kind"] == FactKind.EVICTED
    facts["length"][left], facts["aux"][left] = SLOT, rng.integers(0, CLASSES, left.sum())
    return facts


def prestager(frame_count: int) -> Prestager:
    config = PrestagerConfig(most_extents=2000)
    return Prestager(config, frame_count=frame_count, slot_size=SLOT, seed=3)


def check_decision(one: Prestager, now_ns: int, frame_count: int, fetches: int) -> None:
    """What is decided is something that the data path can do."""
    gauges = Gauges(
        bandwidth=1e9, fetch_bytes=0, fetches=fetches, frame_count=frame_count,
        frames_free=frame_count // 2, slot_size=SLOT,
    )  # fmt: skip
    decision = one.decide(now_ns, gauges)
    assert (decision.orders["length"] == SLOT).all()
    assert np.isfinite(decision.orders["value"]).all()
    if decision.values is not None:
        assert np.isfinite(decision.values).all()
        assert (decision.values >= 0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_it_goes_on_and_what_it_keeps_can_be_restored(seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame_count, span = int(rng.choice([16, 64, 1024])), int(rng.choice([8, 200, 2000]))
    one, now_ns = prestager(frame_count), 1000 * SECOND_NS
    for _ in range(ROUNDS):
        facts = random_facts(rng, now_ns, span)
        one.observe(facts)
        now_ns = int(facts["time_ns"].max()) + int(rng.choice([0, 10**6, 6 * SECOND_NS]))
        check_decision(one, now_ns, frame_count, int(rng.integers(0, 2)))
        restored = prestager(frame_count)
        restored.load(one.save())
        if rng.random() < 0.2:
            one = restored


def test_a_signature_that_has_no_neighbour_is_near_to_nothing() -> None:
    neighbours = Neighbours(16, 60.0)
    neighbours.sign(0, bytes(range(16)), 128, 1)
    found = neighbours.after(np.zeros(1, np.int64), np.zeros(1, np.int32), 1.0)
    assert len(found.groups) == 0


def test_what_is_announced_alone_is_not_remembered() -> None:
    one, facts = prestager(16), np.zeros(2, FACT)
    facts["kind"] = FactKind.INTENT, FactKind.RANGE
    facts["length"], facts["aux"] = 1 << 27, 1
    facts["time_ns"] = SECOND_NS
    one.observe(facts)
    assert one.report().extents == 0


def test_what_was_only_signed_is_forgotten_first() -> None:
    one, facts = prestager(16), np.zeros(3000, FACT)
    facts["kind"], facts["aux"] = FactKind.SIGNATURE, 64 << 16
    facts["offset"], facts["length"] = np.arange(3000) * SLOT, SLOT
    facts["time_ns"] = SECOND_NS
    facts["kind"][:20] = FactKind.READ
    one.observe(facts)
    check_decision(one, 100 * SECOND_NS, 16, 0)
    assert one.report().extents == 20
