"""The simulation of docs/deadlines.md, short: what is promised there holds, with room to spare.

It has a clock of its own, so it says the same on every machine.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build(folder: Path, *flags: str) -> Path:
    """Compile the simulation and return the program."""
    program = folder / "sched_sim"
    sources = [
        *sorted((ROOT / "csrc/bench").glob("sched_*.c")),
        *sorted((ROOT / "csrc/sched").glob("*.c")),
        *(ROOT / "csrc/media" / name for name in ("flash_model.c", "common.c")),
    ]
    command = [
        os.environ.get("CC", "cc"),
        "-std=c11",
        "-D_GNU_SOURCE",
        "-iquote",
        str(ROOT / "csrc"),
    ]
    options = ["-g", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", *flags]
    paths = [str(path) for path in sources]
    subprocess.run([*command, *options, *paths, "-lm", "-o", str(program)], check=True)
    return program


def run(program: Path, *arguments: str) -> Any:
    """One run of the simulation."""
    # A sanitizer that is preloaded for the extension modules is none of the program's.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sched"))


def p99_ratio(found: Any) -> float:
    """What dated work costs undated reads."""
    return float(found["demand"]["p99_us"] / found["demand_alone"]["p99_us"])


@pytest.mark.parametrize("seed", ["3001", "3002"])
def test_deadlines_are_met_and_reads_hardly_notice(program: Path, seed: str) -> None:
    found = run(program, "mixed", "deadline", "0.9", seed, "4")
    dated = found["dated"]
    assert dated["oracle"] > 0.95 * dated["all"] > 3000
    assert dated["both"] >= 0.985 * dated["oracle"]
    assert p99_ratio(found) <= 1.25
    assert found["forecasts"]["within_25_percent"] >= 0.8
    assert max(found["not_done"].values()) == 0
    assert found["longest_wait_ms"]["demand"] < 60
    assert found["longest_wait_ms"]["write"] < 60


def test_nothing_starves_under_overload_that_is_all_let_in(program: Path) -> None:
    found = run(program, "mixed", "deadline", "1.3", "3003", "4", "32", "all")
    assert max(found["not_done"].values()) == 0
    assert found["longest_wait_ms"]["demand"] < 60
    assert found["longest_wait_ms"]["write"] < 60


def test_the_plain_policies_are_worse_at_what_each_lacks(program: Path) -> None:
    ours = run(program, "mixed", "deadline", "0.9", "3004", "4")
    for policy in ("fifo", "priority"):
        plain = run(program, "mixed", policy, "0.9", "3004", "4")
        assert plain["dated"]["oracle"] == ours["dated"]["oracle"]
        assert plain["dated"]["both"] < ours["dated"]["both"]
        assert p99_ratio(plain) > 2 * p99_ratio(ours)


def test_a_seed_repeats_a_run(program: Path) -> None:
    arguments = ("bursty", "deadline", "1.1", "3005", "2")
    assert run(program, *arguments) == run(program, *arguments)


@pytest.mark.stress
def test_the_simulation_is_clean_under_sanitizers(tmp_path: Path) -> None:
    program = build(tmp_path, *SANITIZERS)
    for policy, admission in (("deadline", ""), ("deadline", "all"), ("fifo", "")):
        run(program, "mixed", policy, "1.1", "3006", "1", "32", admission)
