"""Commands and structures, against builders and parsers that were written apart from these."""

from __future__ import annotations

import random
from typing import Any

import pytest
from nvme_tcp import commands as independent

from prestage.host_client import nvme
from prestage.host_client.errors import NvmeError, ProtocolError
from prestage.host_client.status import connect_status_name, status_name


def same(ours: bytes, theirs: bytes) -> None:
    """Equal but for what the engine fills in: PSDT, CID and the SGL."""
    assert len(ours) == len(theirs) == 64
    assert ours[0] == theirs[0]
    assert ours[4:24] == theirs[4:24]
    assert ours[40:] == theirs[40:]


def test_commands_are_laid_out_as_the_specification_has_them(rng: random.Random) -> None:
    cdw: dict[str, Any] = {f"cdw{n}": rng.getrandbits(32) for n in (2, 3, 10, 11, 12, 13, 14, 15)}
    same(nvme.entry(0x92, 7, **cdw), independent.sqe(0x92, 7, **cdw))
    slba, nlb = rng.getrandbits(64), rng.randint(1, 1 << 16)
    same(
        nvme.block_entry(2, 1, slba, nlb, cdw13=7),
        independent.block_command(2, slba, nlb, dsm=7),
    )
    same(
        nvme.block_entry(1, 1, slba, nlb, control=nvme.FORCE_UNIT_ACCESS),
        independent.block_command(1, slba, nlb, fua=True),
    )
    same(
        nvme.get_log_entry(0x70, 1 << 20, offset=5 << 32, rae=True),
        independent.get_log(0x70, 1 << 20, offset=5 << 32, rae=True),
    )


def test_fabrics_commands_are_laid_out_as_the_specification_has_them() -> None:
    same(nvme.property_get_entry(0), independent.property_get(0, 8))
    same(nvme.property_get_entry(0x1C), independent.property_get(0x1C))
    same(nvme.property_set_entry(0x14, 0x460001), independent.property_set(0x14, 0x460001))
    same(
        nvme.connect_entry(3, 127, kato_ms=5000, cattr=4),
        independent.connect(qid=3, sqsize=127, kato=5000, cattr=4),
    )
    names = ("nqn.2026-11.org:a", "nqn.2026-11.org:b")
    assert nvme.connect_data(bytes(range(16)), 7, *names) == independent.connect_data(
        *names, 7, bytes(range(16))
    )


def test_ranges_are_laid_out_as_the_specification_has_them() -> None:
    pairs = [(1 << 40, 8), (3, 0xFFFFFFFF)]
    assert nvme.dataset_ranges(pairs, 0x107) == independent.dsm_ranges(pairs, 0x107)


def test_what_a_target_calls_itself_steers_no_terminal() -> None:
    page = bytearray(4096)
    page[4:24] = b"S\x1b[2J\x07".ljust(20)
    page[24:64] = "Modell \u202e \u00e4".encode().ljust(40)
    page[768:778] = b"nqn.x:\n\0\x1b"[:10].ljust(10, b"\0")
    found = nvme.parse_controller(bytes(page))
    assert (found.serial, found.subnqn) == ("S\\x1b[2J\\x07", "nqn.x:")
    assert found.model == "Modell \\x202e \u00e4"


def test_a_namespace_that_is_not_active_is_none() -> None:
    assert nvme.parse_namespace(1, bytes(4096)) is None


def test_the_format_of_a_namespace_may_be_one_of_many() -> None:
    page = bytearray(4096)
    page[0] = 9
    page[26] = 0x21  # format 1, and bits 6:5 of FLBAS: the high part of 33 in all
    page[128 + 4 * 17 + 2] = 9
    assert nvme.parse_namespace(5, bytes(page)) == nvme.Namespace(5, 9, 512)


@pytest.mark.parametrize(
    ("blocks", "shift"), [(1, 0), (1, 8), (1, 25), (1, 62), (1 << 63, 9), (2**64 - 1, 12)]
)
def test_a_namespace_whose_blocks_cannot_be_is_a_fault_of_the_target(
    blocks: int, shift: int
) -> None:
    page = bytearray(4096)
    page[0:8] = blocks.to_bytes(8, "little")
    page[130] = shift
    with pytest.raises(ProtocolError, match=f"Identify Namespace 3.*{blocks} blocks"):
        nvme.parse_namespace(3, bytes(page))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0x4080, "LBA Out of Range (0/80, do not retry)"),
        (0x285, "Compare Failure (2/85)"),
        (0x0C3, "generic status C3h (0/C3)"),
        (0x7FF, "vendor specific status FFh (7/FF)"),
        (0x6FF, "reserved type status FFh (6/FF)"),
    ],
)
def test_an_nvme_error_has_numbers_and_the_words_of_the_specification(
    status: int, text: str
) -> None:
    error = NvmeError(status, "Read")
    assert str(error) == f"Read: {text}"
    assert (error.sct, error.sc, error.dnr) == (
        status >> 8 & 7,
        status & 255,
        bool(status & 0x4000),
    )


def test_codes_of_connect_have_names_of_their_own() -> None:
    assert connect_status_name(0x4182) == "Connect Invalid Parameters"
    assert connect_status_name(0x00C) == status_name(0, 0x0C) == "Command Sequence Error"
