"""Runs named stages, two at a time where they allow it, and tells how each ended.

Standard library only. What the stages are is in stages.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import operator
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test"
TAIL_LINES = 200
"""How much of a failed stage's output is repeated on the terminal."""
DEFAULT_TIMEOUT_S = 1200.0
GRACE_S = 10.0
"""Between SIGTERM and SIGKILL for a command that is out of time."""

_phase = operator.attrgetter("phase")
_print_lock = threading.Lock()
_children: set[subprocess.Popen[str]] = set()
_children_lock = threading.Lock()


class StageError(Exception):
    """A stage failed; the text says why, its output has the rest."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """One thing that can pass or fail.

    `phase`: those of one phase run at the same time, when those of the phases before are done.
    `by_default`: runs when no stage is named.
    """

    name: str
    what: str
    run: Callable[[Shell], None]
    phase: int = 0
    by_default: bool = True


@dataclasses.dataclass(frozen=True)
class Result:
    """How a stage ended; `error` is None when it passed."""

    stage: Stage
    duration_s: float
    error: str | None


class Shell:
    """What a stage runs its commands with: one log, and the terminal too when `live`."""

    def __init__(self, log: TextIO, *, live: bool) -> None:
        self._log = log
        self._live = live

    def say(self, text: str) -> None:
        """Write a line to the stage's output."""
        self._write(text + "\n")

    def call(
        self,
        *command: str | Path,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Run a command in the checkout. Raises StageError when it fails or is out of time."""
        words = [str(word) for word in command]
        self.say("$ " + shlex.join([*(f"{k}={v}" for k, v in (environment or {}).items()), *words]))
        try:
            status, timed_out = self._run(words, {**os.environ, **(environment or {})}, timeout_s)
        except OSError as error:
            raise StageError(f"cannot run {words[0]}: {error.strerror}") from error
        if timed_out:
            raise StageError(f"{Path(words[0]).name} was not done within {timeout_s:.0f} s")
        if status != 0:
            raise StageError(f"{Path(words[0]).name} ended with status {status}")

    def call_each(
        self, commands: Sequence[Sequence[str | Path]], environment: Mapping[str, str]
    ) -> None:
        """Run all of the commands; StageError at the end if any failed."""
        problems = []
        for command in commands:
            try:
                self.call(*command, environment=environment)
            except StageError as error:
                problems.append(str(error))
        if problems:
            raise StageError("; ".join(problems))

    def _run(
        self, words: list[str], environment: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bool]:
        timed_out = threading.Event()
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

        def expire() -> None:
            timed_out.set()
            _end(process)

        timer = threading.Timer(timeout_s, expire)
        timer.daemon = True
        with _children_lock:
            _children.add(process)
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                self._write(line)
            return process.wait(), timed_out.is_set()
        finally:
            timer.cancel()
            with _children_lock:
                _children.discard(process)

    def _write(self, text: str) -> None:
        self._log.write(text)
        self._log.flush()
        if self._live:
            with _print_lock:
                sys.stdout.write(text)
                sys.stdout.flush()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signal a command and what it started, as far as it stayed in its session's group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end(process: subprocess.Popen[str]) -> None:
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    _signal(process, signal.SIGKILL)


def _end_all() -> None:
    with _children_lock:
        left = list(_children)
    for process in left:
        _end(process)


def _tell(text: str) -> None:
    with _print_lock:
        print(text, flush=True)


def run_stage(stage: Stage, *, live: bool) -> Result:
    """Run one stage; its output goes to its log, and to the terminal when `live` or failed."""
    log_path = LOGS / f"{stage.name}.log"
    _tell(f"== {stage.name}: {stage.what}")
    start = time.monotonic()
    error = None
    with log_path.open("w", encoding="utf-8") as log:
        shell = Shell(log, live=live)
        try:
            stage.run(shell)
        except StageError as failure:
            error = str(failure)
            shell.say(f"failed: {error}")
        except Exception as failure:  # noqa: BLE001 (a stage's own fault fails it, not the run)
            error = f"{type(failure).__name__}: {failure}"
            shell.say(f"failed: {error}")
    duration_s = time.monotonic() - start
    if error is None:
        _tell(f"== {stage.name}: passed in {duration_s:.1f} s")
    else:
        if not live:
            tail = log_path.read_text("utf-8").splitlines()[-TAIL_LINES:]
            _tell("\n".join(f"{stage.name}| {line}" for line in tail))
        where = log_path.relative_to(ROOT)
        _tell(f"== {stage.name}: FAILED in {duration_s:.1f} s: {error} (output: {where})")
    return Result(stage, duration_s, error)


def _run_phase(stages: Sequence[Stage], jobs: int, *, stop_at_first: bool) -> list[Result]:
    results = []
    with ThreadPoolExecutor(jobs) as pool:
        futures: list[Future[Result]] = [
            pool.submit(run_stage, stage, live=len(stages) == 1) for stage in stages
        ]
        try:
            for future in as_completed(futures):
                if not future.cancelled():
                    results.append(future.result())
                    if stop_at_first and results[-1].error is not None:
                        pool.shutdown(wait=False, cancel_futures=True)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            _end_all()
            raise
    return results


def _table(stages: Sequence[Stage], results: Sequence[Result]) -> str:
    by_name = {result.stage.name: result for result in results}
    width = max(len(stage.name) for stage in stages)
    lines = []
    for stage in stages:
        result = by_name.get(stage.name)
        if result is None:
            lines.append(f"{stage.name:{width}}  {'':>8}  not run")
        else:
            ending = "passed" if result.error is None else f"FAILED: {result.error}"
            lines.append(f"{stage.name:{width}}  {result.duration_s:6.1f} s  {ending}")
    return "\n".join(lines)


def run_all(stages: Sequence[Stage], jobs: int, *, stop_at_first: bool = False) -> bool:
    """Run `stages`, print a table and the summary line; True when all passed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    phases = itertools.groupby(sorted(stages, key=_phase), _phase)
    results: list[Result] = []
    for _, phase in phases:
        results += _run_phase(list(phase), jobs, stop_at_first=stop_at_first)
        if stop_at_first and any(result.error for result in results):
            break
    failed = sum(result.error is not None for result in results)
    _tell(f"\n{_table(sorted(stages, key=_phase), results)}")
    _tell(f"in all {time.monotonic() - start:.1f} s\n")
    _tell(f"{len(results) - failed} passed, {failed} failed")
    return failed == 0 and len(results) == len(stages)
