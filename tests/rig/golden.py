"""What a Linux host must find at a target: the golden fields, and how findings are held to them.

A check is a generator of sentences; one that yields nothing is content.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

Facts = dict[str, Any]
QUEUES = 4
BAD_LBA = 24_601
"""On namespace 2, of 512-byte blocks: the block whose reads fail."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Golden:
    """What is known of a target beforehand. Sizes are bytes."""

    nqn: str
    serial: str
    model: str
    sizes: dict[int, int]
    """By namespace."""
    blocks: dict[int, int]
    version: int
    """VS; 2.0 is 20000h. 0: not checked (nvmet's depends on the kernel)."""
    read_error: int
    """SCT and SC of a read from a block that its medium cannot give."""
    counts_media_errors: bool
    firmware_slot: int
    oncs: int
    """Optional commands that must be there: 1 Compare, 4 Dataset Management, 8 Write Zeroes,
    80h Verify, 100h Copy."""
    fuses: int
    """1: fused Compare and Write."""
    has_nguid: bool
    extension: int = 0
    """NSID of the extension namespace; 0: there is none, and no PAX."""

    @property
    def namespaces(self) -> list[int]:
        """All of them, in order."""
        return sorted([*self.sizes, *([self.extension] if self.extension else [])])


OURS = Golden(
    nqn="nqn.2026-11.io.prestage:rig",
    serial="RIG0001",
    model="prestage rig",
    sizes={1: 64 << 20, 2: 32 << 20},
    blocks={1: 4096, 2: 512},
    version=0x20000,
    read_error=0x281,
    counts_media_errors=True,
    firmware_slot=1,
    oncs=0x18D,
    fuses=1,
    has_nguid=True,
    extension=1024,
)
NVMET = Golden(
    nqn="nqn.2026-11.io.prestage:reference",
    serial="REFERENCE1",
    model="Linux",
    sizes={1: 64 << 20, 2: 32 << 20},
    blocks={1: 512, 2: 512},
    version=0,
    read_error=0x006,
    counts_media_errors=False,
    firmware_slot=0,
    oncs=0x0C,
    fuses=0,
    has_nguid=False,
)


class Memory:
    """What earlier steps found and later ones must find again."""

    def __init__(self) -> None:
        self.identities: Facts | None = None
        self.firmware = ""


Problems = Iterator[str]
Check = Callable[[Facts, Golden, Memory], Problems]


def registry(checks: dict[str, Check]) -> Callable[..., Callable[[Check], Check]]:
    """Returns a decorator that registers the check of one step or several."""

    def check(*steps: str) -> Callable[[Check], Check]:
        def register(function: Check) -> Check:
            checks.update(dict.fromkeys(steps, function))
            return function

        return register

    return check


def differs(what: str, found: object, wanted: object) -> Problems:
    if found != wanted:
        yield f"{what}: found {found!r}, expected {wanted!r}"


def lacks(what: str, found: int, bits: int) -> Problems:
    if found & bits != bits:
        yield f"{what}: found {found:#x}, expected at least the bits {bits:#x}"


def status(printed: str) -> int | str:
    """SCT and SC, as nvme-cli says them; what it printed instead when it says none."""
    code = re.search(r"\((0x[0-9a-f]+)\)\s*$", printed)
    return int(code[1], 16) & 0x7FF if code else printed


def live(facts: Facts, golden: Golden) -> Problems:
    """The controller in sysfs: connected, over all its queues, and ours."""
    yield from differs("state", facts["state"], "live")
    yield from differs("queue_count", int(facts["queue_count"]), QUEUES + 1)
    yield from differs("subsysnqn", facts["subsysnqn"], golden.nqn)
    yield from differs("serial", facts["serial"], golden.serial)
    yield from differs("model", facts["model"], golden.model)


def logged(facts: Facts, words: str, times: int) -> Problems:
    found = sum(words in line for line in facts["kernel"])
    if found < times:
        yield f"kernel log: {words!r} {found} times, expected {times} or more"
