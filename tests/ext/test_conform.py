"""The conformance kit: it passes what keeps the contract and fails what does not."""

from __future__ import annotations

import asyncio
import random

import looptime
from pax.target import FakeTarget

from prestage.ext.conform import Report, conform


def run(target: FakeTarget, **options: object) -> Report:
    """Run the kit in virtual time."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(start=100)) as runner:
        return runner.run(conform(target.connect, seed=seed, **options))  # type: ignore[arg-type]


def test_a_target_that_keeps_the_contract_passes() -> None:
    report = run(FakeTarget())
    print(report.table())
    assert not report.failed
