"""`prestage top`: its figures, how they are drawn, and the live view on a terminal."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Cli, cli
from rich.console import Console

from prestage.target.commands.top_figures import figures
from prestage.target.commands.top_screen import screen
from prestage.target.settings import DISCOVERY_NQN

__all__ = ["cli"]
ROOT = Path(__file__).resolve().parents[2]
NQN = "nqn.2026-11.com.example:models"
HOST = "nqn.2026-11.com.example:host[1]"
UUID_HOST = "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427"


def counts(**more: int) -> dict[str, int]:
    names = ("arrived", "pending", "met", "met_warm", "late", "dropped", "cancelled")
    return dict.fromkeys(names, 0) | more


def stats(uptime_s: float = 10.0, factor: int = 0) -> dict[str, Any]:
    """Counters of a target that has done `factor` times the same."""
    classes = {
        name: {"waiting": number, "in_flight": number + 4}
        for number, name in enumerate(("demand", "dated", "write", "speculative"))
    }
    return {
        "uptime_s": uptime_s,
        "connections": 3,
        "core": {"commands": 1000 * factor},
        "tier": {"read_hits": 300 * factor, "read_misses": 100 * factor, "frames_free": 17,
                 "wasted_bytes": 4096 * factor},
        "subsystems": [
            {"nqn": DISCOVERY_NQN, "namespaces": []},
            {
                "nqn": NQN,
                "namespaces": [
                    {
                        "nsid": 1,
                        "counters": {"reads": 400 * factor, "read_bytes": (400 << 16) * factor},
                        "scheduler": {"window": 32, "dated_met": 50 * factor,
                                      "dated_late": 2 * factor, "bandwidth": 1 << 30,
                                      "service_ns": 90_000, "classes": classes},
                    }
                ],
            },
        ],
        "prestager": {
            "state": "running", "pid": 4, "restarts": 1, "last_error": "was killed by SIGKILL",
            "process": {"facts": 500 * factor, "cpu_ns": 250_000_000 * factor,
                        "memory_bytes": 48 << 20, "facts_waiting": 2},
            "orders": {"orders": 60 * factor, "landed": 40 * factor, "pending": 3,
                       "fetched_bytes": (40 << 16) * factor},
            "learned": {
                "sources": [
                    {"source": "return", "gate": "open", "predicted": 90, "issued": 80,
                     "in_time": 61, "late": 1, "evicted": 8, "expired": 10, "precision": 0.7625,
                     "low": 0.7, "calibration_error": 0.031},
                    {"source": "chain", "gate": "probe", "predicted": 0},
                ],
                "benefit": {"acted": 80, "held": 10, "hits": 51.0, "low": 44.0, "high": 58.0},
            },
        },
        "hints": {
            "tenants": [
                {
                    "host_nqn": HOST,
                    "records": 80 * factor,
                    "dropped": {"rate": 3 * factor, "budget": 1 * factor},
                    "budgets": {"sets": {"limit": 9, "used": 5}},
                    "intents": {"urgent": counts(arrived=9, met=10 * factor, pending=4),
                                "low": counts()},
                    "dated_reads": {"urgent": counts(arrived=1, late=1 * factor), "low": counts()},
                    "tier": {"frames": 6, "hint_frames": 2},
                }
            ]
        },
        "warnings": [],
    }  # fmt: skip


def test_rates_are_of_the_time_between_two_looks() -> None:
    found = figures(stats(10.0), stats(12.0, factor=2))
    assert (found["interval_s"], found["commands_per_s"]) == (2.0, 1000.0)
    assert found["tier"]["hit_percent"] == 75.0
    assert found["tier"]["wasted_bytes_per_s"] == 4096.0
    (medium,) = found["media"]
    assert (medium["nqn"], medium["nsid"], medium["reads_per_s"]) == (NQN, 1, 400.0)
    assert (medium["dated_met_per_s"], medium["dated_late_per_s"]) == (50.0, 2.0)
    assert medium["waiting"] == {"demand": 0, "dated": 1, "write": 2, "speculative": 3}
    assert (medium["window"], medium["service_ns"]) == (32, 90_000)


def test_deadlines_are_those_of_all_hosts_by_priority() -> None:
    before, after = stats(10.0), stats(12.0, factor=2)
    other = stats(12.0, factor=1)["hints"]["tenants"][0] | {"host_nqn": "other"}
    after["hints"]["tenants"].append(other)
    urgent = figures(before, after)["deadlines"]["intents"]["urgent"]
    assert (urgent["met"], urgent["pending"], urgent["met_per_s"]) == (30, 8, 15.0)
    assert figures(before, after)["deadlines"]["dated_reads"]["urgent"]["late"] == 3


def test_each_host_has_its_rates_and_budgets() -> None:
    (tenant,) = figures(stats(10.0), stats(11.0, factor=1))["tenants"]
    assert (tenant["host_nqn"], tenant["records_per_s"], tenant["dropped_per_s"]) == (HOST, 80, 4)
    assert tenant["budgets"]["sets"] == {"limit": 9, "used": 5}
    assert tenant["hint_frames"] == 2


def test_the_prestager_has_its_rates_and_what_it_says_of_itself() -> None:
    found = figures(stats(10.0), stats(12.0, factor=2))["prestager"]
    assert (found["state"], found["restarts"]) == ("running", 1)
    assert (found["facts_per_s"], found["orders_per_s"], found["landed_per_s"]) == (500, 60, 40)
    assert (found["cpu_percent"], found["memory_bytes"]) == (25.0, 48 << 20)
    assert found["learned"]["sources"][0]["precision"] == 0.7625


def test_what_the_prestager_is_worth_is_drawn_once_it_is_known() -> None:
    after = stats(12.0, factor=2)
    benefit = after["prestager"]["learned"]["benefit"]
    text = " ".join(drawn(figures(stats(10.0), after)).split())
    assert "measured benefit: 51 hits (44 to 58 with 95 % confidence)" in text, text
    assert "by 80 predictions acted on, against 10 held out" in text, text
    benefit["low"] = benefit["high"] = None
    assert "benefit" not in drawn(figures(stats(10.0), after))


def test_a_target_that_was_started_again_has_no_negative_rates() -> None:
    found = figures(stats(100.0, factor=50), stats(1.0, factor=1))
    assert found["commands_per_s"] == 0 and found["tier"]["hit_percent"] is None


def drawn(found: dict[str, Any], width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(screen(found, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_everything_is_drawn() -> None:
    after = stats(12.0, factor=2)
    after["warnings"] = ["the disk is warm"]
    text = drawn(figures(stats(10.0), after))
    for words in (
        "up 12 s   3 connections   1 000 commands/s   q quits",
        "75.0 %", "models 1", "0 1 2 3", "4 5 6 7", "1 GiB/s", "90 us",
        "intents", "dated reads", "urgent", "host[1]", "warning: the disk is warm",
        "Prestager", "running", "25.0 %", "48 MiB", "Predictions", "return", "open", "0.76",
    ):  # fmt: skip
        assert words in text, text


def test_on_a_small_terminal_less_is_drawn_and_nothing_is_cut() -> None:
    text = drawn(figures(stats(10.0), stats(12.0, factor=2)), 80)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines()), text
    for words in ("75.0 %", "models 1", "0 1 2 3", "4 5 6 7", "urgent", "host[1]", "q quits"):
        assert words in text, text
    assert "\u2026" not in text and "bandwidth" not in text
    after = stats(12.0, factor=2)
    after["hints"]["tenants"][0]["host_nqn"] = UUID_HOST
    text = drawn(figures(stats(10.0), after), 80)
    assert "1b4e28ba-2fa1-11d\u2026" in text and "wasted/s" in text.partition("Tenants")[2], text


def test_the_name_of_a_host_does_not_steer_the_terminal() -> None:
    now = stats(12.0, factor=2)
    now["hints"]["tenants"][0]["host_nqn"] = "nqn.x:\x1b[2J\x9b31m\u202ehost"
    text = drawn(figures(stats(), now))
    assert r"\x1b[2J\x9b31m\x202ehost" in text
    assert not set("\x1b\x9b\u202e") & set(text)


def test_a_target_without_hosts_is_drawn_too() -> None:
    idle = stats()
    idle["hints"]["tenants"] = []
    idle["prestager"] = {
        "state": "off",
        "restarts": 0,
        "last_error": "",
        "process": {},
        "orders": {},
        "learned": {},
    }
    text = drawn(figures(idle, idle))
    assert (
        "DRAM tier" in text
        and "Tenants" not in text
        and "Predictions" not in text
        and "Deadlines" not in text
    )


# ---- the command ----


def test_one_shot_is_json(cli: Cli) -> None:
    found = cli.json("top", "--interval", "0.05")
    assert set(found) == set(figures(stats(), stats()))


def test_without_a_terminal_it_says_so(cli: Cli) -> None:
    assert cli.run("top", code=1) == (
        "prestage: prestage top: there is no terminal to draw on (expected a terminal, or --json)\n"
    )


def test_an_interval_is_a_number_of_seconds(cli: Cli) -> None:
    assert cli.run("top", "--json", "--interval", "0", code=2) == (
        "prestage: --interval: found 0 (expected 0.05 to 86400 seconds)\n"
    )


def read_until(fd: int, words: bytes) -> bytes:
    """Read what a terminal shows until `words` are there."""
    seen, end = b"", time.monotonic() + 30
    while words not in seen:
        assert time.monotonic() < end, seen
        ready, _, _ = select.select([fd], [], [], 1)
        if ready:
            seen += os.read(fd, 65536)
    return seen


@pytest.mark.parametrize(("ending", "code"), [("q", 0), ("SIGINT", 130)])
def test_the_live_view_ends_and_leaves_the_terminal_as_it_was(
    cli: Cli, ending: str, code: int
) -> None:
    host_side, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    process = subprocess.Popen(
        [sys.executable, "-m", "prestage", "top", "--interval", "0.05", "--control-socket",
         cli.path],
        stdin=terminal, stdout=terminal, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "COLUMNS": "200"},
    )  # fmt: skip
    try:
        for _ in range(2):
            read_until(host_side, b"DRAM tier")
        if ending == "q":
            os.write(host_side, b"xq")
        else:
            process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, error) == (code, b"")
    assert termios.tcgetattr(terminal) == before
    os.close(host_side)
    os.close(terminal)
