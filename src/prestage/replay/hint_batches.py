"""What hosts say, as the batches that the simulated target takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from prestage.ext.codec import encode_batches
from prestage.replay.hint_plans import Hint

WRITER = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of hints (prestage.ext.codec) that a host sends."""

    time_s: float
    data: bytes
    tenant: int
    queue: int = 0


def to_batches(hints: Iterable[Hint]) -> list[Batch]:
    """Return hints, in order of time, in batches: what one host says at one time goes together."""
    batches: list[Batch] = []
    for (time_s, tenant), group in itertools.groupby(
        hints, lambda each: (each.time_s, each.tenant)
    ):
        records = [each.record for each in group]
        pages = encode_batches(records, writer=WRITER, sequence=len(batches))
        batches.extend([Batch(time_s, data, tenant) for data in pages])
    return batches
