"""The command line: what each command prints, and how it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Cli, cli
from rpc_tools import HOST, NQN

from prestage.cli import build_parser, main
from prestage.host_client.errors import HostError
from prestage.replay.live_run import HOST_NQN
from prestage.target.commands.output import table
from prestage.target.commands.stats import lines
from prestage.target.rpc.client import Client
from prestage.testing import Target, in_thread

__all__ = ["cli"]
ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
INTERRUPTED = """
import os, runpy, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "prestage.target.errors":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
runpy.run_module("prestage", run_name="__main__", alter_sys=True)
"""
SERVE = """
import sys
from fake_target import FakeTarget
from prestage.target import service
from prestage.cli import build_parser, main
from prestage.host_client.errors import HostError
service.make_target = FakeTarget
sys.exit(main(sys.argv[1:]))
"""


def test_namespaces_are_listed(cli: Cli) -> None:
    assert cli.run("namespace", "list") == (
        f"NSID  SIZE   BLOCK  MEDIUM  SUBSYSTEM\n1     1 MiB  4096   ram     {NQN}\n"
    )
    (row,) = cli.json("namespace", "list", "--nqn", NQN)
    assert (row["nsid"], row["size_bytes"], row["media"]) == (1, 1 << 20, "ram")


def test_a_namespace_is_added_resized_and_removed(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "d.img"
    assert cli.run("namespace", "add", f"{path},size=2M,block=512") == (
        f"added namespace 2 to {NQN}\n"
    )
    settings = cli.target.subsystems[0].namespaces[2].settings
    assert (settings.path, settings.size, settings.block) == (str(path), 2 << 20, 512)
    assert cli.run("namespace", "resize", "2", "4M") == (f"namespace 2 of {NQN} has 4 MiB now\n")
    assert cli.json("namespace", "list")[1]["size_bytes"] == 4 << 20
    assert cli.run("namespace", "remove", "2") == f"removed namespace 2 from {NQN}\n"
    assert list(cli.target.subsystems[0].namespaces) == [1]
    # Nothing is left behind that would keep the file or its name taken.
    assert cli.run("namespace", "add", f"{path},size=2M") == f"added namespace 2 to {NQN}\n"


def test_a_relative_path_is_that_of_the_command_not_of_the_target(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli.run("namespace", "add", "d.img,size=2M")
    assert cli.target.subsystems[0].namespaces[2].settings.path == f"{tmp_path}/d.img"


def test_a_namespace_that_came_with_the_configuration_is_removed(cli: Cli) -> None:
    assert cli.json("namespace", "remove", "1") == {"nqn": NQN, "nsid": 1}
    assert cli.run("namespace", "list") == "no namespaces\n"


def test_a_namespace_with_options_is_added_as_they_say(cli: Cli) -> None:
    added = cli.json(
        "namespace", "add",
        "ram:,size=1M,nsid=9,write=through,fault=delay:read_us=5,"
        "uuid=6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    )  # fmt: skip
    assert added["nsid"] == 9
    settings = cli.target.subsystems[0].namespaces[9].settings
    assert settings.write_policy == "through"
    assert settings.faults == ["delay:read_us=5"]
    assert settings.uuid == "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


def test_a_namespace_that_the_target_refuses_leaves_nothing(cli: Cli) -> None:
    error = cli.run("namespace", "add", "ram:,size=1M,nsid=1", code=1)
    assert error.startswith("prestage: File exists: ")
    assert len(cli.json("namespace", "list")) == 1
    with Client(cli.path) as client:
        assert len(client.call("bdev_get_bdevs")) == 1
    assert cli.run("namespace", "add", "ram:,size=1M") == f"added namespace 2 to {NQN}\n"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["namespace", "remove", "9"], 1,
         f"prestage: {NQN}: there is no namespace 9 (expected 1)\n"),
        (["namespace", "resize", "1", "big"], 1,
         ('prestage: size: found "big", expected a size such as 4G, 512M, 64K or a whole number of '
         "bytes\n")),
        (["namespace", "resize", "1", "0"], 1,
         ("prestage: Invalid parameters: size: found 0, expected a multiple of the block size, "
         "4096, that is not 0\n")),
        (["namespace", "add", "/no/such"], 2,
         ('prestage: namespace /no/such: path: found no file "/no/such", expected an existing '
         "file, or a size to create it with\n")),
        (["namespace", "list", "--nqn", "x"], 1,
         f"prestage: --nqn: there is no subsystem x (expected {NQN})\n"),
        (["host", "allow", "me"], 1,
         ('prestage: Invalid parameters: host: found "me", expected an NQN such as '
         "nqn.2026-11.com.example:name\n")),
        (["host", "deny", HOST], 1,
         f'prestage: No such device: host: "{HOST}" is not on the list\n'),
        (["listener", "add", "nowhere"], 2,
         ('prestage: address: "nowhere": found "nowhere", expected an IPv4 or IPv6 address such as '
         "127.0.0.1 or ::1\n")),
        (["listener", "add", "127.0.0.1:0"], 2,
         "prestage: address: found port 0 in 127.0.0.1:0 (expected a port, 1 to 65535)\n"),
        (["listener", "remove", "127.0.0.1"], 1,
         "prestage: address: found no port in 127.0.0.1 (expected ADDRESS:PORT)\n"),
        (["listener", "remove", "127.0.0.1:1"], 1,
         "prestage: No such device: 127.0.0.1 port 1: not listened on\n"),
        (["stats", "--watch", "0"], 2,
         "prestage: --watch: found 0 (expected 0.05 to 86400 seconds)\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_sentence(
    cli: Cli, words: list[str], code: int, message: str
) -> None:
    assert cli.run(*words, code=code) == message


def test_with_several_subsystems_one_must_be_named(cli: Cli) -> None:
    other = "nqn.2026-11.com.example:b"
    cli.target.by_nqn[other] = cli.target.by_nqn[NQN].__class__(other, "S", "M", set(), False, 9)
    error = cli.run("namespace", "add", "ram:,size=1M", code=1)
    assert error == (
        f"prestage: --nqn: the target has several subsystems (expected one of {NQN}, {other})\n"
    )
    cli.run("namespace", "add", "ram:,size=1M", "--nqn", other)
    assert list(cli.target.by_nqn[other].namespaces) == [1]


def test_hosts_are_allowed_denied_and_listed(cli: Cli) -> None:
    assert cli.run("host", "list") == (f"HOST        SUBSYSTEM\n(any host)  {NQN}\n")
    assert cli.run("host", "allow", HOST) == f"{HOST} may connect to {NQN}\n"
    assert cli.run("host", "deny", "--any") == f"only listed hosts may connect to {NQN}\n"
    assert cli.json("host", "list") == [{"nqn": NQN, "allow_any_host": False, "hosts": [HOST]}]
    assert cli.run("host", "deny", HOST) == f"{HOST} may not connect to {NQN}\n"
    assert cli.run("host", "list") == "no host may connect\n"
    assert cli.json("host", "allow", "--any") == {"nqn": NQN, "host": None, "allowed": True}


def test_listeners_are_added_removed_and_listed(cli: Cli) -> None:
    assert cli.run("listener", "add", "[::1]:40001") == "listening on [::1]:40001\n"
    assert cli.run("listener", "add", "[::1]:40001") == "listening on [::1]:40001 already\n"
    assert cli.run("listener", "list") == (
        "ADDRESS    PORT   FAMILY\n127.0.0.1  4420   IPv4\n::1        40001  IPv6\n"
    )
    assert cli.run("listener", "remove", "[::1]:40001") == (
        "not listening on [::1]:40001 any more\n"
    )
    assert cli.json("listener", "list") == [{"address": "127.0.0.1", "port": 4420}]


def test_counters_are_shown(cli: Cli) -> None:
    text = cli.run("stats")
    assert "uptime time  12.5 s\n" in text
    assert "core\n  commands  5\n  bytes in  4 KiB\n" in text
    assert cli.json("stats")["core"] == {"commands": 5, "bytes_in": 4096}


def test_counters_are_aligned_and_have_units() -> None:
    shown = list(
        lines(
            {
                "count": 1234567,
                "read_ns": 1_500_000,
                "media_read_bytes": 8192,
                "ratio": 0.25,
                "hits": 15912.4,
                "flag": True,
                "none": [],
                "names": ["a", "b"],
                "inner": [{"qid": 0}],
                "group": {"x": 1},
                "idle": {"x": 0, "deep": {"deeper": {"x": 0}}},
                "tier_bytes": {"limit": 4 << 20, "used": 65536},
                "records_per_s": {"limit": 2000, "used": 3},
            }
        )
    )
    assert shown == [
        "count             1 234 567",
        "read time         1.5 ms",
        "media read bytes  8 KiB",
        "ratio             0.25",
        "hits              15 912",
        "flag              yes",
        "none              -",
        "names             a, b",
        "tier bytes        64 KiB of 4 MiB",
        "records per s     3 of 2 000",
        "inner[0]",
        "  qid  0",
        "group",
        "  x  1",
        "idle",
        "  x  0",
        "  deep",
        "    deeper  -",
    ]


def test_counters_are_watched_until_interrupted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    assert main(["stats", "--watch", "2", "--json", "--control-socket", cli.path]) == 130
    assert waits == [2.0, 2.0, 2.0]
    assert len(cli.capsys.readouterr().out.splitlines()) == 3


def test_a_terminal_gets_a_table_that_shows_every_name_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    table(("HOST", "[X]"), [("(any [host])", 1)], "none")
    printed = capsys.readouterr().out
    assert "(any [host])" in printed
    assert "HOST" in printed


EVIL = "nqn.x:\x1b]0;mine\x07\x1b[2J\n\x9b31mFAKE\u202e\U000e0001"
"""A Host NQN that would steer a terminal."""


def test_names_of_hosts_do_not_steer_the_terminal(cli: Cli) -> None:
    cli.target.tenants = [{"host_nqn": EVIL, "records": 0}]
    plain, raw = cli.run("stats"), cli.run("stats", "--json")
    table(("HOST",), [(EVIL,)], "none")
    for printed in (plain, raw, cli.capsys.readouterr().out):
        assert all(c.isprintable() or c == "\n" for c in printed), printed
    assert r"nqn.x:\x1b]0;mine\x07\x1b[2J\x0a\x9b31mFAKE" in plain
    assert json.loads(raw)["hints"]["tenants"][0]["host_nqn"] == EVIL


def test_the_completion_of_a_shell_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--print-completion", "bash"])
    assert caught.value.code == 0
    assert "--ready-fd" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [["--print-completion", "bash"], ["--help"], ["replay", "--help"]]
)
def test_a_reader_that_has_seen_enough_of_what_parsing_prints_is_no_fault(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "prestage", *words],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        # Argparse itself passes over it that nobody reads its help.
        assert process.wait(30) in (0, 1)


def test_an_interrupt_while_it_imports_is_one_as_any_other() -> None:
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (found.returncode, found.stderr) == (130, b"")


def test_a_host_that_is_not_allowed_is_told_so_by_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine = "nqn.2026-11.org.example:me"
    with in_thread(Target(hosts=["nqn.2026-11.org.example:other"])) as target:
        where = f"{target.address}:{target.port}"
        assert main(["residency", where, "--range", "0+8", "--host-nqn", mine]) == 1
        found = capsys.readouterr().err
        assert f"{where}: the target shows no subsystem to the host {mine} (expected" in found
        assert f"`prestage host allow {mine}`" in found
        words = ["replay", "poisson", "--policy", "none", "--live", where]
        assert main([*words, "--control-socket", target.control_socket]) == 1
        found = capsys.readouterr().err
        assert f"{where}: the target shows no subsystem to the host {HOST_NQN}" in found


def test_a_configuration_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.toml"
    path.write_text('[[subsystems]]\n[[subsystems.namespaces]]\nmedia = "ram"\nsize = "1M"\n')
    assert main(["check-config", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed == f"{path}: good (1 listener, 1 subsystem, 1 namespace)\n"
    path.write_text("reactors = 0\nbogus = 1")
    assert main(["check-config", str(path)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        (
            f"{path}: bogus: unknown field, expected one of listeners, subsystems, tier, limits, "
            "transport, scheduler, hints, prestager, reactors, cpus, state_directory, "
            "control_socket"
        ),
        f"{path}: reactors: found 0, expected 1 to 64",
    ]
    assert main(["check-config", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["errors"][1] == {"path": "reactors", "message": "found 0, expected 1 to 64"}


def test_without_a_target_the_socket_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PRESTAGE_SOCKET", raising=False)
    assert main(["stats"]) == 1
    assert capsys.readouterr().err == (
        f"prestage: cannot reach a target at {tmp_path}/var/prestage.sock: no target runs there "
        "(no such socket) (expected the control socket of a running target, by --control-socket "
        "or $PRESTAGE_SOCKET)\n"
    )
    monkeypatch.setenv("PRESTAGE_SOCKET", str(tmp_path / "env"))
    assert main(["stats"]) == 1
    assert f"at {tmp_path}/env:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [[], ["nope"], ["serve", "--bogus"], ["namespace"], ["namespace", "add"], ["host", "allow"],
     ["host", "allow", HOST, "--any"], ["namespace", "remove", "x"], ["serve", "--reactors", "x"]],
)  # fmt: skip
def test_wrong_usage_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "usage: prestage" in capsys.readouterr().err


def test_arguments_that_are_not_utf_8_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--namespace", os.fsdecode(b"/tmp/\xff,size=1M")]) == 2
    assert "expected arguments in UTF-8" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    version = next(
        line.split('"')[1]
        for line in (ROOT / "pyproject.toml").read_text().splitlines()
        if line.startswith("version")
    )
    assert capsys.readouterr().out == f"prestage {version}\n"


def serve(*flags: str, **popen: Any) -> subprocess.Popen[str]:
    """Start `prestage serve` over a fake target as a process of its own."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, "serve", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        **popen,
    )


def test_serve_runs_until_a_signal_and_ends_with_0(tmp_path: Path) -> None:
    process = serve("--namespace", "ram:,size=1M", "--json", "--state-directory", str(tmp_path))
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["pid"] == process.pid
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert json.loads(out)["clean"] is True
    assert process.returncode == 0
    # The log is structured, since nobody watches.
    assert all(json.loads(line)["logger"].startswith("prestage") for line in err.splitlines())


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--namespace", "/no/such"], 2, "prestage: --namespace /no/such: path: found no file"),
        (["--config", "/no/such.toml"], 1,
         ("prestage: /no/such.toml: cannot be read: No such file or directory, expected a TOML "
          "file\n")),
        (["--namespace", "ram:,size=1M", "--ready-fd", "987"], 1,
         ("prestage: cannot serve: --ready-fd: found 987: Bad file descriptor (expected an open "
         "pipe)\n")),
        (["--namespace", "ram:,size=1M", "--state-directory", "/dev/null/x"], 2,
         ('prestage: command line: state_directory: found "/dev/null", expected a directory\n')),
    ],
)  # fmt: skip
def test_serve_that_cannot_start_is_one_sentence_and_no_traceback(
    flags: list[str], code: int, message: str, tmp_path: Path
) -> None:
    process = serve(*flags, cwd=tmp_path)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err.startswith(message)
    assert len(err.splitlines()) == 1
    assert out == ""


def test_output_into_a_closed_pipe_is_no_traceback(cli: Cli) -> None:
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, sys.path)])
    reader, writer = os.pipe()
    os.close(reader)
    found = subprocess.run(
        [sys.executable, "-m", "prestage", "stats", "--control-socket", cli.path],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=30,
        check=False,
    )
    os.close(writer)
    assert found.returncode == 1
    assert found.stderr == ""


def test_commands_of_targets_and_of_hosts_stand_beside_each_other() -> None:
    text = build_parser().format_help()
    for name in ("serve", "stats", "top", "check-config", "hint", "residency", "outcome"):
        assert re.search(rf"^    {name} ", text, re.MULTILINE), name


def test_what_fails_at_a_host_is_one_sentence_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["residency", "--range", "0+1"]) == 2
    assert capsys.readouterr().err.startswith("prestage: TARGET: ")

    def fail(*_: object) -> int:
        raise HostError("nobody answers", "127.0.0.1", "a target")

    monkeypatch.setattr("prestage.target.commands.check_config.load_config", fail)
    assert main(["check-config", "x"]) == 1
    assert capsys.readouterr().err == "prestage: 127.0.0.1: nobody answers (expected a target)\n"


SLOW = ("numpy", "prestage.host_client.controller", "prestage.ext.conform", "prestage._engine")


@pytest.mark.parametrize("words", [["--help"], ["stats", "--help"], []])
def test_a_command_of_the_target_imports_nothing_of_the_host(words: list[str]) -> None:
    code = f"""
import contextlib, io, sys
from prestage import cli
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    cli.build_parser({words!r}).parse_args({words!r})
sys.exit(",".join(name for name in {SLOW!r} if name in sys.modules) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_help_names_every_command_whether_it_was_imported_or_not() -> None:
    assert build_parser(["--help"]).format_help() == build_parser().format_help()


@pytest.mark.parametrize("word", ["--print-completion", "--print-completion=bash", "--print-c"])
def test_completion_knows_the_arguments_of_all_commands(word: str) -> None:
    parser = build_parser([word, "bash"])
    with pytest.raises(SystemExit):
        parser.parse_args(["residency", "--no-such-flag"])
    assert parser.parse_args(["residency", "--range", "0+8", "here"]).range == ["0+8"]
