"""Workloads through the simulated target: what is measured, and how a prestager is driven."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prestage.ext.names import IntentFlag
from prestage.ext.records import Intent
from prestage.replay.filters import behind_host_cache
from prestage.replay.fluid import run_policy
from prestage.replay.hint_plans import NSID, Hint, HintPlan, announce
from prestage.replay.policies import Lru
from prestage.replay.result import Regime
from prestage.replay.run import (
    REST_NS,
    RING_FACTS,
    START_NS,
    THINK_NS,
    layout_of,
    make_script,
    replay,
)
from prestage.replay.workload import Requests, Workload, assemble
from prestage.target.errors import Invalid
from prestage.target.prestager.engine import Prestager, PrestagerConfig
from prestage.target.prestager.shared import ORDER, Gauges, OrderKind
from prestage.target.ring import FACT, FactKind, RingWaits

SECOND = 1_000_000_000
SEED = random.randrange(1 << 20)
FAR_NS = 1 << 62
FAST = Regime(tier=0.5, flash=1000.0, hint_percent=100)


def workload_of(times_s: Sequence[float], chains: Sequence[Sequence[int]]) -> Workload:
    requests = Requests(
        np.array(times_s, np.float64),
        np.arange(len(times_s), dtype=np.int32),
        [np.array(chain, np.int64) for chain in chains],
    )
    return assemble(requests, name="made", seed=7)


def random_workload(seed: int, requests: int = 400) -> Workload:
    rng = np.random.default_rng(seed)
    starts = rng.zipf(1.3, requests) % 60
    chains = [range(8 * start, 8 * start + 8) for start in starts.tolist()]
    return workload_of(np.cumsum(rng.exponential(1.0, requests)).tolist(), chains)


# 32 blocks are written at 0 s, of which 16 stay; the first 8 are read at 10 s and at 20 s.
WRITTEN = list(range(32))
TWICE = workload_of([0, 10, 20], [WRITTEN, WRITTEN[:8], WRITTEN[:8]])


@dataclass(frozen=True)
class Report:
    facts: int
    interval: tuple[float, float] = (0.5, float("inf"))


@dataclass(frozen=True)
class Decision:
    orders: NDArray[np.void] = field(default_factory=lambda: np.zeros(0, ORDER))
    values: NDArray[np.float32] | None = None
    next_ns: int = FAR_NS
    waits: RingWaits = RingWaits.HINTS


class Scripted:
    """A prestager that says what it was told to say, in turn; the last again and again."""

    def __init__(self, *decisions: Decision) -> None:
        self.decisions = list(decisions) or [Decision()]
        self.facts: list[NDArray[np.void]] = []
        self.times_ns: list[int] = []
        self.gauges: list[Gauges] = []

    def observe(self, facts: NDArray[np.void]) -> None:
        assert facts.dtype == FACT
        self.facts.append(facts.copy())

    def decide(self, now_ns: int, gauges: Gauges) -> Decision:
        self.times_ns.append(now_ns)
        self.gauges.append(gauges)
        return self.decisions.pop(0) if len(self.decisions) > 1 else self.decisions[0]

    def report(self) -> Report:
        return Report(len(self.all_facts()))

    def save(self) -> Mapping[str, NDArray[Any]]:
        return {}

    def load(self, state: dict[str, NDArray[Any]]) -> None:
        assert not state

    def all_facts(self) -> NDArray[np.void]:
        return np.concatenate([np.empty(0, FACT), *self.facts])


def fetches(workload: Workload, regime: Regime, blocks: Sequence[int]) -> NDArray[np.void]:
    layout = layout_of(workload, regime)
    orders = np.zeros(len(blocks), ORDER)
    orders["kind"] = OrderKind.FETCH
    orders["id"] = 1 + np.arange(len(blocks))
    orders["offset"] = layout.extent[list(blocks)] * layout.slot_size
    orders["length"] = layout.slot_size
    orders["value"] = 1e9
    orders["expires_ns"] = FAR_NS
    return orders


# ---- what is measured ----


def test_without_a_prestager_the_tier_is_lru() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    workload = random_workload(seed)
    for tier in (0.1, 0.3):
        regime = replace(FAST, tier=tier)
        result = replay(workload, None, regime, seed)
        fluid = run_policy(workload, Lru(regime.frames(workload)), regime.flash_per_s(workload))
        assert result.read_hit_ratio == pytest.approx(fluid.read_hit_ratio, abs=0.01)
        assert result.flash_reads_per_read == pytest.approx(fluid.flash_reads_per_read, abs=0.01)


def test_measures_of_a_run_without_prestage() -> None:
    result = replay(TWICE, None, FAST, 1)
    # The last 16 written were there at 10 s, so none of the first 8; these were at 20 s.
    counts = result.counts
    assert (counts.reads, counts.writes, counts.requests) == (16, 32, 2)
    assert (counts.hits, counts.late, counts.misses) == (8, 0, 8)
    assert (counts.demand_reads, counts.fetched, counts.fetched_used) == (8, 0, 0)
    assert (result.read_hit_ratio, result.flash_reads_per_read) == (0.5, 0.5)
    assert result.ready_requests == 0.5
    assert np.isnan(result.precision)
    assert (result.frames, result.wasted_bytes, result.policy) == (16, 0, "none")
    assert result.is_hit.tolist() == [False] * 40 + [True] * 8
    waited_s = result.wait_s.tolist()
    assert np.isnan(waited_s[0])
    assert waited_s[1] > 0
    assert waited_s[2] == 0
    assert result.time_to_data_s["p50"] == pytest.approx(waited_s[1] / 2)
    transfer_s = 8 * FAST.slot_size / result.flash_bytes_per_s
    assert transfer_s < waited_s[1] < transfer_s + 0.001


def test_accesses_of_a_request_come_one_after_the_other() -> None:
    workload = workload_of([0.0, 2e-9, 5.0], [[1, 2, 3, 4], [5, 6], [1, 2]])
    script = make_script(workload, layout_of(workload, Regime(tier=1.0)))
    passed = script.events["time_ns"][script.place].astype(np.int64) - START_NS
    assert passed.tolist() == [0, 1, 2, 3, 4, 5, 5 * 10**9, 5 * 10**9 + 1]


def test_flash_is_a_multiple_of_the_mean_demand_of_reads() -> None:
    result = replay(TWICE, None, replace(FAST, flash=5), 1)
    assert result.flash_bytes_per_s == pytest.approx(5 * 16 / 20 * FAST.slot_size)


def test_fetched_in_time_is_a_hit_and_counted_as_used() -> None:
    wait = Decision(next_ns=START_NS + 5 * SECOND)
    prestager = Scripted(wait, Decision(fetches(TWICE, FAST, range(12))))
    result = replay(TWICE, prestager, FAST, 1)
    assert (result.read_hit_ratio, result.ready_requests) == (1, 1)
    assert (result.counts.fetched, result.counts.fetched_used) == (12, 8)
    assert result.precision == pytest.approx(8 / 12)
    assert result.coverage == 1
    assert result.flash_reads_per_read == pytest.approx(12 / 16)
    assert result.time_to_data_s["p99.9"] == 0
    assert result.orders.landed == 12
    assert result.policy == "scripted"


def test_fetched_too_late_is_late() -> None:
    slow = replace(FAST, flash=1.0)
    wait = Decision(next_ns=START_NS + 10 * SECOND - 1000)
    prestager = Scripted(wait, Decision(fetches(TWICE, slow, [0])))
    result = replay(TWICE, prestager, slow, 1)
    assert result.late == pytest.approx(1 / 16)
    assert result.counts.fetched_used == 1


def test_what_is_fetched_in_vain_is_wasted() -> None:
    workload = workload_of([0, 10, 20], [WRITTEN, WRITTEN[-1:], range(200, 240)])
    small = replace(FAST, tier=0.2)
    prestager = Scripted(
        Decision(next_ns=START_NS + 5 * SECOND), Decision(fetches(workload, small, [0]))
    )
    result = replay(workload, prestager, small, 1)
    assert (result.counts.fetched, result.precision) == (1, 0)
    assert result.wasted_bytes == FAST.slot_size


def test_hints_bring_in_what_they_announce() -> None:
    hints = announce(TWICE, layout_of(TWICE, FAST), HintPlan(lead_s=2))
    result = replay(TWICE, None, FAST, 1, hints)
    assert result.read_hit_ratio == 1
    assert result.counts.batches == 2
    assert result.counts.fetched_used == 8


def test_same_seed_gives_the_same_result() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    workload = random_workload(seed)
    first = replay(workload, Scripted(), FAST, seed)
    second = replay(workload, Scripted(), FAST, seed, progress=lambda _: None)
    assert first.plain() == second.plain()
    assert first.wait_s.tobytes() == second.wait_s.tobytes()


def test_everything_but_the_arrays_goes_into_json() -> None:
    shown = json.loads(json.dumps(replay(TWICE, Scripted(), FAST, 1).plain(), allow_nan=False))
    assert shown["read_hit_ratio"] == 0.5
    assert shown["precision"] is None
    assert shown["regime"]["flash"] == 1000
    evicted = 16 + shown["counts"]["misses"]
    assert shown["report"] == {"facts": len(TWICE) + evicted, "interval": [0.5, None]}
    assert set(shown["time_to_data_s"]) == {"mean", "p50", "p90", "p99", "p99.9"}


def test_few_reads_among_many_writes_are_hits_as_without_a_prestager() -> None:
    """What is written is read twice within seconds, mostly by the host itself, and never again."""
    rng = np.random.default_rng(SEED)
    times_s = np.cumsum(rng.exponential(1.0, 1500))
    again_s = times_s + np.cumsum(rng.exponential(15.0, (2, 1500)), axis=0)
    every_s = np.concatenate((times_s, *again_s))
    order = np.argsort(every_s, kind="stable")
    chains = [range(10 * one, 10 * one + 10) for one in (order % 1500).tolist()]
    whole = workload_of(every_s[order].tolist(), chains)
    seen, regime = behind_host_cache(whole, 0.06), Regime(tier=0.1)
    frames = regime.frames(seen)
    prestager = Prestager(
        PrestagerConfig(), frame_count=frames, slot_size=regime.slot_size, seed=SEED
    )
    plain, ours = (replay(seen, each, regime, SEED) for each in (None, prestager))
    assert 50 < plain.counts.reads < 1000 and plain.read_hit_ratio > 0.9, f"seed {SEED}"
    assert ours.read_hit_ratio > plain.read_hit_ratio - 0.003, f"seed {SEED}"


def test_workload_without_reads_has_no_ratios() -> None:
    result = replay(workload_of([0, 1], [WRITTEN, [77]]), None, FAST, 1)
    assert np.isnan([result.read_hit_ratio, result.ready_requests, result.late]).all()
    assert np.isnan(result.time_to_data_s["p50"])


def test_progress_is_told_to_the_end() -> None:
    told: list[float] = []
    replay(TWICE, Scripted(), FAST, 1, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1


def test_progress_is_told_before_any_of_a_long_trace_is_done() -> None:
    workload = workload_of([0, 3600, 3601], [WRITTEN, WRITTEN, WRITTEN])
    told: list[float] = []
    replay(workload, Scripted(), FAST, 1, progress=told.append)
    assert 0 < told[0] < 0.01
    assert len(told) > 100


def test_idle_time_is_skipped_without_a_prestager() -> None:
    workload = workload_of([0, 1e8, 2e8], [WRITTEN, WRITTEN[:8], WRITTEN[:8]])
    told: list[float] = []
    result = replay(workload, None, FAST, 1, progress=told.append)
    assert told == [1.0]
    soon = replay(TWICE, None, FAST, 1)
    assert result.is_hit.tolist() == soon.is_hit.tolist()


def test_what_waits_long_for_flash_ends_all_the_same() -> None:
    workload = workload_of([0, 1000], [WRITTEN, WRITTEN[:1]])
    for prestager in (None, Scripted()):
        result = replay(workload, prestager, Regime(tier=0.25, flash=1.0), 1)
        assert result.wait_s[1] == pytest.approx(1000, rel=0.01)


def test_a_request_of_more_than_the_ring_takes_is_heard_whole() -> None:
    blocks = range(RING_FACTS + 1)
    workload = workload_of([0, 1, 2], [blocks, blocks, blocks[:8]])
    prestager = Scripted()
    replay(workload, prestager, FAST, 1)
    heard = prestager.all_facts()["kind"]
    assert np.count_nonzero(heard == FactKind.READ) == len(blocks) + 8


# ---- how a prestager is driven ----


def test_prestager_hears_of_everything_in_order_of_time() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    workload = random_workload(seed)
    prestager = Scripted()
    replay(workload, prestager, FAST, seed)
    facts = prestager.all_facts()
    accesses = facts[np.isin(facts["kind"], (FactKind.READ, FactKind.WRITE))]
    assert len(accesses) == len(workload)
    assert np.count_nonzero(accesses["kind"] == FactKind.READ) == workload.reads
    layout = layout_of(workload, FAST)
    block = layout.block_of_extent[accesses["offset"] // layout.slot_size]
    assert sorted(block.tolist()) == sorted(workload.block.tolist())
    assert (np.diff(accesses["time_ns"].astype(np.int64)) > -SECOND).all()


def test_prestager_is_asked_at_its_time_and_not_before() -> None:
    asked_ns = [START_NS + second * SECOND for second in (3, 4, 15)]
    prestager = Scripted(*[Decision(next_ns=each) for each in asked_ns], Decision())
    replay(TWICE, prestager, FAST, 1)
    assert prestager.times_ns[0] <= REST_NS
    assert prestager.times_ns[1:] == asked_ns


def test_prestager_that_asks_for_the_past_does_not_stop_the_clock() -> None:
    prestager = Scripted(Decision(next_ns=0))
    workload = workload_of([0, 0.01], [WRITTEN, WRITTEN[:8]])
    replay(workload, prestager, FAST, 1)
    steps_ns = np.diff(prestager.times_ns)
    assert steps_ns.min() >= THINK_NS
    assert np.count_nonzero(steps_ns == THINK_NS) > 50


def test_prestager_that_waits_for_all_is_asked_at_each_fact() -> None:
    prestager = Scripted(Decision(waits=RingWaits.ALL))
    replay(TWICE, prestager, FAST, 1)
    at_s = {round((time_ns - START_NS) / SECOND) for time_ns in prestager.times_ns}
    assert {0, 10, 20} <= at_s
    assert START_NS + 20 * SECOND in prestager.times_ns


def test_prestager_that_waits_for_hints_is_asked_when_one_comes() -> None:
    layout = layout_of(TWICE, FAST)
    record = Intent(
        1,
        1_000_000,
        nsid=NSID,
        ranges=layout.ranges(TWICE.block[:1]),
        flags=IntentFlag.LATE_OK,
    )
    prestager = Scripted()
    replay(TWICE, prestager, FAST, 1, [Hint(4.0, 0, record)])
    assert prestager.times_ns[1:] == [START_NS + 4 * SECOND]


def test_prestager_sees_the_gauges() -> None:
    prestager = Scripted(Decision(next_ns=START_NS + 15 * SECOND), Decision())
    replay(TWICE, prestager, FAST, 1)
    first, last = prestager.gauges[0], prestager.gauges[-1]
    assert (first.frame_count, first.frames_free, first.slot_size) == (16, 16, FAST.slot_size)
    assert (last.frames_free, last.fetches, last.fetch_bytes) == (0, 0, 0)
    assert last.bandwidth > 0


# ---- wrong input ----


@pytest.mark.parametrize(
    "wrong", [{"tier": 2}, {"filter": -1}, {"flash": 0}, {"flash": float("nan")}]
)
def test_regime_out_of_range_is_refused_by_name(wrong: dict[str, float]) -> None:
    with pytest.raises(Invalid, match=next(iter(wrong))):
        Regime(**wrong)  # type: ignore[arg-type]


def test_tier_that_is_too_small_to_work_is_refused() -> None:
    with pytest.raises(Invalid, match="frame_count is 3"):
        replay(TWICE, None, replace(FAST, tier=0.1), 1)
