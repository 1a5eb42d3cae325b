"""The command line of scripts/bench: everything is checked before anything starts."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bench_other
import pytest
from bench_options import MODES, MODES_OF, chosen, parse, problems
from bench_run import Server

ROOT = Path(__file__).resolve().parents[2]
NQN = "nqn.2026-11.io.prestage:default"
LIMIT_S = 30.0


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said of a command line that is refused."""
    with pytest.raises(SystemExit) as ended:
        parse(None, words)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.fixture
def listener() -> Iterator[int]:
    """The port of a socket on which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("mode", MODES)
def test_an_option_of_other_modes_is_refused_with_the_modes_that_it_is_for(mode: str) -> None:
    for name, modes in MODES_OF.items():
        about = [said for said in problems(mode, {name}) if "is not for" in said]
        assert bool(about) == (mode not in modes), name
        assert all(f"--{name}" in said and modes[0] in said for said in about)


def test_options_that_contradict_each_other_are_refused() -> None:
    assert problems("lines", {"gross", "beside", "overwrite"})
    assert problems("sockets", {"serve", "target", "overwrite"})
    assert not problems("sockets", {"serve", "target", "overwrite", "against"})
    assert not problems("lines", {"beside", "overwrite", "json", "compare"})


def test_a_running_target_is_written_to_only_when_told_so(
    capsys: pytest.CaptureFixture[str], listener: int
) -> None:
    target = f"127.0.0.1:{listener},{NQN},{os.getpid()}"
    for words in (("--target", target), ("lines", "--beside", target)):
        assert "--overwrite" in refused(capsys, *words)
        assert parse(None, [*words, "--overwrite"]).overwrite
    assert "--target, --beside" in refused(capsys, "--overwrite")


def test_what_was_not_given_has_its_default() -> None:
    found = parse(None, [])
    assert (found.mode, found.rounds, found.seconds, found.serve) == ("sockets", 5, 1.0, ())
    assert parse(None, ["--serve", "--reactors", "2"]).serve == ["--reactors", "2"]


@pytest.mark.parametrize(
    "words",
    [
        *(("--rounds", each) for each in ("0", "-1", "1.5", "")),
        *(("--seconds", each) for each in ("0", "nan", "inf", "-1", "x")),
        *(
            ("--target", each)
            for each in (
                *("foo", "127.0.0.1,x", f"localhost:4420,{NQN}", "127.0.0.1:4420,"),
                *(f"127.0.0.1:{port},{NQN}" for port in ("0", "99999", "x", "")),
                *(f"127.0.0.1:4420,{NQN},{pid}" for pid in ("", "abc", "-1", "1,2")),
            )
        ),
        ("lines", "--beside", f"127.0.0.1:4420,{NQN}"),
        ("--against", "/"),
    ],
    ids=" ".join,
)
def test_a_value_that_cannot_be_is_refused_with_what_was_expected(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert "expected" in refused(capsys, *words)


def test_a_process_that_does_not_listen_there_is_refused(
    capsys: pytest.CaptureFixture[str], listener: int
) -> None:
    place = f"127.0.0.1:{listener},{NQN}"
    for pid in (os.getppid(), 1 << 22):
        assert f"process {pid} " in refused(capsys, "--target", f"{place},{pid}", "--overwrite")
    parsed = parse(None, ["--target", f"{place},{os.getpid()}", "--overwrite"])
    assert parsed.target == Server("127.0.0.1", listener, NQN, os.getpid())


def test_a_process_on_other_cores_than_ours_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("127.0.0.1", 4420, NQN, os.getpid())
    for cores, is_warned in (({0}, False), ({1}, True), ({0, 1}, True)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores)
        assert ("taskset" in bench_other.warning(server)) == is_warned
    assert bench_other.warning(Server("127.0.0.1", 4420, NQN)) == ""


def test_what_cannot_be_written_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    assert parse(None, ["--json", str(file)]).json == file
    assert not file.exists()
    file.write_text("old")
    parse(None, ["--json", str(file)])
    assert file.read_text() == "old"
    assert parse(None, ["--plot", str(tmp_path / "a" / "b")]).plot == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists()
    for name, path in (
        ("--json", tmp_path / "no" / "file"),
        ("--json", tmp_path),
        ("--plot", file),
        ("--plot", file / "plots"),
    ):
        assert "cannot be written" in refused(capsys, name, str(path))


def test_a_whole_name_chooses_that_case_alone() -> None:
    every = {"read QD1": 1, "read QD128": 2, "write QD1": 3}
    assert list(chosen(every, ["read QD1"])) == ["read QD1"]
    assert list(chosen(every, ["read"])) == ["read QD1", "read QD128"]
    assert list(chosen(every, ["write", "read QD128"])) == ["read QD128", "write QD1"]
    assert chosen(every, None) == every


def test_a_name_that_no_case_has_is_refused_with_all_names() -> None:
    with pytest.raises(SystemExit, match=r"'nosuch': there are read, write"):
        chosen({"read": 1, "write": 2}, ["read", "nosuch"])


def test_every_mode_lists_its_cases_and_refuses_others() -> None:
    for mode in MODES:
        listed = bench(mode, "--list")
        names = listed.stdout.splitlines()
        assert listed.returncode == 0
        assert names
        assert bench(mode, "--list", "--case", names[0]).stdout.splitlines() == names[:1]
        wrong = bench(mode, "--case", "nosuch")
        assert wrong.returncode == 1
        assert wrong.stderr == f"bench: --case 'nosuch': there are {', '.join(names)}\n"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/bench."""
    command = [str(ROOT / "scripts" / "bench"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
