"""The fuzzer's four modes on seeded random inputs, with AddressSanitizer and UBSan."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INPUTS = int(os.environ.get("PRESTAGE_FUZZ_INPUTS", "1500"))


def test_seeded_inputs_find_nothing(tmp_path: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    program = tmp_path / "fuzz_engine"
    sources = [*(ROOT / "csrc/tests").glob("fuzz_*.c"), *(ROOT / "csrc/engine").glob("*.c")]
    subprocess.run(
        [compiler, "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror",
         "-DFUZZ_STANDALONE", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
         *sorted(sources), "-lisal", "-o", program],
        check=True,
    )  # fmt: skip
    seed = int.from_bytes(os.urandom(4), "little")
    done = subprocess.run(
        [program, str(seed), str(INPUTS)], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, f"first seed {seed}\n{done.stderr}"
    assert f"{INPUTS} inputs" in done.stdout
