"""A target of our own for a replay over the wire: started for one run, and gone after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from prestage.replay import tethered
from prestage.replay.live_config import target_config
from prestage.replay.result import Regime
from prestage.replay.run import layout_of
from prestage.replay.signals import ending
from prestage.replay.workload import Workload
from prestage.target.errors import TargetError
from prestage.testing import SpawnedTarget, spawn_target

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of a name of its own is made there
ROOM: Final = 2
"""The file of blocks is in memory when there is so many times room for it: the modelled flash is
to be what takes time, not the disk below."""
STOP_S: Final = 20.0
READY_S: Final = 60.0
POLL_S: Final = 0.02
CLOSING_S: Final = 0.2
Result = TypeVar("Result")


def blocks_folder(size_bytes: int) -> str | None:
    """Return where a file of so many bytes is fast; None: the usual place of temporary files."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(MEMORY).free >= ROOM * size_bytes:
            return str(MEMORY)
    return None


@contextlib.contextmanager
def own_target(
    workload: Workload, regime: Regime, *, seed: int, speed: float, prestager: bool
) -> Iterator[SpawnedTarget]:
    """Run a target for a regime on a free port of 127.0.0.1 until the block ends.

    Nothing of it is left then, nor when SIGTERM or SIGHUP ends it, which raise Ended meanwhile
    (prestage.replay.signals), nor, soon after, when this process is killed. Raises TargetError when
    it does not get ready.
    """
    layout = layout_of(workload, regime)
    place = blocks_folder(layout.volume_bytes)
    with (
        ending(),
        tempfile.TemporaryDirectory(prefix="prestage-replay-", dir=place) as name,
    ):
        folder = Path(name)
        config = folder / "target.toml"
        text = target_config(
            workload,
            regime,
            layout,
            speed=speed,
            seed=seed,
            port=0,
            backing=folder / "blocks",
            prestager=prestager,
        )
        config.write_text(text, "utf-8")
        size = regime.frames(workload) * regime.slot_size
        serve = tethered.command(name)
        with spawn_target(
            "--config", str(config), dram=size, directory=folder, python=serve
        ) as target:
            try:
                if prestager:
                    _wait_running(target)
                yield target
            finally:
                # In order: its prestager would else write into a folder that is being removed.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    target.terminate(STOP_S)


async def while_it_runs(target: SpawnedTarget, work: Coroutine[Any, Any, Result]) -> Result:
    """Do what needs the target. Raises TargetError when that ends: hosts would wait for another."""
    loop, line = asyncio.get_running_loop(), os.pidfd_open(target.pid)
    gone: asyncio.Future[None] = loop.create_future()
    loop.add_reader(line, _settle, gone)
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done() and task.exception() is not None:
            # Its connections are closed a moment before it is gone.
            await asyncio.wait((gone,), timeout=CLOSING_S)
        if not gone.done():
            return await task
    finally:
        loop.remove_reader(line)
        os.close(line)
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # Here it is told, or of no interest any more.
    raise TargetError(f"the target ended with status {target.process.wait()} amid the replay")


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _wait_running(target: SpawnedTarget) -> None:
    """Wait until the prestager sees what happens: seconds without it are minutes of a trace."""
    limit_s = time.monotonic() + READY_S
    with target.client() as client:
        while (state := client.call("prestage_get_prestager")["state"]) != "running":
            if time.monotonic() > limit_s:
                raise TargetError(f"the prestager is {state} after {READY_S:g} s")
            time.sleep(POLL_S)
