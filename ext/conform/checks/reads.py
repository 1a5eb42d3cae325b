"""Hints that Reads and Dataset Management carry (clauses 4.1, 4.2 and 4.6)."""

from __future__ import annotations

import asyncio

from ...names import Carrier, RecordType
from ...records import Range
from .. import nvme
from ..registry import Failed, Level, Need, Skipped, check, expect, expect_equal
from ..session import Session

READ_AHEAD = 7
READ_ONCE = 6
FAR_US = 3_600_000_000
LOW_LATENCY, LONG_LATENCY, SEQUENTIAL = 3 << 4, 1 << 4, 1 << 6


@check("4.1.2", Level.MUST, Carrier.READ_ATTRIBUTES)
async def attributes_change_nothing(session: Session) -> None:
    """Access attributes change neither data nor status."""
    for where in (await session.place(), await session.beyond()):
        plain = await session.read(where)
        for attributes in (READ_AHEAD, READ_ONCE, LOW_LATENCY, LONG_LATENCY, SEQUENTIAL, 0xFF):
            found = await session.read(where, attributes)
            expect_equal(
                nvme.text(found.status), nvme.text(plain.status), f"status with {attributes:02X}h"
            )
            expect(found.data == plain.data, f"other data with CDW13 {attributes:02X}h")


@check("4.1.4", Level.SHOULD, Carrier.READ_ATTRIBUTES, Need.BATCHES, RecordType.RESIDENCY)
async def what_follows_becomes_warm(session: Session) -> None:
    """What follows a speculative read becomes warm."""
    data, size = await session.data(), await session.granule()
    where = await session.cold(4)
    await session.read(Range(where.slba, size), READ_AHEAD)
    following = Range(where.slba + size, size)
    await session.until(
        lambda: session.first.residency(following, nsid=data.nsid),
        lambda answer: answer.warm_bytes > 0,
        "warm",
    )


@check("4.1.6", Level.MUST, Carrier.READ_ATTRIBUTES)
async def attributes_are_counted(session: Session) -> None:
    """Reads with an attribute are counted."""
    before, where = await session.first.status(), await session.place()
    for attributes in (READ_AHEAD, READ_ONCE, 0, LOW_LATENCY, SEQUENTIAL):
        await session.read(where, attributes)
    after = await session.first.status()
    expect_equal(after.read_hints - before.read_hints, 4, "read_hints")


@check("4.2.3", Level.MUST, Carrier.DATASET_MANAGEMENT)
async def datasets_end_as_without(session: Session) -> None:
    """Integral Dataset for Read does not change how the command ends."""
    places = [await session.place() for _ in range(4)]
    expect_equal((await session.dataset(*places)).status, 0, "status")
    expect_equal((await session.dataset(places[0], attributes=0x177)).status, 0, "status")
    many = [Range(0, 1)] * 256
    expect_equal((await session.dataset(*many)).status, 0, "status of 256 ranges")
    expect_equal((await session.dataset(Range(0, 0))).status, 0, "status of a range of no blocks")


@check("4.2.4", Level.MUST, Carrier.DATASET_MANAGEMENT, Need.RECORDS)
async def datasets_are_counted(session: Session) -> None:
    """Sets by Dataset Management are counted."""
    before = await session.first.status()
    for _ in range(3):
        done = await session.dataset(await session.place(), await session.place())
        if done.status:
            raise Skipped(f"the command ended with {nvme.text(done.status)}: 4.2.3")
    await session.dataset(Range(0, 0))
    after = await session.first.status()
    expect_equal(after.dataset_sets - before.dataset_sets, 3, "dataset_sets")


@check("4.6.2", Level.MUST, Carrier.DATED_READ)
async def dated_reads_are_reads(session: Session) -> None:
    """A dated read returns what a Read returns."""
    for where in (await session.place(), await session.place(2), await session.beyond()):
        plain = await session.read(where)
        for deadline_us in (0, 1, 1000, FAR_US):
            found = await session.dated_read(where, deadline_us)
            expect_equal(nvme.text(found.status), nvme.text(plain.status), "status")
            expect(found.data == plain.data, f"other data with deadline {deadline_us} us")


@check("4.6.3", Level.MUST, Carrier.DATED_READ)
async def dated_reads_are_served(session: Session) -> None:
    """A dated read is served whatever its deadline."""
    reads = [
        session.dated_read(await session.place(), deadline_us, priority)
        for deadline_us in (0, 0xFFFFFFFF, FAR_US)
        for priority in range(4)
    ]
    try:
        async with asyncio.timeout(session.patience_s):
            await asyncio.gather(*reads)
    except TimeoutError as error:
        raise Failed(f"not all have ended within {session.patience_s:g} s") from error


@check("4.6.4", Level.MUST, Carrier.DATED_READ)
async def dated_reads_are_counted(session: Session) -> None:
    """A dated read ends as one thing and is counted once."""
    before = (await session.first.status()).read_counts
    for priority in range(4):
        for deadline_us in [0, FAR_US][: 1 + priority % 2]:
            done = await session.dated_read(await session.place(), deadline_us, priority)
            if done.status:
                raise Skipped(f"a dated read ended with {nvme.text(done.status)}")
    after = (await session.first.status()).read_counts
    for priority, (old, new) in enumerate(zip(before, after, strict=True)):
        wanted = 1 + priority % 2
        ended = new.met + new.late - old.met - old.late
        expect_equal(new.arrived - old.arrived, wanted, f"arrived of priority {priority}")
        expect_equal(ended, wanted, f"met and late of priority {priority}")
        expect(new.met - old.met >= wanted - 1, f"a far deadline was missed, priority {priority}")
