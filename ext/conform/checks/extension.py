"""The extension namespace (clause 4.3)."""

from __future__ import annotations

from ... import layout
from ...answers import AnswerPage, decode_answer
from ...codec import encode_batch, to_page
from ...names import AnswerState, Carrier
from ...pages import decode_status
from ...records import Outcome, Record, Unknown
from .. import nvme
from ..host import Command
from ..registry import Level, check, expect, expect_equal
from ..session import Session

PAGES = Carrier.EXTENSION_NAMESPACE
FIRST = layout.PAGE_MAILBOXES
LAST = layout.EXTENSION_PAGES - 1


def _answer(page: bytes) -> AnswerPage:
    return decode_answer(page, ignores_checksum=True)


def _outcome(session: Session) -> Outcome:
    """Return a harmless record: a question about an intent that there is not."""
    return Outcome(session.number())


@check("4.3.1", Level.MUST, PAGES)
async def page_map(session: Session) -> None:
    """Page 0 is the status, pages without a use are zeros."""
    decode_status((await session.first.read_page(layout.PAGE_STATUS)).data)
    for lba in (1, 2, FIRST - 1, FIRST + layout.MAILBOXES, LAST):
        await session.first.write_page(lba, session.first.batch([_outcome(session)]))
        done = await session.first.read_page(lba)
        expect(not any(done.data), f"page {lba} is not zeros")


@check("4.3.2", Level.MUST, PAGES)
async def the_rest_of_a_page_is_ignored(session: Session) -> None:
    """What follows a batch in its page is ignored."""
    batch = session.first.batch([_outcome(session)])
    await session.first.write_page(FIRST, batch.ljust(layout.PAGE_BYTES, b"\xa5"))
    expect_equal((await session.first.answer()).state, AnswerState.APPLIED, "state")


@check("4.3.3", Level.MUST, PAGES)
async def pages_stand_alone(session: Session) -> None:
    """Each page of a command stands alone."""
    side = session.first
    batches = [to_page(side.batch([_outcome(session)] * count)) for count in (1, 2)]
    data = batches[0] + bytes(layout.PAGE_BYTES) + batches[1]
    await side.write_page(FIRST + 4, data, 3)
    done = await side.read_page(FIRST + 4, 3)
    size = layout.PAGE_BYTES
    pages = [_answer(done.data[at : at + size]) for at in range(0, 3 * size, size)]
    applied, refused = AnswerState.APPLIED, AnswerState.REFUSED
    expect_equal([each.state for each in pages], [applied, refused, applied], "states")
    expect_equal([len(each.answers) for each in pages], [1, 0, 2], "answers")


@check("4.3.4", Level.MUST, PAGES)
async def writes_succeed(session: Session) -> None:
    """Every Write succeeds."""
    side = session.first
    noise = session.random.randbytes(layout.PAGE_BYTES)
    cut = to_page(side.batch([_outcome(session)])[:40])
    for lba in (0, 1, FIRST, FIRST + layout.MAILBOXES - 1, LAST):
        for data in (bytes(layout.PAGE_BYTES), noise, cut):
            done = await side.write_page(lba, data)
            expect_equal(nvme.text(done.status), nvme.text(0), f"status of a Write of page {lba}")


@check("4.3.5", Level.MUST, PAGES)
async def a_mailbox_answers_its_last_batch(session: Session) -> None:
    """A mailbox answers its last batch, or says that it is empty."""
    side, one, two = session.first, _outcome(session), _outcome(session)
    await side.say(one, mailbox=16)
    await side.say(two, two, mailbox=16)
    expect_equal(len((await side.answer(16)).answers), 2, "answers to the last batch")
    last = side.capability.mailboxes - 1
    await side.say(one, mailbox=last)
    expect_equal(len((await side.answer(last)).answers), 1, f"answers of mailbox {last}")


@check("4.3.6", Level.MUST, PAGES)
async def mailboxes_are_of_the_tenant(session: Session) -> None:
    """Mailboxes are of the tenant, whatever controller it uses."""
    first, second = session.first, await session.second()
    await first.say(_outcome(session), mailbox=7)
    other = await second.answer(7)
    expect(other.writer != first.writer, "another tenant reads the answer")
    await second.say(_outcome(session), mailbox=7)
    await first.reconnect()
    own = await first.answer(7)
    expect(own.state != AnswerState.APPLIED or own.writer == first.writer, "it is another's now")
    expect_equal(own.state, AnswerState.APPLIED, "state after a reconnect")


@check("4.3.8", Level.MUST, PAGES)
async def other_commands(session: Session) -> None:
    """What only concerns stored blocks succeeds, Compare is invalid."""
    side, nsid = session.first, session.first.capability.extension_nsid
    done = await side.host.io(Command(nvme.Io.FLUSH, nsid=nsid))
    expect_equal(nvme.text(done.status), nvme.text(0), "status of Flush")
    ranges = bytes(4) + (1).to_bytes(4, "little") + bytes(8)
    optional = {
        "Write Zeroes": Command(nvme.Io.WRITE_ZEROES, nsid=nsid, cdw10=FIRST),
        "Verify": Command(nvme.Io.VERIFY, nsid=nsid, cdw10=FIRST),
        "Dataset Management": Command(
            nvme.Io.DATASET_MANAGEMENT, nsid=nsid, cdw11=0b101, data_out=ranges
        ),
    }
    for name, command in optional.items():
        found = nvme.code((await side.host.io(command)).status)
        expect(found in {nvme.SUCCESS, nvme.INVALID_OPCODE}, f"{name}: {nvme.text(found)}")
    compare = Command(nvme.Io.COMPARE, nsid=nsid, cdw10=FIRST, data_out=bytes(4096))
    found = nvme.code((await side.host.io(compare)).status)
    expect_equal(nvme.text(found), nvme.text(nvme.INVALID_OPCODE), "status of Compare")


@check("4.3.9", Level.MUST, PAGES)
async def nothing_beyond_the_end(session: Session) -> None:
    """There is nothing beyond the last page."""
    for lba, blocks in ((LAST + 1, 1), (LAST, 2)):
        read = await session.first.read_page(lba, blocks)
        expect_equal(nvme.code(read.status), nvme.LBA_RANGE, f"status of a Read of page {lba}")
    write = await session.first.write_page(LAST + 1, b"")
    expect_equal(nvme.code(write.status), nvme.LBA_RANGE, "status of a Write")


@check("4.3.12", Level.MUST, PAGES)
async def sequences_mean_nothing(session: Session) -> None:
    """Sequence numbers mean nothing to the target."""
    side = session.first
    for sequence in (0xFFFFFFFF, 5, 5, 4, 0):
        records: list[Record] = [Unknown(0x7001), _outcome(session)]
        data = encode_batch(records, writer=side.writer ^ 1, sequence=sequence)
        await side.submit_bytes(data, 8)
        found = await side.answer(8)
        expect_equal(found.state, AnswerState.APPLIED, f"state of sequence {sequence}")
        expect_equal(len(found.answers), 1, f"answers to sequence {sequence}")
