"""The hint interface, the same over every carrier."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prestage.ext.names import CancelWhat, IntentFlag, Reason, SetFlag, SetOp, State, Verdict
from prestage.ext.records import (
    Cancel,
    Intent,
    OutcomeAnswer,
    Range,
    Record,
    Residency,
    ResidencyAnswer,
    Retain,
    SetRecord,
    Signature,
    Unknown,
)
from prestage.host_client import (
    AnswerLost,
    HintError,
    Hints,
    InvalidHint,
    NotSupported,
    Report,
)

from .fake_pax import CAPABILITY, CARRIERS, FakePax, hints_by
from .scripted import BLOCK

Body = Callable[[Hints, FakePax], Awaitable[Any]]


@pytest.fixture(params=CARRIERS)
def carrier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(carrier: str, tmp_path: Path) -> Callable[..., None]:
    def start(body: Body, pax: FakePax | None = None, **options: Any) -> None:
        async def main() -> None:
            tenant = FakePax() if pax is None else pax
            async with hints_by(carrier, tenant, tmp_path, **options) as hints:
                await body(hints, tenant)

        asyncio.run(main())

    return start


Run = Callable[..., None]


# ---- sets and signatures ----


def test_sets_are_defined_extended_and_dropped(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        report = await hints.define_set(7, [(0, 8), Range(64, 8)], ordered=True, ttl=1.5)
        assert report == Report(accepted=1)
        assert pax.records == [
            SetRecord(7, 1, (Range(0, 8), Range(64, 8)), SetOp.DEFINE, SetFlag.ORDERED, 1500)
        ]
        await hints.extend_set(7, np.array([[128, 8]]), nsid=1)
        assert pax.sets[7] == [Range(0, 8), Range(64, 8), Range(128, 8)]
        await hints.drop_set(7)
        assert pax.sets == {}

    run(body)


def test_a_set_of_many_ranges_goes_as_several_batches_in_order(run: Run) -> None:
    pairs = [(index * 10, 3) for index in range(1000)]

    async def body(hints: Hints, pax: FakePax) -> None:
        for ranges in (pairs, np.array(pairs, np.uint64)):
            pax.batches.clear()
            report = await hints.define_set(9, ranges)
            assert report.accepted == len(pax.batches) == 4
            assert pax.sets.pop(9) == [Range(*one) for one in pairs]
            sequences = [sequence for _, sequence in pax.batches]
            assert sequences == list(range(sequences[0], sequences[0] + 4))

    run(body)


def test_signatures_are_attached_one_or_many_at_a_time(run: Run, rng: random.Random) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        vector = rng.randbytes(16)
        await hints.sign(5, 8, vector, family=3, ttl=timedelta(minutes=1))
        assert pax.records == [Signature(1, 5, 8, vector, 3, 60000)]
        pax.records.clear()
        slba = np.arange(1000, dtype=np.int64) * 8
        vectors = np.frombuffer(rng.randbytes(8000), np.uint8).reshape(1000, 8)
        report = await hints.sign(slba, np.full(1000, 8), vectors, nsid=2, family=4)
        assert report.accepted == 1000
        found = {one.slba: one for one in pax.records if isinstance(one, Signature)}
        assert len(found) == 1000
        assert all(
            found[int(at)] == Signature(2, int(at), 8, bytes(vectors[index]), 4)
            for index, at in enumerate(slba)
        )

    run(body)


def test_what_is_over_a_budget_is_counted_with_its_reason(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        records = [Signature(1, 0, 8, bytes(8)), Signature(1, 8, 8, bytes(8), 666, tag=5)]
        report = await hints.submit(records)
        assert (report.accepted, report.dropped) == (1, 1)
        if report.dropped_reason:  # the completion of a submit command has no room for it
            assert (report.dropped_tag, report.dropped_reason) == (5, Reason.BUDGET)

    run(body)


# ---- intents and questions ----


def test_an_intent_comes_back_with_its_verdict_and_ends(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        answer = await hints.intend(
            [(0, 16)],
            deadline=0.05,
            priority=0,
            confidence=90,
            session=77,
            late_ok=True,
            prefix=True,
        )
        (record,) = pax.records
        assert record == Intent(
            intent_id=answer.intent_id,
            deadline_us=50000,
            nsid=1,
            ranges=(Range(0, 16),),
            session=77,
            priority=0,
            confidence=90,
            flags=IntentFlag.LATE_OK | IntentFlag.PREFIX,
        )
        assert (answer.state, answer.verdict) == (State.PENDING, Verdict.ACCEPTED)
        assert (answer.admitted_bytes, answer.predicted_us) == (16 * BLOCK, 25000)
        waiting = asyncio.create_task(hints.ended(answer.intent_id, poll_s=0))
        pax.warm_up(answer.intent_id)
        assert (await waiting).state == State.MET
        assert (await hints.outcome(answer.intent_id)).ready_us == 1234

    run(body)


def test_a_set_may_be_intended_and_its_id_is_the_callers(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        await hints.define_set(3, [(0, 4), (8, 4)])
        answer = await hints.intend(set_id=3, deadline_us=777, intent_id=42)
        assert (answer.intent_id, answer.total_bytes) == (42, 8 * BLOCK)
        await hints.cancel(42)
        assert (await hints.outcome(42)).state == State.CANCELLED
        assert (await hints.outcome(43)).state == State.UNKNOWN

    run(body)


def test_many_intents_are_answered_in_their_order(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        intents = [
            Intent(index + 1, 1000, 1, (Range(index, 1),), tag=index) for index in range(200)
        ]
        answers = await hints.intend_many(intents)
        assert [one.intent_id for one in answers] == list(range(1, 201))
        assert [one.tag for one in answers] == list(range(200))
        assert len(pax.batches) > 1
        outcomes = await hints.outcomes(range(1, 201))
        assert [replace(one, tag=0) for one in answers] == outcomes

    run(body)


def test_residency_says_how_much_is_warm(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        await hints.define_set(3, [(0, 4), (8, 4)])
        pax.warm = {0, 1, 9}
        assert await hints.residency(set_id=3) == ResidencyAnswer(8 * BLOCK, 3 * BLOCK)
        assert (await hints.residency([(8, 2), (1, 1)])).warm_bytes == 2 * BLOCK
        with pytest.raises(HintError, match="no answer: no such set"):
            await hints.residency(set_id=99)

    run(body)


def test_what_is_kept_and_withdrawn_is_said_as_records(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        await hints.retain([(0, 8)], duration=2)
        await hints.retain(set_id=5, duration=timedelta(milliseconds=10))
        await hints.cancel(session=9)
        await hints.cancel(intents=True)
        await hints.cancel(everything=True)
        assert pax.records == [
            Retain(2000, 1, (Range(0, 8),)),
            Retain(10, 1, (), 5),
            Cancel(CancelWhat.SESSION, 9),
            Cancel(CancelWhat.ALL),
            Cancel(CancelWhat.EVERYTHING),
        ]

    run(body)


def test_records_of_many_kinds_travel_together(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        records: list[Record] = [
            SetRecord(1, 1, (Range(0, 4),)),
            Intent(5, 1000, set_id=1),
            Residency(1, (Range(0, 2),), tag=6),
            Unknown(0x7000, bytes(8)),
        ]
        report = await hints.submit(records)
        assert len(pax.batches) == 1
        assert [type(one) for one in report.answers] == [OutcomeAnswer, ResidencyAnswer]
        assert report.answers[1].tag == 6

    run(body)


def test_the_status_is_the_tenants(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        await hints.drop_set(1)
        status = await hints.status()
        assert status.batches == 1
        assert status.capability == hints.capability == pax.capability

    run(body)


# ---- mailboxes ----


def test_requests_at_a_time_use_mailboxes_of_their_own(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        await hints.define_set(1, [(0, 4)])
        answers = await asyncio.gather(
            *(hints.residency([(index, 1 + index)]) for index in range(100))
        )
        assert [one.total_bytes for one in answers] == [(1 + index) * BLOCK for index in range(100)]
        assert len({mailbox for mailbox, _ in pax.batches}) > 10

    run(body)


@pytest.mark.parametrize("is_stale", [False, True])
def test_an_answer_that_is_not_ours_is_asked_for_elsewhere(run: Run, is_stale: bool) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        pax.warm = {0}
        for _ in range(5):
            pax.thieves = 3
            pax.batches.clear()
            assert (await hints.residency([(0, 2)])).warm_bytes == BLOCK
            assert {mailbox for mailbox, _ in pax.batches} == {0, 1, 2, 3}

    run(body, FakePax(replace(CAPABILITY, mailboxes=4), is_stale=is_stale))


def test_an_intent_whose_answer_was_overwritten_is_not_said_twice(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        pax.thieves = 1
        answer = await hints.intend([(0, 2)], deadline_us=1000, intent_id=11)
        assert answer.verdict == Verdict.ACCEPTED
        assert sum(isinstance(one, Intent) for one in pax.records) == 1

    run(body)


def test_when_all_answers_are_overwritten_the_call_says_so(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        pax.thieves = 100
        with pytest.raises(AnswerLost, match="4 mailboxes in a row"):
            await hints.residency([(0, 2)])

    run(body)


def test_a_batch_that_may_not_be_repeated_is_reported_as_not_confirmed(
    run: Run, carrier: str
) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        pax.thieves = 1
        report = await hints.extend_set(4, [(0, 2)])
        assert pax.sets[4] == [Range(0, 2)]
        assert report.confirmed == (carrier in ("opcodes", "ioctl"))

    run(body)


# ---- faults ----


def test_a_refused_batch_names_its_fault(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        real = hints._batches.encode

        def spoiled(records: Any) -> list[bytes]:
            return [one[:40] + b"?" + one[41:] for one in real(records)]

        monkeypatch.setattr(hints._batches, "encode", spoiled)
        with pytest.raises(HintError, match="refused: checksum at byte 12"):
            await hints.drop_set(1)

    run(body)


def test_a_deadline_beyond_the_latest_is_said_as_the_latest(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        latest: tuple[float | timedelta, ...] = (timedelta(hours=2), 4294.967296, 1e300)
        for number, deadline in enumerate(latest):
            await hints.intend([(0, 1)], deadline=deadline, intent_id=number + 1)
        sent = [one.deadline_us for one in pax.records if isinstance(one, Intent)]
        assert sent == [0xFFFFFFFF] * 3

    run(body)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda h: h.define_set(0, [(0, 1)]), "set_id: found 0"),
        (lambda h: h.define_set(1 << 63, [(0, 1)]), "expected 1 to 9223372036854775807"),
        (lambda h: h.define_set(1, [(0, 0)]), "nlb: found 0"),
        (lambda h: h.define_set(1, []), "ranges: found 0"),
        (lambda h: h.define_set(1, [3]), "pairs of SLBA and NLB"),
        (lambda h: h.define_set(1, [("0", 1)]), "pairs of SLBA and NLB"),
        (lambda h: h.define_set(1, np.zeros(4, np.int64)), r"an array \[count, 2\]"),
        (lambda h: h.define_set(1, [(0, 1)], ttl=-1), "0 s or more"),
        (lambda h: h.sign(0, 8, b"short"), "8 or 16 bytes"),
        (lambda h: h.sign([0], 8, bytes(8)), r"vector: .* \[count, 8\]"),
        (lambda h: h.intend(set_id=1, deadline=1, priority="urgent"), r"priority: .* 0 to 3\)"),
        (lambda h: h.intend(set_id=1, deadline=1, confidence=-5), r"confidence: .* 0 to 100\)"),
        (lambda h: h.intend(set_id=1, deadline=1, late_ok="no"), "late_ok: .* True or False"),
        (lambda h: h.intend(set_id=1, deadline=1, prefix=1), "prefix: .* True or False"),
        (lambda h: h.define_set(1, [(0, 1)], ordered="no"), "ordered: .* True or False"),
        (lambda h: h.cancel(everything="no"), "everything: .* True or False"),
        (lambda h: h.sign(np.arange(3), np.ones(3, int), np.zeros((3, 9), np.uint8)), "vectors"),
        (lambda h: h.intend([(0, 1)]), "deadline"),
        (lambda h: h.intend([(0, 1)], deadline=1, deadline_us=1), "one of them"),
        (lambda h: h.intend(deadline=1), "either a set or ranges"),
        (lambda h: h.intend([(0, 1)], set_id=1, deadline=1), "either a set or ranges"),
        (lambda h: h.intend([(0, 1)] * 252, deadline=1), "define a set of more"),
        (lambda h: h.intend([(0, 1)], deadline=1, priority=4), "expected 0 to 3"),
        (lambda h: h.intend([(0, 1)], deadline=float("nan")), "0 s or more"),
        (lambda h: h.intend([(0, 1)], deadline_us=1 << 32), "deadline_us"),
        (lambda h: h.intend([(0, 1)], deadline_us=-1), "deadline_us"),
        (lambda h: h.intend([(1 << 64, 1)], deadline=1), "slba"),
        (lambda h: h.cancel(), "one of intent_id"),
        (lambda h: h.cancel(1, everything=True), "one of intent_id"),
    ],
)
def test_a_wrong_call_sends_nothing(
    tmp_path: Path, call: Callable[[Hints], Awaitable[Any]], text: str
) -> None:
    async def main() -> None:
        pax = FakePax()
        async with hints_by("ioctl", pax, tmp_path) as hints:
            with pytest.raises(InvalidHint, match=text):
                await call(hints)
            assert pax.batches == []

    asyncio.run(main())


# ---- without PAX ----


def test_without_pax_hints_are_counted_and_questions_are_empty(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        assert hints.capability is None
        assert await hints.define_set(1, [(0, 1)]) == Report()
        assert await hints.define_set(1, np.array([[0, 1]])) == Report()
        assert await hints.sign(np.arange(5), 1, np.zeros((5, 8), np.uint8)) == Report()
        answer = await hints.intend([(0, 1)], deadline=1, intent_id=8)
        assert (answer.intent_id, answer.state) == (8, State.UNKNOWN)
        assert await hints.residency([(0, 1)]) == ResidencyAnswer()
        assert hints.skipped == 9
        assert pax.batches == []
        with pytest.raises(NotSupported, match="does not speak PAX"):
            await hints.status()

    run(body, FakePax(capability=None))


def test_without_pax_calls_raise_for_who_wants_that(run: Run) -> None:
    async def body(hints: Hints, pax: FakePax) -> None:
        for call in (
            hints.drop_set(1),
            hints.intend([(0, 1)], deadline=1),
            hints.residency([(0, 1)]),
            hints.sign(np.arange(2), 1, np.zeros((2, 8), np.uint8)),
        ):
            with pytest.raises(NotSupported, match="does not speak PAX"):
                await call

    run(body, FakePax(capability=None), when_missing="raise")
