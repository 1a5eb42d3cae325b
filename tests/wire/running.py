"""A target as a process of its own: started from a configuration, watched, stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from .probing import Site

ROOT = Path(__file__).resolve().parents[2]
NQN = "nqn.2026-11.io.prestage:reference"
RESTRICTED_NQN = "nqn.2026-11.io.prestage:restricted"
ALLOWED_HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-1111-1111-111111111111"
MIB = 1 << 20
START_TIMEOUT_S = 30.0
HANDSHAKE_S = 2.0

Config = dict[str, Any]


def base_config(directory: Path) -> Config:
    """The subsystems that the reference target has too, on throw-away media below `directory`."""
    return {
        "state_directory": str(directory / "state"),
        "listeners": [{"address": "127.0.0.1", "port": 0}],
        "tier": {"size": 64 * MIB},
        "limits": {"handshake_s": HANDSHAKE_S, "connections": 1100},
        "subsystems": [
            {
                "nqn": NQN,
                "namespaces": [{"path": str(directory / "ns1"), "size": 64 * MIB, "block": 512}],
            },
            {
                "nqn": RESTRICTED_NQN,
                "hosts": [ALLOWED_HOST],
                "namespaces": [{"media": "ram", "size": 16 * MIB, "block": 512}],
            },
        ],
    }


def merge(base: Config, changes: Config) -> Config:
    """`base` with `changes` over it, tables merged, everything else replaced."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        both_tables = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = merge(old, value) if both_tables else value  # type: ignore[arg-type]
    return merged


def to_toml(config: Config) -> str:
    """`config` as TOML: plain values first, then tables inline (JSON texts are TOML texts)."""

    def value(item: Any) -> str:
        if isinstance(item, dict):
            return "{" + ", ".join(f"{key} = {value(inner)}" for key, inner in item.items()) + "}"
        if isinstance(item, list):
            return "[" + ", ".join(map(value, item)) + "]"
        return json.dumps(item)

    return "".join(f"{key} = {value(item)}\n" for key, item in config.items())


@dataclasses.dataclass(frozen=True)
class Resources:
    """What must be back where it was after hostile input."""

    descriptors: int
    connections: int
    transfers_in_use: int
    """Commands that hold data memory."""
    commands_in_flight: int
    """Commands that are inside a namespace."""
    frames_pinned: int
    frames_reserved: int
    rss_kib: int

    def exceeds(self, before: Resources) -> list[str]:
        """What is larger than it was (memory is judged apart: it settles later)."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "rss_kib"]
        return [
            f"{name}: {getattr(self, name)}, was {getattr(before, name)}"
            for name in names
            if getattr(self, name) > getattr(before, name)
        ]


class RunningTarget:
    """`prestage serve` as a child process."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        *,
        arguments: tuple[str, ...] = (),
        within: tuple[str, ...] = (),
    ) -> None:
        """`within` is a command that becomes the one whose words are behind its own."""
        self.directory, self.config = directory, config
        directory.mkdir(parents=True, exist_ok=True)
        ready = directory / "ready.json"
        ready.unlink(missing_ok=True)
        (directory / "target.toml").write_text(to_toml(config))
        self.log = directory / "target.log"
        command = [
            *within,
            sys.executable,
            "-m",
            "prestage",
            "serve",
            "--config",
            str(directory / "target.toml"),
            "--ready-file",
            str(ready),
            *arguments,
        ]
        # What is there already comes first: modules that were built with a sanitizer, say.
        places = [os.environ.get("PYTHONPATH", ""), str(ROOT / "src")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        try:
            said = self._wait_ready(ready)
        except BaseException:
            self.kill()
            raise
        self.listeners = [(one["address"], one["port"]) for one in said["listeners"]]
        self.control_socket: str = said["control_socket"]
        self.address = self.listeners[0]

    def _wait_ready(self, ready: Path) -> dict[str, Any]:
        limit = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return dict(json.loads(ready.read_text()))
            except (FileNotFoundError, json.JSONDecodeError):
                pass
            status = self.process.poll()
            if status is not None or time.monotonic() > limit:
                said = self.log.read_text(errors="replace")[-4000:]
                raise AssertionError(f"the target did not start (status {status}):\n{said}")
            time.sleep(0.02)

    def site(self, **changes: Any) -> Site:
        """Where probes reach it."""
        site = Site(
            self.address,
            NQN,
            silence_s=HANDSHAKE_S * 2.5,
            restricted_nqn=RESTRICTED_NQN,
            allowed_host=ALLOWED_HOST,
        )
        return dataclasses.replace(site, **changes)

    # ---- control ----

    def rpc(self, method: str, **params: Any) -> Any:
        """Call a method of the control socket. Raises AssertionError with the error's text."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method}
        if params:
            request["params"] = params
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.settimeout(20)
            control.connect(self.control_socket)
            control.sendall(json.dumps(request).encode())
            answer = b""
            while not answer.endswith(b"\n"):
                piece = control.recv(1 << 16)
                if not piece:
                    break
                answer += piece
            # Until the target has closed its end too, this call is one of its open files.
            control.shutdown(socket.SHUT_WR)
            while control.recv(1 << 16):
                pass
        said = json.loads(answer)
        assert "error" not in said, f"{method}: {said['error']}"
        return said["result"]

    def media_control(self, kind: str, verb: str, *, nsid: int = 1, nqn: str = NQN) -> None:
        """Tell a fault wrapper what to do: release, arm, cut, "set KEY=VALUE"."""
        self.rpc("prestage_media_control", nqn=nqn, nsid=nsid, kind=kind, verb=verb)

    def resources(self) -> Resources:
        """What the process holds now. The one place that knows the names in the statistics."""
        stats = self._rested()
        process = Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        return Resources(
            descriptors=sum(1 for _ in (process / "fd").iterdir()),
            connections=find(stats, "connections"),
            transfers_in_use=find(stats, "transfers_in_use"),
            commands_in_flight=sum(
                namespace["counters"]["in_flight"]
                for subsystem in stats["subsystems"]
                for namespace in subsystem["namespaces"]
            ),
            frames_pinned=find(stats, "frames_pinned"),
            frames_reserved=find(stats, "frames_reserved"),
            rss_kib=int(status["VmRSS"].split()[0]),
        )

    def at_rest(self, within_s: float = 10.0) -> Resources:
        """What it holds once nothing is under way: an answer may come before its frame is free."""
        limit = time.monotonic() + within_s
        while True:
            now = self.resources()
            idle = dataclasses.replace(
                now, transfers_in_use=0, commands_in_flight=0, frames_pinned=0, frames_reserved=0
            )
            if now == idle:
                return now
            assert time.monotonic() < limit, f"still under way: {'; '.join(now.exceeds(idle))}"
            time.sleep(0.05)

    def _rested(self) -> Any:
        """The statistics, when the prestager is no longer being started: that opens files."""
        limit = time.monotonic() + START_TIMEOUT_S
        while True:
            stats = self.rpc("prestage_get_stats")
            if stats["prestager"]["state"] != "starting":
                return stats
            assert time.monotonic() < limit, f"the prestager does not start:\n{self.said()[-4000:]}"
            time.sleep(0.05)

    def open_files(self) -> list[str]:
        """What the descriptors of the process stand for."""
        names = []
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                names.append(str(link.readlink()))
        return sorted(names)

    def settled(self, before: Resources, within_s: float = 10.0) -> Resources:
        """Wait until nothing exceeds `before`. Raises AssertionError saying what still does."""
        limit = time.monotonic() + within_s
        while True:
            now = self.resources()
            too_much = now.exceeds(before)
            if not too_much:
                return now
            assert time.monotonic() < limit, (
                f"not given back: {'; '.join(too_much)}; open: {self.open_files()}"
            )
            time.sleep(0.05)

    # ---- the end ----

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 40.0) -> int:
        """The exit status."""
        return self.process.wait(timeout_s)

    def stop(self, timeout_s: float = 40.0) -> int:
        """SIGTERM; returns the exit status."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and reap."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def said(self) -> str:
        """Everything it wrote to its outputs."""
        return self.log.read_text(errors="replace")


def find(stats: Any, name: str) -> int:
    """The number called `name` nearest to the top of nested tables and lists."""
    waiting = deque([stats])
    while waiting:
        table = waiting.popleft()
        if isinstance(table, dict):
            if isinstance(table.get(name), int):
                return int(table[name])
            waiting.extend(table.values())
        elif isinstance(table, list):
            waiting.extend(table)
    raise AssertionError(f"the statistics have no {name!r}")
