"""scripts/holdout: what it sets beside what, and what counts as covered."""

from __future__ import annotations

import importlib.util
import math
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from prestage.replay.generators import Sessions, sessions

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "holdout"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("holdout", str(SCRIPT))
    spec = importlib.util.spec_from_loader("holdout", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["holdout"] = module
    loader.exec_module(module)
    return module


def trial(script: ModuleType, true: int, low: float, high: float) -> Any:
    return script.Trial(
        seed=1, reads=1000, hits=500 + true, nowhere=500, acted=95, held=5,
        measured=(low + high) / 2, low=low, high=high,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bogus"], "bogus: there is no such file"),
        (["poisson", "--runs", "0"], "--runs 0 --jobs 2: expected 1 or more"),
        (["--filter", "1"], "--filter 1.0: expected a share"),
    ],
)
def test_what_cannot_be_run_is_wrong_usage(
    script: ModuleType,
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdout", *words])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_an_interval_without_ends_covers_nothing(script: ModuleType) -> None:
    found = script.summary([
        trial(script, 50, 40, 60), trial(script, 50, 51, 60), trial(script, 50, 40, 49),
        trial(script, 50, -math.inf, math.inf),
    ])  # fmt: skip
    assert (found["runs"], found["covered"], found["below"], found["above"]) == (4, 1, 1, 1)
    assert found["true_points"] == 5


def test_acting_is_set_beside_acting_on_nothing(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = 4
    shape = Sessions(requests=900, sessions_per_s=0.5, turns=6, chain=12, gap_s=60, gap_sigma=0.3)
    monkeypatch.setitem(script.SMALL, "few", lambda number: sessions(number, shape))
    found = script.trial("few", 0.0, seed)
    assert found.true > 0.02 * found.reads, f"seed {seed}"
    assert found.held > 8 and found.low < found.measured < found.high
    assert found.low > 0, "it helps, and that is seen"
