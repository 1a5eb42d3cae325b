"""How `prestage top` looks: figures as tables of rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from prestage.target.commands.top_figures import ENDINGS
from prestage.target.sizes import format_duration, format_size

Figures = Mapping[str, Any]


def screen(figures: Figures) -> RenderableType:
    """Return everything: a line on the target, then tier, media, deadlines and tenants."""
    parts: list[RenderableType] = [_head(figures), _tier(figures["tier"])]
    parts.append(_media(figures["media"]))
    if any(figures["deadlines"].values()):
        parts.append(_deadlines(figures["deadlines"]))
    if figures["tenants"]:
        parts.append(_tenants(figures["tenants"]))
    parts += [Text(f"warning: {warning}", style="yellow") for warning in figures["warnings"]]
    return Group(*parts)


def _head(figures: Figures) -> Text:
    words = (
        f"up {format_duration(figures['uptime_s'])}",
        f"{figures['connections']} connections",
        f"{_number(figures['commands_per_s'])} commands/s",
        "q quits",
    )
    return Text("prestage  " + "   ".join(words), style="bold")


def _table(title: str, columns: Sequence[str], *, names: int = 1) -> Table:
    """Return an empty table whose first `names` columns are no numbers."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        is_name = index < names
        table.add_column(
            column,
            justify="left" if is_name else "right",
            overflow="fold" if is_name else "ellipsis",
            no_wrap=not is_name,
        )
    return table


def _tier(tier: Figures) -> Table:
    table = _table(
        "DRAM tier",
        ("hits", "resident", "free", "dirty", "evicted/s", "brought in/s", "timely/s", "late/s",
         "wasted/s"),
        names=0,
    )  # fmt: skip
    hits = "-" if tier["hit_percent"] is None else f"{tier['hit_percent']:.1f} %"
    table.add_row(
        hits,
        *(_number(tier[name]) for name in ("frames_resident", "frames_free", "frames_dirty")),
        _number(tier["evictions_per_s"]),
        _bytes(tier["hydrated_bytes_per_s"]),
        _number(tier["timely_hits_per_s"]),
        _number(tier["late_hits_per_s"]),
        _bytes(tier["wasted_bytes_per_s"]),
    )
    return table


def _media(media: Sequence[Figures]) -> Table:
    table = _table(
        "Media",
        ("namespace", "reads/s", "read/s", "writes/s", "written/s", "from medium/s", "waiting",
         "in flight", "window", "held back", "bandwidth", "service", "met/s", "late/s"),
    )  # fmt: skip
    for one in media:
        table.add_row(
            Text(f"{one['nqn'].rpartition(':')[2]} {one['nsid']}"),
            _number(one["reads_per_s"]),
            _bytes(one["read_bytes_per_s"]),
            _number(one["writes_per_s"]),
            _bytes(one["write_bytes_per_s"]),
            _bytes(one["media_read_bytes_per_s"]),
            _classes(one["waiting"]),
            _classes(one["in_flight"]),
            _number(one["window"]),
            _bytes(one["job_bytes"]),
            f"{_bytes(one['bandwidth_bytes_per_s'])}/s",
            format_duration(one["service_ns"] / 1e9),
            _number(one["dated_met_per_s"]),
            _number(one["dated_late_per_s"]),
        )
    table.caption = "waiting and in flight: demand, dated, write, speculative"
    return table


def _classes(counts: Figures) -> str:
    return " ".join(map(str, counts.values()))


def _deadlines(deadlines: Figures) -> Table:
    columns = ("", "priority", "pending", "warm already")
    table = _table("Deadlines", (*columns, *ENDINGS, *(f"{n}/s" for n in ENDINGS)), names=2)
    for kind, priorities in deadlines.items():
        for priority, one in priorities.items():
            table.add_row(
                kind.replace("_", " "),
                priority,
                *(_number(one.get(name, 0)) for name in ("pending", "met_warm", *ENDINGS)),
                *(_number(one[f"{name}_per_s"]) for name in ENDINGS),
            )
    return table


def _tenants(tenants: Sequence[Figures]) -> Table:
    table = _table(
        "Tenants",
        ("host", "records/s", "dropped/s", "read hints/s", "sets", "intents", "in tier", "of",
         "timely/s", "late/s", "wasted/s"),
    )  # fmt: skip
    for one in tenants:
        budgets = one["budgets"]
        table.add_row(
            Text(one["host_nqn"]),
            _number(one["records_per_s"]),
            _number(one["dropped_per_s"]),
            _number(one["read_hints_per_s"]),
            _used(budgets, "sets"),
            _used(budgets, "intents"),
            _bytes(budgets.get("tier_bytes", {}).get("used", 0)),
            _bytes(budgets.get("tier_bytes", {}).get("limit", 0)),
            _number(one["timely_hits_per_s"]),
            _number(one["late_hits_per_s"]),
            _bytes(one["wasted_bytes_per_s"]),
        )
    return table


def _used(budgets: Figures, name: str) -> str:
    return _number(budgets.get(name, {}).get("used", 0))


def _number(value: float) -> str:
    """Return a number whose digits are grouped; a small fraction keeps some of its own."""
    if value and abs(value) < 10 and value != int(value):
        return f"{value:.2g}"
    return f"{round(value):,}".replace(",", " ")


def _bytes(value: float) -> str:
    return format_size(round(value))
