"""`scripts/bench copies`: how often the target itself copies a byte of payload, counted.

The extension modules are built once more, with memcpy and memmove of the data path replaced by ones
that add up how much they copy (csrc/bench/count_copies.c), and a target with them serves a fixed
number of commands that the tier has. Nothing is timed. The kernel's own copy, one each way between
socket and memory, which no use of the socket interface here avoids, is not in the count; nor is
what is copied by assignments and in pieces of a small fixed size, which are headers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench_processes import ROOT, run
from bench_run import (
    NO_OPTIONS,
    SPAN_BYTES,
    Case,
    Options,
    Run,
    Server,
    fill,
    lay_out,
    load,
    own_target,
)
from bench_targets import DIGESTS, NO_WRITE_BACK, Setting

PLACE = ROOT / "build" / "copies"
COUNTER = "ps_bytes_copied"
LIMIT_S = 60.0
CASES: dict[str, tuple[Case, Options]] = {
    case.name + what: (case, options)
    for size, depth in ((4096, 32), (128 << 10, 8))
    for case in (Case(operation, size, depth) for operation in ("read", "write"))
    for what, options in {"": NO_OPTIONS, ", digests": DIGESTS}.items()
}
COMMANDS = 4000
CONFIG = Setting(more=NO_WRITE_BACK).config(Path())
"""A write is answered from the tier; a medium in memory would be written by a copy."""


def build_counting() -> Path:
    """Build the package with modules that count; return the folder it is in."""
    PLACE.mkdir(parents=True, exist_ok=True)
    counter = PLACE / "count_copies.o"
    source = ROOT / "csrc" / "bench" / "count_copies.c"
    compiler = ["gcc", "-std=c11", "-O2", "-fPIC", "-c", str(source), "-o", str(counter)]
    run(compiler, "building what counts")
    run(
        [
            *(str(ROOT / ".venv/bin/python"), "setup.py", "-q", "build"),
            *(f"--build-base={PLACE}", f"--build-lib={PLACE}/lib"),
        ],
        "building modules that count",
        cwd=ROOT,
        env=os.environ | {"LDFLAGS": f"-Wl,--wrap=memcpy,--wrap=memmove {counter}"},
    )
    return PLACE / "lib"


def counter_address(server: Server, library: Path) -> int:
    """Return where the count is in the memory of the target."""
    (module,) = (library / "prestage").glob("_core*.so")
    words = ["nm", "-D", "--defined-only", str(module)]
    names = run(words, "finding the count")[0].splitlines()
    offsets = [int(line.split()[0], 16) for line in names if line.split()[-1] == COUNTER]
    maps = Path(f"/proc/{server.pid}/maps").read_text("utf-8").splitlines()
    starts = [int(line.split("-")[0], 16) for line in maps if line.endswith(str(module))]
    if not offsets or not starts:
        raise SystemExit(f"bench: {module} has no {COUNTER}, or the target has not loaded it")
    return min(starts) + offsets[0]


def count(server: Server, address: int) -> int:
    """Return how many bytes the target has copied."""
    memory = os.open(f"/proc/{server.pid}/mem", os.O_RDONLY)
    try:
        return int.from_bytes(os.pread(memory, 8, address), "little")
    finally:
        os.close(memory)


def copied(server: Server, address: int, case: Case, options: Options) -> Run:
    """Run a load of COMMANDS; return what it copied of each byte."""
    before = count(server, address)
    done = load(server, case, LIMIT_S, {**options, "commands": COMMANDS})
    found = (count(server, address) - before) / (done["commands"] * case.size_bytes)
    return done | {"copies_per_byte": found}


def measure(cases: Mapping[str, tuple[Case, Options]]) -> dict[str, Run]:
    """Count and print; returns every run."""
    library = build_counting()
    with (
        tempfile.TemporaryDirectory(prefix="prestage-bench-") as folder,
        own_target(Path(folder) / "target", config=CONFIG, library=library) as server,
    ):
        fill(server, SPAN_BYTES)
        address = counter_address(server, library)
        results = {name: copied(server, address, *each) for name, each in cases.items()}
    rows = [["case", "copies of a byte, ours", "and by the socket"]]
    rows += [[name, f"{found['copies_per_byte']:.3f}", "1"] for name, found in results.items()]
    print(lay_out(rows))
    return results
