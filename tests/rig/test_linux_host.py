"""A real Linux kernel, 6.12 and 6.1, as host of our target: one boot for each, all steps in it.

`docs/rig.md` says what the steps do; `scripts/rig` runs the same by hand.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
from rig import checks, host
from rig.target import RigError

pytestmark = [pytest.mark.rig, pytest.mark.timeout(600)]
EACH_KERNEL = pytest.mark.parametrize("kernel", host.KERNELS)


@functools.cache
def outcome(kernel: str, keep: Path) -> host.Report | RigError:
    """Boots a kernel once in a test run, in whatever order the tests come."""
    prestage = Path(sys.executable).with_name("prestage")
    try:
        return host.run(host.Options(kernel=kernel, prestage=(str(prestage),)), keep)
    except RigError as error:
        return error


@pytest.fixture
def report(kernel: str, tmp_path_factory: pytest.TempPathFactory) -> host.Report:
    found = outcome(kernel, tmp_path_factory.getbasetemp() / f"rig-{kernel}")
    if isinstance(found, RigError):
        pytest.fail(f"the rig could not run: {found}", pytrace=False)
    return found


@EACH_KERNEL
@pytest.mark.parametrize("name", list(checks.CHECKS))
def test_host_finds_the_golden_fields(report: host.Report, name: str) -> None:
    steps = [step for step in report.steps if step.name == name]
    assert len(steps) == 1, f"{name} was not carried out: {report.problems or 'see earlier steps'}"
    assert not steps[0].problems, (f"seed {report.options.seed}", steps[0].problems)


@EACH_KERNEL
def test_host_kernel_has_nothing_to_complain_of(report: host.Report) -> None:
    complaints = {step.name: step.complaints for step in report.steps if step.complaints}
    assert not complaints


@EACH_KERNEL
def test_target_and_guest_end_in_order(report: host.Report) -> None:
    assert not report.problems
