"""Namespaces that shrink and grow under commands of every kind."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nvme_tcp import commands as nvme
from nvme_tcp.connection import Silence
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from .probing import SEED, Site
from .running import MIB, NQN, RunningTarget

BLOCK = 512
LARGE, SMALL = 32 * MIB, 16 * MIB + 1536  # the smaller one ends inside a unit
CONFIG: dict[str, Any] = {
    "tier": {"size": 32 * MIB, "writeback_s": 0.02},
    "limits": {"stop_s": 2.0},
    "reactors": 2,
}


@contextlib.contextmanager
def added(target: RunningTarget, path: Path, *faults: str) -> Iterator[int]:
    """A namespace of LARGE bytes on a file at `path`: its NSID."""
    settings = {"path": str(path), "size": LARGE, "block": BLOCK, "faults": list(faults)}
    target.rpc("prestage_bdev_create", name=path.name, **settings)
    wanted = {"bdev_name": path.name}
    yield int(target.rpc("nvmf_subsystem_add_ns", nqn=NQN, namespace=wanted))
    target.rpc("prestage_bdev_delete", name=path.name)


def resize(target: RunningTarget, nsid: int, size: int) -> None:
    """Change a namespace's size."""
    target.rpc("prestage_namespace_resize", nqn=NQN, nsid=nsid, size=size)


def submit_beyond(queue: Queue, rng: random.Random, nsid: int) -> int:
    """A command of some kind that touches what a shrink cuts off; its CID."""
    slba = rng.randrange(SMALL // BLOCK, LARGE // BLOCK - 128)
    match rng.randrange(6):
        case 0:
            return queue.submit(
                nvme.block_command(nvme.READ, slba, 128, nsid=nsid), expected=128 * BLOCK
            )
        case 1:
            return queue.submit(nvme.block_command(nvme.WRITE_ZEROES, slba - 4000, 4100, nsid=nsid))
        case 2:
            ranges = nvme.dsm_ranges([(0, 8), (slba - 4000, 4100)])
            return queue.submit(nvme.sqe(nvme.DSM, nsid, cdw10=1, cdw11=4), data=ranges)
        case 3:
            ranges = nvme.copy_ranges([(slba, 100)])
            return queue.submit(nvme.sqe(nvme.COPY, nsid, cdw10=0), data=ranges)
        case _:
            entry = nvme.block_command(nvme.WRITE, slba, 128, nsid=nsid)
            return queue.submit(entry, data=b"w" * 128 * BLOCK, in_capsule=False)


def pump_some(queue: Queue, count: int) -> None:
    """Act on up to `count` PDUs that come at once."""
    for _ in range(count):
        try:
            queue.pump(0.01)
        except Silence:
            return


def test_shrinking_and_growing_under_commands(
    target: RunningTarget, site: Site, directory: Path
) -> None:
    rng = random.Random(SEED)
    path = directory / "shrinking"
    seen: Counter[str] = Counter()
    slow = "delay:write_us=10000,read_us=2000"
    with added(target, path, slow) as nsid, site.pair(1, sqsize=63) as controller:
        queue = controller.io[0]
        for _ in range(4):
            cids = [submit_beyond(queue, rng, nsid) for _ in range(48)]
            pump_some(queue, rng.randrange(40))
            resize(target, nsid, SMALL)
            assert path.stat().st_size == SMALL, "something was written beyond the new end"
            assert controller.block_count(nsid) == SMALL // BLOCK
            seen.update(queue.wait(cid).text() for cid in cids)
            resize(target, nsid, LARGE)
            for slba in range(SMALL // BLOCK, LARGE // BLOCK, 1024):
                blocks = min(1024, LARGE // BLOCK - slba)
                assert not any(queue.read(slba, blocks, BLOCK, nsid=nsid)), "old bytes came back"
        smart = controller.get_log(2, 512, nsid=nsid)
        assert smart[0] == 0 and not any(smart[160:176]), "nothing is wrong with the medium"
    assert set(seen) <= {"ok", "0/80 dnr"} and seen["0/80 dnr"], seen


def media_work(target: RunningTarget, nsid: int) -> int:
    """Operations that the namespace's medium has now."""
    subsystems = target.rpc("prestage_get_stats")["subsystems"]
    (mine,) = [one for one in subsystems if one["nqn"] == NQN]
    (namespace,) = [one for one in mine["namespaces"] if one["nsid"] == nsid]
    return int(namespace["counters"]["media_in_flight"])


def write_held(controller: Controller, nsid: int) -> tuple[Queue, int]:
    """A Write at the end of the namespace, its data withheld."""
    queue = controller.io[0]
    entry = nvme.block_command(nvme.WRITE, LARGE // BLOCK - 64, 64, nsid=nsid)
    cid = queue.submit(entry, data=b"w" * 64 * BLOCK, in_capsule=False)
    queue.wait_r2t()
    return queue, cid


def test_write_whose_blocks_are_gone_when_its_data_comes(
    target: RunningTarget, site: Site, directory: Path
) -> None:
    with added(target, directory / "gone") as nsid, site.pair(1) as controller:
        queue, cid = write_held(controller, nsid)
        resize(target, nsid, SMALL)
        queue.answer_r2t(queue.r2ts[0])
        assert queue.wait(cid).text() == "0/80 dnr"
        assert not any(controller.get_log(2, 512, nsid=nsid)[160:176]), "no media error"


def test_shrinking_over_a_medium_that_stalls_is_refused_in_time(
    target: RunningTarget, site: Site, directory: Path
) -> None:
    stalled = "stall:after=0,op=read"
    with added(target, directory / "stalled", stalled) as nsid, site.pair(1) as controller:
        queue = controller.io[0]
        entry = nvme.block_command(nvme.READ, LARGE // BLOCK - 8, 8, nsid=nsid)
        cid = queue.submit(entry, expected=8 * BLOCK)
        limit = time.monotonic() + 10
        while not media_work(target, nsid):
            assert time.monotonic() < limit, "the read never came to the medium"
        try:
            resize(target, nsid, SMALL)
        except AssertionError as error:
            assert "busy beyond the new end" in str(error)
        else:
            raise AssertionError("it was shrunk under a read")
        assert controller.block_count(nsid) == LARGE // BLOCK
        target.media_control("stall", "release", nsid=nsid)
        queue.wait(cid)
        assert queue.read(LARGE // BLOCK - 8, 8, BLOCK, nsid=nsid) == bytes(8 * BLOCK)
