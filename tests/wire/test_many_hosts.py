"""More hosts than there are tenants: the last ones learn nothing of each other."""

from __future__ import annotations

from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from prestage.target.settings import MAX_TENANTS

from . import hinting
from .hinting import BLOCK
from .intents import read_events
from .probing import Site
from .running import RunningTarget

CONFIG = hinting.CONFIG
MAILBOX = 4
INTENT = 3


def host(number: int) -> dict[str, Any]:
    """A host of its own."""
    nqn = f"nqn.2026-11.com.example:host{number}"
    return {"hostnqn": nqn, "hostid": number.to_bytes(16, "little")}


@pytest.fixture
def crowded(site: Site, target: RunningTarget) -> RunningTarget:
    """The target, after as many hosts as it has numbers for."""
    for number in range(1, MAX_TENANTS + 1):
        with site.admin(**host(number)):
            pass
    return target


def speak(queue: Queue) -> None:
    """Say something of every kind; nothing of it is taken."""
    records = (
        hints.set_(7, [(0, 8)]),
        hints.intent(INTENT, [(0, 8)], session=99, tag=5),
        hints.outcome(INTENT),
        hints.residency([(0, 8)]),
        hints.signature(0, 8, bytes(8)),
        hints.retain([(0, 8)]),
    )
    answer = hinting.submit(queue, *records, mailbox=MAILBOX)
    assert answer.is_ok
    assert answer.dw0 == len(records) << 16, "dropped, and the carrier has taken them"
    page = hints.page(hints.batch(hints.intent(INTENT + 1, [(0, 8)]), sequence=66))
    assert hinting.write_pages(queue, hints.MAILBOX_PAGE + MAILBOX + 1, page).is_ok
    malformed = hints.batch(hints.intent(0, [(0, 8)]), writer=0x5EC4E7)
    refused = queue.execute(hints.submit(MAILBOX + 2), data=malformed)
    assert hints.FAULTS[refused.dw1] == "field"
    entry = nvme.sqe(nvme.DSM, 1, cdw11=1)
    assert queue.execute(entry, data=nvme.dsm_ranges([(0, 8)])).is_ok
    dated = hints.dated_read(0, 8, deadline_us=10)
    assert queue.execute(dated, expected=8 * BLOCK).is_ok
    queue.read(0, 8, BLOCK, dsm=7)


def check_knows_nothing(controller: Controller) -> None:
    """Nothing that this host is told is about anybody."""
    (queue,) = controller.io
    for mailbox in range(hints.MAILBOXES):
        assert hinting.mailbox_answer(queue, mailbox).state == hints.EMPTY
    pages = hinting.read_pages(queue, hints.MAILBOX_PAGE, 8)
    for place in range(0, len(pages), hints.PAGE):
        assert hints.parse_answer(pages[place : place + hints.PAGE]).state == hints.EMPTY
    page = hinting.ask(queue, hints.ASK_STATUS)
    assert not any(page[128:]), "limits, what is used, counts and refusals"
    assert read_events(controller) == []
    for number in (INTENT, INTENT + 1):
        assert hinting.outcome(queue, number).state == hints.UNKNOWN


def test_hosts_beyond_the_last_number_learn_nothing_of_each_other(
    site: Site, crowded: RunningTarget
) -> None:
    with site.pair(1, **host(5001)) as first, site.pair(1, **host(5002)) as second:
        speak(first.io[0])
        check_knows_nothing(second)
        check_knows_nothing(first)
    with site.pair(1, **host(1)) as early:
        hinting.accepted(early.io[0], hints.set_(7, [(0, 8)]), mailbox=MAILBOX)
        assert hinting.mailbox_answer(early.io[0], MAILBOX).accepted == 1
