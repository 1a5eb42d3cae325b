"""Published replacement policies on a workload, by a test tool that runs beside the product.

`scripts/classical` of a checkout uses libcachesim, which is GPL: it runs as a program of its own,
with an interpreter of its own, and nothing here imports it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from prestage.replay.workload import Workload
from prestage.target.errors import NotFound, TargetError

CHECKOUT: Final = Path(__file__).resolve().parents[3]
SCRIPT: Final = CHECKOUT / "scripts" / "classical"
PYTHON_VARIABLE: Final = "PRESTAGE_CLASSICAL_PYTHON"
DEFAULT_PYTHON: Final = CHECKOUT / "build" / "classical" / "bin" / "python"
CHECK_S: Final = 60.0
EXIT_MISSING: Final = 3
"""How the script ends when there is no libcachesim."""
HOW_TO: Final = (
    "libcachesim, by: python3 -m venv build/classical && build/classical/bin/pip install -r"
    f" scripts/classical-requirements.txt; or {PYTHON_VARIABLE} set to an interpreter that has it"
)


class Answer(msgspec.Struct, frozen=True):
    """What the script prints."""

    version: str
    read_hit_ratio: dict[str, list[float | None]]


def check_tool() -> None:
    """Raise NotFound when the tool or libcachesim is not there."""
    _run([*_tool(None), "--check"], CHECK_S)


def _tool(python: Path | None) -> list[str]:
    interpreter = python or Path(os.environ.get(PYTHON_VARIABLE) or DEFAULT_PYTHON)
    if not SCRIPT.exists():
        raise NotFound("there is no scripts/classical", str(CHECKOUT), "a checkout of the project")
    return [str(interpreter), str(SCRIPT)]


def read_hit_ratios(
    workload: Workload,
    capacities: Sequence[int],
    *,
    policies: Sequence[str] = (),
    python: Path | None = None,
    timeout_s: float = 600.0,
) -> dict[str, list[float]]:
    """Return, by policy, the share of reads that hit a cache of each of `capacities` (blocks).

    nan where there are no reads. `policies`: LRU, MQ, S3-FIFO, SIEVE, ARC, LIRS, W-TinyLFU; all
    unless said. Raises NotFound when the tool or libcachesim is not there, TargetError when the
    tool fails.
    """
    tool = _tool(python)
    with tempfile.TemporaryDirectory(prefix="prestage-classical-") as folder:
        stream = Path(folder) / "stream.npz"
        np.savez(stream, block=workload.block, is_write=workload.is_write)
        command = [*tool, str(stream)]
        for capacity in capacities:
            command += ["--capacity", str(capacity)]
        for policy in policies:
            command += ["--policy", policy]
        output = _run(command, timeout_s)
    try:
        answer = msgspec.json.decode(output, type=Answer)
    except msgspec.DecodeError as fault:
        raise TargetError(f"{fault}", str(SCRIPT), "its JSON") from fault
    return {
        policy: [np.nan if each is None else each for each in ratios]
        for policy, ratios in answer.read_hit_ratio.items()
    }


def _run(command: list[str], timeout_s: float) -> bytes:
    """Return what the tool prints."""
    try:
        ended = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    except OSError as fault:
        raise NotFound(f"cannot be run: {fault.strerror}", command[0], HOW_TO) from fault
    except subprocess.TimeoutExpired as fault:
        raise TargetError(f"did not end within {timeout_s:g} s", command[1]) from fault
    text = ended.stderr.decode("utf-8", "replace").strip()
    if ended.returncode == EXIT_MISSING:
        raise NotFound(text, command[0], HOW_TO)
    if ended.returncode != 0:
        raise TargetError(text or f"ended with {ended.returncode}", command[1])
    return ended.stdout
