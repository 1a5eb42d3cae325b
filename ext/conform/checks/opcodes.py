"""Submit and query (clauses 2, 4.4 and 4.5)."""

from __future__ import annotations

from ... import layout
from ...answers import decode_answer
from ...codec import seal
from ...names import AnswerState, Carrier, Fault, Query, Reason, RecordType
from ...pages import decode_status
from ...records import Outcome, OutcomeAnswer, Range, Record, ResidencyAnswer, SetRecord, Unknown
from .. import nvme
from ..host import Command
from ..registry import Level, check, expect, expect_equal
from ..session import Session

SUBMIT = Carrier.SUBMIT_QUERY
UNKNOWN_TYPE = 0x7001
REFUSED = nvme.INVALID_FIELD | nvme.DNR


def _refused(status: int) -> int:
    """Return a status without the More bit."""
    return status & (0x7FF | nvme.DNR)


@check("2.2", Level.MUST, SUBMIT, Carrier.EXTENSION_NAMESPACE, RecordType.SET)
async def carriers_mean_the_same(session: Session) -> None:
    """A hint means the same by each carrier."""
    side, data = session.first, await session.data()
    set_id, where = session.number(), await session.place()
    await side.submit_by_opcode(side.batch([SetRecord(set_id, data.nsid, (where,))]))
    total = (await side.residency(set_id=set_id)).total_bytes
    expect_equal(total, session.bytes_of(where), "bytes of a set that was submitted by opcode")
    records: list[Record] = [Outcome(session.number()), Unknown(UNKNOWN_TYPE)]
    await side.write_page(layout.PAGE_MAILBOXES + 9, side.batch(records))
    by_page = (await side.read_page(layout.PAGE_MAILBOXES + 9)).data
    by_opcode = (await side.query(Query.MAILBOX, 9)).data
    expect_equal(by_opcode[:200].hex(), by_page[:200].hex(), "answer page by opcode and by page")


@check("4.4.1", Level.MUST, SUBMIT)
async def opcodes_need_a_namespace(session: Session) -> None:
    """The namespace of Submit and Query is active."""
    side = session.first
    unused = max(await side.namespaces()) + 1
    for command in (
        Command(side.capability.submit_opcode, nsid=unused, data_out=side.batch([])),
        Command(side.capability.query_opcode, nsid=unused, data_in_bytes=4096),
    ):
        done = await side.host.io(command)
        expect_equal(
            nvme.code(done.status), nvme.INVALID_NAMESPACE, f"status of {command.opcode:X}h"
        )


@check("4.4.2", Level.MUST, SUBMIT)
async def submit_counts(session: Session) -> None:
    """Submit says how many records were taken."""
    side = session.first
    nowhere = SetRecord(session.number(), 0xFFFFFFFE, (Range(0, 1),))
    records: list[Record] = [Outcome(session.number()), nowhere, Unknown(UNKNOWN_TYPE)]
    done = await side.submit_by_opcode(side.batch(records), 0)
    expect_equal(nvme.text(done.status), nvme.text(0), "status")
    expect_equal((done.dw0, done.dw1), (1 | 1 << 16, 1), "DW0 and DW1")


@check("4.4.3", Level.MUST, SUBMIT)
async def submit_says_what_is_wrong(session: Session) -> None:
    """Submit says where a malformed batch is wrong."""
    side = session.first
    good = side.batch([Outcome(session.number()), Outcome(session.number())])
    wrong = {
        (Fault.CHECKSUM, 12): good[:-1] + b"\xee",
        (Fault.MAGIC, 0): seal(b"N" + good[1:]),
        (Fault.FIELD, 56): seal(good[:56] + bytes(8)),
    }
    for (fault, offset), data in wrong.items():
        done = await side.submit_by_opcode(data, 0)
        expect_equal(_refused(done.status), REFUSED, f"status of fault {fault.name.lower()}")
        expect_equal((done.dw0, done.dw1), (offset, fault), "DW0 and DW1")


@check("4.4.4", Level.MUST, SUBMIT)
async def submit_refuses_mailboxes(session: Session) -> None:
    """Submit refuses a mailbox that there is not."""
    side = session.first
    for mailbox in (side.capability.mailboxes, 0xFFFFFFFE):
        done = await side.submit_by_opcode(side.batch([Unknown(UNKNOWN_TYPE)]), mailbox)
        expect_equal(_refused(done.status), REFUSED, f"status of mailbox {mailbox:X}h")
        expect_equal((done.dw0, done.dw1), (0, 0), "DW0 and DW1")


@check("4.4.5", Level.MUST, SUBMIT)
async def submit_refuses_lengths(session: Session) -> None:
    """Submit refuses data that cannot be a batch."""
    side = session.first
    good = side.batch([])
    for data in (good[:28], good.ljust(side.capability.max_batch_bytes + 4, b"\0")):
        done = await side.submit_by_opcode(data)
        expect_equal(nvme.code(done.status), nvme.SGL_LENGTH, f"status of {len(data)} bytes")


@check("4.5.2", Level.MUST, SUBMIT, RecordType.RESIDENCY, RecordType.SET)
async def query_answers(session: Session) -> None:
    """Query answers each question."""
    side, data = session.first, await session.data()
    set_id, where = session.number(), await session.place()
    await side.say(SetRecord(set_id, data.nsid, (where,)))
    by_range = await side.query(
        Query.RESIDENCY_RANGE, number=where.slba, blocks=where.nlb, nsid=data.nsid
    )
    by_set = await side.query(Query.RESIDENCY_SET, number=set_id)
    unknown = await side.query(Query.OUTCOME, number=session.number())
    for what, done in {"range": by_range, "set": by_set, "intent": unknown}.items():
        expect_equal(nvme.text(done.status), nvme.text(0), f"status of a query of a {what}")
        page = decode_answer(done.data, ignores_checksum=True)
        head = (page.state, page.writer, page.sequence, page.accepted, len(page.answers))
        expect_equal(head, (AnswerState.APPLIED, 0, 0, 1, 1), f"header for a {what}")
        (answer,) = page.answers
        expect_equal(answer.tag, 0, "tag")
        if isinstance(answer, ResidencyAnswer):
            expect_equal(answer.total_bytes, session.bytes_of(where), f"total_bytes of the {what}")
        else:
            expect(isinstance(answer, OutcomeAnswer), f"the answer for an intent is {answer}")
    decode_status((await side.query(Query.STATUS)).data)


@check("4.5.3", Level.MUST, SUBMIT, RecordType.RESIDENCY)
async def query_refuses(session: Session) -> None:
    """Query refuses what is no question."""
    side, data = session.first, await session.data()
    beyond = await session.beyond()
    wrong = [
        await side.query(0xFF),
        await side.query(Query.MAILBOX, side.capability.mailboxes),
        await side.query(Query.RESIDENCY_RANGE, number=0, blocks=0, nsid=data.nsid),
        await side.query(Query.RESIDENCY_RANGE, number=beyond.slba, blocks=1, nsid=data.nsid),
        await side.query(Query.RESIDENCY_SET, number=0),
        await side.query(Query.OUTCOME, number=0),
    ]
    statuses = [nvme.text(_refused(each.status)) for each in wrong]
    expect_equal(statuses, [nvme.text(REFUSED)] * len(wrong), "statuses")
    done = await side.query(Query.RESIDENCY_SET, number=session.number())
    expect_equal(nvme.text(done.status), nvme.text(0), "status of a set that there is not")
    (answer,) = decode_answer(done.data, ignores_checksum=True).answers
    expect_equal(getattr(answer, "reason", None), Reason.SET, "reason")


@check("4.5.4", Level.MUST, SUBMIT)
async def query_lengths(session: Session) -> None:
    """Query returns as much of a page as is asked for."""
    side = session.first
    await side.submit_by_opcode(side.batch([Outcome(session.number())]), 0)
    for size, wanted in ((60, nvme.SGL_LENGTH), (64, 0), (4096, 0), (4100, nvme.SGL_LENGTH)):
        done = await side.query(Query.MAILBOX, size=size)
        expect_equal(
            nvme.text(nvme.code(done.status)), nvme.text(wanted), f"status of {size} bytes"
        )
        if not wanted:
            expect_equal(len(done.data), size, "bytes returned")
            decode_answer(done.data, ignores_checksum=True)
