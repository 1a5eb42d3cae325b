"""The reference pages say what the code does: every field, default, flag and method."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prestage.cli import build_parser, main
from prestage.replay.commands import DEFAULT
from prestage.replay.flags import PLAN, parse_hints
from prestage.target.config import QUANTITIES, settings_from
from prestage.target.media_options import FAULT_OPTIONS, MEDIA_OPTIONS
from prestage.target.rpc import server
from prestage.target.rpc.dispatch import METHODS, RelaxedParams
from prestage.target.settings import (
    HintSettings,
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    PrestagerSettings,
    SchedulerSettings,
    Settings,
    SubsystemSettings,
    TargetSettings,
    TenantSettings,
    TierSettings,
    TransportSettings,
)
from prestage.target.sizes import parse_size, size_text

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECTIONS: dict[str, type[Settings]] = {
    "Top level": TargetSettings,
    "listeners": ListenerSettings,
    "subsystems": SubsystemSettings,
    "subsystems.namespaces": NamespaceSettings,
    "tier": TierSettings,
    "limits": LimitSettings,
    "transport": TransportSettings,
    "scheduler": SchedulerSettings,
    "hints": HintSettings,
    "hints.tenants": TenantSettings,
    "prestager": PrestagerSettings,
}


def section(page: str, title: str) -> str:
    """Return the part of a page from a heading to the next of the same or a higher level."""
    text = (DOCS / page).read_text("utf-8")
    match = re.search(
        rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,3}} |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert match is not None, title
    return match[2]


def rows(text: str) -> list[list[str]]:
    """Return the cells of the tables in a text, without their headings."""
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def default_text(kind: type[Settings], name: str) -> str | None:
    """Return a field's default as the page is to show it; None: it is described in words."""
    value = getattr(kind(), name)
    if isinstance(value, Settings) or name == "listeners":
        return None
    if value is None:
        return "not given"
    if QUANTITIES.get((kind, name)) is parse_size and value and value % 1024 == 0 and value > 4096:
        return f'`"{size_text(value)}"`'
    return f"`{json.dumps(value)}`"


@pytest.mark.parametrize("title", SECTIONS)
def test_every_field_is_described_with_its_default_and_none_that_is_not_there(title: str) -> None:
    kind = SECTIONS[title]
    found = {cells[0].strip("`"): cells[1] for cells in rows(section("configuration.md", title))}
    assert list(found) == [field.name for field in msgspec.structs.fields(kind)]
    for name, text in found.items():
        assert text == (default_text(kind, name) or "as below") or name == "listeners", name


@pytest.mark.parametrize(
    ("title", "options"), [("media", MEDIA_OPTIONS), ("faults", FAULT_OPTIONS)]
)
def test_every_option_of_a_medium_and_a_wrapper_is_described(
    title: str, options: dict[str, dict[str, object]]
) -> None:
    cells = [[cell.strip("`") for cell in row] for row in rows(section("configuration.md", title))]
    described = {(kind, name) for kind, name, _ in cells}
    assert described == {(kind, name) for kind, known in options.items() for name in known}


def test_the_examples_are_a_good_configuration(tmp_path: Path) -> None:
    text = (DOCS / "configuration.md").read_text("utf-8")
    example = "".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL))
    # The device of the example is not on every machine.
    there = tmp_path / "device"
    there.write_bytes(bytes(4096))
    data = tomllib.loads(example.replace("/dev/nvme0n1", str(there)))
    data["tier"]["size"] = "64M"
    settings = settings_from(data, "example")
    assert settings.subsystems[0].namespaces[1].size == 64 << 30
    assert settings.hints.tenants[0].tier_percent == 10


def test_every_method_is_listed_and_marked_when_it_is_relaxed() -> None:
    assert server.FAMILIES
    found = {cells[0].strip("`"): cells[1:] for cells in rows(section("management.md", "Methods"))}
    assert sorted(found) == sorted(METHODS)
    for name, method in METHODS.items():
        relaxed = issubclass(method.params, RelaxedParams)
        assert ("*relaxed*" in " ".join(found[name])) == relaxed, name


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings}


def commands_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def test_every_flag_of_serve_is_described() -> None:
    described = {cells[0].strip("`") for cells in rows(section("cli.md", "serve"))}
    flags = flags_of(commands_of(build_parser())["serve"]) - {"-h", "--help"}
    assert described == flags
    assert flags <= set(re.findall(r"--[a-z-]+", section("cli.md", "The command line")))


def test_every_flag_of_replay_is_described_with_its_default() -> None:
    described = {cells[0].strip("`"): cells[1] for cells in rows(section("cli.md", "replay"))}
    parser = commands_of(build_parser())["replay"]
    assert set(described) == flags_of(parser) - {"-h", "--help"}
    for action in parser._actions:
        flag, default = action.option_strings[-1:], action.default
        if flag and isinstance(default, str) and default != argparse.SUPPRESS:
            assert f"({default})" in described[flag[0]], flag
    text = " ".join(parser.format_help().split())
    assert f"({', '.join(DEFAULT)})" in text
    assert "Without any: " + ", ".join(f"`{each}`" for each in DEFAULT) in described["--policy"]
    assert f"left out is {PLAN}" in text
    assert f"left out is `{PLAN}`" in described["--hints"]
    assert parse_hints(PLAN, "") == parse_hints("lead=2s", "")


def test_every_field_of_the_json_of_a_replay_is_described_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "a.csv"
    trace.write_text("time_s,request,block,op\n0,r,a,write\n5,s,a,read\n")
    words = ["--tier", "100%", "--policy", "hints", "--hints", "lead=1s", "--json"]
    assert main(["replay", str(trace), *words]) == 0
    (trial,) = json.loads(capsys.readouterr().out)
    (policy,) = trial["policies"]
    regime = trial["regime"]
    text = section("replay-formats.md", "What --json prints")
    tables = re.split(r"^Of .*`(?:[a-z_]+\.)?([a-z_]+)`.*:$", text, flags=re.MULTILINE)
    parts = dict(zip(["", *tables[1::2]], tables[::2], strict=True))
    found = {
        "": trial,
        "regime": regime,
        "hints": regime["hints"],
        "first_token": regime["first_token"],
        "policies": policy,
    }
    for name, fields in found.items():
        assert [cells[0].strip("`") for cells in rows(parts[name])] == list(fields), name
    assert all(f"`{each}`" in parts[""] for each in policy["time_to_data_s"])


def test_a_fault_of_a_trace_is_told_as_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [f"{at},r{at},a,read" for at in range(15)]
    text = "\n".join(["time_s,request,block,op", *lines, "15,r15,a,raed"])
    Path("trace.csv").write_text(text, "utf-8")
    assert main(["replay", "trace.csv"]) == 1
    said = capsys.readouterr().err.removeprefix("prestage: ").rstrip()
    assert f"    {said}\n" in section("replay-formats.md", "Trace formats")


def test_every_command_is_named() -> None:
    usage = section("cli.md", "The command line")
    for name, parser in commands_of(build_parser()).items():
        inner = "|".join(commands_of(parser))
        assert f"prestage {name} {inner}".strip() in usage


@pytest.mark.parametrize("title", ["Commands for a running target", "Commands for a host"])
def test_the_examples_of_commands_are_understood(title: str) -> None:
    examples = re.findall(r"^    prestage (.*)$", section("cli.md", title), re.MULTILINE)
    assert examples
    for example in examples:
        build_parser().parse_args(shlex.split(example, comments=True))


@pytest.mark.parametrize("page", ["testing.md", "management.md"])
def test_the_examples_in_python_compile(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert examples
    for example in examples:
        compile(example, page, "exec")
