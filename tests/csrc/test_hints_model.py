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
RUNS = int(os.environ.get("PRESTAGE_HINTS_RUNS", "200"))
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BELOW = ("engine", "tier", "ring", "sched")
"""The rooms that the hints stand on."""
COMPILER = (os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-g", *SANITIZERS)
WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")


def compile_all(folder: Path, sources: list[Path], *flags: str) -> list[Path]:
    """Compile C files of the checkout, or of a copy of it, into objects in `folder`."""
    folder.mkdir()
    include = ("-iquote", ROOT / "csrc")
    command: list[str | Path] = [*COMPILER, *WARNINGS, *flags, *include, "-c", *sources]
    subprocess.run(command, check=True, cwd=folder)
    return sorted(folder.glob("*.o"))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Everything that the programs need but the hints themselves, and the programs' own files."""
    folder = tmp_path_factory.mktemp("hints")
    rooms = [path for room in BELOW for path in sorted((ROOT / "csrc" / room).glob("*.c"))]
    helpers = [ROOT / "csrc/tests" / name for name in ("hints_rig.c", "hints_batch.c")]
    return [
        *(
            made
            for room in BELOW
            for made in compile_all(folder / room, [p for p in rooms if p.parent.name == room])
        ),
        *compile_all(folder / "helpers", helpers),
    ]


def build(
    folder: Path, program: str, objects: list[Path], *flags: str, hints: Path = ROOT / "csrc/hints"
) -> Path:
    """Compile a program with the hints of a folder and return it."""
    own = compile_all(folder / "hints", sorted(hints.glob("*.c")))
    own += compile_all(folder / "own", [ROOT / "csrc/tests" / f"{program}.c"], *flags)
    built = folder / program
    subprocess.run([*COMPILER, *own, *objects, "-lisal", "-lm", "-o", built], check=True)
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
def test_no_order_of_events_breaks_an_invariant(tmp_path: Path, objects: list[Path]) -> None:
    seed = fresh_seed()
    done = run(build(tmp_path, "hints_model", objects), seed, RUNS)
    assert done.returncode == 0, f"first seed {seed}: {done.stdout}{done.stderr}"
    pattern = r"(\d+) met, (\d+) late, (\d+) dropped, (\d+) cancelled, (\d+) follows, (\d+) parts"
    found = re.search(pattern, done.stdout)
    assert found is not None, done.stdout
    met, late, dropped, cancelled, follows, parts = map(int, found.groups())
    assert min(met, 5 * late, dropped, cancelled, follows, parts) >= RUNS


@pytest.mark.stress
@pytest.mark.timeout(1000)
def test_the_fuzzer_finds_nothing_in_seeded_inputs(tmp_path: Path, objects: list[Path]) -> None:
    seed = fresh_seed()
    program = build(tmp_path, "fuzz_hints", objects, "-DFUZZ_STANDALONE")
    done = run(program, seed, RUNS)
    assert done.returncode == 0, f"first seed {seed}: {done.stdout}{done.stderr}"


BREAKS = {
    "intent_that_ends_without_being_counted": ("intents.c", "      counts->late++;", "      ;"),
    "set_that_an_intent_still_needs": (
        "admit.c",
        "if (*set != NONE) hints_set(hints, *set)->references++;",
        "",
    ),
    "intent_that_is_not_looked_at_again": (
        "admit.c",
        "    hints_wake_at(hints, index, now_ns + ARRIVAL_NS);\n",
        "",
    ),
    "cancel_that_forgets_where_it_was": (
        "cancel.c",
        "    if (part->left == 0) return false;\n    part->left--;\n    hints_cancel_intent(hints, "
        "part->now_ns, fifo->first);",
        "    if (part->left == 0) return true;\n    part->left--;\n    hints_cancel_intent(hints, "
        "part->now_ns, fifo->first);",
    ),
    "ranges_that_are_not_given_back": (
        "sets.c",
        "  hints->set_ranges -= count;",
        "  hints->set_ranges -= count / 2;",
    ),
    "range_that_stays_in_its_region": (
        "sets.c",
        "i < count; i++) {\n    hints_region_remove(",
        "i + 1 < count; i++) {\n    hints_region_remove(",
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
def test_hints_with_one_line_broken_are_found(
    tmp_path: Path, objects: list[Path], name: str
) -> None:
    """Hints with one line broken must fail the model, or the model proves nothing."""
    file, line, broken = BREAKS[name]
    copy = tmp_path / "csrc" / "hints"
    shutil.copytree(ROOT / "csrc" / "hints", copy)
    for header in (ROOT / "csrc").glob("*.h"):
        shutil.copy(header, tmp_path / "csrc")
    source = copy / file
    text = source.read_text("utf-8")
    assert text.count(line) == 1, f"{file} has changed: say anew how it is broken"
    source.write_text(text.replace(line, broken), "utf-8")
    done = run(build(tmp_path, "hints_model", objects, hints=copy), 1, 3000)
    assert done.returncode != 0, done.stdout


def test_wrong_arguments_are_refused(tmp_path: Path, objects: list[Path]) -> None:
    program = build(tmp_path, "hints_model", objects)
    for arguments in ([], ["1"], ["1", "2", "3"], ["x", "1"], ["1", "x"]):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "usage" in done.stderr
