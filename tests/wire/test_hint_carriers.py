"""Hints by Read attributes, Dataset Management and the vendor opcodes, as the wire shows them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints, pdu
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from . import hinting
from .hinting import BLOCK, EXTENSION, OTHER_HOST, OTHER_NQN
from .probing import SEED, Site
from .running import MIB, RunningTarget

CONFIG = hinting.CONFIG
COLD_BLOCKS = 512 << 10 >> 9
"""Half a MiB: several slots of the tier."""
# Far apart, for a Read may bring in a MiB of what follows it; the first blocks are everybody's.
_cold = iter(range(2 * MIB // BLOCK, 58 * MIB // BLOCK, 2 * MIB // BLOCK))


@pytest.fixture
def cold() -> int:
    """The first LBA of COLD_BLOCKS blocks that nothing has read, written or named yet."""
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


# ---- submit and query ----


@pytest.mark.parametrize("digests", [0, 3])
@pytest.mark.parametrize("in_capsule", [True, False])
def test_batch_is_taken_and_its_intent_is_met(
    site: Site, cold: int, in_capsule: bool, digests: int
) -> None:
    with site.pair(1, digests=digests) as controller:
        queue = controller.io[0]
        half = COLD_BLOCKS // 2
        number = SEED + cold
        records = [
            hints.set_(7, [(cold, half), (cold + half, half)], flags=hints.ORDERED),
            hints.intent(number, set_id=7, deadline_us=5_000_000, tag=11),
            hints.residency(set_id=7, tag=12),
        ]
        assert hinting.residency(queue, cold, COLD_BLOCKS).warm_bytes == 0
        hinting.accepted(queue, *records, mailbox=5, in_capsule=in_capsule)
        end = hinting.ended(queue, number)
        assert (end.state, end.reason, end.was_warm) == (hints.MET, "none", False)
        assert end.total_bytes == end.admitted_bytes == end.warm_bytes == COLD_BLOCKS * BLOCK
        answer = hinting.mailbox_answer(queue, 5)
        assert (answer.state, answer.accepted, answer.fault) == (hints.APPLIED, 3, "none")
        assert answer.sequence == 1
        assert [one.tag for one in answer.answers] == [11, 12]
        assert hinting.residency(queue, cold, COLD_BLOCKS).warm_bytes == COLD_BLOCKS * BLOCK


def test_what_an_intent_has_brought_in_counts_as_a_timely_hit(queue: Queue, cold: int) -> None:
    before = hinting.status(queue)
    hinting.accepted(queue, hints.intent(SEED + cold, [(cold, COLD_BLOCKS)]))
    hinting.ended(queue, SEED + cold)
    queue.read(cold, COLD_BLOCKS, BLOCK)
    assert hinting.status(queue).timely_hits > before.timely_hits


def damaged(name: str) -> tuple[bytes, int]:
    """A malformed batch, and the offset where it is."""
    good = hints.cancel(hints.CANCEL_INTENT, 1)
    bad_field = hints.cancel(9, 1)
    bad_size = good[:2] + struct.pack("<H", 16) + good[4:]
    return {
        "magic": (hints.batch(good, magic=b"PAXX"), 0),
        "version": (hints.batch(good, major=2), 4),
        "size": (hints.batch(good, size=4000), 8),
        "checksum": (hints.batch(good, checksum=1), 12),
        "count": (hints.batch(good, count=2), 32 + len(good)),
        "record_size": (hints.batch(good, bad_size), 32 + 24 + 2),
        "field": (hints.batch(good, bad_field), 32 + 24 + 16),
    }[name]


@pytest.mark.parametrize(
    "fault", ["magic", "version", "size", "checksum", "count", "record_size", "field"]
)
@pytest.mark.parametrize("in_capsule", [True, False])
def test_malformed_batch_is_refused_whole_with_its_offset(
    queue: Queue, fault: str, in_capsule: bool
) -> None:
    raw, offset = damaged(fault)
    before = hinting.status(queue)
    answer = queue.execute(hints.submit(3), data=raw, in_capsule=in_capsule)
    assert answer.code == "0/02" and answer.status & 1 << 14, answer.text()
    assert hints.FAULTS[answer.dw1] == fault
    assert answer.dw0 == offset
    after = hinting.status(queue)
    assert (after.refused, after.records) == (before.refused + 1, before.records)
    assert (after.refusals[0].fault, after.refusals[0].fault_offset) == (fault, offset)


def test_records_of_unknown_types_are_skipped_and_counted(queue: Queue) -> None:
    unknown = struct.pack("<HHIQ", 200, 16, 0, 0)
    answer = hinting.submit(queue, unknown, hints.set_(8, [(0, 8)]), unknown)
    assert answer.is_ok
    assert (answer.dw0, answer.dw1) == (1, 2)


def test_what_names_no_namespace_is_accepted_and_dropped(queue: Queue) -> None:
    answer = hinting.submit(
        queue, hints.set_(8, [(0, 8)], nsid=77), hints.set_(8, [(0, 8)]), mailbox=1
    )
    assert answer.is_ok
    assert (answer.dw0 & 0xFFFF, answer.dw0 >> 16) == (1, 1)
    said = hinting.mailbox_answer(queue, 1)
    assert (said.dropped, said.dropped_reason) == (1, "namespace")


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, "0/0f dnr"), (28, "0/0f dnr"), (4100, "0/0f dnr"), (4096, "ok"), (32, "ok")],
)
def test_submit_takes_a_header_to_a_page(queue: Queue, length: int, expected: str) -> None:
    raw = hints.batch().ljust(length, b"\0")[:length]
    entry = nvme.with_sgl(hints.submit(), nvme.sgl(nvme.SGL_TRANSPORT, length))
    answer = queue.execute(entry, data=raw, in_capsule=False, keep_sgl=True)
    assert answer.text() == expected


@pytest.mark.parametrize(
    ("length", "expected"),
    [(0, "0/0f dnr"), (60, "0/0f dnr"), (64, "ok"), (4096, "ok"), (4100, "0/0f dnr")],
)
def test_query_gives_as_much_of_a_page_as_is_asked_for(
    queue: Queue, length: int, expected: str
) -> None:
    whole = hinting.ask(queue, hints.ASK_MAILBOX, mailbox=60)
    entry = hints.query(hints.ASK_MAILBOX, mailbox=60)
    entry = nvme.with_sgl(entry, nvme.sgl(nvme.SGL_TRANSPORT, length))
    answer = queue.execute(entry, expected=length, keep_sgl=True)
    assert answer.text() == expected
    assert answer.data == (whole[:length] if expected == "ok" else b"")


@pytest.mark.parametrize("opcode", [hints.SUBMIT, hints.QUERY, hints.DATED_READ])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"flags": 0x00}, "0/02 dnr"),  # PSDT says PRP
        ({"flags": 0x41}, "0/02 dnr"),  # FUSE
        ({"nsid": 500}, "0/0b dnr"),
        ({"nsid": 0xFFFFFFFF}, "0/0b dnr"),
        ({"data": nvme.sgl(0x55, 4096)}, "0/11 dnr"),
        ({"data": nvme.sgl(nvme.SGL_IN_CAPSULE, 4096, 8)}, "0/16 dnr"),
    ],
)
def test_vendor_opcodes_are_checked_as_others_are(
    queue: Queue, opcode: int, changes: dict[str, int | bytes], expected: str
) -> None:
    fields: dict[str, object] = {
        "nsid": 1,
        "data": nvme.sgl(nvme.SGL_TRANSPORT, 4096),
        "cdw10": 0,
        "cdw12": 7,
        **changes,
    }
    entry = nvme.sqe(opcode, fields.pop("nsid"), **fields)  # type: ignore[arg-type]
    in_capsule = entry[39] == nvme.SGL_IN_CAPSULE
    data = bytes(4096) if in_capsule else b""
    answer = queue.execute(entry, data=data, in_capsule=in_capsule, keep_sgl=True)
    assert answer.text() == expected


@pytest.mark.parametrize("nsid", [1, 2, EXTENSION])
def test_any_namespace_of_the_subsystem_carries_batches_and_queries(
    queue: Queue, nsid: int
) -> None:
    number = SEED + nsid
    entry = hints.submit(nsid=nsid)
    assert queue.execute(entry, data=hints.batch(hints.intent(number, [(0, 8)]))).is_ok
    answer = queue.execute(hints.query(hints.ASK_OUTCOME, number, nsid=nsid), expected=4096)
    (one,) = hints.parse_answer(answer.data).answers
    assert isinstance(one, hints.Outcome)
    assert one.intent_id == number


@pytest.mark.parametrize("mailbox", [64, 0xFFFFFFFE])
def test_there_are_64_mailboxes(queue: Queue, mailbox: int) -> None:
    answer = queue.execute(hints.submit(mailbox), data=hints.batch())
    assert (answer.text(), answer.dw1) == ("0/02 dnr", 0)
    answer = queue.execute(hints.query(hints.ASK_MAILBOX, mailbox=mailbox), expected=4096)
    assert answer.code == "0/02"


@pytest.mark.parametrize(
    "entry",
    [
        hints.query(99),
        hints.query(hints.ASK_RANGE, 0, blocks=0),
        hints.query(hints.ASK_RANGE, 64 * MIB // BLOCK, blocks=1),
        hints.query(hints.ASK_RANGE, 64 * MIB // BLOCK - 8, blocks=9),
        hints.query(hints.ASK_RANGE, (1 << 64) - 1, blocks=0xFFFFFFFF),
    ],
)
def test_question_that_makes_no_sense_is_refused(queue: Queue, entry: bytes) -> None:
    answer = queue.execute(entry, expected=4096)
    assert (answer.text(), answer.dw1, answer.data) == ("0/02 dnr", 0, b"")


# ---- the transport ----


def test_submit_capsule_in_two_segments_at_every_byte(site: Site) -> None:
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        raw = hints.batch(hints.cancel(hints.CANCEL_INTENT, 1))
        entry = nvme.with_sgl(hints.submit(), nvme.sgl(nvme.SGL_IN_CAPSULE, len(raw)))
        entry = nvme.with_cid(entry, 9)
        capsule = queue.capsule(entry, raw)
        for cut in range(1, len(capsule)):
            queue.register(entry)
            queue.connection.send_pieces(capsule, [cut])
            answer = queue.wait(9)
            assert answer.is_ok and answer.dw0 == 1, f"cut at {cut}: {answer.text()}"


def test_submit_data_by_r2t_in_two_segments_at_every_byte(site: Site) -> None:
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        queue.answers_r2t = False
        raw = hints.batch(hints.cancel(hints.CANCEL_INTENT, 1))
        for cut in range(1, 24 + 4 + len(raw) + 4):
            cid = queue.submit(hints.submit(), data=raw, in_capsule=False)
            r2t = queue.wait_r2t()
            queue.r2ts.clear()
            data = pdu.h2c_data(cid, r2t.u16(10), 0, raw, digests=3)
            queue.connection.send_pieces(data, [cut])
            assert queue.wait(cid).is_ok, f"cut at {cut}"


def test_batch_with_a_wrong_data_digest_is_not_applied(site: Site) -> None:
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        before = hinting.status(queue).batches
        raw = hints.batch(hints.set_(9, [(0, 8)]))
        entry = nvme.with_sgl(hints.submit(), nvme.sgl(nvme.SGL_IN_CAPSULE, len(raw)))
        cid = queue.register(nvme.with_cid(entry, 9))
        queue.connection.send(queue.capsule(nvme.with_cid(entry, 9), raw, data_digest=1))
        assert queue.wait(cid).code == "0/22"
        assert hinting.status(queue).batches == before


@pytest.mark.parametrize("ending", ["close", "reset"])
def test_host_that_goes_within_its_batch_leaves_nothing(
    site: Site, queue: Queue, ending: str
) -> None:
    rng = random.Random(SEED)
    before = hinting.status(queue).batches
    raw = hints.page(hints.batch(hints.set_(9, [(0, 8)])))
    for _ in range(20):
        with site.pair(1) as other:
            leaving = other.io[0]
            cid = leaving.submit(hints.submit(), data=raw, in_capsule=False)
            r2t = leaving.wait_r2t()
            data = pdu.h2c_data(cid, r2t.u16(10), 0, raw)
            leaving.connection.send(data[: rng.randrange(len(data))])
            getattr(leaving.connection, ending)()
    assert hinting.status(queue).batches == before


def test_submit_that_waits_for_its_data_is_aborted(controller: Controller, queue: Queue) -> None:
    before = hinting.status(queue).batches
    queue.answers_r2t = False
    cid = queue.submit(hints.submit(), data=hints.batch(hints.set_(9)), in_capsule=False)
    queue.wait_r2t()
    assert controller.admin.execute(nvme.abort(queue.qid, cid)).dw0 & 1 == 0
    assert queue.wait(cid).code == "0/07"
    assert hinting.status(queue).batches == before


def test_many_submits_in_flight_each_get_their_own_counts(queue: Queue) -> None:
    rng = random.Random(SEED)
    expected = {}
    for _ in range(24):
        count = rng.randrange(1, 9)
        records = [hints.cancel(hints.CANCEL_INTENT, 1)] * count
        inline = rng.random() < 0.5
        cid = queue.submit(hints.submit(), data=hints.batch(*records), in_capsule=inline)
        expected[cid] = count
    for cid, count in expected.items():
        assert queue.wait(cid).dw0 == count


# ---- what Reads say ----


def test_readahead_read_is_served_and_brings_in_what_follows(queue: Queue, cold: int) -> None:
    queue.write(cold, bytes(range(256)) * 16, BLOCK)
    before = hinting.status(queue).read_hints
    assert queue.read(cold, 8, BLOCK, dsm=7) == bytes(range(256)) * 16
    assert hinting.status(queue).read_hints == before + 1
    hinting.warm(queue, cold + 128, 128)


def test_every_access_attribute_gives_the_same_bytes_and_counts(queue: Queue) -> None:
    at = 60 * MIB // BLOCK
    data = random.Random(SEED).randbytes(16 * BLOCK)
    queue.write(at, data, BLOCK)
    counted = hinting.status(queue).read_hints
    for attributes in range(256):
        assert queue.read(at, 16, BLOCK, dsm=attributes) == data, attributes
        counted += bool(attributes & 0x7F)
        assert hinting.status(queue).read_hints == counted, attributes


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [(0x00, "demand"), (0x07, "demand"), (0x30, "demand"), (0x20, "demand"), (0x10, "dated")],
)
def test_only_an_idle_read_waits_for_others(
    target: RunningTarget, site: Site, queue: Queue, cold: int, attributes: int, kind: str
) -> None:
    def started() -> dict[str, int]:
        subsystems = target.rpc("prestage_get_stats")["subsystems"]
        (subsystem,) = (one for one in subsystems if one["nqn"] == site.nqn)
        (namespace,) = (one for one in subsystem["namespaces"] if one["nsid"] == 1)
        classes = namespace["scheduler"]["classes"]
        return {name: classes[name]["started"] for name in ("demand", "dated")}

    before = started()
    queue.read(cold, 8, BLOCK, dsm=attributes)
    after = started()
    other = {"demand": "dated", "dated": "demand"}[kind]
    assert after[kind] == before[kind] + 1
    assert after[other] == before[other]


# ---- Dataset Management ----


def dataset(ranges: list[tuple[int, int]], *, deallocate: bool = False, nsid: int = 1) -> bytes:
    """Dataset Management with IDR."""
    return nvme.sqe(nvme.DSM, nsid, cdw10=len(ranges) - 1, cdw11=1 | (4 if deallocate else 0))


def test_data_set_is_remembered_and_a_read_brings_in_its_rest(queue: Queue, cold: int) -> None:
    ranges = [(cold, 8), (cold + COLD_BLOCKS // 2, 128)]
    before = hinting.status(queue).dataset_sets
    raw = nvme.dsm_ranges(ranges, attributes=1 << 9)  # SR: sequential read
    assert queue.execute(dataset(ranges), data=raw).is_ok
    assert hinting.status(queue).dataset_sets == before + 1
    queue.read(cold, 8, BLOCK)
    hinting.warm(queue, *ranges[1])


def test_data_set_that_is_also_deallocated_is_both(queue: Queue, cold: int) -> None:
    queue.write(cold, b"d" * 4096, BLOCK)
    before = hinting.status(queue).dataset_sets
    ranges = [(cold, 8)]
    entry = dataset(ranges, deallocate=True)
    assert queue.execute(entry, data=nvme.dsm_ranges(ranges)).is_ok
    assert hinting.status(queue).dataset_sets == before + 1
    assert queue.read(cold, 8, BLOCK) == bytes(4096)


# ---- who may say and see what ----


def test_another_host_sees_and_withdraws_nothing(site: Site, queue: Queue, cold: int) -> None:
    number = SEED + cold
    ranges = [(cold, COLD_BLOCKS)]
    hinting.accepted(queue, hints.set_(99, ranges), hints.intent(number, ranges), mailbox=9)
    end = hinting.ended(queue, number)
    with site.pair(1, **OTHER_HOST) as other:
        (theirs,) = other.io
        assert hinting.outcome(theirs, number).state == hints.UNKNOWN
        assert hinting.mailbox_answer(theirs, 9).state == hints.EMPTY
        hinting.submit(theirs, hints.cancel(hints.CANCEL_EVERYTHING), mailbox=9)
        (seen,) = hints.parse_answer(ask_set(theirs, 99)).answers
        assert isinstance(seen, hints.Residency)
        assert (seen.reason, seen.total_bytes) == ("set", 0)
    assert hinting.outcome(queue, number) == end
    assert hinting.mailbox_answer(queue, 9).accepted == 2


def ask_set(queue: Queue, set_id: int) -> bytes:
    """The residency of a set."""
    return hinting.ask(queue, hints.ASK_SET, set_id)


def test_namespace_of_another_subsystem_is_out_of_reach(site: Site, queue: Queue) -> None:
    # NSID 2 is there in the first subsystem only; NSID 1 is another volume in each.
    with site.pair(1, nqn=OTHER_NQN) as other:
        (theirs,) = other.io
        answer = hinting.submit(theirs, hints.intent(SEED, [(0, 8)], nsid=2), mailbox=2)
        assert answer.dw0 >> 16 == 1
        assert hinting.mailbox_answer(theirs, 2).dropped_reason == "namespace"
        answer = theirs.execute(hints.query(hints.ASK_RANGE, 0, blocks=8, nsid=2), expected=4096)
        assert answer.code == "0/0b"
        beyond = 32 * MIB // BLOCK  # within namespace 1 here, beyond its end there
        answer = theirs.execute(hints.query(hints.ASK_RANGE, beyond, blocks=8), expected=4096)
        assert answer.text() == "0/02 dnr"


def test_set_of_one_subsystem_does_not_reach_into_another(
    site: Site, queue: Queue, cold: int
) -> None:
    hinting.accepted(queue, hints.set_(55, [(cold, COLD_BLOCKS)]))
    with site.pair(1, nqn=OTHER_NQN) as other:  # the same host
        (theirs,) = other.io
        hinting.submit(theirs, hints.intent(SEED, set_id=55))
        hinting.ended(theirs, SEED)
    assert hinting.residency(queue, cold, COLD_BLOCKS).warm_bytes == 0


# ---- ends ----


def adds_up(counts: dict[str, int]) -> bool:
    """Each intent that came has ended in one way, or not yet."""
    parts = ("pending", "met", "late", "dropped", "cancelled")
    return counts["arrived"] == sum(counts[part] for part in parts)


@pytest.mark.parametrize("ending", ["reset", "disconnect", "vanish"])
def test_hints_outlive_a_controller_and_their_counts_add_up(site: Site, ending: str) -> None:
    rng = random.Random(SEED)
    # A host of its own: what is kept for a far deadline is kept although the intent is withdrawn.
    host = f"nqn.2026-11.io.prestage:{ending}"
    with site.pair(1, hostnqn=host) as watching, site.pair(1, hostnqn=host) as controller:
        (queue,) = watching.io
        before = hinting.status(queue)
        (speaking,) = controller.io
        numbers = range(1, 41)
        for number in numbers:
            slba = rng.randrange(16 * MIB // 4096 - 512)
            deadline_us = rng.choice((0, 1000, 100_000, 3_600_000_000))
            record = hints.intent(
                number, [(slba, 512)], nsid=2, deadline_us=deadline_us, priority=number % 4
            )
            hinting.submit(speaking, record, hints.set_(number, [(slba, 8)], nsid=2))
        if ending == "reset":
            controller.set_cc(nvme.CC_BASE)
            controller.wait_csts(1, 0)
            controller.set_cc(nvme.CC_BASE | 1)
            controller.wait_csts(1, 1)
        elif ending == "disconnect":
            controller.close()
        else:
            controller.vanish()
        hinting.submit(queue, hints.cancel(hints.CANCEL_EVERYTHING))
        after = hinting.status(queue)
        assert after.used["intents"] == after.used["sets"] == 0
        assert all(adds_up(counts) and counts["pending"] == 0 for counts in after.intents)
        arrived = sum(after.intents[n]["arrived"] - before.intents[n]["arrived"] for n in range(4))
        assert arrived == len(numbers)


def test_namespace_that_is_removed_takes_its_hints_along(site: Site, target: RunningTarget) -> None:
    blocks = 8 * MIB // BLOCK
    bdev = target.rpc("bdev_malloc_create", block_size=BLOCK, num_blocks=blocks)
    namespace = {"bdev_name": bdev, "nsid": 30}
    assert target.rpc("nvmf_subsystem_add_ns", nqn=site.nqn, namespace=namespace) == 30
    with site.pair(1) as controller:
        (queue,) = controller.io
        far_us = 0xFFFFFFFF
        hinting.accepted(
            queue,
            hints.set_(70, [(0, blocks)], nsid=30),
            hints.intent(SEED, [(0, blocks)], nsid=30, deadline_us=far_us),
        )
        used = hinting.status(queue).used["sets"]
        target.rpc("nvmf_subsystem_remove_ns", nqn=site.nqn, nsid=30)
        assert hinting.ended(queue, SEED).state in (hints.MET, hints.CANCELLED)
        hinting.until(lambda: hinting.status(queue).used["sets"], lambda sets: sets == used - 1)
        answer = hinting.submit(queue, hints.intent(SEED, [(0, 8)], nsid=30))
        assert answer.dw0 >> 16 == 1
        assert all(map(adds_up, hinting.status(queue).intents))
    target.rpc("bdev_malloc_delete", name=bdev)
