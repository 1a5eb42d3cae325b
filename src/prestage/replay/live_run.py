"""`prestage replay --live` and `--write-config`: the workload of a trace, over the wire."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import Final

from prestage.host_client.address import Address, parse_target
from prestage.host_client.discovery import discover
from prestage.replay.compare import Row
from prestage.replay.live import Drive, LiveResult
from prestage.replay.live_config import NQN, target_config
from prestage.replay.result import Regime
from prestage.replay.run import Progress, layout_of
from prestage.replay.workload import Workload
from prestage.target.errors import NotFound
from prestage.target.rpc.client import Client, socket_path

HOST_NQN: Final = "nqn.2026-11.io.prestage:replay-host"
PORT: Final = 4420
STATE: Final = "replay"
"""The folder, beside the configuration, of the state and the backing file."""


def write_config(path: Path, workload: Workload, regime: Regime, seed: int, speed: float) -> str:
    """Write the configuration of a target for this regime; return what to do with it."""
    folder = (path.parent / STATE).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    text = target_config(
        workload,
        regime,
        layout_of(workload, regime),
        speed=speed,
        seed=seed,
        port=PORT,
        backing=folder / "blocks",
        prestager=True,
    )
    path.write_text(text, "utf-8")
    return f"prestage serve --config {path}"


def run_live(
    args: argparse.Namespace,
    workload: Workload,
    regime: Regime,
    speed: float,
    progress: Progress | None,
) -> Row:
    """Replay against the target of `--live`. Raises HostError, ClientError and WrongBytes."""
    control = socket_path(args.control_socket)

    def take() -> dict[str, object]:
        with Client(control) as client:
            found: dict[str, object] = client.call("prestage_get_stats")
        return found

    async def go() -> LiveResult:
        address = await _address(args.live)
        drive = Drive(workload, layout_of(workload, regime), speed, address, HOST_NQN, take)
        return await drive.run(progress)

    return of_live(asyncio.run(go()))


async def _address(text: str) -> Address:
    """Return the subsystem at an address: ours when it is there, else the only one."""
    names = sorted({one.nqn for one in await discover(text) if not one.is_discovery})
    if NQN in names:
        return parse_target(text, nqn=NQN)
    if len(names) != 1:
        raise NotFound(f"the target has {', '.join(names) or 'no subsystem'}", text, NQN)
    return parse_target(text, nqn=names[0])


def of_live(result: LiveResult) -> Row:
    """Return the row of a replay over the wire."""
    return Row(
        "live",
        result.read_hit_ratio,
        precision=result.precision,
        flash_reads_per_read=result.flash_reads_per_read,
        time_to_data_s=result.time_to_data_s,
        wait_s=result.wait_s,
        report={"behind_s": result.behind_s},
    )
