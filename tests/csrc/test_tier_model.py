"""The byte-exact model of the tier (csrc/tests/tier_model.c): interleavings and power cuts by seed.

PRESTAGE_TIER_RUNS sets how many runs (one seed and about 2.5 power cuts each) the main test does;
4000 make 10,000 cuts. A failure prints its seed: `tier_model SEED 1` repeats it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = int(os.environ.get("PRESTAGE_TIER_RUNS", "800"))
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def build(folder: Path, *flags: str, compiler: str = "") -> Path:
    """Compile the model with the tier and return the program."""
    program = folder / "tier_model"
    sources = [*(ROOT / "csrc/tests").glob("tier_*.c"), *(ROOT / "csrc/tier").glob("*.c")]
    command = [compiler or os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-g", "-O2"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, *warnings, *flags, *sorted(sources), "-o", program], check=True)
    return program


def run(*command: str | Path, seed: int, runs: int) -> subprocess.CompletedProcess[str]:
    """Run the model; its output names the seed of a failure."""
    arguments = [*command, str(seed), str(runs)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=900)


def fresh_seed() -> int:
    """Return the first seed of a series: PRESTAGE_SEED, or another one every time."""
    return int(os.environ.get("PRESTAGE_SEED", "0")) or int.from_bytes(os.urandom(4), "little")


def check_passed(done: subprocess.CompletedProcess[str], seed: int, runs: int) -> None:
    """Fail with the seed unless all runs passed and did what they are for."""
    assert done.returncode == 0, f"first seed {seed}: {done.stdout}{done.stderr}"
    found = re.search(
        r"(\d+) power cuts, (\d+) reads .* (\d+) writes .* (\d+) flushes", done.stdout
    )
    assert found is not None, done.stdout
    cuts, reads, writes, flushes = map(int, found.groups())
    assert cuts >= 2 * runs
    assert min(reads, writes, flushes) >= runs


@pytest.mark.stress
@pytest.mark.timeout(1000)
def test_no_interleaving_and_no_power_cut_breaks_the_bytes(tmp_path: Path) -> None:
    seed = fresh_seed()
    check_passed(run(build(tmp_path), seed=seed, runs=RUNS), seed, RUNS)


@pytest.mark.stress
@pytest.mark.timeout(1000)
def test_the_sanitizers_find_nothing(tmp_path: Path) -> None:
    seed = fresh_seed()
    program = build(tmp_path, *SANITIZERS)
    check_passed(run(program, seed=seed, runs=RUNS // 4), seed, RUNS // 4)


def test_without_syncs_power_cuts_lose_flushed_writes(tmp_path: Path) -> None:
    """The model can fail: syncs that do nothing are found by the lost bytes."""
    done = run(build(tmp_path, "-DPS_BREAK_NO_SYNC"), seed=1, runs=100)
    assert done.returncode != 0
    assert "a flushed write was lost" in done.stderr


def test_the_model_runs_on_aarch64(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs gcc-aarch64-linux-gnu and qemu-user")
    program = build(tmp_path, compiler=compiler)
    seed = fresh_seed()
    done = run(emulator, "-L", "/usr/aarch64-linux-gnu", program, seed=seed, runs=40)
    check_passed(done, seed, 40)


@pytest.mark.parametrize("arguments", [[], ["1"], ["1", "2", "3"], ["x", "1"], ["1", ""]])
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    program = build(tmp_path, "-O0")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr
