"""What the target tells the prestager's process when it starts it, and what they say later.

The settings are the process's one argument, as JSON. Afterwards both sides write lines of JSON to a
socket that the process inherited: the target sends Words, the process sends Alive. When either end
closes, the other is gone. The process then ends too, and leaves files alone unless it was told that
this is the end: after a target that died, another may be there already.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from prestage.ext.pages import LEAST, MOST, Benefit

__all__ = ["Alive", "Launch", "Words", "decode_words"]


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How the process is started. Descriptors are numbers that it inherits."""

    channel: int
    """A stream socket to the target."""
    ring: int
    """The memory of facts (csrc/ring.h)."""
    orders: int
    """The memory of orders (csrc/orders.h)."""
    ring_wake: int
    """An eventfd that the target signals when the ring has what is waited for."""
    orders_wake: int
    """An eventfd that tells the target of orders."""
    frame_count: int
    slot_size: int
    """Bytes."""
    seed: int
    holdout_share: float
    """Of predictions, that are not acted on; 0 to 1."""
    snapshot: str
    """The file of what was learned."""
    snapshot_s: float
    """How often it is written; 0: only at the end."""
    report_s: float = 1.0
    """How often it gives a sign of life."""
    distrust: bool = False
    """What was learned is set aside unread: the process died of it, perhaps."""
    memory_bytes: int = 0
    """That it may take beyond what it has at the start; 0: as much as there is."""
    time_scale: float = 1.0
    """Seconds that pass for the prestager in each second of the clock of facts."""
    hang_s: float = 60.0
    """Processor time without a sign of life after which it ends by itself."""
    orphan_s: float = 10.0
    """It may take so long to end when the target has died."""
    is_idle: bool = True
    """It runs only when nothing else wants its processor; False: less often than others."""
    cpus: list[int] = []
    """It runs on these, as far as there are such; empty: wherever the target may."""


class Words(msgspec.Struct, frozen=True, omit_defaults=True):
    """What numbers in facts stand for from now on; those that are not named stay as they were."""

    volumes: dict[int, str] = {}
    """UUIDs of namespaces by the number of their volume."""
    tenants: dict[int, str] = {}
    """NQNs of hosts by the number of their tenant."""
    is_last: bool = False
    """The target stops: what was learned is to be kept."""


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """A sign of life, and how things are."""

    counters: dict[str, int]
    """Of this process since its start."""
    troubles: dict[str, str]
    """What is not as it should be, in sentences, by what it is about."""
    report: dict[str, Any]
    """What the prestager says of itself."""

    @property
    def benefit(self) -> Benefit:
        """What it says of its benefit, in whole reads; zeros when it does not."""
        try:
            said = msgspec.convert(self.report.get("benefit"), Measured)
        except msgspec.ValidationError:
            return Benefit()
        low, high = _whole(said.low, LEAST), _whole(said.high, MOST)
        if not low <= _whole(said.hits, 0) <= high:
            return Benefit()
        acted, held = (min(max(count, 0), MOST) for count in (said.acted, said.held))
        return Benefit(acted, held, _whole(said.hits, 0), low, high)


class Measured(msgspec.Struct):
    """The benefit as a prestager says it; ends that are not known yet are none."""

    acted: int
    held: int
    hits: float
    low: float | None = None
    high: float | None = None


def _whole(number: float | None, unknown: int) -> int:
    """Return the number as a signed one of 64 bits."""
    if number is None or not math.isfinite(number):
        return unknown
    return max(LEAST, min(MOST, round(number)))


def decode_words(line: bytes) -> Words:
    """Return what a line says. Raises msgspec.ValidationError or DecodeError."""
    return msgspec.json.decode(line, type=Words)
