"""A real target for each module, and the seed that a failing test prints."""

from __future__ import annotations

import os
import random
from collections.abc import Generator, Iterator

import pytest

from prestage import testing

SEED = int(os.environ.get("PRESTAGE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with every failure how its randomness is repeated."""
    report = yield
    if report.failed:
        report.sections.append(("seed", f"PRESTAGE_TEST_SEED={SEED}"))
    return report


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Randomness of the test's own."""
    return random.Random(f"{SEED} {request.node.nodeid}")


@pytest.fixture(scope="module")
def target() -> Iterator[testing.Target]:
    """A target with namespace 1 of 4096-byte blocks and namespace 2 of 512-byte blocks."""
    namespaces = ["16M", "ram:,size=4M,block=512"]
    with testing.in_thread(testing.Target(namespaces=namespaces, dram="8M")) as running:
        yield running


@pytest.fixture
def url(target: testing.Target) -> str:
    """Where the target is."""
    return f"nvme+tcp://127.0.0.1:{target.port}/{target.nqn}"
