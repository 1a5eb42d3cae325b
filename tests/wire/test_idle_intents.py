"""Intents become ready, and their hosts hear of it, although nothing else happens meanwhile: each
medium belongs to another reactor than the connection does, and all of them sleep.
"""

from __future__ import annotations

from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.host import Controller

from . import hinting
from .probing import Site
from .running import MIB, NQN

REACTORS = 3
NAMESPACES = 4
EVENTS_LID, EVENTS_FID, UUID_INDEX = 0xD1, 0xD0, 1
BLOCK = 4096
CONFIG: dict[str, Any] = {
    "tier": {"size": 64 * MIB},
    "reactors": REACTORS,
    "subsystems": [
        {
            "nqn": NQN,
            "extension": True,
            "namespaces": [{"media": "ram", "size": 16 * MIB, "block": BLOCK}] * NAMESPACES,
        }
    ],
}


def listen(controller: Controller) -> int:
    """Read the warm-event log, and ask for the next event; the CID of that."""
    log = nvme.sqe(nvme.GET_LOG, cdw10=EVENTS_LID | (hints.PAGE // 4 - 1) << 16, cdw14=UUID_INDEX)
    assert controller.admin.execute(log, expected=hints.PAGE).is_ok
    return controller.admin.submit(nvme.sqe(nvme.AER))


@pytest.mark.parametrize("nsid", range(1, NAMESPACES + 1))
def test_intent_is_met_and_told_of_while_all_sleep(site: Site, nsid: int) -> None:
    feature = nvme.sqe(nvme.SET_FEATURES, cdw10=EVENTS_FID, cdw11=1, cdw14=UUID_INDEX)
    with site.pair(1) as controller:
        assert controller.admin.execute(feature).is_ok
        aer = listen(controller)
        queue = controller.io[0]
        ranges = [(0, MIB // BLOCK), (2 * MIB // BLOCK, MIB // BLOCK)]
        record = hints.intent(nsid, ranges, nsid=nsid, deadline_us=10_000_000)
        hinting.accepted(queue, record)
        event = controller.admin.wait(aer, 20.0)
        assert event.dw0 == 7 | EVENTS_LID << 16
        assert hinting.outcome(queue, nsid).state == hints.MET
        for slba, blocks in ranges:
            seen = hinting.residency(queue, slba, blocks, nsid=nsid)
            assert seen.warm_bytes == seen.total_bytes == MIB
