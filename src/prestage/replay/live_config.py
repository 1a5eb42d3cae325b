"""The configuration of a target that a workload is replayed on over the wire."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from prestage.replay.result import Regime
from prestage.replay.run import ORDERS, RING_FACTS
from prestage.replay.workload import Layout, Workload
from prestage.target.prestager.engine import PrestagerConfig

NQN: Final = "nqn.2026-11.io.prestage:replay"
LEAST_US: Final = 1.0
LEAST_MS: Final = 1.0
WRITEBACK_S: Final = 1.0
STARVATION_MS: Final = 100.0
GRACE_S: Final = 1.0
"""What a target has when it is told nothing; here they pass with the trace's time."""
QUEUE_DEPTH: Final = 1024


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
    mean bandwidth in addition. It writes them back soon, as the simulated target does at once.
    """
    frames = regime.frames(workload)
    blocks_per_s = regime.flash_per_s(workload) + workload.writes_per_s
    bandwidth = max(round(blocks_per_s * regime.slot_size * speed), 1)
    read_us = max(regime.read_median_us / speed, LEAST_US)
    read_p99_us = max(regime.read_p99_us / speed, read_us)
    return f"""\
# {workload.name}, seed {workload.seed}: {frames} frames of tier, flash {regime.flash:g} x the mean
# read demand and the writes besides, {speed:g} times as fast as the trace.
state_directory = {_text(backing.parent)}
{_settings(regime, frames, speed=speed, seed=seed, prestager=prestager)}
[[listeners]]
port = {port}

[[subsystems]]
nqn = "{NQN}"
extension = true

[[subsystems.namespaces]]
path = {_text(backing)}
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


def _settings(regime: Regime, frames: int, *, speed: float, seed: int, prestager: bool) -> str:
    """Return the tables that decide what is kept and when, all times divided by `speed`.

    What the prestager has to do is not divided, so it gets a share of processors that are busy.
    """
    return f"""
[tier]
size = {frames * regime.slot_size}
slot = {regime.slot_size}
huge_pages = false
writeback_s = {max(WRITEBACK_S / speed, LEAST_MS / 1000):g}

[limits]
queue_depth = {QUEUE_DEPTH}
max_transfer = {regime.slot_size}

[scheduler]
starvation_ms = {max(STARVATION_MS / speed, LEAST_MS):g}

[hints]
tier_percent = {regime.hint_percent}
grace_s = {GRACE_S / speed:g}
ring_facts = {RING_FACTS}

[prestager]
enabled = {str(prestager).lower()}
time_scale = {speed:g}
scheduling = "nice"
holdout_percent = {100 * PrestagerConfig().holdout_share:g}
orders = {ORDERS}
seed = {seed}
"""


def _text(path: Path) -> str:
    """Return a path as a string of TOML."""
    return json.dumps(str(path), ensure_ascii=False)
