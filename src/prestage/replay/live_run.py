"""`prestage replay --live` and `--write-config`: the workload of a trace, over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prestage.host_client.address import Address, parse_target
from prestage.host_client.controller import Controller
from prestage.host_client.discovery import subsystems_at
from prestage.host_client.options import Options
from prestage.replay import signals
from prestage.replay.compare import HINTED, MACHINE, Row
from prestage.replay.hint_plans import Hint
from prestage.replay.live import NSID, Drive, LiveResult
from prestage.replay.live_config import NQN, target_config
from prestage.replay.live_target import own_target, while_it_runs
from prestage.replay.result import Regime
from prestage.replay.room import check_empty
from prestage.replay.run import Progress, layout_of
from prestage.replay.workload import Workload
from prestage.target.errors import NotFound
from prestage.target.rpc.client import Client, socket_path

LIVE: Final = "live"
HOST_NQN: Final = "nqn.2026-11.io.prestage:replay-host"
PORT: Final = 4420
STATE: Final = "replay"
"""The folder, beside the configuration, of the state and the backing file."""


def write_config(
    path: Path, workload: Workload, regime: Regime, seed: int, speed: float, *, prestager: bool
) -> str:
    """Write the configuration of a target for this regime; return what to do with it."""
    folder = (path.parent / STATE).absolute()
    folder.mkdir(exist_ok=True)
    text = target_config(
        workload,
        regime,
        layout_of(workload, regime),
        speed=speed,
        seed=seed,
        port=PORT,
        backing=folder / "blocks",
        prestager=prestager,
    )
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    return f"prestage serve --config {path}"


@dataclass(frozen=True)
class Wire:
    """A workload that goes over the wire."""

    workload: Workload
    regime: Regime
    speed: float
    seed: int
    hints: Sequence[Hint] = ()
    """What hosts say where they say something, in order of time."""
    asks_residency: bool = False
    """Whether hosts ask, before each request, how much of it is in the tier."""

    def run_own(self, policy: str, progress: Progress | None = None) -> LiveResult:
        """Replay against a target of our own that does what `policy` (of MACHINE) says.

        Raises HostError, ClientError, WrongBytes, and TargetError when there is no such target, or
        none any more.
        """
        assert policy in MACHINE
        with own_target(
            self.workload,
            self.regime,
            seed=self.seed,
            speed=self.speed,
            prestager=policy.startswith("prestage"),
        ) as target:
            address = Address(target.address, target.port, NQN)
            hints = self.hints if policy in HINTED else ()
            drive = self._drive(address, target.control_socket, hints)
            return signals.run(while_it_runs(target, drive.run(progress)))

    def run_at(
        self,
        target: str,
        control_socket: str | None,
        overwrite: bool,
        progress: Progress | None = None,
    ) -> LiveResult:
        """Replay against the target at an address, whatever it does, with hints if there are any.

        Raises HostError, ClientError and WrongBytes, and Invalid when its namespace holds what it
        is not told to `overwrite`.
        """

        async def go() -> LiveResult:
            # What was empty before hours of simulation need not be so now.
            return await (await self._checked(target, control_socket, overwrite)).run(progress)

        return asyncio.run(go())

    def check_at(self, target: str, control_socket: str | None, overwrite: bool) -> None:
        """Raise what keeps `run_at` from its work, which may be hours later."""

        async def go() -> None:
            await (await self._checked(target, control_socket, overwrite)).check()

        asyncio.run(go())

    async def _checked(self, target: str, control_socket: str | None, overwrite: bool) -> Drive:
        """Return how to drive a target whose namespace may be written over."""
        address = await _address(target)
        if not overwrite:
            async with Controller(address, Options(host_nqn=HOST_NQN, queues=1)) as controller:
                layout = layout_of(self.workload, self.regime)
                await check_empty(controller, NSID, self.workload, layout)
        return self._drive(address, socket_path(control_socket), self.hints)

    def _drive(self, address: Address, control: str, hints: Sequence[Hint]) -> Drive:
        def take() -> dict[str, Any]:
            with Client(control) as client:
                found: dict[str, Any] = client.call("prestage_get_stats")
            return found

        layout = layout_of(self.workload, self.regime)
        return Drive(
            self.workload,
            layout,
            self.speed,
            address,
            HOST_NQN,
            take,
            hints=hints,
            asks_residency=self.asks_residency,
        )


async def _address(text: str) -> Address:
    """Return the subsystem at an address: ours when it is there, else the only one."""
    names = await subsystems_at(text, HOST_NQN)
    if NQN in names:
        return parse_target(text, nqn=NQN)
    if len(names) != 1:
        raise NotFound(f"the target has {', '.join(names)}", text, f"one, or {NQN} among them")
    return parse_target(text, nqn=names[0])


def of_live(policy: str, result: LiveResult) -> Row:
    """Return the row of a replay over the wire."""
    return Row(
        policy,
        result.read_hit_ratio,
        precision=result.precision,
        ready_requests=result.ready_requests,
        flash_reads_per_read=result.flash_reads_per_read,
        time_to_data_s=result.time_to_data_s,
        wait_s=result.wait_s,
        behind_s=result.behind_s,
        tier_blocks=result.tier_blocks,
        medium=result.medium,
        report=result.report,
    )
