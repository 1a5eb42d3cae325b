"""Replays with a target of their own, as processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

WITHIN_S = 60.0
SOURCE = Path(__file__).resolve().parents[1] / "src"


@contextlib.contextmanager
def started(
    module: str, *words: str, folder: Path, ignored: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Run a module of Python in a folder beside the block, with some signals ignored (`HUP`)."""
    command = [sys.executable, "-m", module, *words]
    if ignored:
        command = ["sh", "-c", f"trap '' {' '.join(ignored)}; exec \"$@\"", "sh", *command]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def target_of(process: subprocess.Popen[str]) -> tuple[int, Path]:
    """Return the target that a replay has started, once it answers, and its folder."""
    limit_s = time.monotonic() + WITHIN_S
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while time.monotonic() < limit_s:
        for child in children.read_text("ascii").split():
            words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if "--state-directory" in words:
                folder = Path(words[words.index("--state-directory") + 1])
                if (folder / "prestage.sock").exists():
                    return int(child), folder
        time.sleep(0.01)
    raise AssertionError("no target was started")


def wait_gone(target: int, folder: Path) -> None:
    """Wait until a target whose parent is gone has ended, and its folder is removed."""
    limit_s = time.monotonic() + WITHIN_S
    while _runs(target) or folder.exists():
        assert time.monotonic() < limit_s, f"process {target} or {folder} is left"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    """Whether a process is there, and no zombie that nobody reaps."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
