"""How soon a hinted set is being read: bench_decision.py URL FIRST, for bench_hints.

A host defines a set of one extent that is not in the tier and asks for it, in one batch, waits
until the intent has ended, and reads it: SAMPLES times, from the extent FIRST of the namespace on.
`ready_us` is the target's own count, from the arrival of the batch until the extent was in the
tier, so it holds the decision, the read from a medium that is memory, and when that was noticed:
the decision takes less. Printed as JSON. It runs in the environment of the checkout.
"""

from __future__ import annotations

import asyncio
import json
import sys

from prestage.ext.names import State
from prestage.ext.records import Intent, Range, SetRecord
from prestage.host_client import Hints, connect

SAMPLES = 1000
EXTENT_BYTES = 64 << 10
BLOCK_BYTES = 4096
DEADLINE_US = 1_000_000


async def sample(url: str, first: int) -> list[int]:
    """Return `ready_us` of each."""
    blocks = EXTENT_BYTES // BLOCK_BYTES
    found = []
    async with connect(url) as controller, Hints(controller, when_missing="raise") as hints:
        for number in range(first, first + SAMPLES):
            ranges = (Range(number * blocks, blocks),)
            asked = Intent(number, DEADLINE_US, set_id=number)
            await hints.submit([SetRecord(number, 1, ranges), asked])
            ended = await hints.ended(number)
            if ended.state != State.MET:
                raise SystemExit(f"bench: {number}: {State(ended.state).name}, {ended.reason!r}")
            found.append(ended.ready_us)
            await controller.read(1, number * EXTENT_BYTES, EXTENT_BYTES)
    return found


if __name__ == "__main__":
    json.dump(asyncio.run(sample(sys.argv[1], int(sys.argv[2]))), sys.stdout)
