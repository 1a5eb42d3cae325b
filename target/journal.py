"""The log of the daemon: structured, to standard error; JSON unless somebody watches."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TextIO

import structlog

LEVELS = ("debug", "info", "warning", "error")
FLOOD_S, FLOOD_RECORDS, FLOOD_KINDS = 10.0, 100, 1000
"""So many records of one kind in so many seconds, and so many kinds, are told apart."""


class Flood(logging.Filter):
    """Lets a few records of one kind pass in a while, and says how many it held back.

    What hosts and clients do wrong is told, but must not fill a disk nor keep the target busy.
    Records are of one kind when they have the same text before their arguments are put in.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._since = clock()
        self._seen: Counter[object] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is written."""
        if record.levelno >= logging.ERROR:
            return True
        if self._clock() - self._since >= FLOOD_S:
            held = sum(max(0, count - FLOOD_RECORDS) for count in self._seen.values())
            self._seen.clear()
            self._since = self._clock()
            if held:
                logging.getLogger("prestage").warning("%d records like others were left out", held)
        message = record.msg
        kind = message.get("event") if isinstance(message, dict) else message
        kind = (record.name, str(kind))
        if kind not in self._seen and len(self._seen) >= FLOOD_KINDS:
            kind = (record.name, "")
        self._seen[kind] += 1
        return self._seen[kind] <= FLOOD_RECORDS


def set_up_logging(level: str = "info", stream: TextIO | None = None) -> None:
    """Send the records of structlog and of `logging` to `stream`, in one form."""
    assert level in LEVELS
    stream = stream if stream is not None else sys.stderr
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: list[structlog.types.Processor]
    if stream.isatty():
        renderer = [structlog.dev.ConsoleRenderer(colors=True)]
    else:
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    handler = logging.StreamHandler(stream)
    if level != "debug":
        handler.addFilter(Flood())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel("WARNING")
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
