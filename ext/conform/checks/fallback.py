"""What a controller without PAX does, so that hosts may try hints on it (clause 3.5).

With PAX, clauses 3.1 to 4.2 say more.
"""

from __future__ import annotations

from ... import layout
from .. import nvme
from ..host import Command
from ..registry import Level, Need, Skipped, check, expect_equal
from ..session import Session

EFFECTS_BYTES = 4096
IO_EFFECTS = 1024
DATASET_MANAGEMENT = 1 << 2
"""Of ONCS (Base, figure 275)."""


@check("3.5.2", Level.MUST, Need.NO_PAX)
async def vendor_opcodes_are_invalid(session: Session) -> None:
    """Vendor opcodes of PAX are invalid, and nothing else is."""
    side, data = session.first, await session.data()
    log = await side.log(nvme.EFFECTS_LOG, size=EFFECTS_BYTES, uuid_index=0)
    commands = [
        Command(layout.OPCODE_SUBMIT, nsid=data.nsid, data_out=bytes(64)),
        Command(layout.OPCODE_QUERY, nsid=data.nsid, data_in_bytes=layout.PAGE_BYTES),
        Command(layout.OPCODE_DATED_READ, nsid=data.nsid, data_in_bytes=data.block_bytes),
    ]
    entries = [log.data[IO_EFFECTS + 4 * each.opcode :][:1] for each in commands]
    free = [each for each, entry in zip(commands, entries, strict=True) if entry in {b"", b"\0"}]
    if not free:
        raise Skipped("the controller has another use for all of these opcodes")
    for command in free:
        done = await side.host.io(command)
        expect_equal(
            nvme.code(done.status), nvme.INVALID_OPCODE, f"status of opcode {command.opcode:02X}h"
        )
        expect_equal((await session.read(await session.place())).status, 0, "a Read after it")


@check("3.5.3", Level.MUST, Need.NO_PAX)
async def any_attribute_is_served(session: Session) -> None:
    """A Read with any access attribute is a Read."""
    where = await session.place()
    plain = await session.read(where)
    expect_equal(plain.status, 0, "status of a Read")
    for attributes in range(1 << 7):
        found = await session.read(where, attributes)
        expect_equal(found.status, 0, f"status with CDW13 {attributes:02X}h")
        expect_equal(found.data == plain.data, True, f"same data with CDW13 {attributes:02X}h")


@check("3.5.4", Level.MUST, Need.NO_PAX)
async def integral_datasets_succeed(session: Session) -> None:
    """Dataset Management with IDR alone succeeds."""
    identify = await session.first.identify(0x01)
    if not identify[520] & DATASET_MANAGEMENT:
        raise Skipped("no Dataset Management")
    places = [await session.place() for _ in range(3)]
    expect_equal((await session.dataset(*places)).status, 0, "status")
