"""What `[prestager]` must satisfy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prestage.target.processors import check_processors
from prestage.target.settings import PrestagerSettings
from prestage.target.sizes import quote, size_text

Found = tuple[str, str]
"""A field's path, and what was found and expected."""

MIN_ORDERS, MAX_ORDERS = 1 << 6, 1 << 20
MIN_MEMORY, MAX_MEMORY = 128 << 20, 1 << 40
SCHEDULING = ("idle", "nice")
MAX_SEED = (1 << 63) - 1
MIN_TIME_SCALE, MAX_TIME_SCALE = 0.001, 1000.0


def check_prestager(prestager: PrestagerSettings) -> Iterator[Found]:
    """Yield the faults of the prestager's settings."""
    yield from _check_snapshot(prestager.snapshot)
    yield from _check_scheduling(prestager)
    period_s = prestager.snapshot_s
    if period_s and not 1 <= period_s <= 86400:
        yield "prestager.snapshot_s", f"found {period_s:g}s, expected 0, or 1s to 86400s"
    percent = prestager.holdout_percent
    if not 0 <= percent <= 50:
        yield "prestager.holdout_percent", f"found {percent:g}, expected 0 to 50"
    if not MIN_MEMORY <= prestager.memory <= MAX_MEMORY:
        expected = f"expected {size_text(MIN_MEMORY)} to {size_text(MAX_MEMORY)}"
        yield "prestager.memory", f"found {size_text(prestager.memory)}, {expected}"
    orders = prestager.orders
    if orders & (orders - 1) or not MIN_ORDERS <= orders <= MAX_ORDERS:
        expected = f"expected a power of two, {MIN_ORDERS} to {MAX_ORDERS}"
        yield "prestager.orders", f"found {orders}, {expected}"
    if not 1 <= prestager.silence_s <= 3600:
        yield "prestager.silence_s", f"found {prestager.silence_s:g}s, expected 1s to 3600s"
    if not 0 <= prestager.seed <= MAX_SEED:
        yield "prestager.seed", f"found {prestager.seed}, expected 0 to {MAX_SEED}"
    if not MIN_TIME_SCALE <= prestager.time_scale <= MAX_TIME_SCALE:
        expected = f"expected {MIN_TIME_SCALE:g} to {MAX_TIME_SCALE:g}"
        yield "prestager.time_scale", f"found {prestager.time_scale:g}, {expected}"


def _check_scheduling(prestager: PrestagerSettings) -> Iterator[Found]:
    if prestager.scheduling not in SCHEDULING:
        expected = f"expected {' or '.join(SCHEDULING)}"
        yield "prestager.scheduling", f"found {quote(prestager.scheduling)}, {expected}"
    yield from check_processors("prestager.cpus", prestager.cpus)


def _check_snapshot(path: str) -> Iterator[Found]:
    """Yield what keeps the snapshot from being written; empty: the target finds a place."""
    if not path:
        return
    field, found = "prestager.snapshot", quote(path)
    if "\0" in path:
        yield field, f"found {found}, expected a path without a zero byte"
        return
    try:
        if Path(path).is_dir():
            yield field, f"found the directory {found}, expected a file"
        elif Path(path).exists() and not Path(path).is_file():
            # A pipe would never be opened, and the first snapshot take the place of a device.
            yield field, f"found {found}, expected a regular file"
        elif not Path(path).parent.is_dir():
            yield field, f"found {found}, expected a file in a directory that is there"
        elif len(os.fsencode(Path(path).name)) > 250:
            yield field, f"found {found}, expected a name of at most 250 bytes"
    except (OSError, ValueError) as error:
        # Too long a path, or bytes that no path has.
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        yield field, f"found {found}: {reason}, expected a file that can be written"
