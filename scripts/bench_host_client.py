"""One run of a host in Python: bench_host_client.py URL SIZE DEPTH SECONDS SPAN batches|tasks.

It reads SIZE bytes each, DEPTH in flight, at random places of the first SPAN bytes of namespace 1,
and prints a JSON object as the generator does. It runs in the environment of the checkout.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import numpy as np

from prestage.host_client import Controller, connect

BATCH_BYTES = 8 << 20
"""That a batch reads, or what keeps all slots busy if that is more."""
Memory = np.ndarray[tuple[int], np.dtype[np.uint8]]


def places(blocks: int, nlb: int) -> Iterator[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Yield arrays of SLBA at random, without end."""
    dice = np.random.default_rng(1)
    while True:
        yield dice.integers(0, blocks // nlb, 1 << 16) * nlb


async def read_batches(
    controller: Controller, nlb: int, depth: int, size_bytes: int, blocks: int, until: float
) -> int:
    """Read in batches until it is time; returns how many commands."""
    count = max(depth, BATCH_BYTES // size_bytes)
    done = 0

    async def reader(into: Memory, first: int) -> None:
        """Its first batch is shorter than the others, so that the two end in turns."""
        nonlocal done
        await controller.read_many(1, [0] * first, nlb, into=into[: first * size_bytes])
        done += first
        for some in places(blocks, nlb):
            for start in range(0, len(some) - count, count):
                if time.perf_counter() >= until:
                    return
                await controller.read_many(1, some[start : start + count], nlb, into=into)
                done += count

    memories = [np.ones(count * size_bytes, np.uint8) for _ in range(2)]
    await asyncio.gather(*map(reader, memories, (count, count // 2)))
    return done


async def read_tasks(
    controller: Controller, nlb: int, depth: int, size_bytes: int, blocks: int, until: float
) -> int:
    """Read by a task for each command in flight until it is time; returns how many commands."""
    done = 0
    slbas = (slba for some in places(blocks, nlb) for slba in some.tolist())

    async def reader(into: Memory) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await controller.read(1, slba=next(slbas), nlb=nlb, into=into)
            done += 1

    await asyncio.gather(*(reader(np.ones(size_bytes, np.uint8)) for _ in range(depth)))
    return done


Reader = Callable[[Controller, int, int, int, int, float], Awaitable[int]]
READERS: dict[str, Reader] = {"batches": read_batches, "tasks": read_tasks}


async def run(
    url: str, size_bytes: int, depth: int, seconds: float, span: int, reader: Reader
) -> dict[str, float]:
    """Connect, read, count."""
    async with connect(url, queue_depth=depth, keep_alive_s=0) as controller:
        block_bytes = (await controller.namespace(1)).block_bytes
        nlb, blocks = size_bytes // block_bytes, span // block_bytes
        begin, cpu_begin = time.perf_counter(), time.process_time()
        done = await reader(controller, nlb, depth, size_bytes, blocks, begin + seconds)
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu_begin
    iops = done / elapsed
    return {
        "iops": iops,
        "bytes_per_s": iops * size_bytes,
        "commands": done,
        "generator_cpu_us_per_command": cpu * 1e6 / max(done, 1),
        "seconds": elapsed,
    }


def main() -> int:
    """Read the command line, run, print."""
    url, size, depth, seconds, span, how = sys.argv[1:]
    found = run(url, int(size), int(depth), float(seconds), int(span), READERS[how])
    print(json.dumps(asyncio.run(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
