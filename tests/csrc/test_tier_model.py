"""The byte-exact model of the tier (csrc/tests/tier_model.c): interleavings and power cuts by seed.

PRESTAGE_TIER_RUNS sets how many runs (one seed and about 2.5 power cuts each) the main test does;
4100 make 10,000 cuts. A failure prints its seed: `tier_model SEED 1` repeats it.
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


def build(folder: Path, *flags: str, compiler: str = "", root: Path = ROOT) -> Path:
    """Compile the model with the tier of a tree and return the program."""
    program = folder / "tier_model"
    folders = (("tests", "tier_*.c"), ("tier", "*.c"), ("ring", "*.c"))
    sources = [path for name, pattern in folders for path in (root / "csrc" / name).glob(pattern)]
    command = [compiler or os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-g", "-O2"]
    command += ["-iquote", str(root / "csrc")]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, *warnings, *flags, *sorted(sources), "-o", program], check=True)
    return program


def run(*command: str | Path, seed: int, runs: int) -> subprocess.CompletedProcess[str]:
    """Run the model; its output names the seed of a failure."""
    arguments = [*command, str(seed), str(runs)]
    # A sanitizer that is preloaded for the extension modules is none of the program's.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(
        arguments, capture_output=True, text=True, check=False, timeout=900, env=environment
    )


def fresh_seed() -> int:
    """Return the first seed of a series: PRESTAGE_SEED, or another one every time."""
    return int(os.environ.get("PRESTAGE_SEED", "0")) or int.from_bytes(os.urandom(4), "little")


def check_passed(done: subprocess.CompletedProcess[str], seed: int, runs: int) -> None:
    """Fail with the seed unless all runs passed and did what they are for."""
    assert done.returncode == 0, f"first seed {seed}: {done.stdout}{done.stderr}"
    pattern = r"(\d+) power cuts, (\d+) reads .* (\d+) writes .* (\d+) flushes .* (\d+) clears"
    hints = r".* (\d+) reads at once, (\d+) overwrites, (\d+) promotions, (\d+) timely, (\d+) late"
    found = re.search(pattern + hints, done.stdout)
    assert found is not None, done.stdout
    numbers = map(int, found.groups())
    cuts, reads, writes, flushes, clears, at_once, overwrites, promotions, timely, late = numbers
    assert cuts >= 2 * runs
    assert min(reads, writes, flushes, 2 * clears) >= runs
    assert min(timely, 8 * late, 8 * at_once, 8 * overwrites, 50 * promotions) >= runs


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


BREAKS = {
    "flush_of_a_volume_without_sync": (
        "flush.c",
        "if (volume->unsynced.length == 0) return sync;",
        "return sync;",
    ),
    "flush_of_a_range_without_sync": (
        "flush.c",
        "if ((waiter->state & FLUSH_SYNC) == 0 || sync == 0) return PS_TIER_DONE;",
        "return PS_TIER_DONE;",
    ),
    "sync_that_began_too_early": (
        "flush.c",
        "return covered ? volume->sync_started : volume->sync_started + 1;",
        "return covered || volume->sync_under_way"
        " ? volume->sync_started : volume->sync_started + 1;",
    ),
    "cleared_range_without_sync": ("clear.c", "volume->wrote_directly = true;", ""),
    "bytes_dropped_before_they_are_cleared": (
        "clear.c",
        "if (busy == NONE) return tier_leave(tier, waiter, PS_TIER_DONE);",
        "if (busy == NONE) { each_fenced(tier, number, true, true);"
        " return tier_leave(tier, waiter, PS_TIER_DONE); }",
    ),
    "hint_within_the_share_of_another": (
        "hydrate.c",
        "stats.frames > hunt->share ? SOURCE_OTHER : SOURCE_NONE;",
        "stats.frames > 0 ? SOURCE_OTHER : SOURCE_NONE;",
    ),
    "hints_beyond_their_limit": (
        "hydrate.c",
        ".is_at_limit = who->stats.hint_frames >= who->hint_limit,",
        ".is_at_limit = false,",
    ),
    "model_counts_as_hints": (
        "tenant.c",
        "return is_model ? &tier->model : &tier->tenants[tenant];",
        "return is_model ? &tier->tenants[tenant] : &tier->tenants[tenant];",
    ),
    "keep_of_no_effect": (
        "index.c",
        "return extent->kept ? &tier->kept_extents : NULL;",
        "return NULL;",
    ),
    "keep_that_never_ends": (
        "keep.c",
        "return first->key <= tier->now_ns ? first->item : NONE;",
        "return first->key == 0 ? first->item : NONE;",
    ),
    "keep_that_outlives_its_owner": (
        "keep.c",
        "uint32_t frame = tier_next_over(tier);",
        "uint32_t frame = NONE;",
    ),
    "kept_frames_that_nobody_may_have": (
        "frame.c",
        "return best != NONE ? best : coldest_kept;",
        "return best;",
    ),
    "promotion_that_nobody_hears_of": (
        "urgency.c",
        "tier_list_append(&tier->promotions, i);",
        "",
    ),
    "cookie_of_a_fill_that_a_reader_made": (
        "fill.c",
        "op->cookie = is_hydrate ? access->cookie : 0;",
        "op->cookie = 1;",
    ),
    "runs_over_which_the_value_rises": (
        "values.c",
        "order->cuts[i] = CUT_TABLES;",
        "order->cuts[i] = 0;",
    ),
    "extents_that_never_become_older": (
        "order.c",
        "while (steps > 0 && order->due.length > 0 &&",
        "while (steps > AGE_MOST && order->due.length > 0 &&",
    ),
    "extents_that_stay_in_a_run_they_are_too_old_for": (
        "order.c",
        "if (tier_bin_of(tier, &tier->extents[last]) <= order->runs[run].last_bin) break;",
        "break;",
    ),
    "run_that_is_not_in_order": (
        "order.c",
        "if (age > most) return last;",
        "if (age > most) return anchor;",
    ),
    "run_without_its_coldest_in_the_ranks": (
        "order.c",
        "if (last_of(tier, run) == index) show(tier, run);",
        "",
    ),
    "equal_values_by_class": (
        "order.c",
        "if (now - tier->extents[other].last_use > now - tier->extents[best].last_use)",
        "if (now - tier->extents[other].last_use < now - tier->extents[best].last_use)",
    ),
    "cells_in_no_order": ("values.c", "pass < 4;", "pass < 2;"),
    "ages_by_whole_octaves": ("values.c", "2 * k + ((halves >> k) & 1);", "2 * k;"),
    "runs_joined_the_wrong_way_round": (
        "order.c",
        "join(tier, run, cell);",
        "join(tier, cell, run);",
    ),
    "once_by_its_age": (
        "values.c",
        "if (extent->value_class == CLASS_ONCE) return AGE_BINS - 1;",
        "",
    ),
    "class_without_its_age": (
        "values.c",
        "if (!is_promised) extent->last_use = tier_use_before(tier, age_ns);",
        "if (!is_promised) extent->last_use = tier_use_before(tier, 0 * age_ns);",
    ),
    "speculation_that_does_harm": ("hydrate.c", "hunt->is_below = value > 0;", ""),
    "speculation_without_a_ceiling": (
        "hydrate.c",
        "if (source == SOURCE_NONE || is_too_dear(hunt, value)) return false;",
        "if (source == SOURCE_NONE) return false;",
    ),
    "hint_that_takes_the_dearer_of_its_own": (
        "hydrate.c",
        "if (hunt->found[source] == NONE || value < hunt->values[source]) {",
        "if (hunt->found[source] == NONE || value > hunt->values[source]) {",
    ),
    "eviction_that_nobody_hears_of": (
        "frame.c",
        "(void)ps_ring_put(tier->config.ring, &fact);",
        "(void)fact;",
    ),
    "write_of_a_range_that_is_cleared": (
        "writeback.c",
        "if (extent->write == NO_WRITE && !tier_is_fenced(tier, extent)) break;",
        "if (extent->write == NO_WRITE) break;",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_tier_with_one_line_broken_is_found(tmp_path: Path, name: str) -> None:
    """A tier with one line broken must fail the model, or the model proves nothing."""
    file, line, broken = BREAKS[name]
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc", ignore=shutil.ignore_patterns("*.o"))
    source = tmp_path / "csrc" / "tier" / file
    text = source.read_text("utf-8")
    assert text.count(line) == 1, f"{file} has changed: say anew how it is broken"
    source.write_text(text.replace(line, broken), "utf-8")
    done = run(build(tmp_path, "-O1", root=tmp_path), seed=1, runs=10_000)
    assert done.returncode != 0
    assert "tier_model: seed" in done.stderr


def test_the_model_runs_on_aarch64(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs gcc-aarch64-linux-gnu and qemu-user")
    program = build(tmp_path, compiler=compiler)
    seed = fresh_seed()
    done = run(emulator, "-L", "/usr/aarch64-linux-gnu", program, seed=seed, runs=100)
    check_passed(done, seed, 100)


@pytest.mark.parametrize("arguments", [[], ["1"], ["1", "2", "3"], ["x", "1"], ["1", ""]])
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: list[str]) -> None:
    program = build(tmp_path, "-O0")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage" in done.stderr
