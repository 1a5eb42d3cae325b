"""The demonstration in the terminal: a line that tells how far it is, and a table with bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TextIO

BAR: Final = 12
PROGRESS_BAR: Final = 30
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
NAME: Final = 24

ROWS: Final[tuple[tuple[str, str, Callable[[dict[str, Any]], float | None]], ...]] = (
    ("all of it in DRAM", "{:.0%}", lambda run: run["ready"]),
    ("waited, median", "{:.2f} s", lambda run: run["wait_s"]["p50"]),
    ("waited, p90", "{:.2f} s", lambda run: run["wait_s"]["p90"]),
    ("waited, p99", "{:.2f} s", lambda run: run["wait_s"]["p99"]),
    ("blocks found in DRAM", "{:.0%}", lambda run: run["read_hit_ratio"]),
    ("flash reads per read", "{:.2f}", lambda run: run["flash_reads_per_read"]),
)


class Line:
    """One line on a terminal that says how far a run is, and is gone after it; else nothing."""

    def __init__(self, stream: TextIO, what: str) -> None:
        self._stream = stream
        self._what = what
        self._is_shown = stream.isatty()

    def __enter__(self) -> Self:
        self.show(0.0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._put("")

    def show(self, share: float) -> None:
        """Say that so much (0 to 1) is behind."""
        self._put(f"{self._what} {bar(share, PROGRESS_BAR):{PROGRESS_BAR}} {share:4.0%}")

    def _put(self, text: str) -> None:
        if self._is_shown:
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()


def bar(share: float, width: int) -> str:
    """Return a bar of so much of `width` characters, to an eighth of one."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    return EIGHTHS[8] * whole + (EIGHTHS[rest] if rest else "")


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Return runs (`Shown.plain`) side by side: a number and a bar for each measure."""
    width = max(BAR + 8, *(len(run["name"]) for run in runs)) + 2
    count = runs[0]["returning_requests"]
    head = f"{f'{count} returning requests':{NAME}}"
    lines = [head + "".join(f" {run['name']:{width - 1}}" for run in runs).rstrip()]
    for name, form, value in ROWS:
        values = [value(run) for run in runs]
        most = max(_numbers(values), default=0.0) or 1.0
        cells = [_cell(form, each, most) for each in values]
        lines.append(f"{name:{NAME}}" + "".join(f"{cell:{width}}" for cell in cells).rstrip())
    lines += ["", *_remarks(runs)]
    return "\n".join(lines)


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [each for each in values if each is not None and math.isfinite(each)]


def _cell(form: str, value: float | None, most: float) -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return f"{form.format(value):>7} {bar(value / most, BAR)}"


def _remarks(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return what has to be known to read the table."""
    warm = _numbers(run["warm_wait_s"] for run in runs)
    lines = ["Times are those of the trace: as many times longer as the replay is faster."]
    if warm:
        lines.append(
            f"What is all in DRAM still waits {min(warm):.2f} to {max(warm):.2f} s (medians): "
            "that is the host's own work, in Python."
        )
    late = max(run["behind_s"]["p99"] for run in runs)
    lines.append(f"Requests were sent up to {late:.2f} s late (p99): this machine's doing.")
    return lines
