"""nvmf_*: what is connected now."""

from __future__ import annotations

from prestage.target.rpc import view
from prestage.target.rpc.context import TICK_RATE, Context
from prestage.target.rpc.dispatch import Params, method
from prestage.target.rpc.nvmf import OfSubsystem, address, subsystem_of


@method(OfSubsystem)
async def nvmf_subsystem_get_controllers(
    context: Context, params: OfSubsystem
) -> list[dict[str, object]]:
    """List the controllers of a subsystem."""
    subsystem_of(context, params.nqn)
    return [
        {
            "cntlid": one.cntlid,
            "cntrltype": "io",
            "hostnqn": one.host_nqn,
            "hostid": one.host_id.hex(),
            "num_io_qpairs": sum(queue.qid > 0 for queue in one.queues),
        }
        for one in view.controllers(context.target, params.nqn)
    ]


@method(OfSubsystem)
async def nvmf_subsystem_get_qpairs(
    context: Context, params: OfSubsystem
) -> list[dict[str, object]]:
    """List the connected queues of a subsystem."""
    subsystem_of(context, params.nqn)
    return [
        {
            "cntlid": one.cntlid,
            "qid": queue.qid,
            "state": "enabled",
            "thread": f"reactor_{queue.reactor}",
            "hostnqn": one.host_nqn,
            "listen_address": address(queue.local),
            "peer_address": address(queue.peer),
        }
        for one in view.controllers(context.target, params.nqn)
        for queue in one.queues
    ]


class GetStats(Params):
    """There is one target, so its name changes nothing."""

    tgt_name: str = ""


@method(GetStats)
async def nvmf_get_stats(context: Context, params: GetStats) -> dict[str, object]:
    """Count queues and commands for each reactor, which SPDK calls a poll group."""
    queues = [
        queue
        for found in view.subsystems(context.target)
        for one in view.controllers(context.target, found.nqn)
        for queue in one.queues
    ]
    groups = []
    for reactor in view.reactor_stats(context.target, context.uptime_ns()):
        own = [queue for queue in queues if queue.reactor == reactor.number]
        admin = sum(queue.qid == 0 for queue in own)
        groups.append(
            {
                "name": f"reactor_{reactor.number}",
                "admin_qpairs": admin,
                "io_qpairs": len(own) - admin,
                "current_admin_qpairs": admin,
                "current_io_qpairs": len(own) - admin,
                "current_unassociated_qpairs": 0,
                "pending_bdev_io": 0,
                "completed_nvme_io": reactor.commands,
                "transports": [{"trtype": "TCP"}],
            }
        )
    return {"tick_rate": TICK_RATE, "poll_groups": groups}
