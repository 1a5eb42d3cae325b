"""Batches on their way: sequence numbers, mailboxes, and answers that are really ours.

A tenant's mailboxes are shared by all who speak for it. So each writer has a random number, each
batch its sequence number, and an answer that echoes others is not believed: what may be said twice
is said again by another mailbox, what may not is asked about instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from prestage.ext import layout
from prestage.ext.answers import AnswerPage, decode_answer
from prestage.ext.codec import decode_batch, encode_batches
from prestage.ext.errors import BadRecord, BatchTooLarge, Malformed
from prestage.ext.names import AnswerState, Reason, SetOp
from prestage.ext.records import Answer, Intent, Outcome, Record, Residency, SetRecord, Unknown
from prestage.host_client.errors import (
    AnswerLost,
    BatchRefused,
    HintError,
    HostError,
    InvalidHint,
)
from prestage.host_client.hint_carrier import HintCarrier, Taken

TRIES = 4
"""Mailboxes that one question is asked by."""
AT_A_TIME = 16
"""Batches of independent records in flight."""
ASKING = (Intent, Residency, Outcome)
"""Records that have an answer."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of records. `answers` are those of intents and queries, in their order.

    `dropped_reason` is why the first of `dropped` was, and `dropped_tag` its tag, as far as the
    carrier tells. Not `confirmed`: others overwrote the answer of a batch that had been taken, so
    its records are in no count.
    """

    accepted: int = 0
    dropped: int = 0
    unknown: int = 0
    dropped_tag: int = 0
    dropped_reason: Reason = Reason.NONE
    answers: tuple[Answer, ...] = ()
    confirmed: bool = True

    def __add__(self, other: Report) -> Report:
        first = self if self.dropped else other
        return Report(
            self.accepted + other.accepted,
            self.dropped + other.dropped,
            self.unknown + other.unknown,
            first.dropped_tag,
            first.dropped_reason,
            self.answers + other.answers,
            self.confirmed and other.confirmed,
        )


class Batches:
    """The batches of one writer over one carrier."""

    def __init__(self, carrier: HintCarrier) -> None:
        self.carrier = carrier
        self.writer = secrets.randbits(64)
        self.max_bytes = layout.MAX_BATCH_BYTES
        self._sequence = 0
        self._random = random.Random()
        self._free: list[int] = []
        self._room = asyncio.Semaphore(0)

    def set_mailboxes(self, count: int) -> None:
        """Say how many mailboxes there are; before anything is sent."""
        self._free = list(range(min(count, layout.MAILBOXES) or 1))
        self._room = asyncio.Semaphore(len(self._free))

    def encode(self, records: Iterable[Record]) -> list[bytes]:
        """Return batches of these records. Raises `InvalidHint`."""
        with hint_errors(self.carrier.where):
            made = list(
                encode_batches(
                    records,
                    writer=self.writer,
                    sequence=self.take_sequence(0),
                    max_size=self.max_bytes,
                )
            )
        self.take_sequence(len(made))
        return made

    def take_sequence(self, count: int) -> int:
        """Return the next sequence number, and pass over `count` of them."""
        first = self._sequence
        self._sequence = (first + count) & 0xFFFFFFFF
        return first

    async def send_all(self, batches: Sequence[bytes], *, asks: bool) -> Report:
        """Send batches one after the other. Raises `HintError`."""
        report = Report()
        for batch in batches:
            report += await self.send(batch, asks=asks)
        return report

    async def send_any_order(self, batches: Sequence[bytes]) -> Report:
        """Send batches that do not depend on each other, several at a time, and ask nothing."""
        report = Report()
        for start in range(0, len(batches), AT_A_TIME):
            some = batches[start : start + AT_A_TIME]
            tasks = [asyncio.ensure_future(self.send(one, asks=False)) for one in some]
            try:
                for one in await asyncio.gather(*tasks):
                    report += one
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return report

    async def send(self, batch: bytes, *, asks: bool) -> Report:
        """Send a batch and return what became of it. Raises `HintError`."""
        used: set[int] = set()
        with hint_errors(self.carrier.where):
            return await self._send(batch, asks=asks, used=used)

    async def _send(self, batch: bytes, *, asks: bool, used: set[int]) -> Report:
        async with self._mailbox(used) as mailbox:
            taken = await self.carrier.submit(batch, mailbox)
            # Why something was dropped stands in the answer alone.
            if taken is not None and not asks and not taken.dropped:
                return Report(taken.accepted, taken.dropped, taken.unknown)
            page = decode_answer(await self.carrier.answer(mailbox))
        sequence = int.from_bytes(batch[24:28], "little")
        if page.writer == self.writer and page.sequence == sequence:
            return _report(page, taken, self.carrier.where)
        return await self._again(batch, taken, used)

    async def _again(self, batch: bytes, taken: Taken | None, used: set[int]) -> Report:
        """Somebody else's answer was in the mailbox: say it again by another one, or ask."""
        where = self.carrier.where
        if len(used) >= TRIES:
            raise AnswerLost(f"others wrote to {TRIES} mailboxes in a row", where)
        records = decode_batch(batch, max_size=self.max_bytes).records
        may_repeat = taken is None and not any(map(_counts_twice, records))
        if may_repeat:
            (more,) = self.encode(records)
            return await self._send(more, asks=True, used=used)
        questions = [_question(one) for one in records if isinstance(one, ASKING)]
        known = (
            Report(confirmed=False)
            if taken is None
            else Report(taken.accepted, taken.dropped, taken.unknown)
        )
        if not questions:
            return known
        (more,) = self.encode(questions)
        answers = (await self._send(more, asks=True, used=used)).answers
        return replace(known, answers=answers)

    @contextlib.asynccontextmanager
    async def _mailbox(self, used: set[int]) -> AsyncIterator[int]:
        """Take a random mailbox that no other request of ours uses; not a used one if possible."""
        async with self._room:
            choice = [one for one in self._free if one not in used] or self._free
            mailbox = self._random.choice(choice)
            self._free.remove(mailbox)
            used.add(mailbox)
            try:
                yield mailbox
            finally:
                self._free.append(mailbox)


def _report(page: AnswerPage, taken: Taken | None, where: str) -> Report:
    if page.state == AnswerState.REFUSED:
        raise BatchRefused(page.fault.name.lower(), page.fault_offset, where)
    answers = tuple(one for one in page.answers if not isinstance(one, Unknown))
    return Report(
        page.accepted if taken is None else taken.accepted,
        page.dropped if taken is None else taken.dropped,
        page.unknown if taken is None else taken.unknown,
        page.dropped_tag,
        page.dropped_reason,
        answers,
    )


def _counts_twice(record: Record) -> bool:
    """Whether a record said twice means something else than said once."""
    is_extension = isinstance(record, SetRecord) and record.op == SetOp.EXTEND
    return is_extension or isinstance(record, Intent)


def _question(record: Record) -> Record:
    """Return what asks for the answer to a record that was taken already."""
    return Outcome(record.intent_id, record.tag) if isinstance(record, Intent) else record


@contextlib.contextmanager
def hint_errors(where: str) -> Iterator[None]:
    """Let nothing out but `HintError`s."""
    try:
        yield
    except HintError:
        raise
    except Malformed as error:
        raise HintError(f"the target's page is malformed: {error}", where) from error
    except (BadRecord, BatchTooLarge) as error:
        raise InvalidHint(str(error), where) from error
    except HostError as error:
        if error.where.startswith(where):
            raise HintError(error.what, error.where, error.expected) from error
        raise HintError(str(error), where) from error
    except OSError as error:
        raise HintError(error.strerror or str(error), where) from error
