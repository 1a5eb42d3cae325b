"""A disk that is full when the prestager writes what it learned: a tmpfs that really has no room.

It is mounted in a mount namespace of the target's own, so that nobody else sees it and nothing is
left of it. What a limit on file sizes does is in test_prestager.py.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from prestage.target.prestager.snapshot import decode

from .probing import SEED, Site
from .running import MIB, NQN, RunningTarget, base_config, merge

MOUNT = 'mount -t tmpfs -o size=1m,mode=700 none "$1" && shift && exec "$@"'
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", MOUNT, "sh")
WITHIN_S = 60.0
BLOCK = 512
READ_BLOCKS = 64
BLOCKS = 16 * MIB // BLOCK


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder over which the target has a tmpfs of 1 MiB. Skips where that cannot be."""
    if os.environ.get("PRESTAGE_TEST_TARGET"):
        pytest.skip("needs a target of its own")
    folder = tmp_path / "disk"
    folder.mkdir()
    tried = subprocess.run(
        [*OWN_MOUNTS, str(folder), "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {tried.stderr.strip()}")
    return folder


@pytest.fixture
def target(tmp_path: Path, disk: Path) -> Iterator[RunningTarget]:
    """A target that keeps what is learned on that disk, every second."""
    config = merge(
        base_config(tmp_path), {"prestager": {"snapshot": str(disk / "learned"), "snapshot_s": 1}}
    )
    running = RunningTarget(tmp_path, config, within=(*OWN_MOUNTS, str(disk)))
    try:
        yield running
    finally:
        running.kill()


class Reader:
    """Reads what it wrote, so that there is something to learn, and to be right about."""

    def __init__(self, controller: Any) -> None:
        self._queue = controller.io[0]
        self._data = random.Random(SEED).randbytes(READ_BLOCKS * BLOCK)
        self._queue.write(0, self._data, BLOCK)
        self._next = 0

    def until(self, is_so: Callable[[], bool]) -> None:
        """Read on until it is."""
        limit = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < limit, "nothing comes of it"
            assert self._queue.read(0, READ_BLOCKS, BLOCK) == self._data
            self._queue.read(self._next % BLOCKS, READ_BLOCKS, BLOCK)
            self._next += READ_BLOCKS


def warnings(target: RunningTarget) -> list[str]:
    found: list[str] = target.rpc("prestage_get_stats")["warnings"]
    return found


def prestager(target: RunningTarget) -> dict[str, Any]:
    found: dict[str, Any] = target.rpc("prestage_get_prestager")
    return found


def fill(filler: Path) -> None:
    """Make a file larger until its file system has no room for a byte more."""
    with filler.open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC, error


def test_a_disk_that_is_full_keeps_the_last_snapshot_and_stops_nothing(
    target: RunningTarget, disk: Path
) -> None:
    inside = Path(f"/proc/{target.process.pid}/root{disk}")
    learned, filler = inside / "learned", inside / "filler"

    def is_full_and_said_so() -> bool:
        fill(filler)  # again: one snapshot that replaces another leaves the room of that one
        return warnings(target) != []

    def are_only(*names: str) -> bool:
        return sorted(path.name for path in inside.iterdir()) == sorted(names)

    with Site(target.address, NQN).pair(1) as controller:
        reader = Reader(controller)
        reader.until(learned.exists)
        assert warnings(target) == []
        reader.until(is_full_and_said_so)
        (warning,) = warnings(target)
        assert warning.startswith("prestager: snapshot_write: ")
        assert os.strerror(errno.ENOSPC) in warning
        kept = learned.read_bytes()
        about, _ = decode(kept, "kept")
        assert about["slot_size"] > 0
        before = prestager(target)["process"]
        reader.until(lambda: prestager(target)["process"]["facts"] > before["facts"] + 1000)
        reader.until(partial(are_only, "filler", "learned"))
        assert learned.read_bytes() == kept
        assert prestager(target)["process"]["snapshots"] == before["snapshots"]
        filler.unlink()
        reader.until(lambda: warnings(target) == [])
        assert learned.read_bytes() != kept
    assert prestager(target)["restarts"] == 0
    assert target.stop() == 0
    assert target.said().count("what is learned is not kept") == 1
