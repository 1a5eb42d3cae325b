"""A real target for each module, the commands and what plays their target, and the seed that a
failing test prints."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from prestage import testing
from prestage.host_client import hint_open
from prestage.host_client.commands import COMMANDS

from .fake_pax import FakeNode, FakePax, PaxTarget, PlayedNodeCarrier

Prestage = Callable[..., int]
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


@pytest.fixture
def prestage(capsys: pytest.CaptureFixture[str]) -> Prestage:
    """Runs a command line; what it prints is for capsys."""

    def run(*words: object) -> int:
        parser = argparse.ArgumentParser()
        subparsers = parser.add_subparsers(required=True)
        for command in COMMANDS.values():
            command.load().add(subparsers)
        args = parser.parse_args([str(word) for word in words])
        code: int = args.run(args)
        return code

    return run


@pytest.fixture
def pax() -> FakePax:
    return FakePax()


@pytest.fixture
def address(pax: FakePax) -> Iterator[str]:
    """A target that speaks PAX, in a thread of its own."""
    ready = threading.Event()
    found: list[Any] = []

    async def serve() -> None:
        target = PaxTarget(pax)
        await target.start()
        over = asyncio.Event()
        found.extend([target, asyncio.get_running_loop(), over])
        ready.set()
        await over.wait()
        await target.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    target, loop, over = found
    yield f"127.0.0.1:{target.port}"
    loop.call_soon_threadsafe(over.set)
    thread.join()


@pytest.fixture
def node(pax: FakePax, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in place of the extension namespace's node."""
    played = FakeNode(pax, tmp_path / "nvme0n9")
    monkeypatch.setattr(hint_open, "ExtensionNodeCarrier", lambda path: PlayedNodeCarrier(played))
    return played.path
