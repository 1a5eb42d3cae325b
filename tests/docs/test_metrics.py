"""The page of figures names everything that `stats` and `top` print."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp.host import connected_queue_pair

from prestage.cli import main
from prestage.target.prestager.ledger import Reliability
from prestage.testing import Target, in_thread

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
WITHIN_S = 60.0
BY_ITSELF = [field.name for field in dataclasses.fields(Reliability)]
"""What is printed only when predictions have ended."""
NAMED = re.compile(r"`([a-z0-9_]+)`")


@pytest.fixture(scope="module")
def documented() -> set[str]:
    """The names in the first cells of the page's tables."""
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    return {name for row in rows for name in NAMED.findall(row.split(" | ")[0])}


def names(value: Any) -> Iterator[str]:
    """Every name of a value and of what is in it."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from names(item)
    elif isinstance(value, list):
        for item in value:
            yield from names(item)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("command", ["stats", "top"])
def test_every_name_that_a_target_prints_is_on_the_page(
    documented: set[str], capsys: pytest.CaptureFixture[str], command: str
) -> None:
    target = Target(extension=True, prestager=True)
    with in_thread(target):
        where = ("--control-socket", target.control_socket)
        limit = time.monotonic() + WITHIN_S
        with connected_queue_pair((target.address, target.port), target.nqn):
            while not printed(capsys, "stats", *where)["prestager"]["learned"]:
                assert time.monotonic() < limit
                time.sleep(0.05)
            found = printed(capsys, command, *where)
    assert sorted({*names(found), *BY_ITSELF} - documented) == []
