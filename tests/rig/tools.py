"""In the guest: the line to the control server, the kernel's log, commands with a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

COMMAND_S = 60.0
"""No command of a step may take longer; emulation makes everything ten times slower."""

Facts = dict[str, Any]
Found = TypeVar("Found")


class StepError(Exception):
    """A step could not be carried through; the text says at what."""


class Control:
    """The line to the control server: findings go up, requests are answered."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("10.0.2.2", port), timeout=120)
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def report(self, finding: Facts) -> None:
        """Hands a step's findings to the judge."""
        self._send(finding)

    def ask(self, what: str, **arguments: int) -> Facts:
        """Has the target's side do something; raises StepError with its reason when it cannot."""
        self._send({"ask": what, "arguments": arguments})
        answer: Facts = json.loads(self._lines.readline())
        if not answer["ok"]:
            raise StepError(f"target side, {what} {arguments}: {answer['error']}")
        return answer

    def _send(self, message: Facts) -> None:
        self._lines.write(json.dumps(message) + "\n")
        self._lines.flush()


class KernelLog:
    """The records of /dev/kmsg, taken step by step as (level, text)."""

    def __init__(self) -> None:
        self._fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        self._unread: list[tuple[int, str]] = []

    def take(self) -> list[tuple[int, str]]:
        """All records not yet taken."""
        self._read()
        taken, self._unread = self._unread, []
        return taken

    def wait_for(self, pattern: str, seconds: float) -> str:
        """The first untaken record that matches; waits for it. It stays untaken."""

        def find() -> str | None:
            self._read()
            return next((text for _, text in self._unread if re.search(pattern, text)), None)

        return wait_until(find, seconds, f"a kernel message that matches {pattern!r}")

    def _read(self) -> None:
        while True:
            try:
                record = os.read(self._fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._unread.append((3, "rig: kernel messages were overwritten unread"))
                continue
            head, text = record.split(";", 1)
            self._unread.append((int(head.split(",")[0]) & 7, text.split("\n")[0]))


def wait_until(find: Callable[[], Found | None], seconds: float, what: str) -> Found:
    """What `find` returns once it returns something true; StepError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = find()
        if found:
            return found
        if time.monotonic() > deadline:
            raise StepError(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


def run(
    command: str | Sequence[str],
    *,
    fails: bool = False,
    seconds: float = COMMAND_S,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """A command's output, both streams; it must succeed, or fail when `fails`."""
    words = command.split() if isinstance(command, str) else command
    command = " ".join(words)
    try:
        done = subprocess.run(
            words,
            check=False,
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as expired:
        raise StepError(f"{command}: not done after {seconds:g} s") from expired
    if (done.returncode != 0) != fails:
        raise StepError(f"{command}: exit {done.returncode}: {shorten(done.stdout)}")
    return done.stdout


def shorten(printed: str) -> str:
    """The beginning and the end of a long output: fio says first what is wrong."""
    text = printed.strip()
    return text if len(text) <= 1600 else f"{text[:1000]}\n[...]\n{text[-500:]}"


def run_json(command: str) -> Any:
    """What a command prints as JSON; nvme-cli's notices around it are passed over."""
    printed = run(command)
    start = min((at for at in (printed.find("{"), printed.find("[")) if at >= 0), default=-1)
    try:
        return json.JSONDecoder().raw_decode(printed[max(start, 0) :])[0]
    except ValueError as error:
        raise StepError(f"{command}: no JSON in {printed[:500]!r}") from error


@contextlib.contextmanager
def background(command: str, output: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command beside what follows; with its children it ends here at the latest.

    What it prints goes to the file `output`, or waits for `finish`.
    """
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(
            command.split(),
            stdout=stack.enter_context(output.open("wb")) if output else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def finish(process: subprocess.Popen[str], seconds: float = COMMAND_S) -> str:
    """The output of a background command, which must end well by itself."""
    assert isinstance(process.args, list)
    command = " ".join(map(str, process.args))
    try:
        printed, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as expired:
        raise StepError(f"{command}: not done after {seconds:g} s") from expired
    if process.returncode != 0:
        raise StepError(f"{command}: exit {process.returncode}: {shorten(printed)}")
    return printed
