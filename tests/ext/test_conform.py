"""The conformance kit: it passes what keeps the contract and fails what does not."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import looptime
import pytest
from pax.mutants import MUTANTS, Mutant
from pax.mutation import change_tenants
from pax.target import ALL, FakeTarget

from prestage.ext.conform import CHECKS, Level, Outcome, Report, Result, conform
from prestage.ext.conform.runner import checks
from prestage.ext.names import Carrier
from prestage.ext.pages import Budget

SPECIFICATION = Path(__file__).resolve().parents[2] / "ext" / "SPECIFICATION.md"


def run(target: FakeTarget, **options: Any) -> Report:
    """Run the kit in virtual time."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with asyncio.Runner(loop_factory=lambda: looptime.new_event_loop(start=100)) as runner:
        report = runner.run(conform(target.connect, seed=seed, **options))
    print(report.table())
    return report


def outcomes(report: Report) -> dict[Outcome, int]:
    found = [each.outcome for each in report.results]
    return {outcome: found.count(outcome) for outcome in Outcome}


def test_a_target_that_keeps_the_contract_passes() -> None:
    report = run(FakeTarget())
    assert not report.failed
    assert outcomes(report)[Outcome.SKIPPED] == 0
    assert report.exit_status == 0
    assert len(report.results) > 100


@pytest.mark.parametrize("carrier", Carrier, ids=lambda carrier: str(carrier.name))
def test_a_target_without_a_carrier_passes_what_is_left(carrier: Carrier) -> None:
    report = run(FakeTarget(ALL ^ carrier))
    assert not report.failed
    assert outcomes(report)[Outcome.PASSED] > 20


@pytest.mark.parametrize("carrier", Carrier, ids=lambda carrier: str(carrier.name))
def test_a_target_with_one_carrier_passes_what_it_offers(carrier: Carrier) -> None:
    report = run(FakeTarget(carrier))
    assert not report.failed


def test_a_target_without_pax_is_reported_so_and_passes_the_fallback_clauses() -> None:
    report = run(FakeTarget(Carrier.NONE))
    assert report.capability is None
    assert [each.check.clause for each in report.results] == ["3.5.2", "3.5.3", "3.5.4"]
    assert report.summary.startswith("no PAX")
    assert not report.failed
    assert report.exit_status == 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.clause}-{mutant.name}")
def test_a_mutant_fails_in_exactly_the_clause_that_it_breaks(mutant: Mutant) -> None:
    target = FakeTarget()
    mutant.make(target)
    report = run(target)
    assert {each.check.clause for each in report.failed} == {mutant.clause}


def test_a_budget_that_no_record_fits_in_skips_the_checks_of_records() -> None:
    target = FakeTarget()
    scarce = {"intents": Budget(limit=1)}
    change_tenants(
        target,
        "status",
        lambda old, _, capability: dataclasses.replace(old(capability), **scarce),
    )
    report = run(target)
    assert not report.failed
    skipped = [each for each in report.results if each.outcome is Outcome.SKIPPED]
    assert {each.why for each in skipped} == {"the budget of intents is 1; 2 are needed"}
    assert any(each.check.clause == "5.2.3" for each in skipped)


def test_a_failed_must_is_an_error_and_a_failed_should_is_not() -> None:
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    for name, status in (("intents_read_nothing", 0), ("checksums_are_wrong", 1)):
        target = FakeTarget()
        by_name[name].make(target)
        assert run(target).exit_status == status


def test_reports_say_the_same_in_every_form() -> None:
    target = FakeTarget()
    {mutant.name: mutant for mutant in MUTANTS}["checksums_are_wrong"].make(target)
    seen: list[Result] = []
    report = run(target, progress=seen.append)
    assert tuple(seen) == report.results
    data = json.loads(report.json())
    assert data["pax"]
    assert data["exit_status"] == 1
    assert len(data["results"]) == len(report.results)
    (failed,) = [each for each in data["results"] if each["outcome"] == "failed"]
    assert failed["clause"] == "5.4.2"
    suite = ET.fromstring(report.junit())
    assert int(suite.attrib["failures"]) == len(suite.findall(".//failure")) == 1
    assert int(suite.attrib["tests"]) == len(suite.findall("testcase")) == len(report.results)
    assert re.search(r"^failed  5\.4\.2 ", report.table(), re.MULTILINE)


def test_checks_can_be_chosen_and_a_seed_repeats_a_run() -> None:
    report = run(FakeTarget(), chosen=lambda check: check.clause.startswith("7."))
    assert {each.check.clause[0] for each in report.results} == {"7"}


def test_a_target_that_goes_away_fails_what_it_does_not_answer() -> None:
    class Gone(FakeTarget):
        def io(self, who: Any, command: Any) -> Any:
            raise ConnectionResetError

    report = run(Gone(), chosen=lambda check: check.clause == "4.3.4")
    (result,) = report.failed
    assert "no answer" in result.why


def test_every_check_cites_a_clause_that_exists_and_is_worded_so() -> None:
    text = SPECIFICATION.read_text("utf-8")
    clause = re.compile(r"^\*\*(\d+(?:\.\d+)+)\*\*(.*?)(?=^\*\*\d|^#)", re.MULTILINE | re.DOTALL)
    clauses = dict(clause.findall(text))
    assert len({each.name for each in CHECKS}) == len(CHECKS) == len(checks())
    for each in CHECKS:
        assert each.clause in clauses, each.name
        if each.level is Level.SHOULD:
            assert "SHOULD" in clauses[each.clause], each.name


def test_mutants_break_many_clauses() -> None:
    assert len({mutant.clause for mutant in MUTANTS}) > 60
    assert {mutant.clause for mutant in MUTANTS} <= {each.clause for each in CHECKS}
