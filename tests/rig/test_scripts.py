"""scripts/linux-host and scripts/reference-target: wrong use, fetching a kernel, real boots."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rig.host import LINUX_HOST, ROOT

REFERENCE_TARGET = ROOT / "scripts" / "reference-target"
boots = [pytest.mark.rig, pytest.mark.timeout(300)]


def call(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-k", "6.2", "x"], "-k 6.2: expected 6.12 or 6.1"),
        (["-t", "0", "x"], "-t 0: expected a number of seconds"),
        (["-t", "soon", "x"], "-t soon: expected a number of seconds"),
        (["-c", "0", "x"], "-c 0: expected a number of CPUs"),
        (["-m", "2G", "x"], "-m 2G: expected a number of MiB"),
        (["-f", "4420", "x"], "-f 4420: expected HOSTPORT:GUESTPORT"),
        (["-x"], "unknown option -x"),
        (["-k"], "option -k needs an argument"),
        (["/nonexistent/script"], "SCRIPT /nonexistent/script: no such file"),
        ([], "linux-host [-k 6.12|6.1]"),
    ],
)
def test_linux_host_refuses_wrong_use(arguments: list[str], said: str) -> None:
    done = call(LINUX_HOST, *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000", "--", "true"], "--port 70000: expected 0 to 65535"),
        (["true"], "unknown argument true; expected -- before COMMAND"),
        (["--port"], "--port needs an argument"),
        ([], "reference-target [-k 6.12|6.1]"),
    ],
)
def test_reference_target_refuses_wrong_use(arguments: list[str], said: str) -> None:
    done = call(REFERENCE_TARGET, *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_missing_packages_are_named_with_the_line_that_installs_them(tmp_path: Path) -> None:
    for tool in ("bash", "sed", "realpath", "modprobe", "unxz", "zstd", "flock", "dpkg-deb"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / tool).symlink_to(found)
    done = call(LINUX_HOST, "-p", PATH=str(tmp_path))
    assert done.returncode == 2
    expected = "apt-get install -y --no-install-recommends qemu-system-x86 busybox-static cpio"
    assert expected in done.stderr


FAKE_APT = """#!/bin/bash
# Stands for apt-get, apt-cache, dpkg-deb and depmod, and notes what it was asked.
tool=$(basename "$0")
echo "$tool $*" >>"$FAKE/asked"
case "$tool $*" in
  apt-cache*) [[ ! -e $FAKE/indexes ]] || echo "  Depends: linux-image-fake" ;;
  "apt-get -q update") touch "$FAKE/indexes" ;;
  "apt-get download"*)
    [[ ! -e $FAKE/broken ]] || { echo "E: Failed to fetch" >&2; exit 100; }
    if [[ -e $FAKE/slow ]]; then until [[ -e $FAKE/go ]]; do sleep 0.01; done; fi
    touch fake.deb ;;
  dpkg-deb*) mkdir -p lib/modules/1.0 boot ;;
esac
"""


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """An environment whose package tools are fakes; the folder FAKE steers them."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("apt-get", "apt-cache", "dpkg-deb", "depmod"):
        (tools / name).write_text(FAKE_APT)
        (tools / name).chmod(0o755)
    return {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "FAKE": str(tmp_path),
        "LINUX_HOST_CACHE": str(tmp_path / "cache"),
    }


def asked(tmp_path: Path, what: str) -> int:
    return (tmp_path / "asked").read_text().count(what)


def test_missing_package_indexes_are_fetched_once(tmp_path: Path, fake: dict[str, str]) -> None:
    assert call(LINUX_HOST, "-p", **fake).returncode == 0
    assert asked(tmp_path, "apt-get -q update") == 1
    assert asked(tmp_path, "apt-get download") == 1
    assert call(LINUX_HOST, "-p", **fake).returncode == 0
    assert asked(tmp_path, "apt-get download") == 1, "the cache was not used"


def test_failed_download_is_tried_once_more_and_named(tmp_path: Path, fake: dict[str, str]) -> None:
    (tmp_path / "indexes").touch()
    (tmp_path / "broken").touch()
    done = call(LINUX_HOST, "-k", "6.1", "-p", **fake)
    assert done.returncode == 1
    assert "kernel 6.1 could not be fetched, twice" in done.stderr
    assert asked(tmp_path, "apt-get download") == 2
    (tmp_path / "broken").unlink()
    assert call(LINUX_HOST, "-k", "6.1", "-p", **fake).returncode == 0


def test_of_two_first_users_one_fetches_and_the_other_waits(
    tmp_path: Path, fake: dict[str, str]
) -> None:
    (tmp_path / "indexes").touch()
    (tmp_path / "slow").touch()
    user = [str(LINUX_HOST), "-p"]
    environment = {**os.environ, **fake}
    with (
        subprocess.Popen(user, env=environment, stderr=subprocess.PIPE, text=True) as one,
        subprocess.Popen(user, env=environment, stderr=subprocess.PIPE, text=True) as other,
    ):
        first_lines = first_line(one) + first_line(other)
        (tmp_path / "go").touch()
        assert [one.wait(30), other.wait(30)] == [0, 0]
    assert first_lines.count("waiting for another") == 1
    assert asked(tmp_path, "apt-get download") == 1


def first_line(user: subprocess.Popen[str]) -> str:
    """What a user of the cache says first: that it fetches, or that it waits."""
    assert user.stderr is not None
    return user.stderr.readline()


def guest_script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script"
    path.write_text(text)
    return path


class TestBoots:
    pytestmark = boots

    def test_status_output_and_arguments_are_the_scripts_own(self, tmp_path: Path) -> None:
        script = guest_script(
            tmp_path, 'echo "<$2> $#"; cat /sys/module/nvme_tcp/initstate; exit 7'
        )
        done = call(LINUX_HOST, script, "first", "a 'b' \"c\"")
        assert done.returncode == 7
        assert done.stdout.splitlines() == ["<a 'b' \"c\"> 2", "live"]

    def test_time_is_up(self, tmp_path: Path) -> None:
        done = call(LINUX_HOST, "-t", "2", guest_script(tmp_path, "exit 0"))
        assert (done.returncode, "time is up (2 s)" in done.stderr) == (124, True)

    def test_told_to_stop_it_takes_the_emulator_with_it(self, tmp_path: Path) -> None:
        script = guest_script(tmp_path, "echo here; read -t 600 < <(tail -f /dev/null)")
        with subprocess.Popen([LINUX_HOST, script], stdout=subprocess.PIPE, text=True) as guest:
            assert guest.stdout is not None
            assert guest.stdout.readline() == "here\n"
            family = descendants(guest.pid)
            assert any("qemu" in name for name in family.values())
            guest.send_signal(signal.SIGTERM)
            assert guest.wait(30) == 143
        deadline = time.monotonic() + 10
        while left := [pid for pid in family if Path(f"/proc/{pid}").exists()]:
            assert time.monotonic() < deadline, f"still there: {left} of {family}"
            time.sleep(0.05)

    def test_reference_target_answers_and_passes_the_commands_status(
        self, reference: Reference
    ) -> None:
        assert reference.answer == bytes((1, 0, 128, 0, 128))
        assert reference.told_port == reference.port
        assert reference.done.returncode == 9, reference.done.stderr

    def test_the_kernels_own_target_is_without_pax_and_passes_the_fallback_clauses(
        self, reference: Reference
    ) -> None:
        report = json.loads(reference.conform)
        outcomes = {one["clause"]: one["outcome"] for one in report["results"]}
        assert reference.conform_status == "0"
        assert report["pax"] is False
        assert outcomes == {"3.5.2": "passed", "3.5.3": "passed", "3.5.4": "passed"}


REFERENCE_NQN = "nqn.2026-11.io.prestage:reference"
PROBE = """
import os, pathlib, socket, subprocess, sys

port, prestage, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
peer = socket.create_connection(("127.0.0.1", int(port)), 10)
peer.sendall(bytes((0, 0, 128, 0, 128)) + bytes(123))
(folder / "answer").write_bytes(peer.recv(128, socket.MSG_WAITALL)[:5])
(folder / "ports").write_text(port + " " + os.environ["PRESTAGE_REFERENCE_PORT"])
words = [prestage, "conform", "127.0.0.1:" + port, "--nqn", sys.argv[4], "--json"]
with (folder / "conform").open("wb") as out:
    (folder / "status").write_text(str(subprocess.run(words, stdout=out).returncode))
sys.exit(9)
"""
"""Runs beside a reference target: one boot for all that is asked of it."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """What PROBE has found."""

    done: subprocess.CompletedProcess[str]
    port: str
    told_port: str
    answer: bytes
    conform: str
    conform_status: str


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    prestage = Path(sys.executable).with_name("prestage")
    probe = ("python3", "-c", PROBE, "{port}", prestage, folder, REFERENCE_NQN)
    done = call(REFERENCE_TARGET, "-k", "6.1", "--", *probe)
    assert (folder / "status").exists(), done.stderr
    port, told_port = (folder / "ports").read_text().split()
    return Reference(
        done,
        port,
        told_port,
        (folder / "answer").read_bytes(),
        (folder / "conform").read_text("utf-8"),
        (folder / "status").read_text(),
    )


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, by number, with their names."""
    found: dict[int, str] = {}
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in map(int, children):
        found[child] = Path(f"/proc/{child}/comm").read_text().strip()
        found.update(descendants(child))
    return found
