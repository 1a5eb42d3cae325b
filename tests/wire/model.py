"""Which values each logical block may show while several queues write and read it at once.

The model is the host's view alone: a read may return, for every block by itself, a value that was
not certainly overwritten when the read was submitted, or one written while it was under way. A
completed write certainly overwrites what had completed before it was submitted.
"""

from __future__ import annotations

import dataclasses
import struct

ZERO = 0


@dataclasses.dataclass
class Version:
    """A value of one block, and when its write was under way."""

    stamp: int
    """Unique to its write; ZERO for blocks that became zeros."""
    submitted: int
    completed: int | None = None
    replaces: bool = True
    """False for a deallocation, which may leave the old value."""


@dataclasses.dataclass
class Reading:
    """A read or compare under way."""

    slba: int
    allowed: list[set[int]]
    """Per block, the stamps that may be seen."""


class BlockModel:
    """Versions of every block of one namespace that was touched; others are unknown."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.versions: dict[int, list[Version]] = {}
        self.survivors: dict[int, list[Version]] = {}
        """What each block may hold after a crash: pruned by Flush and FUA only."""
        self._clock = 0
        self._readings: list[Reading] = []

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    def content(self, stamp: int, lba: int) -> bytes:
        """The bytes of a block."""
        if stamp == ZERO:
            return bytes(self.block_size)
        return struct.pack("<QQ", stamp, lba) * (self.block_size // 16)

    def payload(self, stamp: int, slba: int, blocks: int) -> bytes:
        """The bytes of a write."""
        return b"".join(self.content(stamp, lba) for lba in range(slba, slba + blocks))

    def starts_as_zeros(self, slba: int, blocks: int) -> None:
        """The blocks of a new file: zeros, which survive a crash until something durable follows.

        Without this a write that no Flush has covered would seem to be all that can be there.
        """
        now = self._tick()
        for lba in range(slba, slba + blocks):
            assert lba not in self.versions, f"LBA {lba} was touched before"
            self.versions[lba] = [Version(ZERO, now, now)]
            self.survivors[lba] = list(self.versions[lba])

    def write_submitted(
        self, stamp: int, slba: int, blocks: int, *, replaces: bool = True
    ) -> list[tuple[int, Version]]:
        """A write is under way from now on; give the result to write_completed."""
        now = self._tick()
        made = []
        for lba in range(slba, slba + blocks):
            version = Version(stamp, now, replaces=replaces)
            self.versions.setdefault(lba, []).append(version)
            self.survivors.setdefault(lba, []).append(version)
            made.append((lba, version))
        for reading in self._readings:
            first, last = max(slba, reading.slba), min(slba + blocks, _end(reading))
            for lba in range(first, last):
                reading.allowed[lba - reading.slba].add(stamp)
        return made

    def write_completed(self, made: list[tuple[int, Version]], *, durable: bool = False) -> None:
        """The write was acknowledged; `durable`: it carried FUA."""
        now = self._tick()
        for lba, version in made:
            version.completed = now
            if version.replaces:
                self.versions[lba] = [
                    other
                    for other in self.versions[lba]
                    if other.completed is None or other.completed >= version.submitted
                ]

            if durable:
                self._prune_survivors(lba, [version])

    def flush_submitted(self) -> int:
        """A Flush is under way; give the result to flush_completed."""
        return self._tick()

    def flush_completed(self, submitted: int) -> None:
        """What had completed before the Flush was submitted survives a crash."""
        for lba, versions in self.survivors.items():
            done = (v for v in versions if v.completed is not None and v.completed < submitted)
            self._prune_survivors(lba, list(done))

    def _prune_survivors(self, lba: int, durable: list[Version]) -> None:
        newest = max((v.submitted for v in durable if v.replaces), default=0)
        self.survivors[lba] = [
            v for v in self.survivors[lba] if v.completed is None or v.completed >= newest
        ]

    def crashed(self, slba: int, data: bytes) -> str | None:
        """After a crash: what is wrong with the bytes from `slba` on; they are the state now."""
        blocks = len(data) // self.block_size
        lbas = range(slba, slba + blocks)
        reading = Reading(slba, [{v.stamp for v in self.survivors[lba]} for lba in lbas])
        fault = self.fault(reading, data)
        now = self._tick()
        for index, lba in enumerate(lbas):
            start = index * self.block_size
            stamp = int.from_bytes(data[start : start + 8], "little")
            self.versions[lba] = [Version(stamp, now, now)]
            self.survivors[lba] = list(self.versions[lba])
        return fault

    def forget_readings(self) -> None:
        """No read is under way any more (the connections are gone)."""
        self._readings = []

    def read_submitted(self, slba: int, blocks: int) -> Reading:
        """A read is under way from now on; give the result to read_completed."""
        allowed = [
            {version.stamp for version in self.versions[lba]} for lba in range(slba, slba + blocks)
        ]
        reading = Reading(slba, allowed)
        self._readings.append(reading)
        return reading

    def read_completed(self, reading: Reading) -> None:
        """No write after this can have been seen."""
        # By identity: readings of one range may be equal.
        self._readings = [other for other in self._readings if other is not reading]

    def fault(self, reading: Reading, data: bytes) -> str | None:
        """What is wrong with the bytes of a read, if anything."""
        size = self.block_size
        if len(data) != size * len(reading.allowed):
            return f"{len(data)} bytes, {size * len(reading.allowed)} expected"
        for index, allowed in enumerate(reading.allowed):
            lba = reading.slba + index
            block = data[index * size : (index + 1) * size]
            stamp = int.from_bytes(block[:8], "little")
            if stamp not in allowed:
                return f"LBA {lba} shows write {stamp}, {sorted(allowed)} are possible"
            if block != self.content(stamp, lba):
                return f"LBA {lba} is torn or displaced: {block[:16].hex()} and other bytes"
        return None

    def settled_stamp(self, lba: int) -> int | None:
        """The one value a block can have, None while there are several."""
        stamps = {version.stamp for version in self.versions[lba]}
        return next(iter(stamps)) if len(stamps) == 1 else None


def _end(reading: Reading) -> int:
    return reading.slba + len(reading.allowed)
