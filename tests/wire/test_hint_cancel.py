"""What is taken back, of each kind, at every stage of an intent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from nvme_tcp import hints
from nvme_tcp.queue import Queue

from . import hinting
from .hinting import BLOCK, until
from .intents import STATES, check_sums, pending, read_events
from .patterned import (
    HELD,
    PLAIN,
    REGION,
    ROOMLESS,
    SLOT,
    check_bytes,
    cold,
    end_of,
    events_of,
    intend,
    serve,
)
from .probing import Site
from .running import RunningTarget

KINDS = {
    "intent": hints.CANCEL_INTENT,
    "session": hints.CANCEL_SESSION,
    "all": hints.CANCEL_ALL,
    "everything": hints.CANCEL_EVERYTHING,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTarget]:
    """A target over media that hold a pattern."""
    with serve(tmp_path_factory.mktemp("patterned")) as started:
        yield started


def at_stage(target: RunningTarget, queue: Queue, stage: str) -> tuple[int, int]:
    """An intent of session 77 that is at that stage, and where it is about."""
    slba = cold(queue, HELD)
    if stage == "without room":  # another intent has all of it, for long
        limit = hinting.status(queue).limits["tier_bytes"] // BLOCK
        filler = intend(queue, [(0, limit - limit % SLOT)], nsid=PLAIN, deadline_us=0xFFFFFFFF)
        assert end_of(queue, filler) == ("met", "none")
    if stage != "ended":
        target.media_control("stall", "arm", nsid=HELD)
    if stage == "queued":  # the medium has as much as it takes
        intend(queue, [(slba + 8 * SLOT, 24 * SLOT)], nsid=HELD, deadline_us=30_000_000)
    number = intend(queue, [(slba, 2 * SLOT)], nsid=HELD, session=77, deadline_us=30_000_000)
    if stage == "filling":
        until(
            lambda: hinting.residency(queue, slba, 2 * SLOT, nsid=HELD).coming_bytes,
            lambda coming: coming == 2 * SLOT * BLOCK,
        )
    if stage == "ended":
        assert end_of(queue, number) == ("met", "none")
    else:
        assert hinting.outcome(queue, number).state == hints.PENDING
    return number, slba


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stage", ["queued", "filling", "without room", "ended"])
def test_cancel_of_each_kind_at_each_stage(
    target: RunningTarget, site: Site, stage: str, kind: str
) -> None:
    identity = ROOMLESS if stage == "without room" else {}
    with site.pair(1, **identity) as controller:
        (queue,) = controller.io
        hinting.accepted(queue, hints.cancel(hints.CANCEL_EVERYTHING))
        read_events(controller, may_lose=True)
        hinting.accepted(queue, hints.set_(61, [(0, 8)]))
        number, slba = at_stage(target, queue, stage)
        argument = {"intent": number, "session": 77}.get(kind, 0)
        for _ in range(2):  # the second finds nothing, and that is no error
            hinting.accepted(queue, hints.cancel(KINDS[kind], argument))
        right = "met" if stage == "ended" else "cancelled"
        assert STATES[hinting.outcome(queue, number).state] == right
        assert hinting.status(queue).used["sets"] == (0 if kind == "everything" else 1)
        target.media_control("stall", "release", nsid=HELD)
        hinting.accepted(queue, hints.cancel(hints.CANCEL_ALL))
        seen = hinting.status(queue).intents
        check_sums(seen)
        assert pending(seen) == 0
        check_bytes(queue, slba, REGION, HELD)
        assert STATES[hinting.outcome(queue, number).state] == right
        assert [event.state for event in events_of(controller, number)] == [right]
