"""`prestage stats`: the counters of a running target."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from prestage.target.commands.common import Subparsers, connect, remote
from prestage.target.commands.output import out, out_json
from prestage.target.errors import InvalidFlag
from prestage.target.sizes import format_duration, format_size

NUMBERS_THAT_NAME = frozenset(("port", "nsid", "cntlid", "qid", "connection", "slba", "pid"))
"""They count nothing, so that their digits are not grouped."""
USE = {"limit", "used"}
"""Of a budget: shown as one against the other."""
IDLE_DEPTH = 2
EXACT = 1000
"""From here on, decimals of a number say nothing."""
MAX_ROWS = 64
"""Of a list; the rest is counted. `--json` has all of it."""


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = remote(subparsers, "stats", "show the counters of a target", run)
    parser.add_argument("--watch", metavar="S", type=float, help="again every S seconds")


def run(args: argparse.Namespace) -> int:
    """Show counters once, or again and again until interrupted."""
    period_s: float | None = args.watch
    if period_s is not None and not (math.isfinite(period_s) and 0.05 <= period_s <= 86400):
        raise InvalidFlag(f"found {period_s:g}", "--watch", "0.05 to 86400 seconds")
    with connect(args) as client:
        while True:
            show(client.call("prestage_get_stats"), as_json=args.json)
            if period_s is None:
                return 0
            time.sleep(period_s)
            if not args.json:
                out()


def show(stats: dict[str, Any], *, as_json: bool) -> None:
    """Print counters: a heading for each group, and names aligned with their numbers."""
    if as_json:
        out_json(stats)
        return
    for line in lines(stats):
        out(line)


def lines(value: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield nested counters as indented lines; plain numbers come before groups."""
    indent = "  " * depth
    plain = {name: item for name, item in value.items() if not _is_group(item, depth)}
    width = max((len(label(name)) for name in plain), default=0)
    for name, item in plain.items():
        yield f"{indent}{label(name).ljust(width)}  {shown(name, item)}"
    for name, item in value.items():
        if not _is_group(item, depth):
            continue
        if isinstance(item, Mapping):
            yield f"{indent}{label(name)}"
            yield from lines(item, depth + 1)
        else:
            yield from _list_lines(name, item, depth)


def _list_lines(name: str, items: list[Any], depth: int) -> Iterator[str]:
    indent = "  " * depth
    for number, item in enumerate(items[:MAX_ROWS]):
        yield f"{indent}{label(name)}[{number}]"
        yield from lines(item, depth + 1)
    if len(items) > MAX_ROWS:
        yield f"{indent}{label(name)}: {len(items) - MAX_ROWS} more"


def _is_group(item: Any, depth: int) -> bool:
    """Return whether it takes lines of its own. Deep down, counters that are all 0 are one line."""
    if isinstance(item, Mapping):
        is_idle = depth >= IDLE_DEPTH and not any(item.values())
        return bool(item) and not is_idle and set(item) != USE
    return isinstance(item, list) and bool(item) and all(isinstance(i, Mapping) for i in item)


def label(name: str) -> str:
    """Return a counter's name for people; its unit is shown with the number."""
    if "." in name or ":" in name:
        return name
    for suffix in ("_bytes", "_ns", "_s"):
        if name.endswith(suffix) and not name.endswith("_per_s"):
            return name.removesuffix(suffix).replace("_", " ") + _kind(suffix)
    return name.replace("_", " ")


def _kind(suffix: str) -> str:
    return " bytes" if suffix == "_bytes" else " time"


def shown(name: str, item: Any) -> str:
    """Return a counter's value for people, with its unit."""
    if isinstance(item, bool):
        return "yes" if item else "no"
    if isinstance(item, Mapping):
        return _used(name, item) if set(item) == USE else "-"
    if isinstance(item, int) and (_is_size(name) or name == "bandwidth"):
        return format_size(item) + ("" if _is_size(name) else "/s")
    if isinstance(item, int) and name.endswith("_ns"):
        return format_duration(item / 1e9)
    if isinstance(item, int | float) and name.endswith("_s") and not name.endswith("_per_s"):
        return format_duration(item)
    if isinstance(item, int) and name not in NUMBERS_THAT_NAME:
        return f"{item:,}".replace(",", " ")
    if isinstance(item, float):
        return f"{item:.4g}" if abs(item) < EXACT else f"{item:,.0f}".replace(",", " ")
    if item in (None, "", [], {}):
        return "-"
    if isinstance(item, list):
        return ", ".join(map(str, item))
    return str(item)


def _is_size(name: str) -> bool:
    return name == "size" or name.endswith("bytes") or name.startswith("bytes_")


def _used(name: str, budget: Mapping[str, int]) -> str:
    return f"{shown(name, budget['used'])} of {shown(name, budget['limit'])}"
