"""Every probe of the table, and its right answer."""

from __future__ import annotations

import pytest

from . import probes
from .probing import PROBES, Probe, Site, agrees, observe
from .running import ROOT


def test_the_table_is_filled_and_has_no_name_twice() -> None:
    names = [probe.name for probe in PROBES]
    assert len(names) > 200 and len(set(names)) == len(names)
    assert set(probes.__all__) == {probe.run.__module__.rpartition(".")[2] for probe in PROBES}


def test_every_row_is_documented() -> None:
    text = (ROOT / "docs" / "faults.md").read_text()
    missing = [
        probe.name
        for probe in PROBES
        if probe.row != "ref"
        and (f"| {probe.row}" not in text or probe.name.partition("[")[0] not in text)
    ]
    assert not missing


@pytest.mark.parametrize("probe", PROBES, ids=[probe.name for probe in PROBES])
def test_probe(probe: Probe, site: Site) -> None:
    answer = observe(probe.run, site)
    expected = probe.expected(site)
    assert agrees(answer, expected), f"{probe.row}: answered {answer!r}, {expected!r} expected"
