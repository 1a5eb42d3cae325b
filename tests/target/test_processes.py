"""What is read of a process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from prestage.target.processes import usage_of


def test_one_that_works_is_runnable_and_has_had_time(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"  # a name is between brackets, and may have some
    program.symlink_to("/bin/sh")
    with subprocess.Popen([program, "-c", "while :; do :; done"]) as process:
        try:
            limit = time.monotonic() + 60
            while usage_of(process.pid).cpu_s < 0.05:
                assert time.monotonic() < limit
            assert usage_of(process.pid).is_runnable
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            assert not usage_of(process.pid).is_runnable
        finally:
            process.kill()


def test_one_that_is_gone_does_nothing() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    assert usage_of(process.pid) == (False, 0.0)
