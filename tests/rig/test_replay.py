"""A real kernel as host of a replay: the target has what the simulation says it would have."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rig import host
from rig.replay import DEVICE, iolog, replay
from workload_support import DATA

from prestage.replay.agents import Mix
from prestage.replay.commands import run_policies
from prestage.replay.filters import behind_host_cache
from prestage.replay.live_run import Wire
from prestage.replay.result import Regime
from prestage.replay.traces import load_trace

MIX = Mix(sessions=30, span_s=200.0, most_blocks=100)
SPEED = 5.0
BOUNDS = {"lru": 0.06, "prestage": 0.12}
"""A guest that is late shifts some reads, and an emulator leaves the prestager little time."""


def wire(seed: int) -> Wire:
    """A slowed extract of the agent trace, behind a host cache: 40 s of reads."""
    workload = load_trace(DATA / "agent_demo.jsonl.gz", seed=seed, mix=MIX)
    seen = behind_host_cache(workload, 0.05)
    return Wire(seen, Regime(tier=0.25, flash=4, filter=0.05, slot_size=16 << 10), SPEED, seed)


def test_the_trace_of_fio_has_every_access_at_its_time_and_place() -> None:
    one = wire(1)
    lines = iolog(one).splitlines()
    assert lines[0] == "fio version 3 iolog"
    accesses = [line.split() for line in lines if line.split()[2] in ("read", "write")]
    assert len(accesses) == len(one.workload)
    assert sum(each[2] == "read" for each in accesses) == one.workload.reads
    assert {each[1] for each in accesses} == {DEVICE}
    times = [int(each[0]) for each in accesses]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(one.workload.duration_s / SPEED * 1e6, abs=1)
    assert len({each[3] for each in accesses}) == len(set(one.workload.block.tolist()))


# What the prestager does depends on times, and an emulator on a busy machine has its own.
@pytest.mark.rig
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["lru", pytest.param("prestage", marks=pytest.mark.slow)])
def test_a_kernel_host_finds_warm_what_the_simulation_says(tmp_path: Path, policy: str) -> None:
    host.fetch_kernel(host.KERNELS[0])
    seed = random.randrange(1 << 20)
    one = wire(seed)
    (simulated,) = run_policies(one.workload, seed, one.regime, [], [policy])
    counted = replay(one, host.KERNELS[0], tmp_path, prestager=policy == "prestage")
    print(f"seed {seed}: {counted.read_hit_ratio} live, {simulated.read_hit_ratio} simulated")
    # Each block is read by one command of its size; udev reads a little besides.
    assert one.workload.reads <= counted.reads <= one.workload.reads * 1.02
    assert abs(counted.read_hit_ratio - simulated.read_hit_ratio) < BOUNDS[policy]
