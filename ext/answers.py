"""Answer pages: values to bytes and back (specification, clause 5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from . import layout
from .codec import ALIGNMENT, CRC_OFFSET, RECORD_BYTES, seal
from .crc import crc32c
from .errors import BadRecord, Malformed
from .names import (
    AnswerFlag,
    AnswerState,
    Fault,
    Magic,
    OutcomeFlag,
    Reason,
    RecordType,
    State,
    Verdict,
)
from .packing import packer
from .records import Answer, OutcomeAnswer, ResidencyAnswer, Unknown

HEADER_BYTES: Final = layout.ANSWER.size
_COUNT_OFFSET: Final = 42
_COPIED: Final = (
    "writer",
    "sequence",
    "state",
    "flags",
    "fault",
    "fault_offset",
    "accepted",
    "dropped",
    "unknown",
    "dropped_tag",
    "dropped_reason",
)


@dataclass(frozen=True, slots=True)
class AnswerPage:
    """What became of the last batch of a mailbox; `answers` are evaluated when it is read.

    `accepted + dropped + unknown` is the number of records of a batch that was applied.
    """

    writer: int = 0
    sequence: int = 0
    state: AnswerState = AnswerState.EMPTY
    answers: tuple[Answer, ...] = ()
    flags: AnswerFlag = AnswerFlag.NONE
    fault: Fault = Fault.NONE
    fault_offset: int = 0
    accepted: int = 0
    dropped: int = 0
    unknown: int = 0
    dropped_tag: int = 0
    dropped_reason: Reason = Reason.NONE


def encode_answer(page: AnswerPage) -> bytes:
    """Return the 4096 bytes of an answer page.

    Answers that do not fit are left out, and the page says so (5.4.1). BadRecord: a value that does
    not fit its field.
    """
    parts, flags, size = [], page.flags, HEADER_BYTES
    for answer in page.answers:
        part = _encode_one(answer)
        if size + len(part) > layout.PAGE_BYTES:
            flags |= AnswerFlag.TRUNCATED
            break
        parts.append(part)
        size += len(part)
    head = {name: getattr(page, name) for name in _COPIED} | {
        "magic": Magic.ANSWER,
        "major": layout.MAJOR,
        "minor": layout.MINOR,
        "header_size": HEADER_BYTES,
        "size": size,
        "flags": flags,
        "answer_count": len(parts),
    }
    data = seal(packer("answer").pack(head) + b"".join(parts))
    return data.ljust(layout.PAGE_BYTES, b"\0")


def _encode_one(answer: Answer) -> bytes:
    if isinstance(answer, Unknown):
        size = RECORD_BYTES + len(answer.body)
        if size % ALIGNMENT or answer.type in _ANSWERS:
            raise BadRecord(f"no answer of an unknown type: {answer}")
        head = packer("record").pack({"type": answer.type, "size": size, "tag": answer.tag})
        return head + answer.body
    kind, struct = (
        (RecordType.RESIDENCY_ANSWER, layout.RESIDENCY_ANSWER)
        if isinstance(answer, ResidencyAnswer)
        else (RecordType.OUTCOME_ANSWER, layout.OUTCOME_ANSWER)
    )
    names = (field.name for field in struct.fields)
    values = {name: getattr(answer, name) for name in names if hasattr(answer, name)}
    return packer(struct.name).pack(values | {"type": kind, "size": struct.size})


def decode_answer(
    data: bytes | bytearray | memoryview, *, ignores_checksum: bool = False
) -> AnswerPage:
    """Return the answer page at the start of `data` (4096 bytes, or as many as were asked for).

    Answers beyond the bytes that are there are left out as if the page were truncated; the checksum
    is looked at when all of it is there, unless it is to be ignored. Raises Malformed when it is no
    answer page.
    """
    view = memoryview(data)
    head = _checked_header(view)
    size = head["size"]
    is_whole = size <= len(view)
    if is_whole and not ignores_checksum and _checksum(view[:size]) != head["crc32c"]:
        raise Malformed(Fault.CHECKSUM, CRC_OFFSET)
    answers, is_cut = [], False
    for answer in _answers(view[: head["size"]], head["header_size"], head["answer_count"]):
        if answer is None:
            is_cut = True
            break
        answers.append(answer)
    flags = AnswerFlag(head["flags"]) | (AnswerFlag.TRUNCATED if is_cut else AnswerFlag.NONE)
    return AnswerPage(
        writer=head["writer"],
        sequence=head["sequence"],
        state=AnswerState(head["state"]),
        answers=tuple(answers),
        flags=flags,
        fault=Fault(head["fault"]),
        fault_offset=head["fault_offset"],
        accepted=head["accepted"],
        dropped=head["dropped"],
        unknown=head["unknown"],
        dropped_tag=head["dropped_tag"],
        dropped_reason=Reason(head["dropped_reason"]),
    )


def _checked_header(view: memoryview) -> dict[str, Any]:
    if len(view) < HEADER_BYTES:
        raise Malformed(Fault.SIZE, 0)
    head = packer("answer").unpack(view)
    if head["magic"] != Magic.ANSWER:
        raise Malformed(Fault.MAGIC, 0)
    if head["major"] != layout.MAJOR:
        raise Malformed(Fault.VERSION, 4)
    if head["header_size"] < HEADER_BYTES or head["header_size"] % ALIGNMENT:
        raise Malformed(Fault.SIZE, 6)
    if not head["header_size"] <= head["size"] <= layout.PAGE_BYTES:
        raise Malformed(Fault.SIZE, 8)
    return head


def _checksum(view: memoryview) -> int:
    return crc32c(view[:CRC_OFFSET].tobytes() + bytes(4) + view[CRC_OFFSET + 4 :].tobytes())


def _answers(view: memoryview, at: int, count: int) -> Iterator[Answer | None]:
    """Yield the answers; None where the bytes end (the host asked for fewer)."""
    for _ in range(count):
        if len(view) - at < RECORD_BYTES:
            yield None
            return
        head = packer("record").unpack(view, at)
        size = head["size"]
        if size < RECORD_BYTES or size % ALIGNMENT:
            raise Malformed(Fault.RECORD_SIZE, at + 2)
        if size > len(view) - at:
            yield None
            return
        yield _decode_one(view, at, head)
        at += size
    if at < len(view):
        raise Malformed(Fault.COUNT, _COUNT_OFFSET)


def _decode_one(view: memoryview, at: int, head: dict[str, Any]) -> Answer:
    struct = _ANSWERS.get(head["type"])
    if struct is None:
        body = view[at + RECORD_BYTES : at + head["size"]].tobytes()
        return Unknown(head["type"], body, head["tag"])
    if head["size"] < struct.size:
        raise Malformed(Fault.RECORD_SIZE, at + 2)
    values = packer(struct.name).unpack(view, at)
    del values["type"], values["size"]
    values["reason"] = Reason(values["reason"])
    if struct is layout.RESIDENCY_ANSWER:
        return ResidencyAnswer(**values)
    values["state"] = State(values["state"])
    values["verdict"] = Verdict(values["verdict"])
    values["flags"] = OutcomeFlag(values["flags"])
    return OutcomeAnswer(**values)


_ANSWERS: Final[dict[int, layout.Struct]] = {
    RecordType.RESIDENCY_ANSWER: layout.RESIDENCY_ANSWER,
    RecordType.OUTCOME_ANSWER: layout.OUTCOME_ANSWER,
}
