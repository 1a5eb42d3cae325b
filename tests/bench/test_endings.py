"""scripts/bench leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from bench_processes import ROOT, child, run

LIMIT_S = 60.0


def of_run(folder: str) -> list[str]:
    """The processes whose temporary folder this is."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}\0".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


def wait_for_target(folder: str) -> None:
    """Return when the run has a target, which has started its prestager."""
    end = time.monotonic() + LIMIT_S
    while not list(Path(folder).glob("prestage-bench-*/target/ready.json")):
        assert time.monotonic() < end, of_run(folder)
        time.sleep(0.05)


@pytest.mark.skipif(not (ROOT / ".venv/bin/prestage").exists(), reason="needs scripts/setup here")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_children_removes_folders_and_says_one_line(number: signal.Signals) -> None:
    # The path of a control socket has to be short, which those of pytest's folders are not.
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        command = [str(ROOT / "scripts" / "bench"), "host", "--case", "1M", "--seconds", "30"]
        pipe = subprocess.PIPE
        environment = os.environ | {"TMPDIR": folder}
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process:
            try:
                wait_for_target(folder)
                process.send_signal(number)
                said = process.communicate(timeout=LIMIT_S)[1].decode()
            finally:
                process.kill()
        assert process.returncode == 128 + number
        # Where the modules have to be built first, that is said as well.
        lines = [line for line in said.splitlines() if not line.startswith("setup: ")]
        assert lines == [f"bench: ended by {number.name} before it was done: no results"]
        assert of_run(folder) == []
        assert list(Path(folder).iterdir()) == []


def test_what_a_child_has_started_ends_with_it() -> None:
    source = (
        "import subprocess, sys; subprocess.Popen(['sleep', '600'], process_group=0);"
        "print('started', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    with child([sys.executable, "-c", source], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        reader = os.dup(process.stdout.fileno())
    # Nobody has the other end any more.
    assert select.select([reader], [], [], LIMIT_S / 10)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_command_that_fails_ends_the_run_with_what_it_was_for_and_what_it_said() -> None:
    with pytest.raises(SystemExit, match="bench: counting: no perf here"):
        run(["sh", "-c", "echo no perf here >&2; exit 3"], "counting")
    with pytest.raises(SystemExit, match="bench: counting: sh ended with status 3"):
        run(["sh", "-c", "exit 3"], "counting")
    with pytest.raises(SystemExit, match="bench: counting: not done within"):
        run(["sleep", "60"], "counting", 0.01)
