"""What intents keep in the tier makes room when they are withdrawn, or when it was read."""

from __future__ import annotations

from typing import Any

import pytest
from nvme_tcp import hints
from nvme_tcp.queue import Queue

from . import hinting
from .probing import Site
from .running import MIB, NQN

BLOCK = 4096
CONFIG: dict[str, Any] = {
    "tier": {"size": 64 * MIB},
    "hints": {"tier_percent": 10},  # less than the share of each of the hosts
    "subsystems": [
        {
            "nqn": NQN,
            "extension": True,
            "namespaces": [{"media": "ram", "size": 64 * MIB, "block": BLOCK}] * 2,
        }
    ],
}
HOST = "nqn.2026-11.io.prestage:withdrawing"
SESSION, NEVER_US = 7, 0xFFFFFFFF
SLOT, SOME_BLOCKS = 64 << 10, 4 * MIB // BLOCK


def used(queue: Queue) -> int:
    """How many bytes of the tier the host's hints hold."""
    return hinting.status(queue).used["tier_bytes"]


def fill(queue: Queue) -> None:
    """Have an intent of 71 minutes that takes all frames that hints may have."""
    limit = hinting.status(queue).limits["tier_bytes"]
    assert limit < 64 * MIB
    limit -= limit % SLOT
    record = hints.intent(1, [(0, limit // BLOCK)], deadline_us=NEVER_US, session=SESSION)
    hinting.accepted(queue, hints.cancel(hints.CANCEL_ALL), record)
    assert hinting.ended(queue, 1).state == hints.MET
    assert used(queue) == limit


def state_of(queue: Queue, slba: int, deadline_us: int) -> int:
    """How an intent ends that comes now."""
    record = hints.intent(3, [(slba, SOME_BLOCKS)], deadline_us=deadline_us, nsid=2)
    hinting.accepted(queue, record)
    return hinting.ended(queue, 3).state


@pytest.mark.parametrize(
    ("what", "number"),
    [
        (hints.CANCEL_INTENT, 1),
        (hints.CANCEL_SESSION, SESSION),
        (hints.CANCEL_ALL, 0),
        (hints.CANCEL_EVERYTHING, 0),
    ],
)
def test_withdrawing_an_intent_makes_room_for_another(site: Site, what: int, number: int) -> None:
    # A host of its own: one whose hints come to nothing is not trusted for long.
    with site.pair(1, hostnqn=f"{HOST}-{what}") as controller:
        queue = controller.io[0]
        first = what * 2 * SOME_BLOCKS
        fill(queue)
        assert state_of(queue, first, 200_000) == hints.DROPPED, "there is no room"
        hinting.accepted(queue, hints.cancel(what, number))
        assert hinting.outcome(queue, 1).state == hints.MET, "it stays as it ended"
        assert state_of(queue, first + SOME_BLOCKS, 5_000_000) == hints.MET


def test_what_was_read_makes_room_for_another(site: Site) -> None:
    with site.pair(1, hostnqn=HOST) as controller:
        queue = controller.io[0]
        record = hints.intent(1, [(0, SOME_BLOCKS)], deadline_us=NEVER_US, nsid=2)
        hinting.accepted(queue, hints.cancel(hints.CANCEL_ALL), record)
        assert hinting.ended(queue, 1).state == hints.MET
        before = used(queue)
        assert before >= 4 * MIB
        per_read = 64 * 1024 // BLOCK
        for slba in range(0, SOME_BLOCKS, per_read):
            queue.read(slba, per_read, BLOCK, nsid=2)
        assert used(queue) <= before - 4 * MIB
