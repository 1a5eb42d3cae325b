"""Mailboxes and queries: what a tenant is told of its batches, and only it."""

from __future__ import annotations

import pytest
from hints_media import PER_SLOT, SLOT, slots
from hints_support import Rig
from hints_words import intent, resident

from prestage._core import lib
from prestage.ext import pages
from prestage.ext.answers import AnswerPage, decode_answer
from prestage.ext.layout import MAILBOXES
from prestage.ext.names import (
    AnswerFlag,
    AnswerState,
    Query,
    Reason,
    State,
)
from prestage.ext.records import (
    Intent,
    Outcome,
    OutcomeAnswer,
    Range,
    Record,
    ResidencyAnswer,
    Retain,
    SetRecord,
    Signature,
    Unknown,
)

INVALID_FIELD = 0x4002
DATED: int = lib.PS_FACT_DATED
HIT: int = lib.PS_FACT_HIT
ATTRIBUTES: int = lib.PS_FACT_ATTRIBUTES


def test_an_answer_says_what_became_of_the_batch() -> None:
    rig = Rig()
    items: list[Record] = [
        SetRecord(1, 1, (Range(0, 1),)),
        Signature(9, 0, 1, bytes(8), tag=11),
        Unknown(0x4000),
        Retain(1, set_id=5, tag=12),
    ]
    rig.submit(*items, mailbox=7)
    assert rig.answer(7) == AnswerPage(
        writer=77,
        sequence=5,
        state=AnswerState.APPLIED,
        accepted=1,
        dropped=2,
        unknown=1,
        dropped_tag=11,
        dropped_reason=Reason.NAMESPACE,
    )


def test_a_mailbox_without_a_batch_is_empty() -> None:
    rig = Rig()
    rig.submit(Outcome(1), mailbox=3)
    assert rig.answer(2) == AnswerPage()
    assert rig.answer(3, tenant=1) == AnswerPage()


def test_a_newer_batch_replaces_the_answer() -> None:
    rig = Rig()
    rig.submit(Outcome(1), Outcome(2), mailbox=3)
    rig.submit(Outcome(3), mailbox=3)
    assert rig.answer(3).answers == (OutcomeAnswer(3),)
    assert rig.stats().answer_pages == 1


def test_answers_are_of_the_moment_at_which_they_are_read() -> None:
    rig = Rig()
    rig.submit(resident(1, 2, tag=5), intent(9, 1, 2, tag=6), Outcome(9, tag=7), mailbox=0)

    def read() -> list[tuple[int, int]]:
        first, second, third = rig.answer(0).answers
        assert isinstance(first, ResidencyAnswer)
        assert isinstance(second, OutcomeAnswer)
        assert isinstance(third, OutcomeAnswer)
        assert (first.tag, second.tag, third.tag) == (5, 6, 7)
        assert (second.intent_id, second.state) == (third.intent_id, third.state)
        return [(first.warm_bytes, second.state)]

    assert read() == [(0, State.PENDING)]
    rig.run()
    assert read() == [(2 * SLOT, State.MET)]


def test_more_answers_than_fit_are_left_out_and_said_so() -> None:
    rig = Rig()
    rig.submit(*(Outcome(number) for number in range(1, 101)), mailbox=0)
    page = rig.answer(0)
    assert (len(page.answers), page.flags, page.accepted) == (72, AnswerFlag.TRUNCATED, 100)
    rig.submit(*(Outcome(number) for number in range(1, 73)), mailbox=0)
    assert rig.answer(0).flags == AnswerFlag.NONE
    rig.submit(*(resident(1) for _ in range(101)), mailbox=0)
    page = rig.answer(0)
    assert (len(page.answers), page.flags) == (100, AnswerFlag.TRUNCATED)


def test_whoever_has_most_mailboxes_loses_the_oldest() -> None:
    rig = Rig(config={"answer_pages": 5})
    rig.submit(Outcome(1), mailbox=0, tenant=1)
    for mailbox in range(4):
        rig.submit(Outcome(1), mailbox=mailbox)
    rig.submit(Outcome(1), mailbox=1, tenant=1)

    def held(tenant: int) -> list[int]:
        empty = AnswerState.EMPTY
        return [at for at in range(64) if rig.answer(at, tenant=tenant).state != empty]

    assert (held(0), held(1)) == ([1, 2, 3], [0, 1])
    rig.submit(Outcome(1), mailbox=1)
    for mailbox in range(30, 40):
        rig.submit(Outcome(1), mailbox=mailbox)
    assert (held(0), held(1)) == ([37, 38, 39], [0, 1])
    rig.submit(Outcome(1), mailbox=5, tenant=2)
    assert (held(0), held(1), held(2)) == ([38, 39], [0, 1], [5])
    assert rig.stats().answer_pages == 5


def test_a_flood_of_one_tenant_leaves_another_its_mailbox() -> None:
    rig = Rig(config={"answer_pages": 4})
    rig.submit(Outcome(1), mailbox=63, tenant=2)
    for mailbox in range(MAILBOXES):
        rig.submit(Outcome(1), mailbox=mailbox, tenant=0)
    assert rig.answer(63, tenant=2).state == AnswerState.APPLIED


def test_a_query_is_answered_by_a_page_with_one_answer() -> None:
    rig = Rig()
    rig.warm(3)
    slba, blocks = slots(3, 2)
    status, page = rig.query(Query.RESIDENCY_RANGE, 0, slba, 0, blocks)
    found = decode_answer(page)
    assert status == 0
    assert (found.state, found.accepted, found.writer) == (AnswerState.APPLIED, 1, 0)
    (answer,) = found.answers
    assert isinstance(answer, ResidencyAnswer)
    assert (answer.warm_bytes, answer.total_bytes, answer.tag) == (SLOT, 2 * SLOT, 0)


def test_queries_of_sets_outcomes_status_and_mailboxes() -> None:
    rig = Rig()
    number = 5 << 32 | 6
    rig.submit(SetRecord(number, 1, (Range(0, 4),)), Intent(number, 0, set_id=number), mailbox=9)
    (found,) = decode_answer(rig.query(Query.RESIDENCY_SET, 0, 6, 5)[1]).answers
    assert isinstance(found, ResidencyAnswer)
    assert found.total_bytes == 2048
    assert rig.query(Query.MAILBOX, 9) == (0, rig.query(Query.MAILBOX, 9)[1])
    assert decode_answer(rig.query(Query.MAILBOX, 9)[1]) == rig.answer(9)
    (outcome,) = decode_answer(rig.query(Query.OUTCOME, 0, 6, 5)[1]).answers
    assert isinstance(outcome, OutcomeAnswer)
    assert (outcome.intent_id, outcome.state) == (number, State.DROPPED)
    assert pages.decode_status(rig.query(Query.STATUS)[1]) == rig.status()


@pytest.mark.parametrize(
    ("dwords", "nsid"),
    [
        ((5,), 1),
        ((255,), 1),
        ((Query.MAILBOX, MAILBOXES), 1),
        ((Query.RESIDENCY_RANGE, 0, 0, 0, 0), 1),
        ((Query.RESIDENCY_RANGE, 0, 0, 0, 1), 7),
        ((Query.RESIDENCY_RANGE, 0, 64 * PER_SLOT, 0, 4), 1),
        ((Query.RESIDENCY_SET, 0, 0, 0), 1),
        ((Query.OUTCOME, 0, 0, 0), 1),
    ],
)
def test_wrong_questions_are_invalid_fields(dwords: tuple[int, ...], nsid: int) -> None:
    assert Rig().query(*dwords, nsid=nsid)[0] == INVALID_FIELD
