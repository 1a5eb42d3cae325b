"""The daemon: readiness, signals, exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from fake_target import FakeReport, FakeTarget
from rpc_tools import NQN, fake_settings

from prestage.target import descriptors, readiness, service
from prestage.target.errors import AlreadyExists, Invalid, TargetError
from prestage.target.journal import set_up_logging
from prestage.target.rpc.client import Client
from prestage.target.rpc.server import take_lock
from prestage.target.service import Service
from prestage.target.settings import ListenerSettings, TargetSettings

Said = list[str]


class Daemon:
    """A service over a fake target, run in this process."""

    def __init__(self, directory: Path, settings: TargetSettings | None = None) -> None:
        self.settings = settings or fake_settings(state_directory=str(directory))
        self.said: Said = []
        self.target = FakeTarget(self.settings)
        self.on_line: Callable[[str], None] = lambda _: None
        self.service = Service(self.settings, make=lambda _: self.target, say=self.say)

    def say(self, line: str) -> None:
        self.said.append(line)
        self.on_line(line)

    def run(self) -> int:
        return asyncio.run(self.service.run())


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The limits on open files, put back at the end (the hard one cannot be changed here)."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_low_soft_limit_on_open_files_is_raised_to_what_connections_need(
    daemon: Daemon, limits: tuple[int, int]
) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    assert daemon.run() == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= descriptors.needed(1024)
    assert not any("open files" in line for line in daemon.said)


def stop_when_connected(daemon: Daemon) -> None:
    """Send SIGTERM when the last line of the banner has been printed."""

    def look(line: str) -> None:
        if line.startswith(("  nvme connect", '{"ready"')):
            os.kill(os.getpid(), signal.SIGTERM)

    daemon.on_line = look


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    daemon = Daemon(tmp_path)
    stop_when_connected(daemon)
    return daemon


def test_it_says_that_it_is_ready_and_how_to_connect(daemon: Daemon, tmp_path: Path) -> None:
    daemon.target.warnings.append("something is odd")
    assert daemon.run() == 0
    assert daemon.said == [
        "ready",
        "  listening on    127.0.0.1:4420",
        f"  subsystem       {NQN} (serial S1, any host)",
        "    namespace 1     memory (1 MiB, 4096 B blocks, ram)",
        "  DRAM tier       512 MiB",
        f"  control socket  {tmp_path}/prestage.sock",
        f"  state           {tmp_path}",
        "  warning: something is odd",
        "connect with",
        "  nvme discover -t tcp -a 127.0.0.1 -s 4420",
        f"  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n {NQN}",
        "stopped: everything is flushed",
    ]
    assert daemon.target.stops == [30.0]
    assert not daemon.target.running


def test_as_json_each_event_is_a_line(daemon: Daemon, tmp_path: Path) -> None:
    daemon.service.json = True
    assert daemon.run() == 0
    ready, stopped = map(json.loads, daemon.said)
    assert ready["ready"] is True
    assert ready["pid"] == os.getpid()
    assert ready["listeners"] == [{"address": "127.0.0.1", "port": 4420}]
    assert ready["connect"] == [f"nvme connect -t tcp -a 127.0.0.1 -s 4420 -n {NQN}"]
    assert ready["control_socket"] == f"{tmp_path}/prestage.sock"
    assert ready["subsystems"][0]["namespaces"][0]["size_bytes"] == 1 << 20
    assert stopped == {"stopped": True, "clean": True, "unflushed": []}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_each_stop_signal_ends_it_cleanly(daemon: Daemon, number: int) -> None:
    def look(line: str) -> None:
        if line == "connect with":
            os.kill(os.getpid(), number)

    daemon.on_line = look
    assert daemon.run() == 0


def test_an_ignored_sighup_does_not_end_it(daemon: Daemon) -> None:
    def look(line: str) -> None:
        if line == "connect with":
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            os.kill(os.getpid(), signal.SIGTERM)

    daemon.on_line = look
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert daemon.run() == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_was_not_flushed_is_named_and_ends_with_3(daemon: Daemon) -> None:
    daemon.target.report = FakeReport(False, [f"{NQN} namespace 1: 4096 bytes, EIO"])
    assert daemon.run() == 3
    assert daemon.said[-1] == f"stopped: not flushed: {NQN} namespace 1: 4096 bytes, EIO"


def test_a_second_signal_hurries(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "HURRY_S", 0.01)
    daemon.target.counters[NQN, 1] = {"unflushed_bytes": 8192}
    stop = daemon.target.stop

    async def stalled(timeout_s: float) -> FakeReport:
        daemon.target.hold_stop = asyncio.Event()
        os.kill(os.getpid(), signal.SIGTERM)
        return await stop(timeout_s)

    daemon.target.stop = stalled  # type: ignore[method-assign]
    assert daemon.run() == 3
    assert daemon.said[-1] == f"stopped: not flushed: {NQN} namespace 1 (ram): 8192 bytes"
    assert daemon.service.gave_up


def test_a_stop_that_breaks_its_own_limit_is_given_up(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STOP_GRACE_S", -29.99)
    monkeypatch.setattr(service, "HURRY_S", 0.01)
    daemon.target.hold_stop = asyncio.Event()
    assert daemon.run() == 3
    assert daemon.said[-1].startswith("stopped: not flushed: the target did not say")


def test_a_signal_while_it_starts_stops_it(daemon: Daemon) -> None:
    start = daemon.target.start

    async def held() -> None:
        daemon.target.hold_start = asyncio.Event()
        os.kill(os.getpid(), signal.SIGTERM)
        await start()

    daemon.target.start = held  # type: ignore[method-assign]
    assert daemon.run() == 0
    assert "ready" not in daemon.said


@pytest.mark.parametrize("as_json", [False, True])
def test_a_start_that_cannot_be_called_off_is_left_behind(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    monkeypatch.setattr(service, "STOP_GRACE_S", 30.0)
    monkeypatch.setattr(service, "HURRY_S", 0.0)
    opened = asyncio.Event()

    async def stuck() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while not opened.is_set():
            try:
                await opened.wait()
            except asyncio.CancelledError:
                # The second signal: the first has been heard.
                os.kill(os.getpid(), signal.SIGTERM)

    async def main() -> int:
        code = await daemon.service.run()
        opened.set()
        return code

    daemon.service.json = as_json
    daemon.target.start = stuck  # type: ignore[method-assign]
    assert asyncio.run(main()) == 1
    assert daemon.service.gave_up, "so that the process ends around the thread"
    assert "does not answer; no host was served" in daemon.said[-1]
    assert not as_json or json.loads(daemon.said[-1])["clean"] is False


def test_the_ready_file_is_there_while_it_serves(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ready.json"
    seen: list[Any] = []
    notified: list[str] = []

    daemon.service.ready_file = str(path)
    start = daemon.target.start

    async def start_and_look() -> None:
        seen.append(path.exists())
        await start()

    daemon.target.start = start_and_look  # type: ignore[method-assign]
    daemon.on_line = lambda _: seen.append(path.exists())

    def look(*lines: str) -> bool:
        if lines[0] == "READY=1":
            notified.extend(lines)
            seen.append(json.loads(path.read_text())["listeners"])
            os.kill(os.getpid(), signal.SIGTERM)
        return True

    monkeypatch.setattr("prestage.target.service.notify", look)
    assert daemon.run() == 0
    assert seen[:2] == [False, True], "not while it starts, and before anything is said"
    assert [{"address": "127.0.0.1", "port": 4420}] in seen
    assert notified[1] == "STATUS=serving on 127.0.0.1 port 4420"
    assert not path.exists()
    assert [one.name for one in tmp_path.iterdir()] == []


def test_the_ready_descriptor_gets_a_line_and_is_closed(daemon: Daemon) -> None:
    reader, writer = os.pipe()
    daemon.service.ready_fd = writer
    assert daemon.run() == 0
    with os.fdopen(reader, "rb") as pipe:
        assert json.loads(pipe.read())["ready"] is True


def test_a_ready_descriptor_that_is_not_open_is_refused_before_anything_starts(
    daemon: Daemon,
) -> None:
    daemon.service.ready_fd = 987
    with pytest.raises(Invalid, match=r"--ready-fd: found 987: Bad file descriptor"):
        daemon.run()
    assert daemon.target.stops == []


def test_nobody_at_the_ready_descriptor_is_no_reason_to_stop(daemon: Daemon) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    daemon.service.ready_fd = writer
    assert daemon.run() == 0


def test_a_ready_file_that_cannot_be_written_is_refused_before_anything_starts(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.service.ready_file = str(tmp_path / "no" / "such" / "file")
    with pytest.raises(Invalid, match=r"^--ready-file: found \S+: found no folder for it"):
        daemon.run()
    assert (daemon.target.stops, daemon.said) == ([], [])


def test_a_ready_file_that_comes_to_stand_while_it_starts_is_left_and_ends_it(
    daemon: Daemon, tmp_path: Path
) -> None:
    path = tmp_path / "ready.json"
    daemon.service.ready_file = str(path)
    start = daemon.target.start

    async def start_slowly() -> None:
        await start()
        path.write_text("of somebody else")

    daemon.target.start = start_slowly  # type: ignore[method-assign]
    with pytest.raises(Invalid, match="something has come there since the start"):
        daemon.run()
    assert (len(daemon.target.stops), daemon.said) == (1, ["stopped: everything is flushed"])
    assert path.read_text() == "of somebody else"


def test_a_second_target_in_one_place_leaves_the_ready_file_of_the_first(
    daemon: Daemon, tmp_path: Path
) -> None:
    first = readiness.report(daemon.target, f"{tmp_path}/prestage.sock")
    path = tmp_path / "ready.json"
    path.write_text(json.dumps(first))
    daemon.service.ready_file = str(path)
    lock = take_lock(f"{tmp_path}/prestage.sock.lock")
    try:
        with pytest.raises(AlreadyExists):
            daemon.run()
    finally:
        os.close(lock)
    assert json.loads(path.read_text()) == first


def test_the_service_manager_is_told(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        assert daemon.run() == 0
        manager.settimeout(5)
        told = [manager.recv(1000).decode() for _ in range(3)]
    assert told == [
        "STATUS=starting",
        "READY=1\nSTATUS=serving on 127.0.0.1 port 4420",
        "STOPPING=1\nSTATUS=flushing and closing",
    ]


def test_the_control_socket_answers_while_it_serves(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = []

    def ask() -> None:
        with Client(tmp_path / "prestage.sock") as client:
            answers.append(client.call("nvmf_get_subsystems"))
            client.call("spdk_kill_instance", sig_name="SIGTERM")

    def look(*lines: str) -> bool:
        if lines[0] == "READY=1":
            asyncio.get_running_loop().run_in_executor(None, ask)
        return True

    daemon.on_line = lambda _: None
    monkeypatch.setattr("prestage.target.service.notify", look)
    assert daemon.run() == 0
    assert len(answers[0]) == 2
    assert not (tmp_path / "prestage.sock").exists()


def test_a_second_daemon_in_one_place_is_refused_and_changes_nothing(
    daemon: Daemon, tmp_path: Path
) -> None:
    second = Daemon(tmp_path)

    async def both() -> int:
        first = asyncio.ensure_future(daemon.service.run())
        while not daemon.target.running:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0)
        with pytest.raises(AlreadyExists, match="in use by a running target"):
            await second.service._run()
        os.kill(os.getpid(), signal.SIGTERM)
        return await first

    daemon.on_line = lambda _: None
    assert asyncio.run(both()) == 0
    assert second.target.stops == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (TargetError("it did not work"), "it did not work"),
        (PermissionError(13, "Permission denied", "/srv"), "Permission denied: /srv"),
    ],
)
def test_what_keeps_it_from_starting_is_one_sentence_and_1(
    error: Exception, message: str, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.target.start_error = error
    assert service.run(daemon.service) == 1
    assert capsys.readouterr().err == f"prestage: cannot serve: {message}\n"


@pytest.mark.parametrize(
    ("address", "known", "shown"),
    [
        ("0.0.0.0", [], ["127.0.0.1"]),
        ("::", [], ["::1"]),
        ("::1", [], ["::1"]),
        ("10.1.2.3", [], ["10.1.2.3"]),
        ("0.0.0.0", ["10.1.2.3", "10.1.2.4", "127.0.0.1"], ["10.1.2.3", "10.1.2.4", "127.0.0.1"]),
        ("::", ["fd00::7", "::1"], ["fd00::7", "::1"]),
    ],
)
def test_the_lines_to_connect_have_addresses_that_can_be_reached(
    tmp_path: Path, address: str, known: list[str], shown: list[str]
) -> None:
    listener = ListenerSettings(address=address, port=0)
    daemon = Daemon(tmp_path, fake_settings(state_directory=str(tmp_path), listeners=[listener]))
    daemon.target.reached = {address: known} if known else {}
    stop_when_connected(daemon)
    assert daemon.run() == 0
    port = daemon.target.listeners[0][1]
    for one in shown:
        assert f"  nvme discover -t tcp -a {one} -s {port}" in daemon.said
        assert f"  nvme connect -t tcp -a {one} -s {port} -n {NQN}" in daemon.said
    assert sum(line.startswith("  nvme") for line in daemon.said) == 2 * len(shown)


def test_a_machine_of_very_many_addresses_does_not_fill_the_screen(tmp_path: Path) -> None:
    listener = ListenerSettings(address="0.0.0.0", port=0)
    daemon = Daemon(tmp_path, fake_settings(state_directory=str(tmp_path), listeners=[listener]))
    daemon.target.reached = {"0.0.0.0": [f"10.1.2.{number}" for number in range(100)]}
    asyncio.run(daemon.target.start())
    report = readiness.report(daemon.target, "/s")
    assert len(report["reached_by"]) == len(report["discover"]) == len(report["connect"]) == 100
    assert readiness.banner(report)[-1] == "  and 176 more, as serve --json says"


def test_every_listener_and_subsystem_has_its_line(tmp_path: Path) -> None:
    listeners = [ListenerSettings(port=0), ListenerSettings(address="::1", port=0)]
    daemon = Daemon(tmp_path, fake_settings(state_directory=str(tmp_path), listeners=listeners))
    stop_when_connected(daemon)
    assert daemon.run() == 0
    assert "  listening on    [::1]:40001" in daemon.said
    assert f"  nvme connect -t tcp -a ::1 -s 40001 -n {NQN}" in daemon.said


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.usefixtures("restored_logging")
def test_the_log_is_a_line_of_json_for_both_kinds_of_logger() -> None:
    stream = io.StringIO()
    set_up_logging("info", stream)
    structlog.get_logger("prestage.x").info("started", port=1)
    logging.getLogger("prestage.target").warning("host %s left", "h")
    logging.getLogger("prestage.target").debug("not shown")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["port"], first["level"]) == ("started", 1, "info")
    assert first["logger"] == "prestage.x"
    assert (second["event"], second["level"]) == ("host h left", "warning")
    assert second["timestamp"].endswith("Z")
