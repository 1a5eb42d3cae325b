"""On this machine: the target under test, the control server, the boot, the report.

`run` boots one kernel, which carries out the steps of `rig.guest` and sends what it found; the
findings are judged by `rig.checks`. Used by `scripts/rig` and by the tests.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import random
import shutil
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rig import checks, pax, recipes
from rig.golden import BAD_LBA, Golden
from rig.target import Nvmet, RigError, Side, Target

ROOT = Path(__file__).resolve().parents[2]
LINUX_HOST = ROOT / "scripts" / "linux-host"
REFERENCE = ROOT / "scripts" / "guest" / "nvmet"
GUEST = Path(__file__).resolve().with_name("guest.py")
KERNELS = ("6.12", "6.1")
CPUS = 4
"""A host makes at most one I/O queue of each kind per CPU."""

Facts = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What a run does."""

    kernel: str = "6.12"
    digests: bool = False
    """Header and data digests on every connection, not only in their own step."""
    quick: bool = False
    """Without the steps of `rig.guest.SLOW`."""
    reference: bool = False
    """Against nvmet inside the guest instead of our target."""
    prestage: tuple[str, ...] = (str(ROOT / ".venv" / "bin" / "prestage"),)
    """The command line's first words; not used with `reference`."""
    seconds: int = 300
    """The guest is switched off after this time."""
    seed: int = dataclasses.field(default_factory=lambda: random.SystemRandom().randrange(1 << 31))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One step's outcome."""

    name: str
    seconds: float
    problems: list[str]
    """What contradicts the golden fields; empty when all is well."""
    complaints: list[str]
    """Lines of the kernel's log that nothing explains."""
    facts: Facts
    kernel: list[tuple[int, str]]
    """All lines of the kernel's log, each with its level."""

    @property
    def ok(self) -> bool:
        return not self.problems and not self.complaints


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """A whole run."""

    kernel: str
    target: str
    options: Options
    seconds: float
    steps: list[Step]
    problems: list[str]
    """Of the run as a whole: steps not run, a target that did not stop in order."""

    @property
    def ok(self) -> bool:
        return not self.problems and all(step.ok for step in self.steps)


class ControlServer:
    """Takes the guest's findings, and carries out its requests, in a thread of its own."""

    def __init__(self, side: Side, found: Callable[[Facts], None]) -> None:
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    message = json.loads(line)
                    if "ask" not in message:
                        found(message)
                        continue
                    self.wfile.write(json.dumps(outer.answer(message)).encode() + b"\n")

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._side = side
        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="rig-control"
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def answer(self, message: Facts) -> Facts:
        """Carries out one request; what went wrong is told to the guest, which reports it."""
        what = message["ask"]
        if what not in ("restart", "kill", "add", "grow", "remove", "stats"):
            return {"ok": False, "error": f"unknown request {what!r}"}
        try:
            result = getattr(self._side, what)(**message["arguments"])
        except (RigError, OSError, subprocess.SubprocessError) as error:
            return {"ok": False, "error": str(error)}
        return {"ok": True} if result is None else {"ok": True, "result": result}

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Run:
    """One boot: collects the findings, and judges each as it comes."""

    def __init__(self, options: Options, keep: Path, progress: Callable[[Step], None]) -> None:
        self.options = options
        self.directory = keep
        self.steps: list[Step] = []
        self._progress = progress
        self._judge = checks.Judge()
        self._pages = keep / "pages"

    def report(self) -> Report:
        """Boots, and returns when the guest is off again. RigError when it could not start."""
        began = time.monotonic()
        problems: list[str] = []
        target = None if self.options.reference else Target(self.options.prestage, self.directory)
        side: Side = target or Nvmet()
        try:
            if target:
                self._make_pages()
                target.start()
            server = ControlServer(side, lambda finding: self._take(finding, side.golden))
            try:
                problems += self._boot(server.port, target.port if target else 4420, side.golden)
            finally:
                server.close()
            if target:
                try:
                    target.stop()
                except RigError as error:
                    problems.append(str(error))
        finally:
            if target:
                target.close()
        return Report(
            kernel=self.options.kernel,
            target="nvmet in the guest" if self.options.reference else "prestage",
            options=self.options,
            seconds=round(time.monotonic() - began, 1),
            steps=self.steps,
            problems=problems,
        )

    def _make_pages(self) -> None:
        """Makes what the recipes in the guest use, and need not be made there."""
        shutil.rmtree(self._pages, ignore_errors=True)
        try:
            pages = recipes.in_one_process("make", self.options.prestage[0])
            for command in (pages, recipes.shell("cc")):
                recipes.run_here(command, self._pages)
        except recipes.RecipeError as error:
            raise RigError(str(error)) from error

    def _decode(self, finding: Facts) -> None:
        """Has the recipe for it say what the pages mean that a step has read."""
        for name, encoded in finding["facts"]["pages"].items():
            (self._pages / name).write_bytes(base64.b64decode(encoded))
        try:
            decode = recipes.in_one_process("decode", self.options.prestage[0])
            finding["facts"]["decoded"] = recipes.run_here(decode, self._pages)
        except recipes.RecipeError as error:
            finding["error"] = str(error)

    def _take(self, finding: Facts, golden: Golden) -> None:
        if "pages" in finding["facts"]:
            self._decode(finding)
        problems, complaints = self._judge.judge(finding, golden)
        step = Step(
            name=finding["step"],
            seconds=finding["seconds"],
            problems=problems,
            complaints=complaints,
            facts=finding["facts"],
            kernel=[(level, text) for level, text in finding["kernel"]],
        )
        self.steps.append(step)
        self._progress(step)

    def _boot(self, control_port: int, port: int, golden: Golden) -> list[str]:
        """Runs the guest; what is wrong with the run as a whole."""
        plan = {
            "control_port": control_port,
            "address": "127.0.0.1" if self.options.reference else "10.0.2.2",
            "port": port,
            "nqn": golden.nqn,
            "digests": self.options.digests,
            "quick": self.options.quick,
            "reference": str(REFERENCE) if self.options.reference else None,
            "bad_lba": BAD_LBA,
            "kernel": self.options.kernel,
            "namespaces": golden.namespaces,
            "prestage": str(self.options.prestage[0]) if self.options.prestage else None,
            "pages": str(self._pages),
            "seed": self.options.seed,
        }
        # Should this process be killed, the emulator goes too.
        command = [
            "setpriv",
            "--pdeathsig",
            "TERM",
            str(LINUX_HOST),
            "-k",
            self.options.kernel,
            "-c",
            str(CPUS),
        ]
        command += ["-t", str(self.options.seconds), str(GUEST), json.dumps(plan)]
        console = self.directory / "console.log"
        with console.open("wb") as log:
            guest = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                code = guest.wait()
            finally:
                if guest.poll() is None:
                    guest.terminate()
                    guest.wait()
        if code == 0 and self.steps:
            return []
        said = console.read_text(errors="replace").splitlines()[-20:]
        return [f"the guest ended with {code} (124: time is up)", *said]


def fetch_kernel(kernel: str) -> None:
    """Has the kernel in the cache before a run's time counts; its progress goes to stderr."""
    if subprocess.run([str(LINUX_HOST), "-k", kernel, "-p"], check=False).returncode != 0:
        raise RigError(f"{LINUX_HOST.name} has no kernel {kernel} to boot; its reason is above")


def run(
    options: Options,
    keep: Path | None = None,
    progress: Callable[[Step], None] = lambda _: None,
) -> Report:
    """Boots `options.kernel` once and judges what it found; files stay in `keep` if given."""
    if not options.reference and not os.access(options.prestage[0], os.X_OK):
        raise RigError(f"no executable {options.prestage[0]}; scripts/setup makes it")
    if not options.reference and not Path(pax.UDEVD).exists():
        raise RigError(f"no {pax.UDEVD}, which the guest runs: it is in Debian's package udev")
    fetch_kernel(options.kernel)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        return Run(options, keep, progress).report()
    with tempfile.TemporaryDirectory(prefix="prestage-rig-") as directory:
        return Run(options, Path(directory), progress).report()
