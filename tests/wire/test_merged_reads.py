"""Reads of neighbours that wait for a medium are one read of it, and each keeps its own answer."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.commands import Completion
from nvme_tcp.queue import Queue

from .probing import SEED
from .running import MIB, NQN, RunningTarget, base_config, find, merge

BLOCK = 4096
EXTENT = 65536
SIZE = 4 * MIB
FIRST = 2 * MIB
BROKEN = 2
"""Which of the neighbours cannot be read, when one cannot."""
CONTENT = random.Random(SEED).randbytes(SIZE)


@pytest.fixture(params=["uring", "threads"])
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningTarget]:
    """A target whose medium takes one read at a time, and none before it is released."""
    path = tmp_path / "medium"
    path.write_bytes(CONTENT)
    broken = FIRST + BROKEN * EXTENT
    namespace = {
        "path": str(path),
        "block": BLOCK,
        "media_options": {"depth": 1, "engine": request.param},
        "faults": ["stall:op=read", f"error:op=read,first={broken},last={broken},rate=0"],
    }
    changes: dict[str, Any] = {"subsystems": [{"nqn": NQN, "namespaces": [namespace]}]}
    running = RunningTarget(tmp_path, merge(base_config(tmp_path), changes))
    yield running
    assert running.stop() == 0


def counter(target: RunningTarget, name: str) -> int:
    return find(target.rpc("prestage_get_stats"), name)


def read_neighbours(target: RunningTarget, queue: Queue) -> list[Completion]:
    """Read four extents by a command each, which wait together; what came of them, in order."""

    def submit(offset: int) -> int:
        entry = nvme.block_command(nvme.READ, offset // BLOCK, EXTENT // BLOCK)
        return queue.submit(entry, expected=EXTENT)

    first = submit(0)
    cids = [submit(FIRST + i * EXTENT) for i in range(4)]
    end = time.monotonic() + 20
    while counter(target, "media_in_flight") < 5:
        assert time.monotonic() < end
    target.media_control("stall", "release")
    assert queue.wait(first).data == CONTENT[:EXTENT]
    return [queue.wait(cid) for cid in cids]


def expected(i: int) -> bytes:
    return CONTENT[FIRST + i * EXTENT : FIRST + (i + 1) * EXTENT]


def test_neighbours_go_as_one(target: RunningTarget) -> None:
    with target.site().pair(1) as controller:
        answers = read_neighbours(target, controller.io[0])
    assert [answer.code for answer in answers] == ["ok"] * 4
    assert [answer.data == expected(i) for i, answer in enumerate(answers)] == [True] * 4
    assert counter(target, "media_reads") == 2
    assert counter(target, "media_read_bytes") == 5 * EXTENT
    assert counter(target, "merges") == 3
    assert counter(target, "media_in_flight") == 0


def test_one_that_fails_fails_alone(target: RunningTarget) -> None:
    target.media_control("error", "set rate=1")
    with target.site().pair(1) as controller:
        answers = read_neighbours(target, controller.io[0])
        codes = [answer.code for answer in answers]
        assert codes == ["2/81" if i == BROKEN else "ok" for i in range(4)]
        good = [i for i in range(4) if i != BROKEN]
        assert all(answers[i].data == expected(i) for i in good)
        assert counter(target, "media_reads") == 2 + 4
        assert counter(target, "media_in_flight") == 0
        # What could be read is in the tier; what could not is read again.
        target.media_control("error", "set rate=0")
        again = controller.io[0].read(FIRST // BLOCK, 4 * EXTENT // BLOCK, BLOCK)
        assert again == CONTENT[FIRST : FIRST + 4 * EXTENT]
        assert counter(target, "media_reads") == 2 + 4 + 1
