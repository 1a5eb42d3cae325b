"""Whether a target that is not ours has room for a replay: its blocks are written over."""

from __future__ import annotations

from typing import Final

import numpy as np

from prestage.host_client.controller import Controller
from prestage.replay.workload import Layout, Workload
from prestage.target.errors import Invalid

__all__ = ["check_empty"]

LOOKED_AT: Final = 64
"""Slots: so few that what the tier held before is hardly moved."""
FIRST: Final = 4
"""Of these, at the start, where file systems and partitions say what they are."""


async def check_empty(
    controller: Controller, nsid: int, workload: Workload, layout: Layout
) -> None:
    """Raise Invalid when some of what the workload will write is not zeros.

    Looked at is the beginning of the namespace, and a sample drawn by the workload's seed.
    """
    extents = layout.extent[np.unique(workload.block[workload.is_write])]
    random = np.random.default_rng(workload.seed)
    drawn = random.choice(extents, min(LOOKED_AT, len(extents)), replace=False)
    for slot in sorted({*range(FIRST), *drawn.tolist()}):
        found = await controller.read(nsid, slot * layout.slot_size, layout.slot_size)
        if any(found):
            what = f"byte {slot * layout.slot_size} and others are not zero"
            expected = "an empty namespace, or --overwrite"
            raise Invalid(what, f"namespace {nsid} of {controller.address}", expected)
