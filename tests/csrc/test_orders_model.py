"""The model of the orders (csrc/tests/orders_model.c) and their fuzzer: seeded runs, and broken
orders that must be found. A failure prints its seed: `orders_model SEED 1` repeats it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = int(os.environ.get("PRESTAGE_ORDERS_RUNS", "200"))
SANITIZERS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BELOW = ("tier", "ring", "sched")
"""The rooms that orders stand on."""
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
    """Everything that the programs need but the orders themselves, and the programs' own files."""
    folder = tmp_path_factory.mktemp("orders")
    rooms = {room: sorted((ROOT / "csrc" / room).glob("*.c")) for room in BELOW}
    made = [each for room in BELOW for each in compile_all(folder / room, rooms[room])]
    return [*made, *compile_all(folder / "helpers", [ROOT / "csrc/tests/orders_rig.c"])]


def build(
    folder: Path,
    program: str,
    objects: list[Path],
    *flags: str,
    orders: Path = ROOT / "csrc/orders",
) -> Path:
    """Compile a program with the orders of a folder and return it."""
    own = compile_all(folder / "orders", sorted(orders.glob("*.c")))
    own += compile_all(folder / "own", [ROOT / "csrc/tests" / f"{program}.c"], *flags)
    built = folder / program
    subprocess.run([*COMPILER, *own, *objects, "-lm", "-o", built], check=True)
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
    done = run(build(tmp_path, "orders_model", objects), seed, RUNS)
    assert done.returncode == 0, f"first seed {seed}: {done.stdout}{done.stderr}"
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", done.stdout)}
    ends = ("landed", "warm", "no_room", "failed", "withdrawn", "expired")
    assert min(counts[end] for end in ends) >= RUNS, "all ends are met, and often"
    assert min(counts["pieces"], counts["held"]) >= RUNS, "speculation was begun, and was not"


@pytest.mark.stress
@pytest.mark.timeout(1000)
def test_the_fuzzer_finds_nothing_in_seeded_inputs(tmp_path: Path, objects: list[Path]) -> None:
    seed = fresh_seed()
    program = build(tmp_path, "fuzz_orders", objects, "-DFUZZ_STANDALONE")
    done = run(program, seed, RUNS)
    assert done.returncode == 0, f"first seed {seed}: {done.stdout}{done.stderr}"


BREAKS = {
    "order_that_is_believed": (
        "fetch.c",
        "  if (order->tenant >= orders->config.tenant_count) return false;\n",
        "",
    ),
    "value_that_is_no_number": (
        "fetch.c",
        "return order->value >= 0 && order->value < __builtin_inff();",
        "return true;",
    ),
    "head_that_is_believed": ("take.c", "if (waiting > orders->config.capacity) {", "if (0) {"),
    "fill_of_a_fetch_before": (
        "fetch.c",
        "fetch->generation == ((cookie & ~PS_COOKIE_OF_ORDERS) >> 32);",
        "true;",
    ),
    "end_that_is_never_told": (
        "fetch.c",
        "  fetch->end_as = end_as;\n  fetch->checked = fetch->offset;\n"
        "  orders_wake_at(orders, index, now_ns + SETTLE_NS);\n",
        "  fetch->end_as = end_as;\n  fetch->checked = fetch->offset;\n"
        "  orders_wake_never(orders, index);\n",
    ),
    "fetch_that_outlives_its_volume": (
        "orders.c",
        "(is_other || shrinks)) cut(",
        "shrinks && !is_other) cut(",
    ),
    "bytes_that_wait_for_ever": (
        "fetch.c",
        "    fetch->at += bytes;\n    orders->waiting_bytes -= bytes;\n",
        "    fetch->at += bytes;\n",
    ),
    "table_that_does_not_exist": ("take.c", "if (order->aux > 1) return false;", ""),
    "time_that_is_not_kept": (
        "fetch.c",
        "orders_wake_at(orders, index, order->expires_ns + 1);",
        "orders_wake_at(orders, index, order->expires_ns);",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_orders_with_one_line_broken_are_found(
    tmp_path: Path, objects: list[Path], name: str
) -> None:
    """Orders with one line broken must fail the model, or the model proves nothing."""
    file, line, broken = BREAKS[name]
    copy = tmp_path / "csrc" / "orders"
    shutil.copytree(ROOT / "csrc" / "orders", copy)
    for header in (ROOT / "csrc").glob("*.h"):
        shutil.copy(header, tmp_path / "csrc")
    source = copy / file
    text = source.read_text("utf-8")
    assert text.count(line) == 1, f"{file} has changed: say anew how it is broken"
    source.write_text(text.replace(line, broken), "utf-8")
    done = run(build(tmp_path, "orders_model", objects, orders=copy), 1, 3000)
    assert done.returncode != 0, done.stdout


def test_wrong_arguments_are_refused(tmp_path: Path, objects: list[Path]) -> None:
    program = build(tmp_path, "orders_model", objects)
    for arguments in ([], ["1"], ["1", "2", "3"], ["x", "1"], ["1", "x"]):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "usage" in done.stderr
