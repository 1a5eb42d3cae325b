"""How much is warm of more than a target answers at once: asked in pieces, and added up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace

from prestage.ext import layout
from prestage.ext.names import Reason
from prestage.ext.records import Range, Residency, ResidencyAnswer

MOST_RANGES = (
    layout.MAX_BATCH_BYTES - layout.BATCH.size - layout.RESIDENCY.size
) // layout.RANGE.size
"""Of one question: as many as a page has room for."""
PATIENCE_S = 2.0
PAUSE_S = 0.05
"""A tenant may ask a second's worth of questions in a second, so room for one comes within it."""
Ask = Callable[[Residency], Awaitable[ResidencyAnswer]]


async def residency_of(ask: Ask, record: Residency, max_query_bytes: int) -> ResidencyAnswer:
    """Return the answer to a question, in pieces where the target has none to all of it (7.8.3).

    Only ranges are cut: what a set has is known to the target alone. Pieces are a page each,
    for a target may look no more up for one, and each is answered at its own moment. An answer with
    a `reason` is that of the first piece that has none.
    """
    if len(record.ranges) <= MOST_RANGES:
        answer = await ask(record)
        if answer.reason != Reason.BUDGET or not record.ranges:
            return answer
    one = await _patient(ask, replace(record, ranges=(Range(record.ranges[0].slba, 1),)))
    if one.reason != Reason.NONE:
        return one
    most_blocks = max_query_bytes // max(one.total_bytes, 1)
    answers = []
    for ranges in pieces(record.ranges, max(most_blocks, 1)):
        answers.append(await _patient(ask, replace(record, ranges=ranges)))
        if answers[-1].reason != Reason.NONE:
            return answers[-1]
    return total(answers)


async def _patient(ask: Ask, record: Residency) -> ResidencyAnswer:
    """Ask again for a while when it is more than may be asked in a second."""
    for _ in range(round(PATIENCE_S / PAUSE_S)):
        answer = await ask(record)
        if answer.reason != Reason.RATE:
            return answer
        await asyncio.sleep(PAUSE_S)
    return answer


def pieces(ranges: Iterable[Range], most_blocks: int) -> Iterator[tuple[Range, ...]]:
    """Yield the blocks of `ranges` in order, as many at a time as one question may be about."""
    piece: list[Range] = []
    room = most_blocks
    for one in ranges:
        slba, end = one.slba, one.slba + one.nlb
        while slba < end:
            piece.append(Range(slba, min(end - slba, room)))
            slba += piece[-1].nlb
            room -= piece[-1].nlb
            if room == 0 or len(piece) == MOST_RANGES:
                yield tuple(piece)
                piece, room = [], most_blocks
    if piece:
        yield tuple(piece)


def total(answers: Iterable[ResidencyAnswer]) -> ResidencyAnswer:
    """Return the sum; ready when the last of it is (7.8.2)."""
    every = list(answers)
    total_bytes, warm_bytes, coming_bytes = (
        sum(getattr(one, name) for one in every)
        for name in ("total_bytes", "warm_bytes", "coming_bytes")
    )
    ready_us = 0 if warm_bytes == total_bytes else layout.READY_NEVER
    if coming_bytes:
        ready_us = max(one.ready_us for one in every if one.coming_bytes)
    return ResidencyAnswer(total_bytes, warm_bytes, coming_bytes, ready_us, tag=every[0].tag)
