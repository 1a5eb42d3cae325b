"""`scripts/bench host`: what a host in Python gets out of a target, beside one in C.

Each round reads from the same running target by the generator (csrc/bench/load.c), which throws
away what it gets; by `host_client` in batches (`read_many`, two at a time); and by `host_client`
with a task for each command in flight (`read`). All are one process on the generator's core and
touch the same blocks; those in Python keep what they read, in memory of each command's own. The
ratios are to the generator of the same round, medians with the smallest and largest in brackets.

    bench_host.py ADDRESS PORT NQN SIZE DEPTH SECONDS SPAN batches|tasks

is one run of the host in Python; it prints a JSON object as the generator does.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from bench_run import (
    GENERATOR_CORE,
    ROOT,
    SPAN_BYTES,
    Case,
    Run,
    Runs,
    Server,
    fill,
    lay_out,
    load,
    median_of,
    own_target,
    pinned,
    ratios,
    rounds_of,
    spread,
)

from prestage.host_client import Controller, connect

CASES = (Case("read", 1 << 20, 8), Case("read", 4096, 128))
BATCH_BYTES = 8 << 20
"""That a batch reads, or what keeps all slots busy if that is more."""
TIMEOUT_S = 60.0
Memory = np.ndarray[tuple[int], np.dtype[np.uint8]]


# ---- one run of the host in Python ----


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


async def client(server: Server, case: Case, seconds: float, span: int, reader: Reader) -> Run:
    """Connect, read, count."""
    url = f"nvme+tcp://{server.address}:{server.port}/{server.nqn}"
    async with connect(url, queue_depth=case.depth, keep_alive_s=0) as controller:
        block_bytes = (await controller.namespace(1)).block_bytes
        nlb, blocks = case.size_bytes // block_bytes, span // block_bytes
        begin, cpu_begin = time.perf_counter(), time.process_time()
        done = await reader(controller, nlb, case.depth, case.size_bytes, blocks, begin + seconds)
        elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu_begin
    iops = done / elapsed
    return {
        "iops": iops,
        "bytes_per_s": iops * case.size_bytes,
        "commands": done,
        "generator_cpu_us_per_command": cpu * 1e6 / done,
        "seconds": elapsed,
    }


# ---- all of them ----


def run_client(server: Server, case: Case, seconds: float, how: str) -> Run:
    """Run the host in Python once, in a process of its own on the generator's core."""
    where = (server.address, server.port, server.nqn)
    what = (case.size_bytes, case.depth, seconds, SPAN_BYTES, how)
    words = [str(word) for word in (sys.executable, __file__, *where, *what)]
    done = subprocess.run(
        pinned(GENERATOR_CORE, words),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S + seconds,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    if done.returncode != 0:
        raise SystemExit(f"bench: host, {case.name}, {how}: {done.stderr.strip()}")
    result: Run = json.loads(done.stdout)
    return result


def measure(rounds: int, seconds: float) -> dict[str, Runs]:
    """Run and print; returns every run."""
    results: dict[str, Runs] = {}
    heads = ["case", "host", "IOPS", "GB/s", "CPU us/cmd", "IOPS / C", "CPU / C"]
    rows = [heads]
    with (
        tempfile.TemporaryDirectory(prefix="prestage-bench-") as name,
        own_target(Path(name) / "target") as server,
    ):
        fill(server)
        for case in CASES:
            variants = {"C": partial(load, server, case, seconds)}
            for how in READERS:
                variants[how] = partial(run_client, server, case, seconds, how)
            results[case.name] = rounds_of(variants, rounds, case.name)
            rows += [row(case.name, how, results[case.name]) for how in variants]
    print(lay_out(rows))
    return results


def row(case: str, how: str, by_host: Runs) -> list[str]:
    """A line of the table."""
    runs, base = by_host[how], by_host["C"]
    cells = [case, how, f"{median_of(runs, 'iops'):.0f}"]
    cells.append(f"{median_of(runs, 'bytes_per_s') / 1e9:.2f}")
    cells.append(f"{median_of(runs, 'generator_cpu_us_per_command'):.2f}")
    if how == "C":
        return [*cells, "", ""]
    cells.append(spread(ratios(runs, base, "iops")))
    cells.append(spread(ratios(runs, base, "generator_cpu_us_per_command")))
    return cells


def main() -> int:
    """One run of the host in Python."""
    address, port, nqn, size, depth, seconds, span, how = sys.argv[1:]
    server = Server(address, int(port), nqn)
    case = Case("read", int(size), int(depth))
    found = asyncio.run(client(server, case, float(seconds), int(span), READERS[how]))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
