"""How commands print: plain and aligned, as a table of rich on a terminal, or as JSON."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from prestage.target.sizes import printable


def out(text: str = "") -> None:
    """Write a line to standard output; whatever is in it, it stays one line."""
    sys.stdout.write(printable(text) + "\n")


def out_text(text: str) -> None:
    """Write several lines, whose ends are our own."""
    for line in text.split("\n"):
        out(line)


def out_json(data: Any) -> None:
    """Write data as one line of JSON; indented when a person looks at it."""
    encoded = msgspec.json.encode(data)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    sys.stdout.write("".join(map(_escaped, encoded.decode())) + "\n")


def _escaped(character: str) -> str:
    """Return a character of a JSON text as it may be shown; it means the same."""
    if character.isprintable() or character == "\n":
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Write rows under their columns, or `empty` when there are none."""
    if not rows:
        out(empty)
        return
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        _rich_table(columns, texts)
        return
    widths = [max(len(row[i]) for row in [list(columns), *texts]) for i in range(len(columns))]
    for row in [list(columns), *texts]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        out(line.rstrip())


def _rich_table(columns: Sequence[str], texts: list[list[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        # Names are to be copied whole, so they are folded rather than cut.
        grid.add_column(column, overflow="fold")
    for row in texts:
        grid.add_row(*[cell.replace("[", r"\[") for cell in row])
    Console().print(grid)
