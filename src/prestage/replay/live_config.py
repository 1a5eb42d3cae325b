"""The configuration of a target that a workload is replayed on over the wire."""

from __future__ import annotations

from pathlib import Path

from prestage.replay.result import Regime
from prestage.replay.workload import Layout, Workload

NQN = "nqn.2026-11.io.prestage:replay"
LEAST_US = 1.0


def target_config(
    workload: Workload,
    regime: Regime,
    layout: Layout,
    *,
    speed: float,
    seed: int,
    port: int,
    backing: Path,
    prestager: bool,
) -> str:
    """Return the TOML of a target with the tier and the flash of a regime, `speed` times as fast.

    Its flash also has to take the writes, which cost nothing in the simulated target: it gets their
    mean bandwidth in addition.
    """
    frames = regime.frames(workload)
    blocks_per_s = regime.flash_per_s(workload) + workload.writes_per_s
    bandwidth = max(round(blocks_per_s * regime.slot_size * speed), 1)
    read_us = max(regime.read_median_us / speed, LEAST_US)
    read_p99_us = max(regime.read_p99_us / speed, read_us)
    return f"""\
# {workload.name}, seed {workload.seed}: {frames} frames of tier, flash {regime.flash:g} x the mean
# read demand and the writes besides, {speed:g} times as fast as the trace.
state_directory = "{backing.parent}"

[tier]
size = {frames * regime.slot_size}
slot = {regime.slot_size}

[prestager]
enabled = {str(prestager).lower()}
time_scale = {speed}
seed = {seed}

[[listeners]]
port = {port}

[[subsystems]]
nqn = "{NQN}"
extension = true

[[subsystems.namespaces]]
path = "{backing}"
size = {layout.volume_bytes}
block = {regime.block_size}
media = "model"

[subsystems.namespaces.media_options]
seed = {seed}
read_us = {read_us:g}
read_p99_us = {read_p99_us:g}
write_us = {read_us:g}
bandwidth = {bandwidth}
channels = {regime.channels}
"""
