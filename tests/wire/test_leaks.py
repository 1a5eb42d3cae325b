"""Whatever hosts and media do, everything a command held is given back, and the target stops.

Hosts send commands of every kind to media that fail now and then, abort them, and vanish at any
moment. Afterwards nothing is in flight, pinned or reserved, namespaces go, and SIGTERM ends the
target with nothing left to flush.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.connection import ConnectionClosed, ProtocolError, Silence, Terminated
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue, ready_queues

from .probing import SEED, Site, check_fresh_connection, turns
from .running import MIB, NQN, Config, base_config, merge
from .test_stop import started

SIZE = 16 * MIB
BLOCKS = SIZE // 512
PLAIN, FAILING, SLOW = 1, 2, 3
HOSTS = 3
TURNS = turns("PRESTAGE_TEST_HOSTS", 10)
"""Associations of each host."""
ENDINGS = (ConnectionClosed, Terminated, OSError)


@pytest.fixture(autouse=True)
def _own_target() -> None:
    if os.environ.get("PRESTAGE_TEST_TARGET"):
        pytest.skip("needs a target of its own")


def config_of(directory: Path, reactors: int) -> Config:
    """Three namespaces behind a tier that is far too small for them."""
    faults: dict[int, list[str]] = {
        PLAIN: [],
        FAILING: [f"error:op=any,errno=EIO,rate=0.2,seed={SEED}"],
        SLOW: [f"delay:read_us=20000,write_us=20000,sync_us=40000,seed={SEED}"],
    }
    namespaces = [
        {
            "nsid": nsid,
            "path": str(directory / f"ns{nsid}"),
            "size": SIZE,
            "block": 512,
            "faults": wrappers,
        }
        for nsid, wrappers in faults.items()
    ]
    changes = {
        "tier": {"size": 4 * MIB, "slot": 16 << 10, "writeback_s": 0.05},
        "limits": {"max_transfer": 512 << 10, "connections": 64},
        "reactors": reactors,
        "subsystems": [{"nqn": NQN, "namespaces": namespaces}],
    }
    return merge(base_config(directory), changes)


class Rough:
    """A host without manners: it sends what it likes and looks at no answer."""

    def __init__(self, rng: random.Random, site: Site) -> None:
        self.rng, self.site = rng, site

    def run(self) -> None:
        """Some associations, one after another, each ending in another way."""
        for _ in range(TURNS):
            with contextlib.suppress(*ENDINGS), self.site.pair(2) as controller:
                for _ in range(self.rng.randrange(20, 120)):
                    self.command(self.rng.choice(controller.io))
                    if self.rng.random() < 0.05:
                        self.abort(controller)
                    self.take(controller)
                self.leave(controller)

    def range(self) -> tuple[int, int]:
        """An LBA and a number of blocks, up to 128 KiB."""
        blocks = self.rng.choice((1, 3, 8, 33, 128, 256))
        return self.rng.randrange(BLOCKS - blocks), blocks

    def command(self, queue: Queue) -> None:
        """Any I/O command, now and then one whose data never comes."""
        if len(queue.in_flight) >= 24:
            return
        nsid = self.rng.choice((PLAIN, FAILING, SLOW))
        slba, blocks = self.range()
        data, few = bytes([blocks % 251]) * (blocks * 512), min(blocks, 16)
        choice: list[Callable[[], int]] = [
            lambda: queue.submit(
                nvme.block_command(nvme.READ, slba, blocks, nsid=nsid), expected=len(data)
            ),
            lambda: queue.submit(
                nvme.block_command(
                    nvme.WRITE, slba, blocks, nsid=nsid, fua=self.rng.random() < 0.2
                ),
                data=data,
            ),
            lambda: queue.submit(
                nvme.block_command(nvme.COMPARE, slba, few, nsid=nsid), data=data[: few * 512]
            ),
            lambda: queue.submit(nvme.block_command(nvme.VERIFY, slba, blocks, nsid=nsid)),
            lambda: queue.submit(nvme.block_command(nvme.WRITE_ZEROES, slba, blocks, nsid=nsid)),
            lambda: queue.submit(
                nvme.sqe(nvme.DSM, nsid, cdw11=4), data=nvme.dsm_ranges([(slba, blocks)])
            ),
            lambda: queue.submit(
                nvme.sqe(nvme.COPY, nsid, cdw10=self.range()[0]),
                data=nvme.copy_ranges([(slba, blocks)]),
            ),
            lambda: queue.submit(nvme.sqe(nvme.FLUSH, self.rng.choice((nsid, 0xFFFFFFFF)))),
            lambda: self.fused(queue, nsid, slba, few),
        ]
        queue.answers_r2t = self.rng.random() < 0.97
        self.rng.choices(choice, weights=[6, 8, 2, 1, 2, 2, 1, 2, 1])[0]()

    def fused(self, queue: Queue, nsid: int, slba: int, blocks: int) -> int:
        """A Compare and a Write, or the first of them alone."""
        data = bytes(blocks * 512)
        for opcode, fuse in ((nvme.COMPARE, 1), (nvme.WRITE, 2))[: self.rng.choice((1, 2, 2))]:
            entry = nvme.block_command(opcode, slba, blocks, nsid=nsid, flags=0x40 | fuse)
            cid = queue.submit(entry, data=data)
        return cid

    def abort(self, controller: Controller) -> None:
        """Abort one of the commands in flight."""
        queue = self.rng.choice(controller.io)
        if queue.in_flight:
            controller.admin.execute(nvme.abort(queue.qid, self.rng.choice(list(queue.in_flight))))

    def take(self, controller: Controller) -> None:
        """Work on a few of the PDUs that are there."""
        for queue in ready_queues(controller.io, 0.0):
            queue.pump(5.0)
            queue.completions.clear()

    def leave(self, controller: Controller) -> None:
        """Close, reset, stop in the middle of a capsule, or go in good order."""
        how = self.rng.randrange(4)
        queue = self.rng.choice(controller.io)
        if how == 0:
            data = bytes(4096)
            capsule = queue.capsule(nvme.block_command(nvme.WRITE, 0, 8, nsid=PLAIN), data)
            queue.connection.send(capsule[: self.rng.randrange(1, len(capsule))])
        for queue in [*controller.io, controller.admin]:
            if how == 1:
                queue.connection.reset()
            elif how == 2:
                queue.connection.close()


@pytest.mark.stress
@pytest.mark.parametrize("reactors", [1, 2])
def test_everything_is_given_back(directory: Path, reactors: int) -> None:
    rng = random.Random(SEED + reactors)
    with started(directory, config_of(directory, reactors)) as target:
        site = target.site()
        check_fresh_connection(site)
        before = target.at_rest()
        failures: list[BaseException] = []

        def host(seed: int) -> None:
            try:
                Rough(random.Random(seed), site).run()
            except (ProtocolError, Silence, AssertionError) as fault:
                failures.append(fault)

        hosts = [threading.Thread(target=host, args=(rng.random(),)) for _ in range(HOSTS)]
        for one in hosts:
            one.start()
        for one in hosts:
            one.join()
        assert not failures, failures
        target.settled(before)
        target.media_control("error", "set rate=0", nsid=FAILING)
        with site.pair(1) as last:
            for nsid in (PLAIN, FAILING, SLOW):
                assert last.io[0].execute(nvme.sqe(nvme.FLUSH, nsid)).is_ok
        target.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=SLOW)
        target.settled(before)
        assert target.stop() == 0, target.said()[-3000:]
