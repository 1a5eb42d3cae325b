"""How `prestage top` looks: figures as tables of rich, in as many columns as the terminal has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from prestage.target.commands.top_figures import ENDINGS
from prestage.target.sizes import format_duration, format_size, printable

Figures = Mapping[str, Any]
WIDE = 150
"""Columns of a terminal from which on everything is shown."""
NARROW_NAME = 18
"""Columns of a name on other terminals."""


class Cell(NamedTuple):
    """What stands under a heading in one row; what is `extra` is for wide terminals."""

    heading: str
    text: str
    extra: bool = False
    is_name: bool = False


def screen(figures: Figures, width: int) -> RenderableType:
    """Return everything: a line on the target, then tier, media, deadlines and tenants."""
    is_wide = width >= WIDE
    tables = (
        ("DRAM tier", [_tier(figures["tier"])]),
        ("Media", [_medium(one) for one in figures["media"]]),
        ("Prestager", [_prestager(figures["prestager"])]),
        ("Predictions", _sources(figures["prestager"]["learned"])),
        ("Deadlines", _deadlines(figures["deadlines"])),
        ("Tenants", [_tenant(one) for one in figures["tenants"]]),
    )
    parts: list[RenderableType] = [_head(figures)]
    parts += [_table(title, rows, is_wide=is_wide) for title, rows in tables if rows]
    parts += _benefit(figures["prestager"]["learned"].get("benefit"))
    parts.append(Text("waiting, under way: demand, dated, write, speculative", style="dim"))
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


def _table(title: str, rows: Sequence[Sequence[Cell]], *, is_wide: bool) -> Table:
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    shown = [[cell for cell in row if is_wide or not cell.extra] for row in rows]
    for cell in shown[0]:
        table.add_column(
            cell.heading,
            justify="left" if cell.is_name else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if cell.is_name else len(cell.heading),
            max_width=NARROW_NAME if cell.is_name and not is_wide else None,
        )
    for row in shown:
        table.add_row(*[Text(cell.text) for cell in row])
    return table


def _tier(tier: Figures) -> list[Cell]:
    hits = "-" if tier["hit_percent"] is None else f"{tier['hit_percent']:.1f} %"
    return [
        Cell("hits", hits),
        Cell("slots", _number(tier["frames_resident"])),
        Cell("free", _number(tier["frames_free"])),
        Cell("dirty", _number(tier["frames_dirty"])),
        Cell("evicted/s", _number(tier["evictions_per_s"]), extra=True),
        Cell("brought in/s", _bytes(tier["hydrated_bytes_per_s"])),
        Cell("timely/s", _number(tier["timely_hits_per_s"])),
        Cell("late/s", _number(tier["late_hits_per_s"])),
        Cell("wasted/s", _bytes(tier["wasted_bytes_per_s"])),
    ]


def _medium(one: Figures) -> list[Cell]:
    return [
        Cell("namespace", f"{_short(one['nqn'])} {one['nsid']}", is_name=True),
        Cell("reads/s", _number(one["reads_per_s"])),
        Cell("read/s", _bytes(one["read_bytes_per_s"]), extra=True),
        Cell("writes/s", _number(one["writes_per_s"])),
        Cell("written/s", _bytes(one["write_bytes_per_s"]), extra=True),
        Cell("medium/s", _bytes(one["media_read_bytes_per_s"])),
        Cell("waiting", _classes(one["waiting"])),
        Cell("under way", _classes(one["in_flight"])),
        Cell("window", _number(one["window"]), extra=True),
        Cell("held back", _bytes(one["job_bytes"]), extra=True),
        Cell("bandwidth", f"{_bytes(one['bandwidth_bytes_per_s'])}/s", extra=True),
        Cell("service", format_duration(one["service_ns"] / 1e9), extra=True),
        Cell("met/s", _number(one["dated_met_per_s"])),
        Cell("late/s", _number(one["dated_late_per_s"])),
    ]


def _classes(counts: Figures) -> str:
    return " ".join(map(str, counts.values()))


def _prestager(one: Figures) -> list[Cell]:
    return [
        Cell("state", one["state"], is_name=True),
        Cell("restarts", _number(one["restarts"])),
        Cell("facts/s", _number(one["facts_per_s"])),
        Cell("waiting", _number(one["facts_waiting"]), extra=True),
        Cell("lost/s", _number(one["facts_lost_per_s"]), extra=True),
        Cell("orders/s", _number(one["orders_per_s"])),
        Cell("landed/s", _number(one["landed_per_s"])),
        Cell("no room/s", _number(one["no_room_per_s"]), extra=True),
        Cell("fetched/s", _bytes(one["fetched_bytes_per_s"])),
        Cell("pending", _number(one["pending"]), extra=True),
        Cell("cpu", f"{one['cpu_percent']:.1f} %"),
        Cell("memory", _bytes(one["memory_bytes"])),
    ]


def _sources(learned: Figures) -> list[list[Cell]]:
    """Return a row for each source of predictions that has made any."""
    return [
        [
            Cell("source", one["source"], is_name=True),
            Cell("gate", one["gate"], is_name=True),
            Cell("predicted", _number(one["predicted"])),
            Cell("issued", _number(one["issued"])),
            Cell("in time", _number(one["in_time"])),
            Cell("late", _number(one["late"])),
            Cell("evicted", _number(one["evicted"]), extra=True),
            Cell("expired", _number(one["expired"]), extra=True),
            Cell("precision", f"{one['precision']:.2f}"),
            Cell("at least", f"{one['low']:.2f}", extra=True),
            Cell("calibration", f"{one['calibration_error']:.3f}", extra=True),
        ]
        for one in learned.get("sources", ())
        if one["predicted"]
    ]


def _benefit(benefit: Figures | None) -> list[RenderableType]:
    """Return a line on what acting was worth, once there is something to compare it with."""
    if not benefit or benefit["low"] is None or benefit["high"] is None:
        return []
    words = (
        f"measured benefit: {_number(benefit['hits'])} hits"
        f" ({_number(benefit['low'])} to {_number(benefit['high'])} with 95 % confidence)"
        f" by {_number(benefit['acted'])} predictions acted on, against"
        f" {_number(benefit['held'])} held out"
    )
    return [Text(words)]


def _deadlines(deadlines: Figures) -> list[list[Cell]]:
    """Return a row for each priority that anything was asked for with."""
    return [
        _ended(kind.replace("_", " "), priority, one)
        for kind, priorities in deadlines.items()
        for priority, one in priorities.items()
        if one.get("arrived")
    ]


def _ended(kind: str, priority: str, one: Figures) -> list[Cell]:
    return [
        Cell("kind", kind, is_name=True),
        Cell("priority", priority, is_name=True),
        Cell("pending", _number(one["pending"])),
        Cell("warm already", _number(one["met_warm"]), extra=True),
        *(Cell(name, _number(one[name]), extra=name == "cancelled") for name in ENDINGS),
        Cell("met/s", _number(one["met_per_s"])),
        Cell("late/s", _number(one["late_per_s"])),
        Cell("dropped/s", _number(one["dropped_per_s"]), extra=True),
        Cell("cancelled/s", _number(one["cancelled_per_s"]), extra=True),
    ]


def _tenant(one: Figures) -> list[Cell]:
    budgets = one["budgets"]
    tier = budgets.get("tier_bytes", {})
    return [
        Cell("host", _short(one["host_nqn"]), is_name=True),
        Cell("records/s", _number(one["records_per_s"])),
        Cell("dropped/s", _number(one["dropped_per_s"])),
        Cell("read hints/s", _number(one["read_hints_per_s"]), extra=True),
        Cell("sets", _used(budgets, "sets"), extra=True),
        Cell("intents", _used(budgets, "intents")),
        Cell("in tier", _bytes(tier.get("used", 0))),
        Cell("of", _bytes(tier.get("limit", 0)), extra=True),
        Cell("timely/s", _number(one["timely_hits_per_s"])),
        Cell("late/s", _number(one["late_hits_per_s"]), extra=True),
        Cell("wasted/s", _bytes(one["wasted_bytes_per_s"])),
    ]


def _used(budgets: Figures, name: str) -> str:
    return _number(budgets.get(name, {}).get("used", 0))


def _short(nqn: str) -> str:
    """Return what tells an NQN from others: what stands behind its last colon."""
    return printable(nqn.rpartition(":")[2])


def _number(value: float) -> str:
    """Return a number whose digits are grouped; a small fraction keeps some of its own."""
    if value and abs(value) < 10 and value != int(value):
        return f"{value:.2g}"
    return f"{round(value):,}".replace(",", " ")


def _bytes(value: float) -> str:
    return format_size(round(value))
