"""Policies side by side."""

from __future__ import annotations

import json
import math
import random

import pytest

from prestage.replay.compare import Comparison, Row, check_policies, with_gaps
from prestage.replay.generators import Sessions, sessions
from prestage.replay.hint_plans import HintPlan, announce
from prestage.replay.report import MOST_BEHIND_S, Trial, heading, judge, remarks, table
from prestage.replay.result import Regime
from prestage.replay.run import layout_of
from prestage.replay.ttft import Model
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid
from prestage.target.prestager.process import PrestagerLike

REGIME = Regime(tier=0.1, flash=5)


def nobody(frames: int, slot_size: int, seed: int) -> PrestagerLike:
    raise AssertionError("no policy of this test has a prestager")


def a_third(name: str, workload: Workload, capacity: int) -> float:
    assert capacity == REGIME.frames(workload)
    return 1 / 3


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    workload = sessions(seed, Sessions(requests=300, chain=10))
    hints = announce(workload, layout_of(workload, REGIME), HintPlan(lead_s=5, seed=seed))
    return Comparison(workload, REGIME, seed, hints, nobody, a_third)


@pytest.fixture(scope="module")
def rows(comparison: Comparison) -> dict[str, Row]:
    names = ("none", "lru", "mq", "arc", "hints", "belady", "oracle:1", "clairvoyant")
    return {row.policy: row for row in with_gaps([comparison.run(name) for name in names])}


def test_policies_are_in_the_order_that_theory_wants(rows: dict[str, Row]) -> None:
    hits = {name: row.read_hit_ratio for name, row in rows.items()}
    assert hits["none"] == 0
    assert hits["lru"] < hits["belady"] <= hits["oracle:1"] <= hits["clairvoyant"] <= 1
    assert hits["mq"] <= hits["belady"]
    assert hits["lru"] < hits["hints"]
    assert hits["arc"] == pytest.approx(1 / 3)


def test_the_gap_is_what_lies_between_lru_and_the_bound(rows: dict[str, Row]) -> None:
    assert rows["lru"].gap_closed == 0
    assert rows["clairvoyant"].gap_closed == 1
    assert rows["none"].gap_closed is not None
    assert rows["none"].gap_closed < 0
    assert [row.gap_closed for row in with_gaps([rows["lru"], rows["mq"]])] == [
        rows["lru"].gap_closed,
        rows["mq"].gap_closed,
    ]


def test_a_plan_of_hints_that_is_true_is_precise(rows: dict[str, Row]) -> None:
    assert rows["hints"].precision is not None
    assert rows["hints"].precision > 0.9
    assert rows["lru"].precision is None


def test_rows_are_json(rows: dict[str, Row]) -> None:
    for row in rows.values():
        plain = json.loads(json.dumps(row.plain(), allow_nan=False))
        assert plain["policy"] == row.policy
        assert "wait_s" not in plain
    assert Row("arc", math.nan).plain()["read_hit_ratio"] is None


def test_a_trial_says_what_its_numbers_stand_on(
    comparison: Comparison, rows: dict[str, Row]
) -> None:
    seen = comparison.workload
    judged = tuple(judge(seen, row, Model()) for row in rows.values())
    trial = Trial(seen, REGIME, None, comparison.seed, Model(), judged)
    plain = json.loads(json.dumps(trial.plain(), allow_nan=False))
    assert plain["regime"]["frames"] == seen.block_count // 10
    assert plain["regime"]["first_token"]["kv_bytes_per_token"] == 320 << 10
    assert [each["policy"] for each in plain["policies"]] == list(rows)
    assert all(each["ttft_s"] or each["policy"] == "arc" for each in plain["policies"])
    assert f"seed {comparison.seed}" in heading([trial])
    heads, lines = table([trial, trial])
    assert [len(line) for line in lines] == [len(heads)] * len(rows)
    assert lines[1][1] == "{0:.3f} [{0:.3f} {0:.3f}]".format(rows["lru"].read_hit_ratio)
    assert lines[3][3:] == ["-"] * 7


@pytest.mark.parametrize("name", ["", "fifo", "lru:2", "oracle:x", "oracle:-1"])
def test_what_is_no_policy_is_named(name: str) -> None:
    with pytest.raises(Invalid, match="--policy: found"):
        check_policies([name])


def test_a_row_of_requests_that_were_sent_too_late_is_said_to_be_void(
    comparison: Comparison,
) -> None:
    def trial(late_s: float) -> Trial:
        rows = [
            Row("lru", 0.5),
            Row("live lru", 0.5, behind_s={"p99": MOST_BEHIND_S}),
            Row("live prestage", 0.5, behind_s={"p99": late_s}),
        ]
        judged = tuple(judge(comparison.workload, each, Model()) for each in rows)
        return Trial(comparison.workload, REGIME, None, comparison.seed, Model(), judged)

    assert remarks([trial(MOST_BEHIND_S), trial(0.0)]) == []
    (line,) = remarks([trial(0.5), trial(149.0)])
    assert line.startswith("live prestage is of another workload")
    assert "149 s of the trace late (p99)" in line
