"""Each extent of a Read counts once, as a hit or as a miss, however often it was looked at."""

from __future__ import annotations

from typing import Any

from .probing import Site
from .running import MIB, NQN, RunningTarget, find

BLOCK, EXTENT, EXTENTS = 4096, 64 * 1024, 16
CONFIG: dict[str, Any] = {
    "tier": {"size": 64 * MIB},
    "subsystems": [
        {"nqn": NQN, "namespaces": [{"media": "ram", "size": 16 * MIB, "block": BLOCK}]}
    ],
}


def test_an_extent_of_a_read_is_a_hit_or_a_miss(target: RunningTarget, site: Site) -> None:
    def counts() -> tuple[int, int]:
        stats = target.rpc("prestage_get_stats")
        return find(stats, "read_hits"), find(stats, "read_misses")

    per_extent = EXTENT // BLOCK
    with site.pair(1) as controller:
        queue = controller.io[0]
        queue.read(5 * per_extent, 2 * per_extent, BLOCK)
        hits, misses = counts()
        queue.read(0, EXTENTS * per_extent, BLOCK)
        assert counts() == (hits + 2, misses + EXTENTS - 2)
        queue.read(0, EXTENTS * per_extent, BLOCK)
        assert counts() == (hits + 2 + EXTENTS, misses + EXTENTS - 2)
