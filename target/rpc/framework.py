"""rpc_*, framework_* and the like: what tools ask before anything else."""

from __future__ import annotations

import os
import signal
from typing import Literal

import prestage
from prestage.target.rpc.bdev import bdev_config
from prestage.target.rpc.context import TICK_RATE, Context
from prestage.target.rpc.dispatch import METHODS, NoParams, Params, method
from prestage.target.rpc.nvmf import nvmf_config
from prestage.target.rpc.view import reactor_stats

SUBSYSTEMS: tuple[tuple[str, list[str]], ...] = (
    ("bdev", []),
    ("nvmf", ["bdev"]),
    ("prestage", ["nvmf"]),
)


class GetMethods(Params):
    """`current`: only those that may be called now."""

    current: bool = False
    include_aliases: bool = False


@method(GetMethods)
async def rpc_get_methods(context: Context, params: GetMethods) -> list[str]:
    """List the methods by name."""
    return sorted(
        found.name for found in METHODS.values() if not (params.current and found.startup_only)
    )


@method(NoParams)
async def spdk_get_version(context: Context, params: NoParams) -> dict[str, object]:
    """Name the program and its version, in the shape in which SPDK names its own."""
    major, minor, patch = (int(part) for part in prestage.__version__.split("."))
    fields = {"major": major, "minor": minor, "patch": patch, "suffix": ""}
    return {"version": f"prestage v{prestage.__version__}", "fields": fields}


@method(NoParams)
async def framework_wait_init(context: Context, params: NoParams) -> bool:
    """Return once the target runs, which it does when there is a control socket."""
    return True


@method(NoParams, startup_only=True)
async def framework_start_init(context: Context, params: NoParams) -> bool:
    """Begin to run; only before that, so here it is refused."""
    return True


@method(NoParams)
async def framework_get_subsystems(context: Context, params: NoParams) -> list[dict[str, object]]:
    """List the parts that have a configuration, in the order in which they load."""
    return [{"subsystem": name, "depends_on": before} for name, before in SUBSYSTEMS]


class GetConfig(Params):
    """`with_batches` changes nothing: no configuration here is a batch."""

    name: str
    with_batches: bool = False


@method(GetConfig)
async def framework_get_config(
    context: Context, params: GetConfig
) -> list[dict[str, object]] | None:
    """Return the calls that would make this configuration again."""
    if params.name == "bdev":
        return bdev_config(context)
    if params.name == "nvmf":
        return nvmf_config(context)
    return None


class KillInstance(Params):
    """`sig_name`: the signal to send to this process."""

    sig_name: Literal["SIGINT", "SIGTERM", "SIGQUIT", "SIGHUP", "SIGKILL", "SIGUSR1"]


@method(KillInstance)
async def spdk_kill_instance(context: Context, params: KillInstance) -> bool:
    """Send a signal to the target."""
    context.kill(signal.Signals[params.sig_name].value)
    return True


@method(NoParams)
async def framework_get_reactors(context: Context, params: NoParams) -> dict[str, object]:
    """List the reactors with the time each was busy, in ticks since it started."""
    reactors = [
        {
            "lcore": one.number if one.cpu < 0 else one.cpu,
            "tid": one.number,
            "busy": one.busy_ns,
            "idle": one.idle_ns,
            "in_interrupt": True,
            "lw_threads": [
                {"name": f"reactor_{one.number}", "id": one.number + 1, "cpumask": one.mask}
            ],
        }
        for one in reactor_stats(context.target, context.uptime_ns())
    ]
    return {"tick_rate": TICK_RATE, "pid": os.getpid(), "reactors": reactors}


@method(NoParams)
async def thread_get_stats(context: Context, params: NoParams) -> dict[str, object]:
    """List the threads that do the I/O, which here are the reactors."""
    threads = [
        {
            "name": f"reactor_{one.number}",
            "id": one.number + 1,
            "cpumask": one.mask,
            "busy": one.busy_ns,
            "idle": one.idle_ns,
            "active_pollers_count": 1,
            "timed_pollers_count": 0,
            "paused_pollers_count": 0,
        }
        for one in reactor_stats(context.target, context.uptime_ns())
    ]
    return {"tick_rate": TICK_RATE, "threads": threads}
