"""docs/hosts.md: its programs run, its commands are understood."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prestage import testing
from prestage.cli import build_parser, main
from prestage.ext.codec import decode_batch

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "hosts.md").read_text("utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SHELL = dict(re.findall(r"^```sh run=(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL))
RECIPES = {
    *("rule", "node", "make", "dd", "decode", "cache", "dsm", "read", "passthru", "logs", "char"),
    *("cc", "c"),
}
"""The rig runs each of them in a real kernel."""


@pytest.fixture(scope="module")
def served() -> Iterator[testing.Target]:
    with testing.in_thread(testing.Target(namespaces=["256M"], dram="32M", extension=True)) as one:
        yield one


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_its_programs_run(served: testing.Target, number: int) -> None:
    url = f"nvme+tcp://127.0.0.1:{served.port}/{served.nqn}"
    program = f"url = {url!r}\n{PYTHON[number]}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def words_of(name: str) -> list[list[str]]:
    return [shlex.split(line) for line in SHELL[name].splitlines()]


def test_its_recipes_are_all_there() -> None:
    assert set(SHELL) == RECIPES
    assert len(PYTHON) == 4


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_its_commands_are_understood(name: str) -> None:
    for words in words_of(name):
        if words[0] == "prestage":
            build_parser().parse_args(words[1:])


def test_its_pages_are_made_and_say_what_they_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in words_of("make"):
        assert main(words[1:]) == 0
    kinds = [
        type(decode_batch((tmp_path / name).read_bytes()).records[0]).__name__
        for name in ("set.bin", "ask.bin", "intend.bin", "batch.bin")
    ]
    assert kinds == ["SetRecord", "Residency", "Intent", "Intent"]


@pytest.mark.parametrize("name", ["node", "char"])
def test_its_commands_for_a_node_do_over_the_network_what_they_say(
    served: testing.Target, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nodes themselves exist where a kernel is the host: in the rig."""
    where = {"$NODE": f"127.0.0.1:{served.port}", "$CHAR": f"127.0.0.1:{served.port}"}
    for words in words_of(name):
        assert main([where.get(word, word) for word in words[1:]]) == 0
    assert "(100 %)" in capsys.readouterr().out


def test_its_json_lines_are_records_that_a_target_takes(
    served: testing.Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    lines = tmp_path / "lines"
    lines.write_text(block)
    words = ["hint", "batch", f"127.0.0.1:{served.port}", "--input", str(lines), "--json"]
    assert main(words) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert (report["accepted"], report["dropped"], report["unknown"]) == (4, 0, 0)
