"""A target over media that hold a pattern, nothing of it in the tier: one medium takes its time,
one holds what it was asked for, one fails; and how hosts hint about them.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

from nvme_tcp import hints
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from . import hinting
from .hinting import BLOCK
from .intents import STATES, Event, check_sums, read_events
from .probing import SEED, Site, check_fresh_connection
from .running import MIB, NQN, RunningTarget, base_config, merge

FLASH, HELD, FAILING, PLAIN, SLOW = range(1, 6)
SIZE = 128 * MIB
BLOCKS = SIZE // BLOCK
SLOT = (64 << 10) // BLOCK
REGION = 2 * MIB // BLOCK
BAD = (64 * MIB, 65 * MIB)
"""These bytes cannot be read from the failing medium."""
ROOMLESS = {"hostnqn": "nqn.2026-11.io.prestage:roomless", "hostid": b"r" * 16}
"""A host whose hints may hold little of the tier."""
_regions = {
    nsid: iter(range(REGION, BLOCKS - REGION, REGION)) for nsid in (FLASH, HELD, PLAIN, SLOW)
}
_ids = iter(range(1, 1 << 30))
MODEL = {
    "seed": SEED,
    "read_us": 150,
    "read_p99_us": 400,
    "write_us": 50,
    "bandwidth": "40M",
    "channels": 8,
}


def pattern(slba: int, blocks: int, stamp: int = 0) -> bytes:
    """What the blocks hold: their numbers."""
    return b"".join(struct.pack("<QQ", lba, stamp) * 32 for lba in range(slba, slba + blocks))


def spaces(directory: Path) -> list[dict[str, object]]:
    """The namespaces, each with its pattern on the medium, and nothing of it in the tier."""
    raw = pattern(0, BLOCKS)
    found = []
    for nsid in (FLASH, HELD, FAILING, PLAIN, SLOW):
        path = directory / f"ns{nsid}"
        path.write_bytes(raw)
        space: dict[str, object] = {"nsid": nsid, "path": str(path), "size": SIZE, "block": BLOCK}
        found.append(space)
    found[0] |= {"media": "model", "media_options": MODEL}
    found[1] |= {"faults": ["stall:op=read,after=0"]}
    found[2] |= {"faults": [f"error:op=read,errno=EIO,rate=1,first={BAD[0]},last={BAD[1] - 1}"]}
    found[4] |= {"faults": [f"delay:read_us=4000,seed={SEED}"]}
    return found


@contextlib.contextmanager
def serve(directory: Path) -> Iterator[RunningTarget]:
    """A target over media that hold a pattern; the one that stalls is let go."""
    changes = {
        "tier": {"size": 128 * MIB},
        "reactors": 2,
        "hints": {
            "tier_percent": 60,
            "grace_s": 0.05,
            "tenants": [{"host": ROOMLESS["hostnqn"], "tier_percent": 1}],
        },
        "subsystems": [{"nqn": NQN, "extension": True, "namespaces": spaces(directory)}],
    }
    started = RunningTarget(directory, merge(base_config(directory), changes))
    try:
        started.media_control("stall", "release", nsid=HELD)
        check_fresh_connection(started.site())
        yield started
        assert started.process.poll() is None, f"the target died:\n{started.said()[-4000:]}"
        assert started.stop() == 0, started.said()[-4000:]
    finally:
        started.kill()


@contextlib.contextmanager
def connected(site: Site) -> Iterator[Controller]:
    """One controller with one I/O queue, its log of events empty; its counts always add up."""
    with site.pair(1) as controller:
        (queue,) = controller.io
        hinting.accepted(queue, hints.cancel(hints.CANCEL_EVERYTHING))
        read_events(controller, may_lose=True)
        yield controller
        seen = hinting.status(queue)
        check_sums(seen.intents)
        check_sums(seen.reads)
        assert all(one["dropped"] == 0 for one in seen.reads)


def cold(queue: Queue, nsid: int = FLASH) -> int:
    """The first LBA of REGION blocks that nothing has read, written or named yet."""
    slba = next(_regions[nsid])
    assert hinting.residency(queue, slba, REGION, nsid=nsid).warm_bytes == 0
    return slba


def intend(queue: Queue, *args: object, **options: object) -> int:
    """Say an intent with a number of its own, and return that."""
    number = new_id()
    answer = hinting.submit(queue, hints.intent(number, *args, **options))  # type: ignore[arg-type]
    assert answer.is_ok, answer.text()
    return number


def new_id() -> int:
    """A number for an intent."""
    return next(_ids)


def end_of(queue: Queue, number: int) -> tuple[str, str]:
    """State and reason of an intent that has ended."""
    end = hinting.ended(queue, number)
    return STATES[end.state], end.reason


def events_of(controller: Controller, number: int) -> list[Event]:
    """The events about an intent."""
    return [event for event in read_events(controller) if event.intent_id == number]


def check_bytes(queue: Queue, slba: int, blocks: int, nsid: int = FLASH) -> None:
    """They are those of the medium."""
    assert read_all(queue, slba, blocks, nsid) == pattern(slba, blocks)


def read_all(queue: Queue, slba: int, blocks: int, nsid: int) -> bytes:
    """The bytes of any number of blocks."""
    most = MIB // BLOCK
    pieces = ((at, min(most, slba + blocks - at)) for at in range(slba, slba + blocks, most))
    return b"".join(queue.read(at, count, BLOCK, nsid=nsid) for at, count in pieces)
