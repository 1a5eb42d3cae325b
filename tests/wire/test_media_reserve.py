"""Reads that can wait take no medium away from those that cannot: a stalled one keeps so many of
their fills that nothing would be left of what all media share."""

from __future__ import annotations

import contextlib
from typing import Any

from nvme_tcp import commands as nvme

from .probing import Site
from .running import MIB, NQN, RunningTarget

BLOCK, CLEAN, STALLED = 4096, 1, 2
IDLE = 1 << 4
"""Access Latency in CDW13: longer latency is acceptable."""
HOSTS, READS = 24, 8
CONFIG: dict[str, Any] = {
    "tier": {"size": 512 * MIB},
    "subsystems": [
        {
            "nqn": NQN,
            "namespaces": [
                {"nsid": CLEAN, "media": "ram", "size": 16 * MIB, "block": BLOCK},
                {
                    "nsid": STALLED,
                    "media": "ram",
                    "size": 256 * MIB,
                    "block": BLOCK,
                    "faults": ["stall:after=0"],
                },
            ],
        }
    ],
}


def test_a_read_is_served_while_idle_reads_fill_a_stalled_medium(
    target: RunningTarget, site: Site
) -> None:
    blocks = MIB // BLOCK
    target.media_control("stall", "arm", nsid=STALLED)
    with contextlib.ExitStack() as stack:
        stack.callback(target.media_control, "stall", "release", nsid=STALLED)
        hosts = [stack.enter_context(site.pair(1)) for _ in range(HOSTS)]
        for number, host in enumerate(hosts):
            for turn in range(READS):
                slba = (number * READS + turn) * blocks
                entry = nvme.block_command(nvme.READ, slba, blocks, nsid=STALLED, dsm=IDLE)
                host.io[0].submit(entry, expected=MIB)
        queue = stack.enter_context(site.pair(1)).io[0]
        entry = nvme.block_command(nvme.READ, 0, 8, nsid=CLEAN)
        assert queue.execute(entry, timeout_s=5.0, expected=8 * BLOCK).is_ok
