"""A command that ends with whoever started it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from live_support import WITHIN_S, started

from prestage.replay import tethered


def test_it_is_the_command_and_leaves_the_folder_to_its_parent(tmp_path: Path) -> None:
    with started(*tethered.command(str(tmp_path))[1:], "--version", folder=tmp_path) as process:
        output, errors = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, errors) == (0, "")
        assert output.startswith("prestage ")
        assert tmp_path.exists()


def test_of_a_parent_that_died_before_nothing_is_run_and_nothing_left(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = tmp_path / "folder"
    folder.mkdir()
    words = [tethered.__name__, str(gone.pid), str(folder), "--version"]
    with started(*words, folder=tmp_path) as process:
        output, errors = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, output, errors) == (1, "", "")
        assert not folder.exists()
