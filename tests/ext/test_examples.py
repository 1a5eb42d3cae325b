"""The specification: its examples are executed, its clauses and what cites them agree."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from prestage._core import ffi, lib
from prestage.ext import answers, codec, errors, names, pages, records
from prestage.ext.conform.host import Command

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ext" / "SPECIFICATION.md").read_text("utf-8")
NAMES: dict[str, Any] = {
    name: value
    for module in (records, names, codec, answers, pages, errors)
    for name, value in vars(module).items()
} | {"Command": Command}


class Example(NamedTuple):
    """An example of clause 11: bytes, and the value that they are said to mean."""

    title: str
    data: bytes
    value: Any


def bytes_of(dump: str) -> bytes:
    """Return the bytes of lines of an offset, up to 8 bytes, and a remark."""
    data = b""
    for line in dump.strip().splitlines():
        found = re.fullmatch(r"([0-9A-F]{4})  ((?:[0-9a-f]{2} ?){1,8})(?: .*)?", line)
        assert found is not None, line
        assert int(found[1], 16) == len(data), line
        data += bytes.fromhex(found[2])
    return data


def examples() -> list[Example]:
    pattern = r"### (11\.\d+ [^\n]*)\n(?:(?!\n### ).)*?```hex\n(.*?)```\n\n```python\n(.*?)```"
    found = re.findall(pattern, TEXT, re.DOTALL)
    return [Example(title, bytes_of(dump), eval(value, NAMES)) for title, dump, value in found]


EXAMPLES = examples()
ENCODERS: dict[type, Callable[[Any], bytes]] = {
    codec.Batch: lambda value: codec.encode_batch(
        value.records, writer=value.writer, sequence=value.sequence
    ),
    answers.AnswerPage: answers.encode_answer,
    pages.Capability: pages.encode_capability,
    pages.EventLog: pages.encode_events,
}
DECODERS: dict[type, Callable[[bytes], Any]] = {
    codec.Batch: codec.decode_batch,
    answers.AnswerPage: answers.decode_answer,
    pages.Capability: pages.decode_capability,
    pages.EventLog: pages.decode_events,
}
COMMANDS = [each for each in EXAMPLES if isinstance(each.value, Command)]
BATCHES = [each for each in EXAMPLES if isinstance(each.value, codec.Batch | errors.Malformed)]
WHOLE = [each for each in EXAMPLES if not isinstance(each.value, errors.Malformed | Command)]


def test_every_kind_of_structure_has_an_example() -> None:
    assert {type(each.value) for each in EXAMPLES} == {*ENCODERS, errors.Malformed, Command}
    kinds = {type(record) for each in WHOLE for record in getattr(each.value, "records", ())}
    assert kinds == {*records.TYPES, records.Unknown}


@pytest.mark.parametrize("example", WHOLE, ids=lambda each: each.title)
def test_examples_are_decoded_and_encoded(example: Example) -> None:
    kind = type(example.value)
    assert DECODERS[kind](example.data) == example.value
    assert ENCODERS[kind](example.value).rstrip(b"\0") == example.data.rstrip(b"\0")


@pytest.mark.parametrize("example", BATCHES, ids=lambda each: each.title)
def test_examples_are_judged_alike_by_both_sides(example: Example) -> None:
    fault, offset = names.Fault.NONE, 0
    if isinstance(example.value, errors.Malformed):
        fault, offset = example.value.fault, example.value.offset
        with pytest.raises(errors.Malformed) as caught:
            codec.decode_batch(example.data)
        assert (caught.value.fault, caught.value.offset) == (fault, offset)
    result = ffi.new("struct ps_hints_result *")
    for data in (example.data, codec.to_page(example.data)):
        lib.ps_hints_check(data, len(data), 4096, result)
        assert (result.fault, result.fault_offset) == (fault, offset)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.title)
def test_the_remarks_of_examples_say_what_the_bytes_are(example: Example) -> None:
    section = TEXT[TEXT.index(f"### {example.title}\n") :]
    dump = section[section.index("```hex\n") + 7 : section.index("```\n\n```python")]
    for line in dump.strip().splitlines():
        row = bytes.fromhex(line[6:29])
        for word in re.findall(r"\b(?:\w+) ([0-9A-F]+h|\d+)\b", line[29:]):
            value = int(word.removesuffix("h"), 16 if word.endswith("h") else 10)
            sizes = (1, 2, 4, 8)
            assert any(value.to_bytes(n, "little") in row for n in sizes if value < 256**n), line


@pytest.mark.parametrize("example", COMMANDS, ids=lambda each: each.title)
def test_commands_are_submission_queue_entries(example: Example) -> None:
    command, data = example.value, example.data
    opcode, nsid, *cdw2_3 = struct.unpack_from("<BxxxIII", data)
    (length,) = struct.unpack_from("<I", data, 32)
    cdw10_15 = struct.unpack_from("<6I", data, 40)
    assert len(data) == 64
    assert (opcode, nsid, cdw2_3) == (command.opcode, command.nsid, [command.cdw2, command.cdw3])
    assert cdw10_15 == tuple(getattr(command, f"cdw{number}") for number in range(10, 16))
    assert length == len(command.data_out) + command.data_in_bytes


CLAUSES = set(re.findall(r"^\*\*(\d+(?:\.\d+)+)\*\*", TEXT, re.MULTILINE))
SECTIONS = set(re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", TEXT, re.MULTILINE))


def test_clauses_have_one_number_each_and_stand_in_their_section() -> None:
    numbers = re.findall(r"^\*\*(\d+(?:\.\d+)+)\*\*", TEXT, re.MULTILINE)
    assert len(numbers) == len(set(numbers))
    keys = [tuple(map(int, number.split("."))) for number in numbers]
    assert keys == sorted(keys)
    assert {number.rpartition(".")[0] for number in numbers} <= SECTIONS


def test_clauses_that_are_cited_exist() -> None:
    body = re.sub(r"```.*?```|\((?:Base|NVM|TCP|RFC)[^)]*\)", "", TEXT, flags=re.DOTALL)
    cited = set(re.findall(r"\((\d+(?:\.\d+)+)\)|\bby (\d+\.\d+)\b|as (\d\.\d\.\d) says", body))
    found = {number for each in cited for number in each if number}
    assert found <= CLAUSES | SECTIONS, found - CLAUSES - SECTIONS
    code = "".join(path.read_text("utf-8") for path in (ROOT / "ext").glob("*.py"))
    cited_by_code = set(re.findall(r"\((\d\.\d+(?:\.\d+)?)\)", code))
    assert cited_by_code
    assert cited_by_code <= CLAUSES | SECTIONS, cited_by_code - CLAUSES - SECTIONS
