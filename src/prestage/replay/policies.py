"""Online policies of the fluid model that are compared with: none, LRU and MQ."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MQ_QUEUES: Final = 8
MQ_GHOSTS: Final = 4
"""Blocks remembered after their eviction, as a multiple of the capacity."""
MQ_LIFE: Final = 1.0
"""A block that was not used for this multiple of the capacity, in accesses, sinks a queue."""


class NoTier:
    """Nothing is kept: every read goes to flash."""

    def access(self, block: int, *, is_write: bool) -> bool:
        """Touch a block; it is never there."""
        return False


class Lru:
    """Least recently used goes first; every access enters."""

    def __init__(self, capacity: int) -> None:
        assert capacity >= 1
        self.capacity = capacity
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def access(self, block: int, *, is_write: bool) -> bool:
        """Touch a block, bring it in; return whether it was there."""
        if block in self.blocks:
            self.blocks.move_to_end(block)
            return True
        self.blocks[block] = None
        if len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return False


class MultiQueue:
    """MQ (Zhou, Philbin, Li: The Multi-Queue Replacement Algorithm, USENIX 2001).

    Queue k holds, in order of use, blocks used 2^k to 2^(k+1) - 1 times; the last also what was
    used more often. A block that was not used for the life time sinks by one queue. The oldest of
    the lowest queue goes first, and its count is remembered for a while.
    """

    def __init__(
        self,
        capacity: int,
        *,
        queues: int = MQ_QUEUES,
        ghosts: float = MQ_GHOSTS,
        life: float = MQ_LIFE,
    ) -> None:
        assert capacity >= 1
        self.capacity = capacity
        self.life = max(1, round(life * capacity))
        self.queues: list[OrderedDict[int, tuple[int, int]]] = [
            OrderedDict() for _ in range(queues)
        ]
        """Of each block: how often it was used, and when it sinks."""
        self.level: dict[int, int] = {}
        self.ghosts: OrderedDict[int, int] = OrderedDict()
        self.ghost_count = round(ghosts * capacity)
        self.now = 0

    def access(self, block: int, *, is_write: bool) -> bool:
        """Touch a block, bring it in; return whether it was there."""
        self.now += 1
        level = self.level.pop(block, -1)
        if level >= 0:
            uses = self.queues[level].pop(block)[0] + 1
        else:
            if len(self.level) >= self.capacity:
                self._evict()
            uses = self.ghosts.pop(block, 0) + 1
        self._enter(block, uses, min(uses.bit_length() - 1, len(self.queues) - 1))
        self._sink()
        return level >= 0

    def _enter(self, block: int, uses: int, level: int) -> None:
        self.queues[level][block] = (uses, self.now + self.life)
        self.level[block] = level

    def _evict(self) -> None:
        queue = next(each for each in self.queues if each)
        block, (uses, _) = queue.popitem(last=False)
        del self.level[block]
        self.ghosts[block] = uses
        if len(self.ghosts) > self.ghost_count:
            self.ghosts.popitem(last=False)

    def _sink(self) -> None:
        for level in range(1, len(self.queues)):
            queue = self.queues[level]
            if queue:
                block, (uses, expires) = next(iter(queue.items()))
                if expires < self.now:
                    del queue[block]
                    self._enter(block, uses, level - 1)
