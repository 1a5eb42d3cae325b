"""scripts/anticipation: which claims it judges, how, and what it prints."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from workload_support import AGENTS, CONVERSATION

from prestage.replay.compare import CLASSICAL, POLICIES, Row

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "anticipation"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("anticipation", str(SCRIPT))
    spec = importlib.util.spec_from_loader("anticipation", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["anticipation"] = module
    loader.exec_module(module)
    return module


def rows(**hit_ratios: float) -> dict[str, Row]:
    return {name: Row(name, ratio) for name, ratio in hit_ratios.items()}


def test_every_claim_has_a_title_of_its_own_and_policies_that_there_are(script: ModuleType) -> None:
    claims = list(script.claims(("lru", "mq", *CLASSICAL)))
    assert len({each.title for each in claims}) == len(claims) > 30
    for claim in claims:
        for cell in claim.cells:
            assert set(cell.policies) <= set(POLICIES)
            says = cell.plan is not None or cell.workload.startswith("affinity")
            assert says or "prestage+hints" not in cell.policies
    without = list(script.claims(()))
    assert len(without) == len(claims) - 12  # two traces, raw and filtered, three tiers


def test_the_best_other_policy_is_what_the_prestager_is_set_beside(script: ModuleType) -> None:
    (claim, *_) = [each for each in script.claims(("lru", "mq")) if "classical" in each.title]
    found = claim.value(rows(prestage=0.5, lru=0.4, mq=0.55))
    assert found == pytest.approx(-5)


def test_false_hints_are_set_beside_the_same_hints_without_them(script: ModuleType) -> None:
    (claim, *_) = [each for each in script.claims(()) if "false hints" in each.title]
    with_false, without = (rows(**{"prestage+hints": ratio}) for ratio in (0.875, 0.9375))
    assert claim.value(with_false, without) == pytest.approx(-6.25)
    assert claim.cells[0].plan.false_per_true == 1
    assert claim.cells[1].plan.false_per_true == 0


def test_signatures_are_to_gain_where_they_tell_something_and_cost_nothing_elsewhere(
    script: ModuleType,
) -> None:
    bars = {
        claim.cells[0].workload: claim.bar
        for claim in script.claims(())
        if claim.title.startswith("signatures")
    }
    assert bars == {"affinity:0": -0.3, "affinity:0.5": 5, "affinity:0.75": 5, "affinity:1": 5}


def test_a_trace_is_asked_for_where_a_row_needs_it(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["anticipation", "--only", "gap closed"])
    with pytest.raises(SystemExit):
        script.main()
    assert "FILE is needed for these rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "zzz"], "--only zzz: expected a part of one of"),
        (["--only", "conversation", "--conversation", "/nonexistent"], "--conversation: "),
    ],
)
def test_what_cannot_be_judged_is_wrong_usage(
    script: ModuleType,
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["anticipation", *words])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "at_least", "reached"),
    [
        ((0.4, 0.5, 0.9), True, True),
        ((0.4, 0.49, 0.9), True, False),
        ((0.4, 0.51, 0.9), False, False),
        ((0.4, None, 0.5), False, True),
        ((None, None, None), True, None),
    ],
)
def test_the_median_over_the_seeds_is_judged(
    script: ModuleType, values: tuple[float | None, ...], at_least: bool, reached: bool | None
) -> None:
    cell = script.Cell("poisson", ("lru",))
    claim = script.Claim("it", (cell,), lambda found: found, 0.5, at_least)
    judged = script._judge(claim, {(cell, seed): v for seed, v in enumerate(values)}, range(3))
    assert judged["reached"] is reached
    assert judged["values"] == list(values)


def call(*flags: str) -> str:
    traces = ["--conversation", str(CONVERSATION), "--agents", str(AGENTS)]
    chosen = ["--seed", "5", "--jobs", "1", "--only", "no hints, conversation, raw"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *traces, *chosen, *flags],
        env={"PYTHONPATH": str(SCRIPT.parents[1] / "src")},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_it_prints_a_row_for_each_claim_that_was_asked_for() -> None:
    found = json.loads(call("--json"))
    assert found["seeds"] == [5]
    titles = [each["claim"] for each in found["claims"]]
    assert len(titles) == 5
    table = call().splitlines()
    assert table[0].startswith("| | reach | seen |")
    assert [line.split(" | ")[0].removeprefix("| ") for line in table[2:]] == titles
    assert all(line.split("|")[-2].strip() in ("yes", "no", "") for line in table[2:])
