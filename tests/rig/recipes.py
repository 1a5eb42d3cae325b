"""The recipes of docs/hosts.md: blocks of shell, each under a name, run as they stand.

Some are run here, by whoever has prestage (pages made, answers read); the others in the guest,
which sees the same page in its view of this machine's root file system.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "hosts.md"
COMMAND_S = 120.0


class RecipeError(Exception):
    """A recipe is missing or ended badly; the text says which, and what it printed."""


def recipe(name: str) -> str:
    """Return the lines of a recipe."""
    block = re.compile(rf"^```sh run={name}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    blocks = block.findall(PAGE.read_text("utf-8"))
    if len(blocks) != 1:
        raise RecipeError(f"{PAGE}: {len(blocks)} blocks `sh run={name}`, expected one")
    return str(blocks[0])


def shell(name: str) -> list[str]:
    """Return the command that runs a recipe, and stops at its first line that fails."""
    return ["bash", "-euo", "pipefail", "-c", recipe(name)]


def in_one_process(name: str, prestage: str) -> list[str]:
    """Return the command that runs a recipe whose lines are all of the command `prestage`.

    `prestage`: the path of that command, beside its interpreter.
    """
    python = Path(prestage).with_name("python")
    return [str(python), str(Path(__file__).with_name("command_lines.py")), name]


def run_here(command: list[str], folder: Path) -> str:
    """Run a command in a folder that looks like a checkout; return what it printed.

    Raises RecipeError.
    """
    folder.mkdir(exist_ok=True)
    for link in ("csrc", "host_client"):
        if not (folder / link).is_symlink():
            (folder / link).symlink_to(ROOT / link)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
        )
    except OSError as error:
        raise RecipeError(f"cannot start {command[0]}: {error}") from error
    if done.returncode != 0:
        raise RecipeError(f"{shlex.join(command)}: exit {done.returncode}: {done.stdout}")
    return done.stdout
