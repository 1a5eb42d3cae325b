"""The command `prestage`: the commands of a target and those of a host under one root.

Exit status: 0 done, 1 failed, 2 wrong usage; `serve` has 3 as well. Errors are one sentence on
standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

import prestage
from prestage.host_client import commands as host
from prestage.host_client.errors import HostError
from prestage.target.commands import COMMANDS as TARGET_COMMANDS
from prestage.target.errors import Ended, InvalidFlag, TargetError
from prestage.target.flags import UsageError

LAZY = {
    **host.COMMANDS,
    "replay": host.Command(
        "prestage.replay.commands",
        "show what a target would have had in DRAM when a trace asked for it",
    ),
}
"""Commands whose modules know much, and are imported when they are used."""
COMPLETION = "--print-completion"
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    `words`: the one that is to be parsed; what it does not name of LAZY is not
    imported, and has no arguments. None: all of it.
    """
    parser = argparse.ArgumentParser(
        prog="prestage",
        description="An NVMe-over-TCP storage target in userspace that anticipates.",
    )
    parser.add_argument("--version", action="version", version=f"prestage {prestage.__version__}")
    _add_completion(parser)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in TARGET_COMMANDS:
        module.add(subparsers)
    for name, command in LAZY.items():
        if words is None or name in words or any(map(_asks_completion, words)):
            command.load().add(subparsers)
        else:
            subparsers.add_parser(name, help=command.purpose)
    return parser


def _asks_completion(word: str) -> bool:
    """Whether a word may be the flag, in full or abbreviated."""
    return word.startswith("--") and COMPLETION.startswith(word.partition("=")[0])


def _add_completion(parser: argparse.ArgumentParser) -> None:
    """Offer shell completion where shtab is installed."""
    try:
        import shtab
    except ImportError:
        return
    shtab.add_argument_to(parser, COMPLETION, help="print the completion of a shell")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    words = sys.argv[1:] if argv is None else argv
    for word in words:
        if not _is_text(word):
            return _fail(f"found {word!a}, expected arguments in UTF-8", EXIT_USAGE)
    try:
        code = _run(words)
    except (UsageError, InvalidFlag) as error:
        return _fail(str(error), EXIT_USAGE)
    except (TargetError, HostError) as error:
        return _fail(str(error), EXIT_FAILED)
    except BrokenPipeError:
        # The reader has seen enough. Python would complain when it flushes at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", EXIT_FAILED)
    except Ended as ended:
        return ended.status
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _run(words: Sequence[str]) -> int:
    try:
        args = build_parser(words).parse_args(words)
    except SystemExit:
        # Parsing itself may print: the help, the version, the completion of a shell.
        sys.stdout.flush()
        raise
    code: int = args.run(args)
    sys.stdout.flush()
    return code


def _is_text(word: str) -> bool:
    """Whether an argument was UTF-8: other bytes come as surrogates, which nothing can write."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fail(message: str, code: int) -> int:
    for line in message.splitlines():
        sys.stderr.write(f"prestage: {line}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
