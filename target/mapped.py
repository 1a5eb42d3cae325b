"""Shared memory that begins with a header: what the data path put there, looked at before use."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.errors import TargetError

__all__ = ["Mapped", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What such a memory is, as whoever maps it knows it."""

    name: str
    """Of the memory, in errors."""
    header: np.dtype[np.void]
    says: Mapping[str, int]
    """What fields of the header say, in any memory of this version."""
    error: type[TargetError]


class Mapped:
    """A mapping of the memory behind `descriptor`, which is duplicated.

    Raises the shape's error when the memory is another, OSError when it cannot be mapped.
    """

    def __init__(self, descriptor: int, shape: Shape) -> None:
        self.size_bytes: Final = os.fstat(descriptor).st_size
        self._shape = shape
        least = shape.header.itemsize
        if self.size_bytes < least:
            raise shape.error(f"{self.size_bytes} bytes", shape.name, f"{least} or more")
        memory = mmap.mmap(descriptor, self.size_bytes)
        self.memory = memory
        self.header: np.void = np.frombuffer(memory, shape.header, count=1)[0]
        found = {name: int(self.header[name]) for name in shape.says}
        if found != dict(shape.says):
            raise shape.error(_listed(found), shape.name, _listed(shape.says))

    def ring(self, items: np.dtype[np.void], what: str, offset: int) -> NDArray[np.void]:
        """Return the `capacity` items from a byte of the memory on, which the header counts.

        Their number is a power of two. Raises the shape's error when they cannot be there.
        """
        capacity, header_bytes = int(self.header["capacity"]), self._shape.header.itemsize
        is_power = capacity > 0 and capacity & (capacity - 1) == 0
        fits = header_bytes <= offset <= self.size_bytes - capacity * items.itemsize
        if not is_power or not fits:
            found = f"{capacity} {what} at byte {offset} of {self.size_bytes}"
            raise self._shape.error(found, self._shape.name)
        return np.frombuffer(self.memory, items, count=capacity, offset=offset)

    def close(self) -> None:
        """Forget the memory, which is unmapped when the last array is gone."""
        del self.header, self.memory


def _listed(fields: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} {value:#x}" if name == "magic" else f"{name} {value}"
        for name, value in fields.items()
    )
