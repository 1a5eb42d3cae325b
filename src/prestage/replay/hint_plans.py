"""What hosts say ahead of a workload: intents, true and false, and signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prestage.ext import layout as wire
from prestage.ext.names import IntentFlag
from prestage.ext.records import Intent, Range, Record, Signature
from prestage.replay.workload import STREAM_HINTS, Layout, Workload, random_stream

NSID: Final = 1
"""Of the volume that a workload is replayed on."""
MAX_RANGES: Final = (wire.MAX_BATCH_BYTES - wire.BATCH.size - wire.INTENT.size) // wire.RANGE.size
"""Of one record in one batch; a longer chain is announced by several intents, in its order."""
MICROSECONDS: Final = 1_000_000
NEVER_US: Final = wire.READY_NEVER


class Hint(NamedTuple):
    """A record that a host of `tenant` submits at `time_s`."""

    time_s: float
    tenant: int
    record: Record


@dataclass(frozen=True, slots=True)
class HintPlan:
    """Which requests are announced, and how."""

    lead_s: float
    """How long before its request a hint comes; the median where leads vary. A hint cannot come
    before the workload begins."""
    lead_sigma: float = 0.0
    """Of log-normal leads; 0: all are alike."""
    share: float = 1.0
    """Of the requests with something to announce, chosen by the seed."""
    false_per_true: float = 0.0
    """So many chains are announced that nobody is about to ask for."""
    false_apart: bool = True
    """Whether a host of its own does that, who says nothing else and reads nothing: one more than
    the workload has. Otherwise whoever had asked for the chain does, so that true and false cannot
    be told apart by their source."""
    priority: int = 2
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Announcement:
    """One chain that is announced."""

    time_s: float
    due_s: float
    request: int
    """Whose chain it is."""
    tenant: int


def announce(workload: Workload, layout: Layout, plan: HintPlan) -> list[Hint]:
    """Return the intents of a plan in order of time.

    An intent covers what its request will read and what is stored by the time of the hint; what is
    written between hint and request is not announced. False ones cover chains of requests that were
    there before, drawn at random, at random times, due after as long a lead.
    """
    assert 0 <= plan.share <= 1
    random = random_stream(plan.seed, STREAM_HINTS)
    since_s = stored_since_s(workload).tolist()
    reading = np.unique(workload.request[~workload.is_write])
    chosen = reading[random.random(len(reading)) < plan.share]
    due_s = workload.request_time_s[chosen]
    lead_s = _leads(plan, len(chosen), random)
    begin_s = float(workload.request_time_s[0]) if workload.requests else 0.0
    time_s = np.maximum(due_s - lead_s, begin_s)
    tenants = workload.tenant[workload.request_start[chosen]]
    announcements = [
        _Announcement(*each)
        for each in zip(
            time_s.tolist(), due_s.tolist(), chosen.tolist(), tenants.tolist(), strict=True
        )
    ]
    announcements += _false_ones(workload, plan, time_s, random)
    announcements.sort(key=lambda each: each.time_s)
    hints: list[Hint] = []
    for each in announcements:
        for ranges in _chain_ranges(workload, layout, since_s, each):
            record = Intent(
                intent_id=len(hints) + 1,
                deadline_us=min(round((each.due_s - each.time_s) * MICROSECONDS), NEVER_US - 1),
                nsid=NSID,
                ranges=ranges,
                session=int(workload.request_session[each.request]) + 1,
                priority=plan.priority,
                flags=IntentFlag.LATE_OK,
            )
            hints.append(Hint(each.time_s, each.tenant, record))
    return hints


def _leads(plan: HintPlan, count: int, random: np.random.Generator) -> NDArray[np.float64]:
    return plan.lead_s * np.exp(plan.lead_sigma * random.standard_normal(count))


def _false_ones(
    workload: Workload,
    plan: HintPlan,
    true_s: NDArray[np.float64],
    random: np.random.Generator,
) -> list[_Announcement]:
    """Return chains of the past that are announced between the first true hint and the last."""
    count = round(plan.false_per_true * len(true_s))
    if count == 0:
        return []
    time_s = random.uniform(true_s.min(), true_s.max(), count)
    lead_s = _leads(plan, count, random)
    reading = np.unique(workload.request[~workload.is_write])
    past = np.searchsorted(workload.request_time_s[reading], time_s)
    false: list[_Announcement] = []
    for now_s, lead, before in zip(time_s.tolist(), lead_s.tolist(), past.tolist(), strict=True):
        if before:
            request = int(reading[random.integers(before)])
            asked = int(workload.tenant[workload.request_start[request]])
            tenant = workload.tenants if plan.false_apart else asked
            false.append(_Announcement(now_s, now_s + lead, request, tenant))
    return false


def stored_since_s(workload: Workload) -> NDArray[np.float64]:
    """Return since when each block [block_count] is stored; -inf: it was before the workload."""
    blocks, first = np.unique(workload.block, return_index=True)
    since_s = np.full(workload.block_count, -np.inf)
    since_s[blocks] = np.where(workload.is_write[first], workload.time_s[first], -np.inf)
    return since_s


def _chain_ranges(
    workload: Workload, layout: Layout, since_s: list[float], what: _Announcement
) -> list[tuple[Range, ...]]:
    """Return the ranges of a chain in its order, MAX_RANGES at a time."""
    start, end = workload.request_start[what.request : what.request + 2]
    blocks = workload.block[start:end][~workload.is_write[start:end]].tolist()
    ranges = layout.ranges(block for block in dict.fromkeys(blocks) if since_s[block] < what.time_s)
    return [ranges[at : at + MAX_RANGES] for at in range(0, len(ranges), MAX_RANGES)]


def sign(workload: Workload, layout: Layout) -> list[Hint]:
    """Return the signatures that hosts give, each when its block is stored; none without any."""
    if workload.signature is None:
        return []
    blocks, first = np.unique(workload.block, return_index=True)
    order = np.argsort(first, kind="stable")
    nlb = layout.slot_size // layout.block_size
    return [
        Hint(
            float(workload.time_s[position]),
            int(workload.tenant[position]),
            Signature(
                nsid=NSID,
                slba=int(layout.extent[block]) * nlb,
                nlb=nlb,
                vector=int(workload.signature[block]).to_bytes(8, "little"),
            ),
        )
        for block, position in zip(blocks[order].tolist(), first[order].tolist(), strict=True)
    ]
