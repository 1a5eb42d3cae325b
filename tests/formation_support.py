"""A formation of groups, and bursts to form them of, for the tests of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prestage.target.prestager.extents import ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Accesses, Formation, Touches
from prestage.target.prestager.groups import FREE, SHARED, Groups


class World:
    """A formation, and bursts of reads of what was accessed before and writes of what was not."""

    def __init__(self) -> None:
        self.extents, self.groups, self.flows = ExtentMap(), Groups(), Flows()
        self.returned: list[int] = []
        self.document_of: dict[int, int] = {}
        """By extent, of those that hosts have signed."""
        self.formation = Formation(self.extents, self.groups, self.flows, self.hear, self.documents)
        self.seen: set[int] = set()

    def documents(self, rows: np.ndarray) -> np.ndarray:
        return np.array([self.document_of.get(int(key), -1) for key in self.extents.key[rows]])

    def hear(self, numbers: np.ndarray, times_s: np.ndarray) -> None:
        assert len(numbers) == len(times_s)
        self.returned.extend(numbers.tolist())

    def burst(self, time_s: float, extents: Sequence[int], flow: int = 1) -> Touches:
        keys = np.array(extents, np.uint64)
        is_write = np.array([extent not in self.seen for extent in extents])
        self.seen.update(extents)
        count = len(keys)
        return self.formation.take(
            Accesses(
                self.extents.find_or_add(keys),
                self.flows.find(np.full(count, flow, np.uint64)),
                np.full(count, time_s),
                is_write,
                np.zeros(count, bool),
                np.zeros(count, np.uint16),
            )
        )

    def group_of(self, extent: int) -> int:
        row = self.extents.find(np.array([extent], np.uint64))[0]
        return int(self.extents.group[row])

    def members(self, group: int) -> list[int]:
        _, rows = self.groups.members(np.array([group]), self.extents)
        return [int(key) for key in self.extents.key[rows]]

    def check(self) -> None:
        live = self.groups.live()
        rows = self.extents.live_rows()
        owned = self.extents.group[rows]
        held = np.bincount(owned[owned >= 0], minlength=self.groups.high)
        assert (held[live] == self.groups.size[live]).all()
        assert (self.groups.kind[owned[owned >= 0]] != FREE).all()
        _, listed = self.groups.members(live, self.extents)
        assert len(listed) == (owned >= 0).sum()
        assert (self.groups.size[live[self.groups.kind[live] == SHARED]] == 1).all()
