"""Answer pages, capability, status and events come back as they were; what is none is refused."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pax.strategies import U16, U32, U64

from prestage.ext import layout, names
from prestage.ext.answers import AnswerPage, decode_answer, encode_answer
from prestage.ext.codec import seal
from prestage.ext.errors import BadRecord, Malformed
from prestage.ext.names import AnswerFlag, AnswerState, Carrier, Fault, State
from prestage.ext.pages import (
    Benefit,
    Budget,
    Capability,
    Counts,
    Event,
    EventLog,
    Refusal,
    Status,
    decode_capability,
    decode_events,
    decode_status,
    encode_capability,
    encode_events,
    encode_status,
    find_capability,
)
from prestage.ext.records import Answer, OutcomeAnswer, ResidencyAnswer, Unknown

U8 = st.integers(0, 255)
UNKNOWN_ANSWER = st.builds(
    Unknown,
    type=st.integers(0x8103, 0xFFFF),
    body=st.integers(0, 4).flatmap(lambda n: st.binary(min_size=8 * n, max_size=8 * n)),
    tag=U32,
)
RESIDENCY_ANSWER = st.builds(
    ResidencyAnswer,
    total_bytes=U64,
    warm_bytes=U64,
    coming_bytes=U64,
    ready_us=U32,
    reason=U8.map(names.Reason),
    tag=U32,
)
OUTCOME_ANSWER = st.builds(
    OutcomeAnswer,
    intent_id=U64,
    total_bytes=U64,
    admitted_bytes=U64,
    warm_bytes=U64,
    predicted_us=U32,
    ready_us=U32,
    state=U8.map(State),
    verdict=U8.map(names.Verdict),
    reason=U8.map(names.Reason),
    flags=U8.map(names.OutcomeFlag),
    tag=U32,
)
ANSWERS = st.lists(st.one_of(RESIDENCY_ANSWER, OUTCOME_ANSWER, UNKNOWN_ANSWER), max_size=20)
PAGES = st.builds(
    AnswerPage,
    writer=U64,
    sequence=U32,
    state=st.sampled_from(AnswerState),
    answers=ANSWERS.map(tuple),
    flags=U8.map(AnswerFlag),
    fault=U16.map(Fault),
    fault_offset=U32,
    accepted=U16,
    dropped=U16,
    unknown=U16,
    dropped_tag=U32,
    dropped_reason=U8.map(names.Reason),
)
CAPABILITIES = st.builds(
    Capability,
    carriers=U32.map(Carrier),
    **{
        field.name: st.integers(0, 256 ** {"u8": 1, "u16": 2, "u32": 4, "u64": 8}[field.kind] - 1)
        for field in layout.CAPABILITY.fields
        if field.name not in {"magic", "major", "size", "carriers"}
    },
)
BUDGETS = st.builds(Budget, U64, U64)
COUNTS = st.tuples(*[st.builds(Counts, U64, U64, U64, U64, U64, U64, U64)] * 4)
REFUSALS = st.lists(
    st.builds(Refusal, U64, U32, U32, st.integers(1, 7).map(Fault), U16), max_size=16
).map(tuple)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
STATUSES = st.builds(
    Status,
    capability=CAPABILITIES,
    sets=BUDGETS,
    records_per_s=BUDGETS,
    batches=U64,
    dropped=st.tuples(*[U64] * 8),
    events_lost=U64,
    intent_counts=COUNTS,
    read_counts=COUNTS,
    refusals=REFUSALS,
    benefit=st.builds(Benefit, U64, U64, I64, I64, I64),
)
EVENTS = st.lists(
    st.builds(
        Event,
        intent_id=U64,
        session=U64,
        ready_us=U32,
        state=U8.map(State),
        reason=U8.map(names.Reason),
        priority=U8,
        flags=U8.map(names.OutcomeFlag),
    ),
    max_size=127,
).map(tuple)


@given(PAGES)
def test_an_answer_page_comes_back(page: AnswerPage) -> None:
    data = encode_answer(page)
    assert len(data) == 4096
    assert decode_answer(data) == page
    assert encode_answer(decode_answer(data)) == data


def test_answers_that_find_no_room_are_left_out_and_the_page_says_so() -> None:
    answers: tuple[Answer, ...] = tuple(OutcomeAnswer(number) for number in range(80))
    page = AnswerPage(1, 2, AnswerState.APPLIED, answers)
    found = decode_answer(encode_answer(page))
    assert found.flags & AnswerFlag.TRUNCATED
    assert found.answers == answers[:72]


@given(PAGES, st.integers(64, 4096))
def test_a_host_may_ask_for_fewer_bytes(page: AnswerPage, size: int) -> None:
    whole, found = decode_answer(encode_answer(page)), decode_answer(encode_answer(page)[:size])
    assert found.answers == whole.answers[: len(found.answers)]
    is_short = len(found.answers) < len(whole.answers)
    assert bool(found.flags & AnswerFlag.TRUNCATED) == (
        is_short or bool(whole.flags & AnswerFlag.TRUNCATED)
    )
    assert dataclasses.replace(found, answers=(), flags=whole.flags) == dataclasses.replace(
        whole, answers=()
    )


EMPTY = encode_answer(AnswerPage())
PAGE = encode_answer(AnswerPage(1, 2, AnswerState.APPLIED, (OutcomeAnswer(1), ResidencyAnswer())))
BAD_PAGES: list[tuple[str, bytes, Fault, int]] = [
    ("zeros", bytes(4096), Fault.MAGIC, 0),
    ("too short", PAGE[:63], Fault.SIZE, 0),
    ("major", PAGE[:4] + b"\2" + PAGE[5:], Fault.VERSION, 4),
    ("header", PAGE[:6] + b"\x3c" + PAGE[7:], Fault.SIZE, 6),
    ("size", PAGE[:8] + b"\x3f\0" + PAGE[10:], Fault.SIZE, 8),
    ("size above a page", PAGE[:8] + b"\1\x10" + PAGE[10:], Fault.SIZE, 8),
    ("checksum", PAGE[:16] + b"\7" + PAGE[17:], Fault.CHECKSUM, 12),
]


@pytest.mark.parametrize(("name", "data", "fault", "offset"), BAD_PAGES, ids=lambda v: str(v)[:20])
def test_what_is_no_answer_page_is_refused(
    name: str, data: bytes, fault: Fault, offset: int
) -> None:
    with pytest.raises(Malformed) as caught:
        decode_answer(data)
    assert (caught.value.fault, caught.value.offset) == (fault, offset)


def test_answers_that_contradict_their_page_are_refused() -> None:
    size = 64 + 56 + 40
    cases = {
        42: (b"\1", Fault.COUNT, 42),
        66: (b"\x07", Fault.RECORD_SIZE, 66),
        64 + 56 + 2: (b"\x20", Fault.RECORD_SIZE, 64 + 56 + 2),
    }
    for at, (value, fault, offset) in cases.items():
        with pytest.raises(Malformed) as caught:
            decode_answer(seal(PAGE[:at] + value + PAGE[at + 1 : size]))
        assert (caught.value.fault, caught.value.offset) == (fault, offset)


@given(st.binary(max_size=200))
def test_no_bytes_do_worse_than_malformed(data: bytes) -> None:
    decoders: list[Any] = [decode_answer, decode_capability, decode_status, decode_events]
    for decode in decoders:
        for start in (PAGE[:160], encode_events(EventLog((Event(1),)))[:64], b""):
            try:
                decode(start[: zlib.crc32(data) % 200] + data)
            except Malformed as error:
                assert error.fault != Fault.NONE


@given(CAPABILITIES)
def test_a_capability_comes_back(capability: Capability) -> None:
    data = encode_capability(capability)
    assert len(data) == 128
    assert decode_capability(data) == capability
    assert find_capability(bytes(3072) + data + bytes(896)) == capability


def test_a_controller_without_a_capability_that_we_know_has_none() -> None:
    data = encode_capability(Capability(Carrier.FEATURE))
    assert find_capability(bytes(4096)) is None
    assert find_capability(bytes(3072) + data[:4] + b"\2" + data[5:] + bytes(896)) is None
    assert find_capability(bytes(3072) + data[:6] + b"\x40" + data[7:] + bytes(896)) is None
    assert find_capability(b"") is None


@given(STATUSES)
def test_a_status_page_comes_back(status: Status) -> None:
    data = encode_status(status)
    assert len(data) == 4096
    assert decode_status(data) == status
    assert decode_status(data[: layout.STATUS.size]) == status


@given(EVENTS, U32)
def test_an_event_log_comes_back(events: tuple[Event, ...], lost: int) -> None:
    log = EventLog(events, lost)
    data = encode_events(log)
    assert len(data) == 4096
    assert decode_events(data) == log
    assert decode_events(data[:100]).events == events[:2]


def test_values_that_do_not_fit_are_refused_by_name() -> None:
    with pytest.raises(
        BadRecord, match="mailboxes: found 65536 .expected a number from 0 to 65535"
    ):
        encode_capability(Capability(Carrier.FEATURE, mailboxes=1 << 16))
    with pytest.raises(BadRecord, match="intent_id: found -1"):
        encode_answer(AnswerPage(answers=(OutcomeAnswer(-1),)))
    with pytest.raises(BadRecord, match="unknown type"):
        encode_answer(AnswerPage(answers=(Unknown(0x8101, bytes(8)),)))


def test_values_of_a_later_version_keep_their_number() -> None:
    assert int(State(200)) == 200
    assert State(200).name == "value_200"
    assert State(200) == State(200)
    with pytest.raises(ValueError, match="not a valid"):
        State(-1)
    assert int(Carrier(1 << 31 | 1)) == 1 << 31 | 1
