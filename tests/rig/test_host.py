"""The rig's side on this machine, with a stand-in for the target and without a guest."""

from __future__ import annotations

import json
import socket
import stat
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import host, pattern
from rig.golden import BAD_LBA, OURS
from rig.target import Nvmet, RigError, Target

STAND_IN = """#!{python}
# Behaves like `prestage` as far as the rig can see; the file `behaviour` beside it steers it.
import json, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
behaviour = (here / "behaviour").read_text()
with (here / "calls").open("a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
if sys.argv[1] == "stats":
    print(json.dumps({{"hints": {{"tenants": []}}, "tier": {{}}}}))
    sys.exit(0)
if sys.argv[1] == "namespace":
    sys.exit("no such namespace" if behaviour == "refuses" else 0)
if behaviour == "fails":
    sys.exit("rig.toml: listeners[0].port: expected something else")
status = 3 if behaviour == "unflushed" else 0
signal.signal(signal.SIGTERM, lambda *_: sys.exit(status))
ready = pathlib.Path(sys.argv[sys.argv.index("--ready-file") + 1])
bound = {{"address": "127.0.0.1", "port": int((here / "port").read_text())}}
made = {{"listeners": [bound], "control_socket": "/s"}}
(here / "new").write_text(json.dumps(made))
(here / "new").rename(ready)
while True:
    time.sleep(60)
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """The folder with the stand-in `prestage`."""
    program = tmp_path / "prestage"
    program.write_text(STAND_IN.format(python=sys.executable))
    # Beside it an interpreter that has made all pages.
    (tmp_path / "python").write_text("#!/bin/sh\n")
    for made in (program, tmp_path / "python"):
        made.chmod(made.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "behaviour").write_text("works")
    (tmp_path / "port").write_text("4")
    return tmp_path


@pytest.fixture
def target(stand_in: Path) -> Iterator[Target]:
    files = stand_in / "files"
    files.mkdir()
    made = Target((str(stand_in / "prestage"),), files)
    yield made
    made.close()


def calls(stand_in: Path) -> list[list[str]]:
    return [json.loads(line) for line in (stand_in / "calls").read_text().splitlines()]


def test_configuration_holds_the_golden_fields_and_the_fault(
    target: Target, stand_in: Path
) -> None:
    target.start()
    config = tomllib.loads((stand_in / "files" / "rig.toml").read_text())
    (subsystem,) = config["subsystems"]
    golden = OURS
    assert (subsystem["nqn"], subsystem["serial"], subsystem["model"]) == (
        golden.nqn,
        golden.serial,
        golden.model,
    )
    assert config["listeners"] == [{"address": "127.0.0.1", "port": 0}]
    assert subsystem["extension"] is True
    blocks = {each["nsid"]: each["block"] for each in subsystem["namespaces"]}
    assert blocks == golden.blocks
    sizes = {each["nsid"]: Path(each["path"]).stat().st_size for each in subsystem["namespaces"]}
    assert sizes == golden.sizes
    first = BAD_LBA * 512
    assert subsystem["namespaces"][1]["faults"] == [
        f"error:op=read,errno=EIO,first={first},last={first + 511}"
    ]


def test_restarts_come_back_on_the_same_port(target: Target, stand_in: Path) -> None:
    target.start()
    for again in (target.restart, target.kill):
        again()
        config = tomllib.loads((stand_in / "files" / "rig.toml").read_text())
        assert config["listeners"][0]["port"] == target.port == 4
    target.stop()


def test_target_that_cannot_start_is_named_with_its_own_words(
    target: Target, stand_in: Path
) -> None:
    (stand_in / "behaviour").write_text("fails")
    with pytest.raises(RigError, match=r"(?s)serve --config .*exit 1.*expected something else"):
        target.start()


def test_target_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = Target((str(tmp_path / "nothing"),), tmp_path)
    with pytest.raises(RigError, match=r"cannot start .*nothing serve"):
        missing.start()
    missing.close()
    with pytest.raises(RigError, match="no executable"):
        host.run(host.Options(prestage=(str(tmp_path / "nothing"),)))


def test_target_that_did_not_flush_is_a_failure(target: Target, stand_in: Path) -> None:
    (stand_in / "behaviour").write_text("unflushed")
    target.start()
    with pytest.raises(RigError, match="stopped with exit 3"):
        target.stop()


def test_namespaces_are_managed_as_an_operator_would(target: Target, stand_in: Path) -> None:
    target.start()
    target.add(3, 16)
    target.grow(3, 24)
    target.remove(3)
    path = stand_in / "files" / "namespace3"
    assert calls(stand_in)[1:] == [
        ["namespace", "add", f"{path},size=16M,nsid=3", "--control-socket", "/s"],
        ["namespace", "resize", "3", "24M", "--control-socket", "/s"],
        ["namespace", "remove", "3", "--control-socket", "/s"],
    ]


def test_the_first_namespace_holds_blocks_that_are_known_anywhere(
    target: Target, stand_in: Path
) -> None:
    with (stand_in / "files" / "namespace1").open("rb") as file:
        file.seek((pattern.FIRST + pattern.COUNT - 1) * pattern.BLOCK_BYTES)
        last = file.read(2 * pattern.BLOCK_BYTES)
    assert last[:4096] == pattern.blocks(pattern.FIRST + pattern.COUNT - 1, 1)
    assert not any(last[4096:])


def test_what_the_target_counts_of_hints_is_asked_as_an_operator_would(target: Target) -> None:
    target.start()
    assert target.stats() == {"tenants": []}


class Refusing(Nvmet):
    """A side that cannot do what is asked."""

    def add(self, nsid: int, size_mib: int) -> None:
        raise RigError(f"no room for namespace {nsid} of {size_mib} MiB")


@pytest.fixture
def server() -> Iterator[tuple[host.ControlServer, list[dict[str, Any]]]]:
    found: list[dict[str, Any]] = []
    made = host.ControlServer(Refusing(), found.append)
    yield made, found
    made.close()


def test_requests_are_answered_and_findings_kept(
    server: tuple[host.ControlServer, list[dict[str, Any]]],
) -> None:
    control, found = server
    requests = [
        {"step": "discover", "facts": {}},
        {"ask": "restart", "arguments": {}},
        {"ask": "add", "arguments": {"nsid": 3, "size_mib": 16}},
        {"ask": "stats", "arguments": {}},
        {"ask": "close", "arguments": {}},
    ]
    with (
        socket.create_connection(("127.0.0.1", control.port), 10) as connection,
        connection.makefile("rw", encoding="utf-8") as lines,
    ):
        for request in requests:
            lines.write(json.dumps(request) + "\n")
        lines.flush()
        answers = [json.loads(lines.readline()) for _ in range(4)]
    assert found == [{"step": "discover", "facts": {}}]
    assert answers == [
        {"ok": True},
        {"ok": False, "error": "no room for namespace 3 of 16 MiB"},
        {"ok": True, "result": {}},
        {"ok": False, "error": "unknown request 'close'"},
    ]


@pytest.mark.rig
@pytest.mark.timeout(300)
def test_a_target_that_nobody_can_reach_fails_the_run(stand_in: Path, tmp_path: Path) -> None:
    """The stand-in listens on nothing: the rig must say so, and must not wait for its time."""
    options = host.Options(prestage=(str(stand_in / "prestage"),), seconds=120)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        (stand_in / "port").write_text(str(bound.getsockname()[1]))
        report = host.run(options, tmp_path / "keep")
    assert [step.name for step in report.steps] == ["discover", "connect"]
    assert not report.ok
    assert all(step.problems for step in report.steps)
    assert "the guest ended with 1" in report.problems[0]
