"""The load generator and the bare server, built; the modules of scripts/ are found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from bench_processes import PROGRAMS  # noqa: E402 - the path is made above
from bench_run import Server, bare_server  # noqa: E402

import prestage.testing  # noqa: E402


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the programs, which are up to date."""
    goals = [PROGRAMS / "load", PROGRAMS / "bare"]
    subprocess.run(["make", "-s", "-C", ROOT / "csrc", *goals], check=True)
    return PROGRAMS


@pytest.fixture(params=[(), ("poll",), ("memory=16777216",)], ids=["sleeping", "polling", "wide"])
def bare(request: pytest.FixtureRequest, programs: Path, tmp_path: Path) -> Iterator[Server]:
    with bare_server(tmp_path / "bare.port", request.param) as server:
        yield server


@pytest.fixture(scope="module")
def target(programs: Path) -> Iterator[prestage.testing.SpawnedTarget]:
    namespaces = [*["ram:,size=16M"] * 3, "ram:,size=16M,block=512"]
    with prestage.testing.spawn_target("--no-prestager", namespaces=namespaces) as process:
        yield process


@pytest.fixture
def served(target: prestage.testing.SpawnedTarget) -> Server:
    """Our target, as the generator is told of it."""
    return Server(target.address, target.port, target.nqn, target.pid)
