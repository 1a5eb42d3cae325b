"""One target process per test module, or the one that PRESTAGE_TEST_TARGET names.

PRESTAGE_TEST_TARGET=HOST:PORT,NQN[,nvmet] runs the probe tables against a target that is there
already; with `nvmet` its answers are compared with those that Linux's target is known to give.
A module may set CONFIG, changes to the configuration of running.base_config.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from .probing import SEED, Site, check_fresh_connection
from .running import ALLOWED_HOST, RESTRICTED_NQN, RunningTarget, base_config, merge

EXTERNAL = "PRESTAGE_TEST_TARGET"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of the tests that boot a kernel."""
    config.addinivalue_line("markers", "rig: boots a Linux kernel under emulation")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with every failure how its randomness is repeated."""
    report = yield
    if report.failed:
        report.sections.append(("seed", f"PRESTAGE_TEST_SEED={SEED}"))
    return report


def external_site() -> Site | None:
    """The target that the environment names."""
    named = os.environ.get(EXTERNAL)
    if not named:
        return None
    fields = named.split(",")
    host, _, port = fields[0].rpartition(":")
    if not host or not port.isdigit() or len(fields) not in (2, 3):
        raise pytest.UsageError(f"{EXTERNAL}={named}: expected HOST:PORT,NQN[,nvmet]")
    is_reference = fields[2:] == ["nvmet"]
    return Site(
        (host.strip("[]"), int(port)),
        fields[1],
        is_reference=is_reference,
        silence_s=2.0 if is_reference else 15.0,
        restricted_nqn=RESTRICTED_NQN,
        allowed_host=ALLOWED_HOST,
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With an external target, only what asks for no more than a site can run."""
    if external_site() is None:
        return
    reason = pytest.mark.skip(reason=f"needs a target of its own, {EXTERNAL} is set")
    for item in items:
        if "tests/wire" in str(item.path) and "target" in getattr(item, "fixturenames", ()):
            item.add_marker(reason)


@pytest.fixture(scope="module")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningTarget | None]:
    """The module's target process; None when an external one is tested."""
    if external_site() is not None:
        yield None
        return
    directory = tmp_path_factory.mktemp("target")
    changes = getattr(request.module, "CONFIG", {})
    started = RunningTarget(directory, merge(base_config(directory), changes))
    check_fresh_connection(started.site())
    try:
        yield started
        assert started.process.poll() is None, f"the target died:\n{started.said()[-4000:]}"
        assert started.stop() == 0, started.said()[-4000:]
    finally:
        started.kill()


@pytest.fixture
def site(running: RunningTarget | None) -> Iterator[Site]:
    """Where to send to. Afterwards a new host is served and everything was given back."""
    external = external_site()
    if running is None:
        assert external is not None
        yield external
        check_fresh_connection(external)
        return
    before = running.at_rest()
    yield running.site()
    assert running.process.poll() is None, f"the target died:\n{running.said()[-4000:]}"
    check_fresh_connection(running.site())
    running.settled(before)


@pytest.fixture
def target(site: Site, running: RunningTarget | None) -> RunningTarget:
    """The target process, checked as for `site`."""
    assert running is not None
    return running


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory for a target of the test's own."""
    return tmp_path
