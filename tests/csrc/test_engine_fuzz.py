"""The engine's fuzzer: its four modes on seeded random inputs, and under libFuzzer, both with
AddressSanitizer and UBSan.

Environment: PRESTAGE_FUZZ_INPUTS is the number of seeded inputs (1500), PRESTAGE_FUZZ_SECONDS the
time under libFuzzer (20).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INPUTS = int(os.environ.get("PRESTAGE_FUZZ_INPUTS", "1500"))
SECONDS = int(os.environ.get("PRESTAGE_FUZZ_SECONDS", "20"))
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def build(compiler: str, program: Path, *flags: str) -> None:
    """Compile the fuzzer with the engine into `program`."""
    others = ("fuzz_hints.c", "fuzz_orders.c", "fuzz_queue.c")
    own = [p for p in (ROOT / "csrc/tests").glob("fuzz_*.c") if p.name not in others]
    sources = [*own, *(ROOT / "csrc/engine").glob("*.c")]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [compiler, "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", *warnings, *SANITIZE, *flags]
        + [str(source) for source in sorted(sources)]
        + ["-lisal", "-o", str(program)],
        check=True,
    )


def clang() -> str | None:
    """A clang that has libFuzzer: the plain name, or the newest version that is installed."""
    names = ["clang", *(f"clang-{version}" for version in range(22, 13, -1))]
    return next((found for name in names if (found := shutil.which(name))), None)


def test_seeded_inputs_find_nothing(tmp_path: Path) -> None:
    program = tmp_path / "fuzz_engine"
    build(os.environ.get("CC") or shutil.which("cc") or "gcc", program, "-DFUZZ_STANDALONE")
    seed = int.from_bytes(os.urandom(4), "little")
    done = subprocess.run(
        [program, str(seed), str(INPUTS)], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, f"first seed {seed}\n{done.stderr}"
    assert f"{INPUTS} inputs" in done.stdout


@pytest.mark.timeout(SECONDS + 180)
def test_libfuzzer_finds_nothing(tmp_path: Path) -> None:
    compiler = clang()
    if compiler is None:
        pytest.skip("libFuzzer needs clang")
    program = tmp_path / "fuzz_engine"
    build(compiler, program, "-fsanitize=fuzzer")
    corpus = tmp_path / "corpus"
    subprocess.run([sys.executable, ROOT / "csrc/tests/fuzz_corpus.py", corpus], check=True)
    limits = [f"-max_total_time={SECONDS}", "-max_len=4096", "-timeout=20"]
    done = subprocess.run(
        [program, *limits, f"-artifact_prefix={tmp_path}/", corpus],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS + 120,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert "Done " in done.stderr
