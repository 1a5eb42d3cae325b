"""Two hosts beside each other: what one says changes nothing for the other, and tells it nothing.

The greedy host may fill the whole tier with hints (its budget is 100 %), so that nothing but the
rule of shares keeps the other's extents where they are. Each has a subsystem of its own and both
have a third.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from . import hinting
from .hinting import OTHER_HOST, OTHER_NQN
from .probing import SEED, Site
from .running import MIB, NQN

SHARED_NQN = "nqn.2026-11.io.prestage:shared"
BLOCK = 4096
TIER_BYTES = 32 * MIB
ALL = 4 * TIER_BYTES // BLOCK
"""Blocks of the greedy host's namespace: several times the tier."""
PIECE = MIB // BLOCK
WORKING_SET = 8 * MIB // BLOCK
"""Blocks of the quiet host. With all else that it reads or intends in these tests, which come in
any order, they are within half of the tier, its share beside one other host."""
FOREVER_MS = 0xFFFFFFFF
CONFIG: dict[str, Any] = {
    "tier": {"size": TIER_BYTES},
    "hints": {
        "tier_percent": 25,
        "tenants": [{"host": nvme.HOST_NQN, "tier_percent": 100, "intents": 65536}],
    },
    "subsystems": [
        {
            "nqn": NQN,
            "extension": True,
            "namespaces": [{"media": "ram", "size": ALL * BLOCK, "block": BLOCK}],
        },
        {
            "nqn": OTHER_NQN,
            "hosts": [OTHER_HOST["hostnqn"]],
            "extension": True,
            "namespaces": [
                {"media": "ram", "size": 64 * MIB, "block": BLOCK},
                {"media": "ram", "size": 16 * MIB, "block": BLOCK},
            ],
        },
        {
            "nqn": SHARED_NQN,
            "extension": True,
            "namespaces": [{"media": "ram", "size": 64 * MIB, "block": BLOCK}],
        },
    ],
}
_numbers = itertools.count(1 + SEED * 1000)


@pytest.fixture
def greedy(site: Site) -> Iterator[Queue]:
    """A queue of the greedy host to its own subsystem; in the end it withdraws everything."""
    with site.pair(1) as controller:
        yield controller.io[0]
        hinting.accepted(controller.io[0], hints.cancel(hints.CANCEL_EVERYTHING))
        keep(controller.io[0], 0)


@pytest.fixture
def quiet_controller(site: Site) -> Iterator[Controller]:
    """The quiet host, connected to its own subsystem."""
    with site.pair(1, nqn=OTHER_NQN, **OTHER_HOST) as controller:
        yield controller


@pytest.fixture
def quiet(quiet_controller: Controller) -> Queue:
    """Its queue; it has withdrawn everything that it said before."""
    hinting.accepted(quiet_controller.io[0], hints.cancel(hints.CANCEL_EVERYTHING))
    return quiet_controller.io[0]


# ---- what they do ----


def read(queue: Queue, first: int, blocks: int, *, times: int = 1) -> None:
    """Read blocks in pieces, from the first to the last."""
    for _ in range(times):
        for slba in range(first, first + blocks, PIECE):
            queue.read(slba, min(PIECE, first + blocks - slba), BLOCK)


def keep(queue: Queue, duration_ms: int) -> None:
    """Retain all of the greedy host's namespace."""
    pieces = [(slba, PIECE) for slba in range(0, ALL, PIECE)]
    hinting.submit(queue, hints.retain(pieces, duration_ms=duration_ms))


def intend_everything(queue: Queue, deadline_us: int, flags: int) -> list[int]:
    """Ask for all of the namespace in pieces, in random order; the ids of the intents."""
    pieces = list(range(0, ALL, PIECE))
    random.Random(SEED).shuffle(pieces)
    ids = []
    for slba in pieces:
        ids.append(next(_numbers))
        record = hints.intent(
            ids[-1], [(slba, PIECE)], deadline_us=deadline_us, priority=0, flags=flags
        )
        answer = hinting.submit(queue, record)
        assert answer.is_ok, answer.text()
    return ids


def warm_bytes(queue: Queue, first: int, blocks: int) -> int:
    """How much of the host's blocks is in the tier."""
    return hinting.residency(queue, first, blocks).warm_bytes


# ---- A cannot evict what B has ----


@pytest.mark.parametrize(
    "flags", [hints.LATE_OK, hints.PREFIX, 0], ids=["late_ok", "prefix", "in time"]
)
def test_intents_for_more_than_the_tier_leave_the_share_of_another_host(
    greedy: Queue, quiet: Queue, flags: int
) -> None:
    read(quiet, 0, WORKING_SET, times=2)
    assert warm_bytes(quiet, 0, WORKING_SET) == WORKING_SET * BLOCK
    before = hinting.status(greedy)
    ids = intend_everything(greedy, 300_000, flags)
    if flags & hints.LATE_OK:
        # Without room they wait; so it is the host that ends them, when the tier is full of some.
        hinting.until(lambda: hinting.status(greedy), lambda seen: sum_of(seen, "met") > 0)
        hinting.accepted(greedy, hints.cancel(hints.CANCEL_ALL))
    for number in ids:
        assert hinting.ended(greedy, number).state != hints.UNKNOWN
    after = hinting.status(greedy)
    assert after.used["intents"] == 0
    assert sum_of(after, "arrived") - sum_of(before, "arrived") == len(ids)
    assert warm_bytes(quiet, 0, WORKING_SET) == WORKING_SET * BLOCK
    assert warm_bytes(greedy, 0, ALL) > 0


def sum_of(status: hints.Status, what: str) -> int:
    """A count of intents, of all priorities."""
    return sum(counts[what] for counts in status.intents)


def test_retain_of_everything_leaves_frames_for_the_reads_of_another_host(
    greedy: Queue, quiet: Queue
) -> None:
    read(greedy, 0, TIER_BYTES // BLOCK)
    keep(greedy, FOREVER_MS)
    read(quiet, 16 * MIB // BLOCK, 4 * MIB // BLOCK)
    read(quiet, 0, WORKING_SET)
    assert warm_bytes(quiet, 0, WORKING_SET) == WORKING_SET * BLOCK


def test_intents_and_retains_of_a_host_do_not_displace_what_another_intends(
    greedy: Queue, quiet: Queue
) -> None:
    blocks = 2 * MIB // BLOCK  # within a quarter of the tier, the quiet host's budget
    first = 32 * MIB // BLOCK
    intend_everything(greedy, 300_000, 0)
    keep(greedy, FOREVER_MS)
    number = next(_numbers)
    hinting.accepted(quiet, hints.intent(number, [(first, blocks)], deadline_us=10_000_000))
    assert hinting.ended(quiet, number).state == hints.MET
    intend_everything(greedy, 300_000, 0)
    keep(greedy, FOREVER_MS)
    assert warm_bytes(quiet, first, blocks) == blocks * BLOCK


# ---- A cannot hint on, or ask about, what B has ----


def test_host_cannot_connect_to_a_subsystem_that_names_others(site: Site) -> None:
    with pytest.raises(Exception, match="Connect"), site.pair(1, nqn=OTHER_NQN):
        pass


def test_records_for_a_namespace_of_another_host_are_dropped(greedy: Queue, quiet: Queue) -> None:
    before = hinting.status(greedy).dropped["namespace"]
    at = 8 * MIB // BLOCK
    records = [
        hints.set_(1, [(at, PIECE)], nsid=2),
        hints.signature(at, PIECE, b"12345678", nsid=2),
        hints.intent(next(_numbers), [(at, PIECE)], nsid=2),
        hints.retain([(at, PIECE)], nsid=2),
    ]
    answer = hinting.submit(greedy, *records)
    assert (answer.dw0 & 0xFFFF, answer.dw0 >> 16) == (0, len(records))
    assert hinting.status(greedy).dropped["namespace"] == before + len(records)
    assert hinting.residency(quiet, at, PIECE, nsid=2).warm_bytes == 0


def test_the_same_number_is_another_namespace_in_another_subsystem(
    site: Site, quiet: Queue
) -> None:
    at = 60 * MIB // BLOCK
    number = next(_numbers)
    hinting.accepted(quiet, hints.intent(number, [(at, PIECE)], deadline_us=10_000_000))
    hinting.warm(quiet, at, PIECE)
    with site.pair(1, nqn=SHARED_NQN) as other:
        assert warm_bytes(other.io[0], at, PIECE) == 0


def test_queries_about_what_another_host_said_have_no_answer(greedy: Queue, quiet: Queue) -> None:
    number = next(_numbers)
    hinting.accepted(
        quiet,
        hints.set_(number, [(0, PIECE)]),
        hints.intent(number, set_id=number, deadline_us=10_000_000),
        mailbox=11,
    )
    assert hinting.ended(quiet, number).state == hints.MET
    assert hinting.outcome(greedy, number).state == hints.UNKNOWN
    hinting.submit(
        greedy,
        hints.residency(set_id=number),
        hints.residency([(0, PIECE)], nsid=2),
        hints.outcome(number),
        mailbox=12,
    )
    by_set, by_range, outcome = hinting.mailbox_answer(greedy, 12).answers
    assert isinstance(by_set, hints.Residency)
    assert isinstance(by_range, hints.Residency)
    assert isinstance(outcome, hints.Outcome)
    assert (by_set.reason, by_set.total_bytes, by_set.warm_bytes) == ("set", 0, 0)
    assert (by_range.reason, by_range.total_bytes, by_range.warm_bytes) == ("namespace", 0, 0)
    assert (outcome.state, outcome.total_bytes) == (hints.UNKNOWN, 0)
    assert hinting.mailbox_answer(greedy, 11).state == hints.EMPTY


# ---- both use one namespace ----


def test_hosts_of_one_subsystem_have_sets_and_intents_of_their_own(site: Site) -> None:
    number, at = next(_numbers), 4 * MIB // BLOCK
    far_us = 0xFFFFFFFF
    with (
        site.pair(1, nqn=SHARED_NQN) as mine,
        site.pair(1, nqn=SHARED_NQN, **OTHER_HOST) as theirs,
    ):
        (a,), (b,) = mine.io, theirs.io
        hinting.accepted(b, hints.set_(number, [(at, PIECE)]))
        hinting.accepted(b, hints.intent(number, set_id=number, deadline_us=far_us))
        state = hinting.outcome(b, number).state
        # The same ids say other things in A's mouth, and A can withdraw only what A said.
        hinting.accepted(a, hints.set_(number, [(0, 1)]))
        hinting.accepted(a, hints.cancel(hints.CANCEL_INTENT, number))
        hinting.accepted(a, hints.cancel(hints.CANCEL_EVERYTHING))
        assert hinting.outcome(b, number).state in {state, hints.MET}
        page = hinting.ask(b, hints.ASK_SET, number)
        (seen,) = hints.parse_answer(page).answers
        assert isinstance(seen, hints.Residency)
        assert seen.total_bytes == PIECE * BLOCK
        hinting.accepted(b, hints.cancel(hints.CANCEL_EVERYTHING))


# ---- status pages ----


def test_status_page_shows_what_its_own_host_did(greedy: Queue, quiet: Queue) -> None:
    before = hinting.status(quiet)
    number = next(_numbers)
    hinting.accepted(
        greedy,
        hints.set_(number, [(0, PIECE), (PIECE, PIECE)]),
        hints.signature(0, PIECE, bytes(16)),
        hints.intent(number, [(PIECE, PIECE)], deadline_us=10_000_000),
    )
    hinting.ended(greedy, number)
    greedy.read(PIECE, PIECE, BLOCK)
    hinting.submit(greedy, b"\0" * 8)
    answer = greedy.execute(hints.submit(), data=hints.batch(checksum=1))
    assert not answer.is_ok
    own = hinting.status(greedy)
    assert own.used["sets"] >= 1
    assert own.refused >= 1
    after = hinting.status(quiet)
    for name, used in after.used.items():  # what was kept or counted before may end meanwhile
        assert used <= before.used[name], name
    for name in ("batches", "refused", "records", "dropped", "timely_hits", "events", "intents"):
        assert getattr(after, name) == getattr(before, name), name
