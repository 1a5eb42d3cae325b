"""One set of cables and one target for all tests of this folder; every test leaves both whole."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from wire.running import RunningTarget, base_config, merge

from .cables import Cables, Unavailable, cables

HOST_A = "nqn.2026-11.io.prestage:host-a"
HOST_B = "nqn.2026-11.io.prestage:host-b"
ONLY_A = "nqn.2026-11.io.prestage:only-a"


@pytest.fixture(scope="session")
def laid() -> Iterator[Cables]:
    """Two hosts, a target, and a switch between them."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make network namespaces")
    try:
        laid = cables()
    except Unavailable as why:
        pytest.skip(str(why))
    try:
        yield laid
    finally:
        laid.close()


@pytest.fixture(scope="session")
def running(laid: Cables, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTarget]:
    """A target on both wildcards, with a subsystem for all and one for host a alone."""
    directory = tmp_path_factory.mktemp("network")
    config = base_config(directory)
    subsystem = {
        "nqn": ONLY_A,
        "hosts": [HOST_A],
        "namespaces": [{"media": "ram", "size": 1 << 20, "block": 512}],
    }
    changes = {
        "listeners": [{"address": address, "port": 4420} for address in ("0.0.0.0", "::")],
        "subsystems": [config["subsystems"][0], subsystem],
        # So long a connection that ends in order may take for its last bytes; a lost one must not.
        "limits": {"handshake_s": 60.0},
    }
    with laid.target.inside():
        started = RunningTarget(directory, merge(config, changes))
    try:
        yield started
        assert started.process.poll() is None, f"the target died:\n{started.said()[-4000:]}"
        assert started.stop() == 0, started.said()[-4000:]
    finally:
        started.kill()


@pytest.fixture
def target(laid: Cables, running: RunningTarget) -> Iterator[RunningTarget]:
    """The target; afterwards the cables are in, and it holds no more than before."""
    before = running.at_rest()
    try:
        yield running
    finally:
        for site in (laid.a, laid.b):
            laid.plug(site)
    running.settled(before)
