"""How commands print: plain and aligned, as a table of rich on a terminal, or as JSON."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import msgspec


def out(text: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(text + "\n")


def out_json(data: Any) -> None:
    """Write data as one line of JSON; indented when a person looks at it."""
    encoded = msgspec.json.encode(data)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    out(encoded.decode())


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """Write rows under their columns, or `empty` when there are none."""
    if not rows:
        out(empty)
        return
    texts = [[str(cell) for cell in row] for row in rows]
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
