"""The hint interface: what belongs together, what is needed by when, and what is warm.

The same calls over three carriers: `Hints(controller)` for the initiator,
`Hints(PassthroughCarrier("/dev/ng0n1"))` for the kernel by ioctl, and
`Hints(ExtensionNodeCarrier("/dev/nvme0n2"))` for the block device of the extension namespace.
`prestage.host_client.hint_open` chooses by what it is given.

Nothing here can make a read fail: a hint call raises `HintError`, and nobody else hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import numpy as np

from prestage.ext.bulk import encode_set, encode_signatures
from prestage.ext.names import Reason, SetFlag, SetOp, State
from prestage.ext.pages import Capability, Event, EventLog, Status, decode_events, decode_status
from prestage.ext.records import (
    Answer,
    Intent,
    Outcome,
    OutcomeAnswer,
    Record,
    Residency,
    ResidencyAnswer,
)
from prestage.host_client import hint_records as make
from prestage.host_client.controller import Controller
from prestage.host_client.errors import HintError, InvalidHint, NotSupported
from prestage.host_client.hint_batches import ASKING, Batches, Report, hint_errors
from prestage.host_client.hint_carrier import HintCarrier
from prestage.host_client.hint_records import Ranges
from prestage.host_client.hint_residency import residency_of
from prestage.host_client.initiator_carrier import InitiatorCarrier
from prestage.host_client.read_hint import Seconds

POLL_S = 0.005
Integers = np.ndarray[Any, np.dtype[np.integer[Any]]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Kind = TypeVar("Kind", ResidencyAnswer, OutcomeAnswer)


class Hints:
    """Hints to one target: `async with Hints(carrier) as hints`.

    `capability` is what the target offers, None where it does not speak PAX (by this carrier). Then
    hints do nothing, are counted in `skipped`, and questions have empty answers
    (`when_missing="skip"`, which lets a program run unchanged against any target), or every call
    raises `NotSupported` (`when_missing="raise"`).

    Sets, sessions, intents and what can be asked belong to the tenant, which is the host NQN of the
    connection. NSIDs and blocks are those of the target, whichever the carrier is. Time spans are
    seconds, or a timedelta.

    All calls raise `HintError`: `InvalidHint`, `NotSupported`, `BatchRefused`, `AnswerLost`, or one
    with what the carrier raised as its cause. To be over a budget is no error: the `Report` counts
    it.
    """

    def __init__(
        self,
        carrier: HintCarrier | Controller,
        *,
        when_missing: Literal["skip", "raise"] = "skip",
    ) -> None:
        self.carrier = InitiatorCarrier(carrier) if isinstance(carrier, Controller) else carrier
        self.capability: Capability | None = None
        self.skipped = 0
        """Records that were not sent, for want of PAX."""
        self._raises = when_missing == "raise"
        self._batches = Batches(self.carrier)
        self._has_mailboxes = False

    async def open(self) -> Self:
        """Look at what the target offers; `async with` does it."""
        with hint_errors(self.carrier.where):
            await self.carrier.open()
        await self._look()
        return self

    async def _look(self) -> None:
        """See what the target offers now: after a reconnect it may be another one."""
        with hint_errors(self.carrier.where):
            self.capability = await self.carrier.capability()
        if self.capability is not None and not self._has_mailboxes:
            self._batches.set_mailboxes(self.capability.mailboxes)
            self._has_mailboxes = True

    async def close(self) -> None:
        """Give the carrier back; `async with` does it. What was said stays said."""
        with hint_errors(self.carrier.where):
            await self.carrier.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ---- sets and signatures ----

    async def define_set(
        self,
        set_id: int,
        ranges: Ranges,
        *,
        nsid: int = 1,
        ordered: bool = False,
        ttl: Seconds | None = None,
    ) -> Report:
        """Say that the blocks of `ranges`, and no others, are set `set_id` (5.2.3).

        `ranges` are pairs of SLBA and NLB, or an array [count, 2] of them; any number. `ordered`:
        they are read in this order. `ttl`: for how long; None: as long as the target keeps sets.
        """
        if isinstance(ranges, np.ndarray):
            return await self._define_many(set_id, ranges, nsid=nsid, ordered=ordered, ttl=ttl)
        record = make.set_record(SetOp.DEFINE, set_id, ranges, nsid=nsid, ordered=ordered, ttl=ttl)
        return await self.submit([record])

    async def _define_many(
        self, set_id: int, pairs: Integers, *, nsid: int, ordered: bool, ttl: Seconds | None
    ) -> Report:
        make.require_integers(pairs, "ranges")
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise InvalidHint(f"found an array {pairs.shape}", "ranges", "an array [count, 2]")
        if not await self._is_there(1):
            return Report()
        batches = self._batches
        with hint_errors(self.carrier.where):
            made = encode_set(
                set_id,
                pairs[:, 0],
                pairs[:, 1],
                nsid=nsid,
                writer=batches.writer,
                sequence=batches.take_sequence(0),
                flags=SetFlag.ORDERED if make.hint_flag(ordered, "ordered") else SetFlag.NONE,
                ttl_ms=make.span_ms(ttl, "ttl"),
            )
        batches.take_sequence(len(made))
        return await batches.send_all(made, asks=False)

    async def extend_set(
        self,
        set_id: int,
        ranges: Ranges,
        *,
        nsid: int = 1,
        ordered: bool = False,
        ttl: Seconds | None = None,
    ) -> Report:
        """Append ranges to a set; define it when there is none."""
        record = make.set_record(SetOp.EXTEND, set_id, ranges, nsid=nsid, ordered=ordered, ttl=ttl)
        return await self.submit([record])

    async def drop_set(self, set_id: int, *, nsid: int = 1) -> Report:
        """Forget a set."""
        record = make.set_record(SetOp.DROP, set_id, (), nsid=nsid, ordered=False, ttl=None)
        return await self.submit([record])

    async def sign(
        self,
        slba: int | list[int] | tuple[int, ...] | Integers,
        nlb: int | list[int] | tuple[int, ...] | Integers,
        vector: bytes | Sequence[bytes] | Bytes,
        *,
        nsid: int = 1,
        family: int = 0,
        ttl: Seconds | None = None,
    ) -> Report:
        """Attach locality signatures: the smaller the Hamming distance, the closer (5.2.4).

        One range and a vector of 8 or 16 bytes, lowest bits first; or many at a time: `slba` is an
        array [count] or a list, `nlb` another or one number for all, `vector` an array [count, 8]
        or [count, 16] of uint8, or a list of bytes. Distances mean something within a `family` (0
        to 65535) only.
        """
        if isinstance(slba, np.ndarray | list | tuple):
            starts = make.as_integers(slba, "slba")
            return await self._sign_many(starts, nlb, vector, nsid=nsid, family=family, ttl=ttl)
        if not isinstance(nlb, int | np.integer):
            raise InvalidHint(f"found {nlb!r}", "nlb", "a number, as slba is")
        record = make.signature_record(nsid, slba, nlb, vector, family=family, ttl=ttl)
        return await self.submit([record])

    async def _sign_many(
        self, slba: Integers, nlb: Any, vectors: Any, *, nsid: int, family: int, ttl: Seconds | None
    ) -> Report:
        counts = make.as_integers(nlb, "nlb")
        rows = make.as_vectors(vectors)
        if counts.shape not in ((), slba.shape):
            raise InvalidHint(f"found an array {counts.shape}", "nlb", f"a number, or {slba.shape}")
        if not await self._is_there(slba.size):
            return Report()
        batches = self._batches
        with hint_errors(self.carrier.where):
            made = encode_signatures(
                slba,
                np.broadcast_to(counts, slba.shape),
                rows,
                nsid=nsid,
                writer=batches.writer,
                sequence=batches.take_sequence(0),
                family=family,
                ttl_ms=make.span_ms(ttl, "ttl"),
            )
        batches.take_sequence(len(made))
        return await batches.send_any_order(made)

    # ---- intents ----

    async def intend(
        self,
        ranges: Ranges | None = None,
        *,
        set_id: int = 0,
        nsid: int = 1,
        deadline: Seconds | None = None,
        deadline_us: int | None = None,
        priority: int | None = None,
        confidence: int = 0,
        session: int = 0,
        late_ok: bool = False,
        prefix: bool = False,
        intent_id: int | None = None,
    ) -> OutcomeAnswer:
        """Say that ranges, or a set, are needed by a deadline from now; return what was decided.

        `deadline` (seconds or a timedelta) or `deadline_us`; the latest is FFFFFFFFh microseconds,
        about 71.6 minutes: a longer `deadline` is said as that, a larger `deadline_us` is refused.
        `priority` 0 (urgent) to 3 (low); `confidence` in percent that it will be read, 0: not said;
        `session` opaque, 0: none.
        `late_ok`: it is still wanted after the deadline; `prefix`: the first part that can be ready
        is wanted when not all can. The answer has `intent_id`, `verdict`, `admitted_bytes` and
        `predicted_us`; ask `outcome` later. An intent of the same id is replaced (5.2.5).
        """
        record = make.intent_record(
            ranges,
            set_id=set_id,
            nsid=nsid,
            deadline_us=make.span_us(deadline, deadline_us),
            priority=priority,
            confidence=confidence,
            session=session,
            late_ok=late_ok,
            prefix=prefix,
            intent_id=intent_id,
        )
        (answer,) = await self.intend_many([record])
        return answer

    async def intend_many(self, intents: Iterable[Intent]) -> list[OutcomeAnswer]:
        """As `intend`, of many records at a time; answers in their order."""
        records = list(intents)
        if not await self._is_there(len(records)):
            return [OutcomeAnswer(one.intent_id, tag=one.tag) for one in records]
        return await self._outcome_answers(records)

    async def retain(
        self,
        ranges: Ranges | None = None,
        *,
        set_id: int = 0,
        nsid: int = 1,
        duration: Seconds,
    ) -> Report:
        """Keep what is warm now of ranges, or of a set, for a while; nothing is read (5.2.6)."""
        record = make.retain_record(ranges, set_id=set_id, nsid=nsid, duration=duration)
        return await self.submit([record])

    async def cancel(
        self,
        intent_id: int | None = None,
        *,
        session: int | None = None,
        intents: bool = False,
        everything: bool = False,
    ) -> Report:
        """Withdraw an intent, those of a session, all intents, or all sets and signatures too."""
        record = make.cancel_record(intent_id, session, intents=intents, everything=everything)
        return await self.submit([record])

    # ---- questions ----

    async def residency(
        self, ranges: Ranges | None = None, *, set_id: int = 0, nsid: int = 1
    ) -> ResidencyAnswer:
        """Return how much of ranges, or of a set, is warm now, and what is coming (5.4.4).

        Ranges of more than one question may be about (`capability.max_query_bytes`) are asked
        about in pieces, one after the other. Raises `HintError` when the target has no answer: no
        such namespace or set, a set of more than that, or more than may be asked in a second.
        """
        record = make.residency_record(ranges, set_id=set_id, nsid=nsid)
        if not await self._is_there(1):
            return ResidencyAnswer()
        assert self.capability is not None
        answer = await residency_of(self._ask_residency, record, self.capability.max_query_bytes)
        if answer.reason != Reason.NONE:
            raise HintError(f"no answer: {answer.reason.meaning}", self.carrier.where)
        return answer

    async def _ask_residency(self, record: Residency) -> ResidencyAnswer:
        (found,) = await self._ask([record])
        return _typed(found, ResidencyAnswer, self.carrier.where)

    async def outcome(self, intent_id: int) -> OutcomeAnswer:
        """Return what became of an intent so far; state `unknown`: it is not remembered."""
        (answer,) = await self.outcomes([intent_id])
        return answer

    async def outcomes(self, intent_ids: Iterable[int]) -> list[OutcomeAnswer]:
        """As `outcome`, of many intents at a time."""
        records = [Outcome(one) for one in intent_ids]
        if not await self._is_there(len(records)):
            return [OutcomeAnswer(one.intent_id) for one in records]
        return await self._outcome_answers(records)

    async def ended(self, intent_id: int, *, poll_s: float = POLL_S) -> OutcomeAnswer:
        """Wait until an intent is not pending any more, by asking again and again."""
        while True:
            answer = await self.outcome(intent_id)
            if answer.state != State.PENDING:
                return answer
            await asyncio.sleep(poll_s)

    async def status(self) -> Status:
        """Return the tenant's budgets and counters. Raises `NotSupported` without PAX."""
        self._require()
        with hint_errors(self.carrier.where):
            return decode_status(await self.carrier.status())

    async def events(self, *, clear: bool = True) -> EventLog:
        """Return the warm-event log: intents that have ended, oldest first.

        `clear`: what was read is forgotten. Raises `NotSupported` where the carrier has no log.
        """
        self._require()
        make.hint_flag(clear, "clear")
        with hint_errors(self.carrier.where):
            return decode_events(await self.carrier.events(clear=clear))

    async def watch(self) -> AsyncGenerator[Event, None]:
        """Yield intents as they end, told by asynchronous events (the initiator only)."""
        self._require()
        while True:
            with hint_errors(self.carrier.where):
                await self.carrier.wait_event()
            while found := (await self.events()).events:
                for event in found:
                    yield event

    # ---- records ----

    async def submit(self, records: Iterable[Record]) -> Report:
        """Send any records of `prestage.ext.records`, as many a page as fit, in order."""
        every = make.as_records(records)
        if not await self._is_there(len(every)):
            return Report()
        asks = any(isinstance(one, ASKING) for one in every)
        return await self._batches.send_all(self._batches.encode(every), asks=asks)

    async def _ask(self, records: list[Record]) -> tuple[Answer, ...]:
        report = await self._batches.send_all(self._batches.encode(records), asks=True)
        if len(report.answers) != len(records):
            text = f"{len(report.answers)} answers to {len(records)} records"
            raise HintError(text, self.carrier.where)
        return report.answers

    async def _outcome_answers(self, records: Iterable[Record]) -> list[OutcomeAnswer]:
        answers = await self._ask(list(records))
        return [_typed(one, OutcomeAnswer, self.carrier.where) for one in answers]

    async def _is_there(self, records: int) -> bool:
        """Whether the target takes hints; else count them, or raise `NotSupported`."""
        await self._look()
        if self.capability is not None:
            return True
        if self._raises:
            self._require()
        self.skipped += records
        return False

    def _require(self) -> None:
        if self.capability is None:
            raise NotSupported("the target does not speak PAX", self.carrier.where)


def _typed(answer: Answer, kind: type[Kind], where: str) -> Kind:
    if not isinstance(answer, kind):
        raise HintError(f"the answer is {type(answer).__name__}", where, kind.__name__)
    return answer
