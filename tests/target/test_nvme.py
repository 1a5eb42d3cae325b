from __future__ import annotations

import pytest

from prestage.target.errors import PeerFault
from prestage.target.nvme import Command, Page, read_nqn


@pytest.mark.parametrize(
    ("field", "name"),
    [
        (b"nqn.a\0garbage", "nqn.a"),
        (b"a" * 223 + b"\0", "a" * 223),
        (b"a" * 224 + b"\0", None),
        (b"a" * 256, None),
        (b"\0" * 256, None),
        (b"", None),
        (b"\xff\xfe\0", None),
        ("nqn.é".encode() + b"\0", "nqn.é"),
    ],
)
def test_names_end_within_their_field_and_are_utf_8(field: bytes, name: str | None) -> None:
    assert read_nqn(field) == name


def test_the_fields_of_an_entry() -> None:
    entry = bytearray(range(64))
    command = Command(bytes(entry))
    assert (command.opcode, command.fuse, command.psdt) == (0, 1, 0)
    assert command.cid == 0x0302
    assert command.nsid == 0x07060504
    assert command.fctype == 4
    assert command.transfer_bytes == 0x23222120
    assert command.sgl_type == 39
    assert command.cdw(10) == 0x2B2A2928
    assert command.cdw(15) == 0x3F3E3D3C


def transfer(length: int, kind: int, data: bytes = b"") -> Command:
    entry = bytearray(64)
    entry[32:36] = length.to_bytes(4, "little")
    entry[39] = kind
    return Command(bytes(entry), data)


@pytest.mark.parametrize(
    ("command", "to_host", "status"),
    [
        (transfer(512, 0x5A), True, 0),
        (transfer(0, 0x00), True, 0x00F),
        (transfer(4096, 0x5A), True, 0x00F),
        (transfer(512, 0x01), True, 0x011),
        (transfer(512, 0x30), True, 0x011),
        (transfer(512, 0x01, bytes(512)), False, 0),
        (transfer(512, 0x5A, bytes(512)), False, 0),
        (transfer(512, 0x5A, bytes(100)), False, 0x00F),
        (transfer(512, 0x03, bytes(512)), False, 0x011),
    ],
)
def test_a_buffer_is_exactly_as_long_as_its_structure(
    command: Command, to_host: bool, status: int
) -> None:
    if not status:
        command.expect_transfer(512, to_host=to_host)
        return
    with pytest.raises(PeerFault) as caught:
        command.expect_transfer(512, to_host=to_host)
    assert caught.value.status == status


def test_a_page_refuses_what_does_not_fit() -> None:
    page = Page(16)
    page.put(14, 2, 0xBEEF)
    page.text(0, 8, "ab")
    assert bytes(page.bytes) == b"ab      " + bytes(6) + b"\xef\xbe"
    with pytest.raises(OverflowError):
        page.put(0, 1, 256)
    with pytest.raises(OverflowError):
        page.raw(10, bytes(7))
