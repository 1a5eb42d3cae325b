"""The model of the hints (csrc/tests/hints_model.c) and their fuzzer: seeded runs, and broken hints
that must be found. A failure prints its seed: `hints_model SEED 1` repeats it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = int(os.environ.get("PRESTAGE_HINTS_RUNS", "400"))
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
ROOMS = ("engine", "tier", "ring", "sched", "hints")
LIBRARIES = ("-lisal", "-lm")


def build(folder: Path, program: str, *flags: str, root: Path = ROOT) -> Path:
    """Compile a program with the rooms of a tree and return it."""
    tests = root / "csrc/tests"
    rooms = [path for room in ROOMS for path in sorted((root / "csrc" / room).glob("*.c"))]
    own = [tests / f"{program}.c", tests / "hints_rig.c", tests / "hints_batch.c"]
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-iquote", root / "csrc"]
    built = folder / program
    subprocess.run(
        [*command, *flags, "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", *own, *rooms]
        + ["-o", built, *LIBRARIES],
        check=True,
    )
    return built


def run(program: Path, seed: int, runs: int) -> subprocess.CompletedProcess[str]:
    """Run a program; its output names the seed of a failure."""
    # A sanitizer that is preloaded for the extension modules is none of the program's.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(
        [program, str(seed), str(runs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env=environment,
    )


def fresh_seed() -> int:
    """Return the first seed of a series: PRESTAGE_SEED, or another one every time."""
    return int(os.environ.get("PRESTAGE_SEED", "0")) or int.from_bytes(os.urandom(4), "little")


@pytest.mark.stress
@pytest.mark.timeout(1000)
def test_no_order_of_events_breaks_an_invariant(tmp_path: Path) -> None:
    seed = fresh_seed()
    done = run(build(tmp_path, "hints_model", *SANITIZERS), seed, RUNS)
    assert done.returncode == 0, f"first seed {seed}: {done.stdout}{done.stderr}"
    pattern = r"(\d+) met, (\d+) late, (\d+) dropped, (\d+) cancelled, (\d+) follows"
    found = re.search(pattern, done.stdout)
    assert found is not None, done.stdout
    met, late, dropped, cancelled, follows = map(int, found.groups())
    assert min(met, 5 * late, dropped, cancelled, follows) >= RUNS


@pytest.mark.stress
@pytest.mark.timeout(1000)
def test_the_fuzzer_finds_nothing_in_seeded_inputs(tmp_path: Path) -> None:
    seed = fresh_seed()
    program = build(tmp_path, "fuzz_hints", "-DFUZZ_STANDALONE", *SANITIZERS)
    done = run(program, seed, RUNS)
    assert done.returncode == 0, f"first seed {seed}: {done.stdout}{done.stderr}"


BREAKS = {
    "intent_that_ends_without_being_counted": ("intents.c", "      counts->late++;", "      ;"),
    "met_that_is_not_warm": (
        "walk.c",
        "if (warm < span.length) return coming == 0 ? FOUND_COLD : FOUND_COMING;",
        "",
    ),
    "set_that_an_intent_still_needs": (
        "admit.c",
        "if (*set != NONE) hints_set(hints, *set)->references++;",
        "",
    ),
    "stale_cookie_that_is_believed": (
        "walk.c",
        "if (intent->state != PAX_STATE_PENDING || intent->generation != cookie >> 32) return;",
        "if (intent->state != PAX_STATE_PENDING) return;",
    ),
    "ranges_that_are_not_given_back": (
        "sets.c",
        "  hints->set_ranges -= set->range_count;",
        "  hints->set_ranges -= set->range_count / 2;",
    ),
    "range_that_stays_in_its_region": (
        "sets.c",
        "  leave_regions(hints, set);\n",
        "",
    ),
    "job_of_a_set_that_is_gone": (
        "sets.c",
        "  if (set->follow != NONE) hints_end_follow(hints, set->follow);\n",
        "",
    ),
    "record_without_its_ranges": (
        "facts.c",
        "if (!ps_ring_has_room(hints->ring, count + 1)) {",
        "if (count == 3) {\n    ps_ring_put(hints->ring, head);",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_hints_with_one_line_broken_are_found(tmp_path: Path, name: str) -> None:
    """Hints with one line broken must fail the model, or the model proves nothing."""
    file, line, broken = BREAKS[name]
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc", ignore=shutil.ignore_patterns("*.o"))
    source = tmp_path / "csrc" / "hints" / file
    text = source.read_text("utf-8")
    assert text.count(line) == 1, f"{file} has changed: say anew how it is broken"
    source.write_text(text.replace(line, broken), "utf-8")
    done = run(build(tmp_path, "hints_model", *SANITIZERS, root=tmp_path), 1, 3000)
    assert done.returncode != 0, done.stdout


@pytest.mark.parametrize("arguments", [[], ["1"], ["1", "2", "3"], ["x", "1"], ["1", "x"]])
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    program = build(tmp_path, "hints_model")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr
