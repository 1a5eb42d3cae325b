"""Running the checks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from ..errors import Malformed
from ..names import Carrier
from .checks import (
    admin,
    batches,
    discovery,
    endings,
    extension,
    fallback,
    faults,
    intents,
    opcodes,
    reads,
    sets,
    tenants,
)
from .registry import CHECKS, Check, Failed, Need, Skipped
from .report import Outcome, Report, Result
from .session import MakeHost, Session

MODULES: Final = (
    fallback,
    discovery,
    reads,
    extension,
    opcodes,
    admin,
    batches,
    faults,
    sets,
    intents,
    endings,
    tenants,
)
"""Where the checks are; they register themselves."""
BATCHES: Final = Carrier.EXTENSION_NAMESPACE | Carrier.SUBMIT_QUERY


def checks() -> list[Check]:
    """Return all checks, by clause."""
    assert MODULES, "they have registered their checks"
    return sorted(CHECKS, key=lambda each: [int(part) for part in each.clause.split(".")])


async def conform(
    make_host: MakeHost,
    *,
    chosen: Callable[[Check], bool] = lambda _: True,
    progress: Callable[[Result], None] = lambda _: None,
    patience_s: float = 10.0,
    seed: int | None = None,
) -> Report:
    """Run the checks against the target to which `make_host` connects.

    `make_host` is called for each tenant once, when it is needed; tenants have different Host NQNs.
    Only `chosen` checks are run; each result goes to `progress` as it comes. `patience_s` is how
    long anything may take that has no deadline of its own. What the run draws at random comes from
    `seed`, which stands in the report. A target without PAX gets the fallback clauses only.

    Raises ConnectionError or TimeoutError when the target cannot be reached at all.
    """
    seed = random.SystemRandom().getrandbits(32) if seed is None else seed
    session = Session(make_host, patience_s, seed)
    await session.open()
    try:
        results = [each async for each in _run(session, filter(chosen, checks()), progress)]
    finally:
        await session.close()
    return Report(session.capability, tuple(results), seed)


async def _run(
    session: Session, wanted: Iterable[Check], progress: Callable[[Result], None]
) -> AsyncIterator[Result]:
    for each in wanted:
        if not _concerns(session, each):
            continue
        result = await _result(session, each)
        progress(result)
        yield result


def _concerns(session: Session, check: Check) -> bool:
    """Return whether a check says anything about this kind of target."""
    return (Need.NO_PAX in check.needs) == (session.capability is None)


async def _result(session: Session, check: Check) -> Result:
    loop = asyncio.get_running_loop()
    start = loop.time()
    outcome, why = Outcome.PASSED, ""
    try:
        _look_at_needs(session, check)
        if session.capability is not None and session.capability.carriers & BATCHES:
            await asyncio.sleep(session.pause_s)
            await session.first.forget()
        await check.function(session)
    except Skipped as error:
        outcome, why = Outcome.SKIPPED, str(error)
    except Failed as error:
        outcome, why = Outcome.FAILED, str(error)
    except Malformed as error:
        outcome, why = Outcome.FAILED, f"the target sent what is malformed: {error}"
    except (ConnectionError, TimeoutError) as error:
        outcome, why = Outcome.FAILED, f"no answer: {error!r}"
    return Result(check, outcome, why, loop.time() - start)


def _look_at_needs(session: Session, check: Check) -> None:
    capability = session.capability
    if capability is None:
        return
    if missing := check.carriers & ~int(capability.carriers):
        raise Skipped(f"no carrier {missing!r}")
    if Need.BATCHES in check.needs and not capability.carriers & BATCHES:
        raise Skipped("no carrier of batches")
    if session.scarce and (check.records or Need.RECORDS in check.needs):
        raise Skipped(session.scarce)
    for kind in check.records:
        types = capability.query_types if kind >= 0x100 else capability.record_types
        if not types >> (kind & 0xFF) & 1:
            raise Skipped(f"no records of type {kind.name}")
