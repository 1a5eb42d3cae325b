"""Batches of records: values to bytes and back (specification, clauses 5.1, 5.2 and 5.5).

`decode_batch` and `csrc/hints` refuse the same bytes with the same fault at the same offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from . import layout, records
from .crc import crc32c
from .errors import BadRecord, BatchTooLarge, Malformed
from .names import CancelWhat, Fault, IntentFlag, Magic, RecordType, SetFlag, SetOp
from .packing import packer
from .records import Range, Record, SetRecord, Signature, Unknown
from .rules import check_fields, explain_fields

HEADER_BYTES: Final = layout.BATCH.size
RECORD_BYTES: Final = layout.RECORD.size
RANGE_BYTES: Final = layout.RANGE.size
ALIGNMENT: Final = 8
ANSWER_ROOM_BYTES: Final = layout.PAGE_BYTES - layout.ANSWER.size
CRC_OFFSET: Final = 12
_ANSWER_BYTES: Final = {
    records.Intent: layout.OUTCOME_ANSWER.size,
    records.Outcome: layout.OUTCOME_ANSWER.size,
    records.Residency: layout.RESIDENCY_ANSWER.size,
}
_NLB_OFFSET: Final = 8


@dataclass(frozen=True, slots=True)
class Batch:
    """A well-formed batch. `minor` is the version its writer knows."""

    writer: int
    sequence: int
    records: tuple[Record, ...]
    minor: int = layout.MINOR


def encode_record(record: Record) -> bytes:
    """Return the bytes of one record. BadRecord: a value that its layout does not allow."""
    data = _encode_unknown(record) if isinstance(record, Unknown) else _encode_known(record)
    try:
        _checked(memoryview(data), 0)
    except Malformed as error:
        raise BadRecord(_explained(record, data, error)) from error
    return data


def _explained(record: Record, data: bytes, error: Malformed) -> str:
    """Return what is wrong with a record of ours: the field by its name, where one is at fault."""
    if error.fault != Fault.FIELD:
        return f"{record}: {error}"
    struct = layout.RECORDS[records.TYPES[type(record)]]
    found = explain_fields(packer(struct.name).unpack(data))
    # Whoever made the record has given ranges, and not their number.
    found = found.replace("range_count:", "ranges:") if found else found
    return found or "nlb: found 0 (expected 1 block or more)"


def _encode_unknown(record: Unknown) -> bytes:
    if record.type in layout.RECORDS:
        raise BadRecord(f"type {record.type:#x} is a record of this version")
    size = RECORD_BYTES + len(record.body)
    head = packer("record").pack({"type": record.type, "size": size, "tag": record.tag})
    return head + record.body


def _encode_known(record: Record) -> bytes:
    kind = records.TYPES[type(record)]
    struct = layout.RECORDS[kind]
    names = [field.name for field in struct.fields]
    values = {name: getattr(record, name) for name in names if hasattr(record, name)}
    ranges: tuple[Range, ...] = getattr(record, "ranges", ())
    if isinstance(record, Signature):
        if len(record.vector) not in {8, 16}:
            raise BadRecord(f"a vector has 8 or 16 bytes, not {len(record.vector)}")
        values["bits"] = len(record.vector) * 8
    size = struct.size + RANGE_BYTES * len(ranges)
    values |= {"type": kind, "size": size, "range_count": len(ranges)}
    trailing = (packer("range").pack({"slba": each.slba, "nlb": each.nlb}) for each in ranges)
    return b"".join([packer(struct.name).pack(values), *trailing])


def encode_batch(
    items: Iterable[Record],
    *,
    writer: int,
    sequence: int,
    max_size: int = layout.MAX_BATCH_BYTES,
) -> bytes:
    """Return a batch of these records, as long as it is (see `to_page`).

    Raises BadRecord for a value that its layout does not allow, BatchTooLarge when the batch would
    be larger than `max_size` bytes: `encode_batches` splits.
    """
    return _assemble([encode_record(each) for each in items], writer, sequence, max_size)


def _assemble(parts: list[bytes], writer: int, sequence: int, max_size: int) -> bytes:
    body = b"".join(parts)
    size = HEADER_BYTES + len(body)
    if size > max_size:
        raise BatchTooLarge(f"a batch of {size} bytes; at most {max_size}")
    head = {
        "magic": Magic.BATCH,
        "major": layout.MAJOR,
        "minor": layout.MINOR,
        "header_size": HEADER_BYTES,
        "size": size,
        "writer": writer,
        "sequence": sequence,
        "record_count": len(parts),
    }
    return seal(packer("batch").pack(head) + body)


def seal(data: bytes) -> bytes:
    """Return a batch, or an answer page without what pads it, with its checksum in place."""
    blank = data[:CRC_OFFSET] + bytes(4) + data[CRC_OFFSET + 4 :]
    return data[:CRC_OFFSET] + crc32c(blank).to_bytes(4, "little") + data[CRC_OFFSET + 4 :]


def to_page(data: bytes) -> bytes:
    """Return a batch with the zeros that make it a page of the extension namespace."""
    if len(data) > layout.PAGE_BYTES:
        raise BatchTooLarge(f"{len(data)} bytes do not fit into a page")
    return data.ljust(layout.PAGE_BYTES, b"\0")


def encode_batches(
    items: Iterable[Record],
    *,
    writer: int,
    sequence: int,
    max_size: int = layout.MAX_BATCH_BYTES,
) -> Iterator[bytes]:
    """Yield batches of these records in order, with sequence numbers from `sequence` on.

    A batch ends where another record, or the answer to it, would no longer fit. SET records with
    more ranges than fit are split into a definition and extensions. Raises as `encode_batch`.
    """
    parts: list[bytes] = []
    size, answers = HEADER_BYTES, 0
    for record in _split(items, max_size):
        data, answer = encode_record(record), _ANSWER_BYTES.get(type(record), 0)
        full = size + len(data) > max_size or answers + answer > ANSWER_ROOM_BYTES
        if full and parts:
            yield _assemble(parts, writer, sequence & 0xFFFFFFFF, max_size)
            parts, size, answers = [], HEADER_BYTES, 0
            sequence += 1
        parts.append(data)
        size += len(data)
        answers += answer
    if parts:
        yield _assemble(parts, writer, sequence & 0xFFFFFFFF, max_size)


def _split(items: Iterable[Record], max_size: int) -> Iterator[Record]:
    for record in items:
        if isinstance(record, SetRecord):
            yield from split_set(record, max_size)
        else:
            yield record


def split_set(record: SetRecord, max_size: int = layout.MAX_BATCH_BYTES) -> Iterator[SetRecord]:
    """Yield records that say the same, none larger than a batch of `max_size` bytes takes."""
    most = (max_size - HEADER_BYTES - layout.SET.size) // RANGE_BYTES
    if most < 1:
        raise BatchTooLarge(f"a batch of {max_size} bytes has no room for a set")
    for start in range(0, max(len(record.ranges), 1), most):
        yield SetRecord(
            set_id=record.set_id,
            nsid=record.nsid,
            ranges=record.ranges[start : start + most],
            op=record.op if start == 0 else SetOp.EXTEND,
            flags=record.flags,
            ttl_ms=record.ttl_ms,
            tag=record.tag,
        )


def decode_batch(
    data: bytes | bytearray | memoryview, max_size: int = layout.MAX_BATCH_BYTES
) -> Batch:
    """Return the batch at the start of `data`; what stands beyond its own size is not looked at.

    Raises Malformed with the first fault and where it is (clause 5.5). Records of unknown type come
    back as `Unknown`.
    """
    view = memoryview(data)
    head = _checked_header(view, max_size)
    view = view[: head["size"]]
    at, found = head["header_size"], []
    for _ in range(head["record_count"]):
        if len(view) - at < RECORD_BYTES:
            raise Malformed(Fault.COUNT, at)
        record, size = _checked(view, at)
        found.append(record)
        at += size
    if at != len(view):
        raise Malformed(Fault.COUNT, at)
    return Batch(head["writer"], head["sequence"], tuple(found), head["minor"])


def _checked_header(view: memoryview, max_size: int) -> dict[str, Any]:
    if len(view) < HEADER_BYTES:
        raise Malformed(Fault.SIZE, 0)
    head = packer("batch").unpack(view)
    size, header_size = head["size"], head["header_size"]
    if head["magic"] != Magic.BATCH:
        raise Malformed(Fault.MAGIC, 0)
    if head["major"] != layout.MAJOR:
        raise Malformed(Fault.VERSION, 4)
    if header_size < HEADER_BYTES or header_size % ALIGNMENT:
        raise Malformed(Fault.SIZE, 6)
    if not header_size <= size <= min(len(view), max_size):
        raise Malformed(Fault.SIZE, 8)
    if (
        crc32c(view[:CRC_OFFSET].tobytes() + bytes(4) + view[CRC_OFFSET + 4 : size])
        != head["crc32c"]
    ):
        raise Malformed(Fault.CHECKSUM, CRC_OFFSET)
    return head


def _checked(view: memoryview, at: int) -> tuple[Record, int]:
    """Return the record at `at`, of which 8 bytes are there, and its size."""
    head = packer("record").unpack(view, at)
    size = head["size"]
    if size < RECORD_BYTES or size % ALIGNMENT or size > len(view) - at:
        raise Malformed(Fault.RECORD_SIZE, at + 2)
    struct = layout.RECORDS.get(head["type"])
    if struct is None:
        body = view[at + RECORD_BYTES : at + size].tobytes()
        return Unknown(head["type"], body, head["tag"]), size
    if size < struct.size:
        raise Malformed(Fault.RECORD_SIZE, at + 2)
    values = packer(struct.name).unpack(view, at)
    if size != struct.size + RANGE_BYTES * values.get("range_count", 0):
        raise Malformed(Fault.RECORD_SIZE, at + 2)
    check_fields(values, at)
    ranges = tuple(_ranges(view, at + struct.size, at + size))
    return _record(RecordType(head["type"]), values, ranges), size


def _ranges(view: memoryview, start: int, end: int) -> Iterator[Range]:
    for at in range(start, end, RANGE_BYTES):
        values = packer("range").unpack(view, at)
        if values["nlb"] == 0:
            raise Malformed(Fault.FIELD, at + _NLB_OFFSET)
        yield Range(values["slba"], values["nlb"])


_CLASSES: Final = {kind: cls for cls, kind in records.TYPES.items()}
_ENUMS: Final[dict[tuple[RecordType, str], Any]] = {
    (RecordType.SET, "op"): SetOp,
    (RecordType.SET, "flags"): SetFlag,
    (RecordType.INTENT, "flags"): IntentFlag,
    (RecordType.CANCEL, "what"): CancelWhat,
}


def _record(kind: RecordType, values: dict[str, Any], ranges: tuple[Range, ...]) -> Record:
    ignored = {"type", "size", "range_count", "bits"}
    given = {
        name: _ENUMS.get((kind, name), int)(value) if isinstance(value, int) else value
        for name, value in values.items()
        if name not in ignored
    }
    if "range_count" in values:
        given["ranges"] = ranges
    if kind == RecordType.SIGNATURE:
        given["vector"] = values["vector"][: values["bits"] // 8]
    record: Record = _CLASSES[kind](**given)
    return record
