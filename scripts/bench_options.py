"""The command line of `scripts/bench`: which option is for which mode, and what may be in it.

All of it is checked before anything starts, what will be written at the end included.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import bench_figures
from bench_other import AS_MEASURED, AS_PAUSED, server_of

Thing = TypeVar("Thing")
WITH_FIGURES = ("sockets", "lines", "growth")
MODES = (*WITH_FIGURES, "copies", "hints", "tenants", "harm", "host")
TIMED = tuple(mode for mode in MODES if mode != "copies")
MODES_OF: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("rounds", "seconds"), TIMED),
    **dict.fromkeys(("case", "list", "json"), MODES),
    **dict.fromkeys(("compare", "plot"), WITH_FIGURES),
    **dict.fromkeys(("target", "against", "serve"), ("sockets",)),
    **dict.fromkeys(("beside", "gross"), ("lines",)),
    "overwrite": ("sockets", "lines"),
}
"""Every option, and the modes that it means something in."""
NEEDS: Mapping[str, Sequence[str]] = {
    "target": ("overwrite",),
    "beside": ("overwrite",),
    "overwrite": ("target", "beside"),
}
"""An option, and those of which one has to be given with it."""
DEFAULTS: Mapping[str, object] = {"rounds": 5, "seconds": 1.0, "serve": ()}
ROUNDS_MOST = 10_000
SECONDS_LEAST, SECONDS_MOST = 0.01, 3600.0


def parse(description: str | None, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the checked command line. Ends the program with what was expected, and status 2."""
    parser = parser_of(description)
    found = parser.parse_args(arguments)
    given = {name for name in MODES_OF if getattr(found, name) not in (None, False)}
    for problem in problems(found.mode, given):
        parser.error(problem)
    for name, value in DEFAULTS.items():
        if getattr(found, name) is None:
            setattr(found, name, value)
    return found


def problems(mode: str, given: Iterable[str]) -> list[str]:
    """Return what to say of options that mean nothing in this mode, or with each other."""
    names, found = sorted(given), []
    for name in names:
        if mode not in MODES_OF[name]:
            found.append(f"--{name} is not for {mode}, expected {one_of(MODES_OF[name])}")
        elif name in NEEDS and not set(NEEDS[name]) & set(names):
            also = one_of([f"--{each}" for each in NEEDS[name]])
            what = "" if name == "overwrite" else ", for namespace 1 of that target is written to"
            found.append(f"--{name}: expected {also} as well{what}")
    if {"gross", "beside"} <= set(names):
        found.append("--gross is for lines against the bare server, --beside for others")
    if {"serve", "target"} <= set(names) and "against" not in names:
        found.append("--serve is for a target that is started, --target for one that runs")
    return found


def one_of(words: Sequence[str]) -> str:
    """Return words as a choice."""
    return f"one of {', '.join(words)}" if len(words) > 1 else words[0]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return what reads the command line; an option that was not given is None, or False."""
    parser = argparse.ArgumentParser(
        prog="bench", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", nargs="?", choices=MODES, default="sockets")

    def add(name: str, text: str, **how: object) -> None:
        modes = MODES_OF[name]
        of = "" if modes == MODES else f"{', '.join(modes)}: "
        parser.add_argument(f"--{name}", help=of + text, **how)  # type: ignore[arg-type]

    add("rounds", f"how often each case runs ({DEFAULTS['rounds']})", type=rounds, metavar="N")
    add("seconds", f"how long one run lasts ({DEFAULTS['seconds']})", type=seconds, metavar="S")
    add("case", "only the case of this name, or else those whose name contains it; may be repeated",
        action="append", metavar="NAME")  # fmt: skip
    add("list", "print the names of the cases, and end", action="store_true")
    add("target", "measure this running target instead of ours. WRITES to its namespace 1. Pin it "
        "to core 0 beforehand, as ours is (taskset -apc 0 PID): with more cores it is more than "
        "what it is compared with; PID, of the process that listens there, is for its CPU time",
        metavar=AS_MEASURED, type=lambda text: server_of(text, is_paused=False))  # fmt: skip
    add("beside", "the lines against this running target. WRITES to its namespace 1. It is stopped "
        "(SIGSTOP) while ours is measured, and afterwards; pin it to core 0 too",
        metavar=AS_PAUSED, type=lambda text: server_of(text, is_paused=True))  # fmt: skip
    add("overwrite", "let --target or --beside write over what namespace 1 holds there",
        action="store_true")  # fmt: skip
    add("against", "compare with the target of another checkout too (set up)", type=checkout,
        metavar="CHECKOUT")  # fmt: skip
    add("gross", "only those against the bare server; fail where one is "
        f"{bench_figures.GROSS:.0f} times as bad as its aim in every round",
        action="store_true")  # fmt: skip
    add("json", "write every run there as well", type=file_to_write, metavar="FILE")
    add("compare", "say what became of the figures of an earlier run of the same mode", type=Path,
        metavar="OLD.json")  # fmt: skip
    add("plot", "draw the figures there (SVG, matplotlib)", type=folder_to_write, metavar="DIR")
    add("serve", "the rest of the line is for `prestage serve` (for example --reactors 2)",
        nargs=argparse.REMAINDER, metavar="...")  # fmt: skip
    return parser


# ---- what may be in an option: each returns its value, or says what was expected ----


def rounds(text: str) -> int:
    """A number of rounds."""
    if not text.isdecimal() or not 1 <= int(text) <= ROUNDS_MOST:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1 to {ROUNDS_MOST}")
    return int(text)


def seconds(text: str) -> float:
    """How long a run may last; the generator takes no other."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not SECONDS_LEAST <= value <= SECONDS_MOST:
        expected = f"{SECONDS_LEAST} to {SECONDS_MOST:.0f}"
        raise argparse.ArgumentTypeError(f"{text!r}: expected {expected}")
    return value


def checkout(text: str) -> Path:
    """Another checkout, set up."""
    path = Path(text).resolve()
    if not os.access(path / ".venv/bin/prestage", os.X_OK):
        raise argparse.ArgumentTypeError(
            f"{text!r} has no .venv/bin/prestage, expected a checkout that scripts/setup was run in"
        )
    return path


def file_to_write(text: str) -> Path:
    """A file that can be written; one that was not there is not there afterwards."""
    path = Path(text)
    was_there = path.exists()
    try:
        with path.open("a"):
            pass
        if not was_there:
            path.unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {error.strerror}") from None
    return path


def folder_to_write(text: str) -> Path:
    """A folder that can be written to, or be made when there is something to write."""
    path = Path(text)
    there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {error.strerror}") from None
    return path


def chosen(every: Mapping[str, Thing], parts: Sequence[str] | None) -> dict[str, Thing]:
    """Return what `parts` name: each the one that is called so, or else all that contain it.

    Ends the program, with all names, where one names nothing.
    """
    if not parts:
        return dict(every)
    names: set[str] = set()
    for part in parts:
        found = {part} if part in every else {name for name in every if part in name}
        if not found:
            raise SystemExit(f"bench: --case {part!r}: there are {', '.join(every)}")
        names |= found
    return {name: each for name, each in every.items() if name in names}
