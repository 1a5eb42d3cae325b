"""What a read says of itself: when its data is needed, and how it will be used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from prestage.ext import layout
from prestage.ext.names import Carrier
from prestage.ext.pages import Capability
from prestage.host_client import nvme
from prestage.host_client.arguments import integer, time_span

Seconds = float | timedelta
"""A time span: a number of seconds, or a timedelta."""
MOST_US = 0xFFFFFFFF
DEFAULT_PRIORITY = 2
LATENCY_IDLE, LATENCY_LOW = 1 << 4, 3 << 4
"""Access latency of a Read, CDW13 bits 5:4 (NVM 1.0, figure 46): longer, and as low as possible."""
SOON_US, FAR_US = 10_000, 1_000_000
"""What a plain Read calls low latency and idle, when it is to tell a deadline."""


@dataclass(frozen=True, slots=True)
class ReadHint:
    """A read's wishes. `attributes` is the Dataset Management byte of CDW13 that says it best."""

    is_dated: bool
    deadline_us: int
    priority: int
    session: int
    access: int
    attributes: int


PLAIN = tuple(ReadHint(False, 0, 0, 0, access, access) for access in range(16))
"""Of reads that wish for nothing, by access frequency."""


def microseconds(value: Seconds, name: str) -> int:
    """Return a time span in whole microseconds, at most FFFFFFFFh. Raises `InvalidRequest`."""
    return min(round(time_span(value, name) * 1e6), MOST_US)


def read_hint(
    deadline: Seconds | None, priority: int | None, session: int, access: int
) -> ReadHint:
    """Return what the arguments of a read say. Raises `InvalidRequest`."""
    is_dated = not (deadline is None and priority is None and session == 0)
    if not is_dated and access == 0:
        return PLAIN[0]
    access = integer(access, "access", 0, len(PLAIN) - 1)
    if not is_dated:
        return PLAIN[access]
    session = integer(session, "session", 0, (1 << 64) - 1)
    rank = DEFAULT_PRIORITY if priority is None else priority
    rank = integer(rank, "priority", 0, layout.PRIORITIES - 1)
    deadline_us = MOST_US if deadline is None else microseconds(deadline, "deadline")
    latency = 0
    if deadline_us <= SOON_US or rank == 0:
        latency = LATENCY_LOW
    elif deadline_us >= FAR_US and rank == layout.PRIORITIES - 1:
        latency = LATENCY_IDLE
    return ReadHint(True, deadline_us, rank, session, access, access | latency)


def dated_read_opcode(capability: Capability | None) -> int:
    """Return the opcode of the dated read, 0 where there is none."""
    if capability is None or not capability.carriers & Carrier.DATED_READ:
        return 0
    return capability.dated_read_opcode


def dated_entry(
    opcode: int, nsid: int, slba: int, nlb: int, *, hint: ReadHint, control: int
) -> bytes:
    """Return a dated read of `nlb` blocks, 1-based (specification, dated read)."""
    return nvme.entry(
        opcode,
        nsid,
        cdw2=hint.session & 0xFFFFFFFF,
        cdw3=hint.session >> 32,
        cdw10=slba & 0xFFFFFFFF,
        cdw11=slba >> 32,
        cdw12=nlb - 1 | control,
        cdw13=hint.access,
        cdw14=hint.deadline_us,
        cdw15=hint.priority,
    )
