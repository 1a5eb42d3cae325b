"""Numbers and times that stay what they are when the target starts again.

The data path counts volumes, tenants and nanoseconds from its own start. What is learned outlives
that, so the prestager sees numbers that stand for names (the UUID of a namespace, the NQN of a
host) and a clock that goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOBODY", "Clock", "Numbering"]

NOBODY: Final = 0xFFFF
"""What a lasting number stands for now, when that is not there."""

NEVER: Final = np.uint64(1 << 62)
"""Later than any time that comes."""
U16 = NDArray[np.uint16]


class Numbering:
    """Pairs the numbers of one run with lasting ones, by name.

    A number that was never named gets a lasting number of its own, with an empty name. There are
    `size` lasting numbers; when all are taken, one whose name is not there now is given away.
    """

    def __init__(self, size: int, names: Sequence[str] = ()) -> None:
        """Begin with the lasting numbers of an earlier run: `names[n]` is that of number n."""
        assert 0 < size <= NOBODY
        self._size = size
        self._names = list(names[:size])
        self._lasting = np.full(NOBODY + 1, NOBODY, np.uint16)
        """By number of this run."""
        self._current = np.full(NOBODY + 1, NOBODY, np.uint16)
        """By lasting number."""

    @property
    def names(self) -> list[str]:
        """The name of each lasting number."""
        return list(self._names)

    def name(self, numbers: Mapping[int, str]) -> None:
        """Say what numbers of this run stand for from now on."""
        for number, name in numbers.items():
            if 0 <= number < NOBODY:
                self._pair(number, self._place_of(name))

    def _place_of(self, name: str) -> int:
        if name and name in self._names:
            return self._names.index(name)
        if len(self._names) < self._size:
            self._names.append(name)
            return len(self._names) - 1
        away = np.flatnonzero(self._current[: self._size] == NOBODY)
        place = int(away[0]) if len(away) else self._size - 1
        self._names[place] = name
        return place

    def _pair(self, number: int, place: int) -> None:
        before, holder = int(self._lasting[number]), int(self._current[place])
        if before != NOBODY:
            self._current[before] = NOBODY
        if holder != NOBODY:
            self._lasting[holder] = NOBODY
        self._lasting[number], self._current[place] = place, number

    def lasting(self, numbers: U16) -> U16:
        """Return the lasting numbers of those of this run."""
        found = self._lasting[numbers]
        for number in np.unique(numbers[found == NOBODY]).tolist():
            self.name({number: ""})
        return self._lasting[numbers] if NOBODY in found else found

    def current(self, lasting: U16) -> U16:
        """Return the numbers of this run, NOBODY where there is none now."""
        return self._current[lasting]


class Clock:
    """Time in nanoseconds that never goes back, whatever the clock below it does."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._offset = 0
        self._last = 0
        self._last_fact = 0

    def go_on_from(self, then: int, elapsed_ns: int) -> None:
        """Make now `elapsed_ns` after `then`, a time of an earlier run."""
        now = max(then, 0) + max(elapsed_ns, 0)
        self._offset = now - self._read()
        self._last = self._last_fact = now

    def now(self) -> int:
        """Return the time."""
        time_ns = self._read() + self._offset
        if time_ns < self._last:
            # The clock below was set back: go on from here.
            self._offset += self._last - time_ns
            time_ns = self._last
        self._last = time_ns
        return time_ns

    def of_facts(self, times: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return times of the data path on this clock: ascending, and none later than now."""
        now = self.now()
        moved = times.astype(np.int64) + np.int64(self._offset)
        held: NDArray[np.int64] = np.clip(moved, min(self._last_fact, now), now)
        ascending: NDArray[np.int64] = np.maximum.accumulate(held)
        if len(ascending):
            self._last_fact = int(ascending[-1])
        return ascending.astype(np.uint64)

    def of_data_path(self, times: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return times of this clock on that of the data path; 0 where they were before it."""
        moved = np.minimum(times, NEVER).astype(np.int64) - np.int64(self._offset)
        held: NDArray[np.int64] = np.maximum(moved, 0)
        return held.astype(np.uint64)

    def until_s(self, time_ns: int) -> float:
        """Return for how long it is not that time yet, in seconds."""
        return max(time_ns - self.now(), 0) / 1e9
