"""Pages in files: `hint decode` prints one."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from prestage.ext.answers import AnswerPage, decode_answer
from prestage.ext.codec import Batch, decode_batch
from prestage.ext.errors import Malformed
from prestage.ext.names import AnswerState, Fault, Magic
from prestage.ext.pages import Event, EventLog, Status, decode_events, decode_status
from prestage.host_client.commands.common import Subparsers, command
from prestage.host_client.commands.show import (
    answer_line,
    out,
    out_json,
    status_lines,
)
from prestage.host_client.errors import HostError

Page = Batch | AnswerPage | Status | EventLog


def add_decode(actions: Subparsers) -> None:
    """Add `hint decode`."""
    parser = command(actions, "decode", "print a page that was read from a target", _decode)
    parser.add_argument("file", metavar="FILE", help="- for standard input")


async def _decode(args: argparse.Namespace) -> int:
    page = decode_page(read_file(args.file), args.file)
    if args.json:
        out_json({"kind": type(page).__name__.lower(), "page": page})
    else:
        for line in page_lines(page):
            out(line)
    return 0


def read_file(file: str) -> bytes:
    """Return what a file has, `-`: standard input. Raises `HostError`."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise HostError(error.strerror or str(error), file) from None


def decode_page(data: bytes, where: str) -> Page:
    """Return what a page says: a batch, an answer, a status or the event log.

    Raises `HostError`, which names the byte at fault.
    """
    readers: dict[int, Any] = {
        Magic.BATCH: decode_batch,
        Magic.ANSWER: decode_answer,
        Magic.CAPABILITY: decode_status,
        Magic.EVENTS: decode_events,
    }
    reader = readers.get(int.from_bytes(data[:4], "little"))
    try:
        if reader is None:
            raise Malformed(Fault.MAGIC, 0)
        page: Page = reader(data)
    except Malformed as error:
        expected = "a page of PAX: a batch, an answer, a status or the events"
        raise HostError(str(error), where, expected) from None
    return page


def page_lines(page: Page) -> list[str]:
    """Return a page for people."""
    if isinstance(page, Status):
        return status_lines(page)
    if isinstance(page, EventLog):
        return [*map(_event_line, page.events), f"{page.lost} events were lost before"]
    if isinstance(page, Batch):
        head = f"batch {page.sequence} of writer {page.writer:x}, {len(page.records)} records"
        return [head, *(str(one) for one in page.records)]
    return _answer_lines(page)


def _event_line(event: Event) -> str:
    return f"intent {event.intent_id} of session {event.session}: {event.state.name.lower()}"


def _answer_lines(page: AnswerPage) -> list[str]:
    head = f"batch {page.sequence} of writer {page.writer:x}: {page.state.name.lower()}"
    if page.state == AnswerState.REFUSED:
        return [f"{head}, {page.fault.name.lower()} at byte {page.fault_offset}"]
    head += f", accepted {page.accepted}, dropped {page.dropped}, unknown {page.unknown}"
    return [head, *map(answer_line, page.answers)]
