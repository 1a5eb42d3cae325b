"""The conformance kit over TCP: this target passes, and every mutant of it fails in its clause."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
from concurrent.futures import ThreadPoolExecutor

import pytest
from pax.altered import ALTERATIONS, Alteration, AlteredHost

from prestage import testing
from prestage.ext.conform import Host, Outcome, Report, Tenant, conform
from prestage.host_client.address import parse_url
from prestage.host_client.conform_host import ConformHost
from prestage.host_client.options import Options

TARGETS = 6
"""Runs are mostly waiting, so several go on at once, each at a target of its own."""
RUNS = itertools.count()
NONE = Alteration("", "none")
SETS_OVER_BUDGET = "the_budget_of_sets_drops"
"""Its budget is of more sets than the kit submits."""


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """What the kit says of this target and of its mutants, by their names."""
    waiting = queue.SimpleQueue[Alteration]()
    for each in (NONE, *ALTERATIONS):
        waiting.put(each)
    found: dict[str, Report] = {}

    def work() -> None:
        # The tier is small beside the namespace, so that most of it stays cold.
        target = testing.Target(namespaces=["256M"], dram="32M", extension=True)
        with testing.in_thread(target) as running, contextlib.suppress(queue.Empty):
            while True:
                alteration = waiting.get_nowait()
                found[alteration.name] = run(running, alteration)

    with ThreadPoolExecutor(TARGETS) as pool:
        for done in [pool.submit(work) for _ in range(TARGETS)]:
            done.result()
    return found


def run(target: testing.Target, alteration: Alteration) -> Report:
    """Run the kit as two hosts that nobody else is."""
    address = parse_url(f"nvme+tcp://127.0.0.1:{target.port}/{target.nqn}")
    number = next(RUNS)

    async def make_host(who: Tenant) -> Host:
        nqn = f"nqn.2026-11.org.example:conform-{number}-{who.value}"
        options = Options(host_nqn=nqn, keep_alive_s=0)
        return AlteredHost(await ConformHost(address, options).open(), alteration)

    return asyncio.run(conform(make_host))


def shown(report: Report) -> Report:
    """Return a report that is printed, with its seed, when the test fails."""
    print(f"seed {report.seed}\n{report.table()}")
    return report


def test_this_target_passes(reports: dict[str, Report]) -> None:
    report = shown(reports[NONE.name])
    assert report.capability is not None
    assert not report.failed
    skipped = [each.check.name for each in report.results if each.outcome is Outcome.SKIPPED]
    assert skipped == [SETS_OVER_BUDGET]
    assert len(report.results) > 100


@pytest.mark.parametrize("alteration", ALTERATIONS, ids=lambda each: f"{each.clause}-{each.name}")
def test_a_mutant_fails_in_exactly_the_clause_that_it_breaks(
    reports: dict[str, Report], alteration: Alteration
) -> None:
    report = shown(reports[alteration.name])
    assert {each.check.clause for each in report.failed} == {alteration.clause}


def test_there_are_mutants_enough() -> None:
    assert len(ALTERATIONS) >= 20
    assert len({each.clause for each in ALTERATIONS}) == len(ALTERATIONS)
