"""What the README lists is whole, and each thing is there once."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def test_every_page_is_in_the_row_of_docs() -> None:
    (row,) = (line for line in README.splitlines() if line.startswith("| `docs/` |"))
    pages = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")}
    assert pages <= set(re.findall(r"\((docs/[^)]*)\)", row))


def test_no_command_is_listed_twice() -> None:
    cells = [line.split(" | ")[0] for line in README.splitlines() if line.startswith("| `prestage")]
    commands = [name for cell in cells for name in re.findall(r"`(prestage [a-z-]+)", cell)]
    # A command whose subcommands are told apart stands for each of them.
    assert len(commands) > 10
    assert sorted(set(commands)) == sorted(commands)
