"""`scripts/bench hints --case decision`: how long after its arrival a hinted set is being read.

A host defines a set of one extent that is not in the tier and asks for it, in one batch, waits
until the intent has ended, and reads it, one after the other. `ready_us` is the target's own count,
from the arrival of the batch until the extent was in the tier, so it holds the decision, the read
from a medium that is memory, and when that was noticed: the decision takes less. Alone, and beside
warm reads of 4 KiB, 32 in flight, on the same reactor.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence

from bench_run import SPAN_BYTES, Case, Server, lay_out, load

from prestage.ext.names import State
from prestage.ext.records import Intent, Range, SetRecord
from prestage.host_client import Hints, connect

SAMPLES = 1000
EXTENT_BYTES = 64 << 10
BLOCK_BYTES = 4096
DEADLINE_US = 20_000
AIM_US = 1000
READS = Case("read", 4096, 32)
BESIDE_S = 20.0
"""Longer than the samples take."""


async def _sample(server: Server, first: int) -> list[int]:
    """Return `ready_us` of SAMPLES sets, from that extent of the namespace on."""
    url = f"nvme+tcp://{server.address}:{server.port}/{server.nqn}"
    blocks = EXTENT_BYTES // BLOCK_BYTES
    found = []
    async with connect(url) as controller, Hints(controller, when_missing="raise") as hints:
        for number in range(first, first + SAMPLES):
            offset = SPAN_BYTES + number * EXTENT_BYTES
            records = (
                SetRecord(number + 1, 1, (Range(offset // BLOCK_BYTES, blocks),)),
                Intent(number + 1, DEADLINE_US, set_id=number + 1),
            )
            await hints.submit(records)
            ended = await hints.ended(number + 1)
            if ended.state != State.MET:
                raise SystemExit(f"bench: the intent ended as {State(ended.state).name}")
            found.append(ended.ready_us)
            await controller.read(1, offset, EXTENT_BYTES)
    return found


async def _beside(server: Server) -> list[int]:
    """The same while the generator reads."""
    reading = asyncio.create_task(asyncio.to_thread(load, server, READS, BESIDE_S))
    found = await _sample(server, SAMPLES)
    if reading.done():
        raise SystemExit("bench: the reads ended before the samples")
    await reading
    return found


def _row(name: str, found: Sequence[int]) -> list[str]:
    points = statistics.quantiles(found, n=100)
    late = sum(each > AIM_US for each in found)
    return [name, f"{points[49]:.0f}", f"{points[98]:.0f}", f"{max(found)}", f"{late}"]


def measure_decision(server: Server) -> dict[str, list[int]]:
    """Measure and print; returns every sample, us."""
    results = {
        "alone": asyncio.run(_sample(server, 0)),
        "beside reads": asyncio.run(_beside(server)),
    }
    heads = [f"{SAMPLES} hinted sets", "p50 us", "p99 us", "longest", f"over {AIM_US} us"]
    print(lay_out([heads, *(_row(name, found) for name, found in results.items())]))
    return results
