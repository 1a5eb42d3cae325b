"""Runs the lines of a recipe that are all of the command `prestage`, in one process.

    command_lines.py RECIPE

Python's start takes ten seconds under emulation; a shell would pay it for every line.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rig.recipes import recipe

from prestage.cli import main


def run(name: str) -> int:
    """Run the lines until one fails; return its status."""
    for line in recipe(name).splitlines():
        program, *words = shlex.split(os.path.expandvars(line))
        if program != "prestage":
            sys.exit(f"recipe {name}: found {line!r}, expected lines of `prestage`")
        if status := main(words):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
