"""The probes, proved: Linux's own nvmet-tcp gives the answers that the tables say it gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .running import NQN, ROOT

SCRIPT = ROOT / "scripts" / "reference-target"
MODULES = (
    *("commands", "crowds", "cut_points", "discovery", "faults", "fused", "greedy", "hostile"),
    *("integrity", "leaks", "power", "probes", "resize", "stop", "transfers"),
)
"""What is tested of any target: nothing of the extension, which the kernel's does not have."""


@pytest.mark.rig
@pytest.mark.timeout(420)
@pytest.mark.parametrize("kernel", ["6.12", pytest.param("6.1", marks=pytest.mark.slow)])
def test_probes_against_the_kernels_target(kernel: str, tmp_path: Path) -> None:
    console = tmp_path / "console"
    command = [
        str(SCRIPT),
        "-k",
        kernel,
        "-t",
        "400",
        "--log",
        str(console),
        "--",
        "env",
        f"PRESTAGE_TEST_TARGET=127.0.0.1:{{port}},{NQN},nvmet",
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--maxfail=20",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:looptime_plugin",
        *(str(ROOT / "tests" / "wire" / f"test_{name}.py") for name in MODULES),
        "-m",
        "not rig",
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=410, cwd=ROOT
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    said = console.read_text(errors="replace")
    assert "BUG:" not in said and "Oops" not in said, said[-4000:]
