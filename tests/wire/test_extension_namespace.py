"""The extension namespace: every opcode on it, its pages, and whatever may go wrong on the way."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints, pdu
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from . import hinting
from .hinting import BLOCK, EXTENSION, OTHER_EXTENSION, OTHER_HOST, OTHER_NQN
from .probing import SEED, Site
from .running import MIB, RunningTarget

CONFIG = hinting.CONFIG
PAGES, PAGE, FIRST = hints.PAGES, hints.PAGE, hints.MAILBOX_PAGE
LAST = FIRST + hints.MAILBOXES
_cold = iter(range(MIB // BLOCK, 60 * MIB // BLOCK, 2048))


@pytest.fixture
def cold() -> int:
    """The first LBA of 1024 blocks of namespace 1 that nothing has read or written yet."""
    return next(_cold)


@pytest.fixture
def controller(site: Site) -> Iterator[Controller]:
    """One controller with one I/O queue of 32 entries."""
    with site.pair(1) as connected:
        yield connected


@pytest.fixture
def queue(controller: Controller) -> Queue:
    """Its I/O queue."""
    return controller.io[0]


def status_page(queue: Queue, nsid: int = EXTENSION) -> hints.Status:
    """The status page, as a block device shows it."""
    return hints.parse_status(hinting.read_pages(queue, 0, nsid=nsid))


def answer_at(queue: Queue, mailbox: int) -> hints.Answer:
    """The answer of a mailbox, as a block device shows it."""
    return hints.parse_answer(hinting.read_pages(queue, FIRST + mailbox))


# ---- what it is ----


def test_it_has_256_blocks_of_4096_bytes(controller: Controller) -> None:
    assert controller.block_size(EXTENSION) == PAGE
    assert controller.block_count(EXTENSION) == PAGES


def test_everything_can_be_said_and_asked_by_blocks(queue: Queue, cold: int) -> None:
    number = SEED + cold
    records = [
        hints.set_(4, [(cold, 512), (cold + 512, 512)]),
        hints.intent(number, set_id=4, deadline_us=5_000_000, tag=1),
        hints.residency(set_id=4, tag=2),
        hints.outcome(number, tag=3),
    ]
    raw = hints.page(hints.batch(*records, sequence=77))
    assert hinting.write_pages(queue, FIRST + 3, raw).is_ok
    answer = hinting.until(
        lambda: answer_at(queue, 3), lambda seen: state_of(seen) != hints.PENDING
    )
    assert (answer.state, answer.sequence, answer.accepted) == (hints.APPLIED, 77, 4)
    assert state_of(answer) == hints.MET
    warm = answer.answers[1]
    assert isinstance(warm, hints.Residency)
    assert warm.warm_bytes == warm.total_bytes == 1024 * BLOCK
    queue.read(cold, 1024, BLOCK)
    assert status_page(queue).timely_hits > 0


def state_of(answer: hints.Answer) -> int:
    """The state of the intent that is answered first."""
    first = answer.answers[0]
    assert isinstance(first, hints.Outcome)
    return first.state


@pytest.mark.parametrize("digests", [0, 3])
def test_pages_read_together_are_those_read_alone(site: Site, digests: int) -> None:
    with site.pair(1, digests=digests) as controller:
        queue = controller.io[0]
        for mailbox in (0, 17, 63):
            raw = hints.page(hints.batch(hints.cancel(1, 1), sequence=mailbox))
            assert hinting.write_pages(queue, FIRST + mailbox, raw).is_ok
        whole = hinting.read_pages(queue, 0, PAGES)
        for page in range(1, PAGES):
            piece = whole[page * PAGE : (page + 1) * PAGE]
            assert piece == hinting.read_pages(queue, page), page
            if not FIRST <= page < LAST:
                assert piece == bytes(PAGE), page
        hints.parse_status(whole[:PAGE])
        sequences = {box: answer_at(queue, box).sequence for box in (0, 17, 63)}
        assert sequences == {0: 0, 17: 17, 63: 63}


@pytest.mark.parametrize("in_capsule", [True, False])
def test_pages_written_together_are_taken_in_ascending_order(
    queue: Queue, cold: int, in_capsule: bool
) -> None:
    # The set that the second names is what the first defines; the third replaces it.
    batches = [
        hints.batch(hints.set_(5, [(cold, 8)]), sequence=1),
        hints.batch(hints.intent(SEED + cold, set_id=5), sequence=2),
        hints.batch(hints.set_(5, [(cold, 16)]), sequence=3),
    ]
    raw = b"".join(map(hints.page, batches))
    raw = raw[: 2 * PAGE] if in_capsule else raw
    assert hinting.write_pages(queue, FIRST + 10, raw, in_capsule=in_capsule).is_ok
    assert [answer_at(queue, 10 + n).accepted for n in range(len(raw) // PAGE)] == [1] * (
        len(raw) // PAGE
    )
    assert hinting.ended(queue, SEED + cold).total_bytes == 8 * BLOCK


def test_all_mailboxes_in_one_write(queue: Queue) -> None:
    before = status_page(queue).batches
    raw = b"".join(hints.page(hints.batch(sequence=500 + n)) for n in range(hints.MAILBOXES))
    assert hinting.write_pages(queue, FIRST, raw).is_ok
    assert status_page(queue).batches == before + hints.MAILBOXES
    for mailbox in range(hints.MAILBOXES):
        assert answer_at(queue, mailbox).sequence == 500 + mailbox


@pytest.mark.parametrize("page", [0, 1, FIRST - 1, LAST, PAGES - 1])
def test_other_pages_take_anything_and_keep_nothing(queue: Queue, page: int) -> None:
    before = status_page(queue)
    assert hinting.write_pages(queue, page, b"\xa5" * PAGE).is_ok
    after = status_page(queue)
    assert (after.batches, after.refused) == (before.batches, before.refused)
    if page != 0:
        assert hinting.read_pages(queue, page) == bytes(PAGE)


def test_malformed_page_succeeds_and_its_fault_is_on_the_status_page(queue: Queue) -> None:
    good = hints.page(hints.batch(hints.set_(6, [(0, 8)]), sequence=9))
    assert hinting.write_pages(queue, FIRST + 1, good).is_ok
    before = status_page(queue)
    bad = bytearray(hints.page(hints.batch(hints.set_(6, [(0, 8)]), writer=42, sequence=10)))
    bad[40] ^= 1
    assert hinting.write_pages(queue, FIRST + 1, bytes(bad)).is_ok
    after = status_page(queue)
    assert (after.refused, after.records) == (before.refused + 1, before.records)
    (refusal, *_) = after.refusals
    assert (refusal.fault, refusal.fault_offset, refusal.mailbox) == ("checksum", 12, 1)
    assert (refusal.writer, refusal.sequence) == (42, 10)
    said = answer_at(queue, 1)
    assert (said.state, said.fault, said.fault_offset) == (hints.REFUSED, "checksum", 12)


def test_random_pages_never_fail(queue: Queue) -> None:
    rng = random.Random(SEED)
    for _ in range(60):
        count = rng.randrange(1, 9)
        first = rng.randrange(PAGES - count + 1)
        pages = [rng.choice((b"PAXB", b"")) + rng.randbytes(PAGE) for _ in range(count)]
        raw = b"".join(page[:PAGE] for page in pages)
        assert hinting.write_pages(queue, first, raw).is_ok, f"seed {SEED}"
        assert len(hinting.read_pages(queue, first, count)) == len(raw)


# ---- every opcode ----


def expected_statuses() -> list[tuple[str, bytes, bytes, int, str]]:
    """Name, entry, host data, bytes to the host, status."""
    ranges = nvme.dsm_ranges([(0, 8), (100, 156)])
    beyond = nvme.dsm_ranges([(0, 8), (100, 157)])
    ok = "ok"

    def block(opcode: int, slba: int, count: int, **options: Any) -> bytes:
        return nvme.block_command(opcode, slba, count, nsid=EXTENSION, **options)

    def entry(opcode: int, **fields: Any) -> bytes:
        return nvme.sqe(opcode, EXTENSION, **fields)

    page = bytes(PAGE)
    return [
        ("flush", entry(nvme.FLUSH), b"", 0, ok),
        ("write", block(nvme.WRITE, 200, 1), page, 0, ok),
        ("write with FUA", block(nvme.WRITE, 200, 1, fua=True), page, 0, ok),
        ("write beyond", block(nvme.WRITE, 255, 2), page * 2, 0, "0/80 dnr"),
        ("write, too little data", block(nvme.WRITE, 200, 2), page, 0, "0/0f dnr"),
        ("read", block(nvme.READ, 255, 1), b"", PAGE, ok),
        ("read with FUA", block(nvme.READ, 255, 1, fua=True), b"", PAGE, ok),
        ("read with attributes", block(nvme.READ, 255, 1, dsm=0x57), b"", PAGE, ok),
        ("read beyond", block(nvme.READ, 256, 1), b"", PAGE, "0/80 dnr"),
        ("read far beyond", block(nvme.READ, 1 << 60, 1), b"", PAGE, "0/80 dnr"),
        ("read, too little room", block(nvme.READ, 0, 2), b"", PAGE, "0/0f dnr"),
        ("compare", block(nvme.COMPARE, 255, 1), page, 0, "0/01 dnr"),
        ("write zeroes", block(nvme.WRITE_ZEROES, 0, 256), b"", 0, ok),
        ("write zeroes beyond", block(nvme.WRITE_ZEROES, 1, 256), b"", 0, "0/80 dnr"),
        ("verify", block(nvme.VERIFY, 0, 256), b"", 0, ok),
        ("verify beyond", block(nvme.VERIFY, 256, 1), b"", 0, "0/80 dnr"),
        ("dsm", entry(nvme.DSM, cdw10=1, cdw11=5), ranges, 0, ok),
        ("dsm beyond", entry(nvme.DSM, cdw10=1, cdw11=4), beyond, 0, "0/80 dnr"),
        ("dsm, short", entry(nvme.DSM, cdw10=2, cdw11=4), ranges, 0, "0/0f dnr"),
        ("copy", entry(nvme.COPY, cdw10=0), nvme.copy_ranges([(0, 1)]), 0, "0/01 dnr"),
        ("unknown", entry(0x55), b"", 0, "0/01 dnr"),
        ("submit", hints.submit(nsid=EXTENSION), hints.batch(), 0, ok),
        ("query", hints.query(hints.ASK_STATUS, nsid=EXTENSION), b"", PAGE, ok),
        (
            "dated read",
            hints.dated_read(255, 1, deadline_us=5, nsid=EXTENSION),
            b"",
            PAGE,
            ok,
        ),
        (
            "dated read beyond",
            hints.dated_read(256, 1, deadline_us=5, nsid=EXTENSION),
            b"",
            PAGE,
            "0/80 dnr",
        ),
    ]


@pytest.mark.parametrize("case", expected_statuses(), ids=lambda case: case[0])
@pytest.mark.parametrize("in_capsule", [True, False])
def test_every_opcode(
    queue: Queue, case: tuple[str, bytes, bytes, int, str], in_capsule: bool
) -> None:
    _, entry, data, expected, right = case
    answer = queue.execute(
        entry, data=data, expected=expected, in_capsule=in_capsule and bool(data)
    )
    assert answer.text() == right
    assert len(answer.data) == (expected if right == "ok" else 0)


def test_fused_pair_is_not_supported(queue: Queue) -> None:
    data = bytes(PAGE)
    first = nvme.block_command(nvme.COMPARE, 200, 1, nsid=EXTENSION, flags=0x41)
    second = nvme.block_command(nvme.WRITE, 200, 1, nsid=EXTENSION, flags=0x42)
    one = queue.submit(first, data=data, in_capsule=True)
    other = queue.submit(second, data=data, in_capsule=True)
    assert queue.wait(one).text() == "0/01 dnr"
    assert queue.wait(other).text() == "0/01 dnr"
    assert queue.execute(nvme.sqe(nvme.FLUSH, EXTENSION)).is_ok


def test_flush_of_all_namespaces_passes_it_by(queue: Queue) -> None:
    assert queue.execute(nvme.sqe(nvme.FLUSH, 0xFFFFFFFF)).is_ok


def test_transfer_beyond_mdts_is_refused(site: Site, controller: Controller, queue: Queue) -> None:
    most = 1 << controller.identify(1)[77]  # MDTS in pages of 4096 bytes
    if most >= PAGES:
        assert len(hinting.read_pages(queue, 0, PAGES)) == PAGES * PAGE
        return
    assert len(hinting.read_pages(queue, 0, most)) == most * PAGE
    entry = nvme.block_command(nvme.READ, 0, most + 1, nsid=EXTENSION)
    assert queue.execute(entry, expected=(most + 1) * PAGE).text() == "0/02 dnr"


# ---- the transport ----


def test_write_capsule_in_two_segments(site: Site) -> None:
    rng = random.Random(SEED)
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        for turn in range(120):
            raw = hints.page(hints.batch(sequence=turn))
            data = nvme.sgl(nvme.SGL_IN_CAPSULE, PAGE)
            entry = nvme.block_command(nvme.WRITE, FIRST, 1, nsid=EXTENSION, data=data)
            entry = nvme.with_cid(entry, 9)
            capsule = queue.capsule(entry, raw)
            cut = turn + 1 if turn < 90 else rng.randrange(1, len(capsule))
            queue.register(entry)
            queue.connection.send_pieces(capsule, [cut])
            assert queue.wait(9).is_ok, f"cut at {cut}"
            assert answer_at(queue, 0).sequence == turn, f"cut at {cut}"


def test_h2c_data_in_two_segments(site: Site) -> None:
    rng = random.Random(SEED)
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        queue.answers_r2t = False
        for turn in range(80):
            raw = hints.page(hints.batch(sequence=1000 + turn)) * 2
            entry = nvme.block_command(nvme.WRITE, FIRST + 1, 2, nsid=EXTENSION)
            cid = queue.submit(entry, data=raw, in_capsule=False)
            r2t = queue.wait_r2t()
            queue.r2ts.clear()
            data = pdu.h2c_data(cid, r2t.u16(10), 0, raw, digests=3)
            cut = turn + 1 if turn < 40 else rng.randrange(1, len(data))
            queue.connection.send_pieces(data, [cut])
            assert queue.wait(cid).is_ok, f"cut at {cut}"
            assert answer_at(queue, 2).sequence == 1000 + turn, f"cut at {cut}"


def test_wrong_data_digest_is_said_and_nothing_is_taken(site: Site) -> None:
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        before = status_page(queue)
        data = nvme.sgl(nvme.SGL_IN_CAPSULE, PAGE)
        entry = nvme.block_command(nvme.WRITE, FIRST, 1, nsid=EXTENSION, data=data)
        entry = nvme.with_cid(entry, 9)
        queue.register(entry)
        raw = hints.page(hints.batch(sequence=5))
        queue.connection.send(queue.capsule(entry, raw, data_digest=1))
        assert queue.wait(9).code == "0/22"
        assert status_page(queue).batches == before.batches


@pytest.mark.parametrize("ending", ["close", "reset"])
def test_host_that_goes_within_its_write_leaves_nothing(
    site: Site, queue: Queue, ending: str
) -> None:
    rng = random.Random(SEED)
    before = status_page(queue)
    raw = hints.page(hints.batch(sequence=5)) * 32
    for _ in range(20):
        with site.pair(1) as other:
            leaving = other.io[0]
            entry = nvme.block_command(nvme.WRITE, FIRST, 32, nsid=EXTENSION)
            cid = leaving.submit(entry, data=raw, in_capsule=False)
            r2t = leaving.wait_r2t()
            data = pdu.h2c_data(cid, r2t.u16(10), 0, raw[: r2t.u32(16)])
            leaving.connection.send(data[: rng.randrange(len(data) - 1)])
            getattr(leaving.connection, ending)()
    assert status_page(queue).batches == before.batches


def test_host_that_goes_within_a_long_read_leaves_nothing(site: Site) -> None:
    for _ in range(20):
        with site.pair(1, receive_buffer=4096) as controller:
            leaving = controller.io[0]
            entry = nvme.block_command(nvme.READ, 0, PAGES, nsid=EXTENSION)
            leaving.submit(entry, expected=PAGES * PAGE)
            leaving.pump()
            leaving.connection.reset()


def test_write_that_waits_for_its_data_is_aborted(controller: Controller, queue: Queue) -> None:
    before = status_page(queue).batches
    queue.answers_r2t = False
    entry = nvme.block_command(nvme.WRITE, FIRST, 2, nsid=EXTENSION)
    cid = queue.submit(entry, data=hints.page(hints.batch()) * 2, in_capsule=False)
    queue.wait_r2t()
    assert controller.admin.execute(nvme.abort(queue.qid, cid)).dw0 & 1 == 0
    assert queue.wait(cid).code == "0/07"
    assert status_page(queue).batches == before


def test_deep_queue_of_long_transfers(queue: Queue) -> None:
    rng = random.Random(SEED)
    waiting = {}
    raw = b"".join(hints.page(hints.batch(sequence=n)) for n in range(64))
    for _ in range(24):
        if rng.random() < 0.5:
            entry = nvme.block_command(nvme.READ, 0, 128, nsid=EXTENSION)
            cid = queue.submit(entry, expected=128 * PAGE)
            waiting[cid] = 128 * PAGE
        else:
            entry = nvme.block_command(nvme.WRITE, FIRST, 64, nsid=EXTENSION)
            waiting[queue.submit(entry, data=raw)] = 0
    for cid, length in waiting.items():
        answer = queue.wait(cid)
        assert answer.is_ok, answer.text()
        assert len(answer.data) == length
        if length:
            hints.parse_status(answer.data[:PAGE])


# ---- whose it is ----


def test_each_host_has_a_status_page_and_mailboxes_of_its_own(site: Site, queue: Queue) -> None:
    raw = hints.page(hints.batch(hints.set_(3, [(0, 8)]), sequence=31))
    assert hinting.write_pages(queue, FIRST + 30, raw).is_ok
    with site.pair(1, **OTHER_HOST) as other:
        (theirs,) = other.io
        before = status_page(theirs)
        assert hints.parse_answer(hinting.read_pages(theirs, FIRST + 30)).state == hints.EMPTY
        assert hinting.write_pages(queue, FIRST + 30, raw).is_ok
        assert status_page(theirs) == before


def test_extension_namespace_of_another_subsystem_is_its_own(site: Site, queue: Queue) -> None:
    assert status_page(queue).extension_nsid == EXTENSION
    with site.pair(1, nqn=OTHER_NQN) as other:
        (theirs,) = other.io
        assert status_page(theirs, OTHER_EXTENSION).extension_nsid == OTHER_EXTENSION
        entry = nvme.block_command(nvme.READ, 0, 1, nsid=EXTENSION)
        assert theirs.execute(entry, expected=PAGE).text() == "0/0b dnr"


def test_what_was_said_outlives_the_connection(site: Site, target: RunningTarget) -> None:
    with site.pair(1) as controller:
        raw = hints.page(hints.batch(hints.set_(2, [(0, 8)]), sequence=123))
        assert hinting.write_pages(controller.io[0], FIRST + 40, raw).is_ok
    with site.pair(1) as again:
        assert answer_at(again.io[0], 40).sequence == 123
