"""The tables of the contract: sound in themselves, and the same in C and numpy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from prestage._core import ffi, lib
from prestage.ext import layout
from prestage.ext.dtypes import DTYPES

ROOT = Path(__file__).resolve().parents[2]
STRUCTS = {struct.name: struct for struct in layout.STRUCTS}
WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}


def width(kind: str) -> int:
    return STRUCTS[kind].size if kind in STRUCTS else WIDTHS[kind]


def alignment(kind: str) -> int:
    if kind in WIDTHS:
        return WIDTHS[kind]
    return max(alignment(field.kind) for field in STRUCTS[kind].fields)


def test_the_header_in_c_and_the_tables_of_the_specification_are_up_to_date() -> None:
    program = ROOT / "scripts" / "generate-pax"
    done = subprocess.run([sys.executable, program, "--check"], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("name", STRUCTS)
def test_fields_do_not_overlap_and_are_aligned(name: str) -> None:
    struct, at = STRUCTS[name], 0
    for field in struct.fields:
        assert field.offset >= at, f"{field.name} overlaps the field before it"
        assert field.offset % alignment(field.kind) == 0, field.name
        at = field.offset + width(field.kind) * field.count
    assert at <= struct.size
    assert struct.size % alignment(name) == 0


@pytest.mark.parametrize("name", STRUCTS)
def test_numpy_has_the_layout_of_the_tables(name: str) -> None:
    struct, dtype = STRUCTS[name], DTYPES[name]
    assert dtype.itemsize == struct.size
    assert dtype.fields is not None
    assert list(dtype.fields) == [field.name for field in struct.fields]
    for field in struct.fields:
        assert dtype.fields[field.name][1] == field.offset
        assert dtype.fields[field.name][0].itemsize == width(field.kind) * field.count


@pytest.mark.parametrize("name", STRUCTS)
def test_c_has_the_layout_of_the_tables(name: str) -> None:
    struct = f"struct pax_{name}"
    assert ffi.sizeof(struct) == DTYPES[name].itemsize
    known = dict(ffi.typeof(struct).fields)
    for field in STRUCTS[name].fields:
        assert known[field.name].offset == field.offset
        assert ffi.sizeof(known[field.name].type) == width(field.kind) * field.count


def test_c_has_the_values_of_the_names() -> None:
    for name, values in layout.NAMES.items():
        for each in values:
            assert getattr(lib, f"PAX_{name}_{each.name}".upper()) == int(each)


def test_records_begin_as_every_record_does_and_are_multiples_of_8() -> None:
    answers = [layout.RESIDENCY_ANSWER, layout.OUTCOME_ANSWER]
    for struct in [*layout.RECORDS.values(), *answers]:
        assert struct.fields[: len(layout.RECORD.fields)] == layout.RECORD.fields
        assert struct.size % 8 == 0


def test_meanings_name_values_that_exist() -> None:
    for struct in layout.STRUCTS:
        for field in struct.fields:
            for word in ("enum ", "bits "):
                if field.meaning.startswith(word):
                    name = field.meaning.removeprefix(word).split(":")[0]
                    assert name in layout.NAMES, f"{struct.name}.{field.name}"


def test_pages_have_room_for_what_they_hold() -> None:
    assert layout.STATUS.size <= layout.PAGE_BYTES
    assert layout.PAGE_MAILBOXES + layout.MAILBOXES <= layout.EXTENSION_PAGES
    assert np.dtype(DTYPES["status"]).alignment <= 8
