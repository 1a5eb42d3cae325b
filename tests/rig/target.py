"""On this machine: the target under test, as a process of its own on throw-away files."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Protocol

from rig import pattern
from rig.golden import BAD_LBA, NVMET, OURS, Golden

START_S = 30.0
STOP_S = 40.0


class RigError(Exception):
    """The rig itself could not do its work; the text says what and where."""


class Side(Protocol):
    """The target's side, as the guest's requests and the checks see it."""

    golden: Golden

    def restart(self) -> None: ...
    def kill(self) -> None: ...
    def add(self, nsid: int, size_mib: int) -> None: ...
    def grow(self, nsid: int, size_mib: int) -> None: ...
    def remove(self, nsid: int) -> None: ...
    def stats(self) -> dict[str, Any]: ...


class Target:
    """Our target as a process of its own, on files in `directory`, on one port for life."""

    def __init__(self, prestage: tuple[str, ...], directory: Path) -> None:
        self.golden = OURS
        self.port = 0
        self._prestage = prestage
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log = (directory / "target.log").open("wb")
        # A directory that is kept may hold an earlier run's.
        for old in directory.glob("namespace*"):
            old.unlink()
        for nsid, size in self.golden.sizes.items():
            with (directory / f"namespace{nsid}").open("wb") as file:
                file.truncate(size)
                if nsid == 1:
                    file.seek(pattern.FIRST * pattern.BLOCK_BYTES)
                    file.write(pattern.blocks(pattern.FIRST, pattern.COUNT))

    def start(self) -> None:
        """Starts the process and waits until it says that it is ready."""
        ready = self._directory / "ready"
        ready.unlink(missing_ok=True)
        config = self._directory / "rig.toml"
        config.write_text(self._config())
        command = [*self._prestage, "serve", "--config", str(config), "--ready-file", str(ready)]
        try:
            process = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        except OSError as error:
            raise RigError(f"cannot start {shlex.join(command)}: {error}") from error
        self._process = process
        deadline = time.monotonic() + START_S
        while not ready.exists():
            if process.poll() is not None:
                raise RigError(f"{shlex.join(command)}: exit {process.returncode}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise RigError(f"{shlex.join(command)}: not ready in {START_S:g} s\n{self.tail()}")
            time.sleep(0.02)
        said = json.loads(ready.read_text())
        self.port = said["listeners"][0]["port"]
        self._socket = said["control_socket"]

    def stop(self) -> None:
        """SIGTERM; the target must flush and exit with 0."""
        if self._process is None or self._process.poll() is not None:
            raise RigError(f"the target is gone before it was told to stop\n{self.tail()}")
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired as error:
            self.close()
            raise RigError(f"the target ignored SIGTERM for {STOP_S:g} s") from error
        if code != 0:
            raise RigError(f"the target stopped with exit {code}\n{self.tail()}")

    def close(self) -> None:
        """Ends the process, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def tail(self) -> str:
        """The end of what the target printed."""
        text = (self._directory / "target.log").read_text(errors="replace")
        return "the end of its log:\n" + "\n".join(text.splitlines()[-20:])

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.start()

    def add(self, nsid: int, size_mib: int) -> None:
        path = self._directory / f"namespace{nsid}"
        self._manage("add", f"{path},size={size_mib}M,nsid={nsid}")

    def grow(self, nsid: int, size_mib: int) -> None:
        self._manage("resize", str(nsid), f"{size_mib}M")

    def remove(self, nsid: int) -> None:
        self._manage("remove", str(nsid))

    def stats(self) -> dict[str, Any]:
        """What the target counts of hints."""
        found: dict[str, Any] = json.loads(self._command("stats", "--json"))["hints"]
        return found

    def _manage(self, *words: str) -> None:
        """A command of `prestage namespace`, as an operator would give it."""
        self._command("namespace", *words)

    def _command(self, *words: str) -> str:
        command = [*self._prestage, *words, "--control-socket", self._socket]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RigError(f"{shlex.join(command)}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    def _config(self) -> str:
        """The configuration file; the first start takes any free port, later ones the same."""
        golden, directory = self.golden, self._directory
        lines = [
            f"state_directory = {json.dumps(str(directory))}",
            "[[listeners]]",
            'address = "127.0.0.1"',
            f"port = {self.port}",
            "[tier]",
            f"size = {64 << 20}",
            # It may bring in first what a hint is for, and then the hint has no hits to count.
            "[prestager]",
            "enabled = false",
            "[[subsystems]]",
            f"nqn = {json.dumps(golden.nqn)}",
            f"serial = {json.dumps(golden.serial)}",
            f"model = {json.dumps(golden.model)}",
            f"extension = {json.dumps(bool(golden.extension))}",
        ]
        for nsid, block in golden.blocks.items():
            lines += [
                "[[subsystems.namespaces]]",
                f"path = {json.dumps(str(directory / f'namespace{nsid}'))}",
                f"nsid = {nsid}",
                f"block = {block}",
            ]
            if nsid == 2:
                fault = f"error:op=read,errno=EIO,first={BAD_LBA * block}"
                fault += f",last={BAD_LBA * block + block - 1}"
                lines.append(f"faults = [{json.dumps(fault)}]")
        return "\n".join(lines) + "\n"


class Nvmet:
    """Stands for the target when it is nvmet in the guest, which answers its own requests."""

    golden = NVMET

    def stats(self) -> dict[str, Any]:
        return {}

    def restart(self) -> None: ...
    def kill(self) -> None: ...
    def add(self, nsid: int, size_mib: int) -> None: ...
    def grow(self, nsid: int, size_mib: int) -> None: ...
    def remove(self, nsid: int) -> None: ...
