"""Random histories of two hosts that hint, of a third that reads and writes, and of an operator who
changes what they hint about: every intent ends once, as it may end, and all is given back.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue, ready_queues

from . import hinting
from .hinting import BLOCK, until
from .intents import Ledger, Said, check_sums, pending, read_events
from .model import BlockModel
from .probing import SEED, Site, check_fresh_connection, turns
from .running import MIB, NQN, RunningTarget, base_config, merge
from .traffic import Plan, Traffic

STEADY, STALLING, FAILING, COMING, RESIZED = range(1, 6)
SIZE = 16 * MIB
BLOCKS = SIZE // BLOCK
SMALL = 5 * MIB + 3 * BLOCK
HOSTS = 2
ASSOCIATIONS = turns("PRESTAGE_TEST_HOSTS", 12)
"""Of each host that hints."""
PLAN = Plan(clusters=24, stride=1201, nsid=STEADY)
MODEL = {
    "seed": 7,
    "read_us": 80,
    "read_p99_us": 300,
    "write_us": 20,
    "bandwidth": "60M",
    "channels": 8,
}
ANY_REASON = frozenset({"budget", "namespace", "set", "media", "room", "deadline"})
DEADLINES_US = (0, 500, 5_000, 50_000, 500_000, 3_000_000)


@pytest.fixture(autouse=True)
def _own_target() -> None:
    if os.environ.get("PRESTAGE_TEST_TARGET"):
        pytest.skip("needs a target of its own")


def spaces(directory: Path) -> dict[int, dict[str, Any]]:
    """The namespaces by NSID."""
    faults: dict[int, list[str]] = {
        STEADY: [],
        STALLING: ["stall:op=read,after=0"],
        FAILING: [f"error:op=read,errno=EIO,rate=0.2,seed={SEED}"],
        COMING: [f"delay:read_us=8000,seed={SEED}"],
        RESIZED: ["delay:read_us=2000"],
    }
    found = {
        nsid: {
            "path": str(directory / f"ns{nsid}"),
            "size": SIZE,
            "block": BLOCK,
            "faults": wrappers,
        }
        for nsid, wrappers in faults.items()
    }
    found[STEADY] |= {"media": "model", "media_options": {**MODEL, "seed": SEED}}
    return found


def config_of(directory: Path, reactors: int) -> dict[str, Any]:
    """A tier that is too small, and few intents and sets for each host."""
    namespaces = [
        {"nsid": nsid, **space} for nsid, space in spaces(directory).items() if nsid != COMING
    ]
    changes = {
        "tier": {"size": 16 * MIB, "writeback_s": 0.05},
        "limits": {"stop_s": 10.0, "connections": 64},
        "reactors": reactors,
        "hints": {"intents": 48, "total_intents": 96, "sets": 16, "grace_s": 0.05},
        "subsystems": [{"nqn": NQN, "extension": True, "namespaces": namespaces}],
    }
    return merge(base_config(directory), changes)


class Talker:
    """A host that says things about all namespaces, and leaves in all ways."""

    def __init__(self, rng: random.Random, site: Site, number: int) -> None:
        self.rng, self.site = rng, site
        self.identity = {
            "hostnqn": f"nqn.2026-11.io.prestage:talker{number}",
            "hostid": bytes([number + 1]) * 16,
        }
        self.ledger = Ledger()
        self.next_id = 0

    def run(self) -> None:
        """Some associations, one after another."""
        for _ in range(ASSOCIATIONS):
            with self.site.pair(2, **self.identity) as controller:
                for turn in range(self.rng.randrange(20, 80)):
                    self.step(controller)
                    if turn % 3 == 0:
                        self.ledger.hear(read_events(controller))
                self.leave(controller)

    def step(self, controller: Controller) -> None:
        """Say, ask, or read and write something."""
        said, used = controller.io
        kinds: list[Callable[[], object]] = [
            lambda: self.batch(said),
            lambda: self.command(used),
            lambda: self.look(said),
            lambda: self.cancel(said),
        ]
        self.rng.choices(kinds, weights=[8, 8, 2, 1])[0]()
        for queue in ready_queues([used], 0.0):
            queue.pump(10.0)
            queue.completions.clear()

    # ---- records ----

    def ranges(self) -> list[tuple[int, int]]:
        """A few ranges, from a block to half a MiB; some of them overlap."""
        found = []
        for _ in range(self.rng.randrange(1, 6)):
            blocks = self.rng.choice((1, 7, 128, 129, 1024))
            found.append((self.rng.randrange(BLOCKS - blocks), blocks))
        return found

    def intent(self, *, is_certain: bool = True) -> bytes:
        """An intent on a set or on ranges, at times with a number that was used before."""
        rng = self.rng
        is_again = self.next_id > 0 and rng.random() < 0.1
        number = rng.randrange(1, self.next_id + 1) if is_again else self.next_id + 1
        self.next_id = max(self.next_id, number)
        by_set, nsid = rng.random() < 0.3, rng.randrange(1, 6)
        reasons = {"room", "budget"}
        reasons |= {"media"} if nsid == FAILING else set()
        reasons |= {"namespace"} if nsid in (COMING, RESIZED) else set()
        said = Said(
            number,
            nsid,
            rng.choice(DEADLINES_US),
            rng.randrange(4),
            rng.randrange(4),
            by_set or nsid == COMING,
            ANY_REASON if by_set else frozenset(reasons),
            is_certain,
        )
        self.ledger.may_cancel(number)
        self.ledger.say(said)
        return hints.intent(
            number,
            [] if by_set else self.ranges(),
            set_id=rng.randrange(1, 7) if by_set else 0,
            nsid=nsid,
            deadline_us=said.deadline_us,
            session=rng.randrange(3),
            priority=said.priority,
            flags=said.flags,
        )

    def record(self) -> bytes:
        """Something else."""
        rng, nsid = self.rng, self.rng.randrange(1, 6)
        kinds: list[Callable[[], bytes]] = [
            lambda: hints.set_(
                rng.randrange(1, 7),
                self.ranges(),
                nsid=nsid,
                op=rng.choice((hints.DEFINE, hints.DEFINE, hints.EXTEND)),
                flags=rng.randrange(2),
                ttl_ms=rng.choice((0, 20, 1000)),
            ),
            lambda: hints.set_(rng.randrange(1, 7), op=hints.DROP, nsid=nsid),
            lambda: hints.signature(rng.randrange(BLOCKS), 1, rng.randbytes(8), nsid=nsid),
            lambda: hints.retain(self.ranges(), nsid=nsid, duration_ms=rng.randrange(200)),
        ]
        return rng.choices(kinds, weights=[4, 1, 2, 2])[0]()

    def records(self, *, is_certain: bool = True) -> list[bytes]:
        """A few records, most of them intents."""
        count = self.rng.randrange(1, 6)
        return [
            self.intent(is_certain=is_certain) if self.rng.random() < 0.7 else self.record()
            for _ in range(count)
        ]

    def batch(self, queue: Queue) -> None:
        """A batch that arrives."""
        records = self.records()
        answer = hinting.submit(queue, *records, mailbox=self.rng.randrange(hints.MAILBOXES))
        assert answer.is_ok, answer.text()
        assert (answer.dw0 & 0xFFFF) + (answer.dw0 >> 16) == len(records)

    def cancel(self, queue: Queue) -> None:
        """Take something back."""
        what = self.rng.randrange(1, 5)
        number = self.rng.randrange(0, self.next_id + 2)
        self.ledger.may_cancel(number if what == hints.CANCEL_INTENT else None)
        hinting.accepted(queue, hints.cancel(what, number))

    def look(self, queue: Queue) -> None:
        """What is counted adds up; a mailbox and an outcome can be asked for."""
        seen = hinting.status(queue)
        check_sums(seen.intents)
        check_sums(seen.reads)
        assert pending(seen.intents) == seen.used["intents"] <= seen.limits["intents"]
        hinting.mailbox_answer(queue, self.rng.randrange(hints.MAILBOXES))
        hinting.outcome(queue, self.rng.randrange(1, self.next_id + 2))

    # ---- other commands ----

    def command(self, queue: Queue) -> None:
        """A Read, a dated Read or a Write, whose answer nobody looks at."""
        rng = self.rng
        if len(queue.in_flight) >= 24:
            return
        nsid, blocks = rng.randrange(2, 6), rng.choice((1, 8, 100, 256))
        slba = rng.randrange(BLOCKS - blocks)
        length = blocks * BLOCK
        if rng.random() < 0.25:
            queue.submit(
                nvme.block_command(nvme.WRITE, slba, blocks, nsid=nsid), data=bytes(length)
            )
        elif rng.random() < 0.5:
            entry = hints.dated_read(
                slba,
                blocks,
                deadline_us=rng.choice(DEADLINES_US),
                priority=rng.randrange(4),
                nsid=nsid,
            )
            queue.submit(entry, expected=length)
        else:
            dsm = rng.choice((0, 6, 7, 64))
            entry = nvme.block_command(nvme.READ, slba, blocks, nsid=nsid, dsm=dsm)
            queue.submit(entry, expected=length)

    def leave(self, controller: Controller) -> None:
        """In good order, by RST, by a reset or shutdown, or around a batch."""
        how = self.rng.randrange(5)
        said = controller.io[0]
        if how == 0:
            controller.set_cc(nvme.CC_BASE)
            controller.wait_csts(1, 0)
        elif how == 1:
            controller.set_cc(nvme.CC_BASE | 1 | 1 << 14)
        elif how == 2:
            raw = hints.batch(*self.records(is_certain=False))
            said.submit(hints.submit(), data=raw)
        elif how == 3:
            raw = hints.batch(hints.intent(1 << 40, self.ranges()))
            entry = nvme.with_sgl(hints.submit(), nvme.sgl(nvme.SGL_IN_CAPSULE, len(raw)))
            capsule = said.capsule(nvme.with_cid(entry, 9), raw)
            said.connection.send(capsule[: self.rng.randrange(1, len(capsule))])
        if how in (2, 3):
            controller.vanish()

    def finish(self) -> None:
        """All have ended by themselves, once each, as they may, and are counted so."""
        with self.site.pair(1, **self.identity) as controller:
            (queue,) = controller.io

            def look() -> hints.Status:
                self.ledger.hear(read_events(controller))
                return hinting.status(queue)

            seen = until(look, lambda seen: pending(seen.intents) + pending(seen.reads) == 0)
            self.ledger.hear(read_events(controller))
            self.ledger.settle(seen.intents)
            check_sums(seen.reads)
            assert seen.used["intents"] == seen.used["intent_bytes"] == 0
            hinting.accepted(queue, hints.cancel(hints.CANCEL_EVERYTHING))


class Operator:
    """Stalls a medium, takes a namespace away and brings it back, changes the size of another."""

    def __init__(self, rng: random.Random, target: RunningTarget, directory: Path) -> None:
        self.rng, self.target = rng, target
        self.is_there, self.is_small = False, False
        self.space = spaces(directory)[COMING]

    def step(self) -> None:
        """One of these."""
        self.rng.choice((self.stall, self.come_or_go, self.resize, self.look))()

    def stall(self) -> None:
        """Hold reads, or let them go."""
        self.target.media_control("stall", self.rng.choice(("arm", "release")), nsid=STALLING)

    def come_or_go(self) -> None:
        """Add or remove the namespace."""
        if self.is_there:
            self.target.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=COMING)
            self.target.rpc("prestage_bdev_delete", name="coming")
        else:
            self.target.rpc("prestage_bdev_create", name="coming", **self.space)
            wanted = {"bdev_name": "coming", "nsid": COMING}
            self.target.rpc("nvmf_subsystem_add_ns", nqn=NQN, namespace=wanted)
        self.is_there = not self.is_there

    def resize(self) -> None:
        """Shrink or grow."""
        self.is_small = not self.is_small
        size = SMALL if self.is_small else SIZE
        self.target.rpc("prestage_namespace_resize", nqn=NQN, nsid=RESIZED, size=size)

    def look(self) -> None:
        """The control plane's sums are right too."""
        found = self.target.rpc("prestage_get_stats")["hints"]
        for tenant in found["tenants"]:
            check_sums(tuple(tenant["intents"].values()))
            check_sums(tuple(tenant["dated_reads"].values()))

    def finish(self) -> None:
        """Nothing is held any more, and the namespace is gone."""
        self.target.media_control("stall", "release", nsid=STALLING)
        if self.is_there:
            self.come_or_go()


@contextlib.contextmanager
def beside(work: list[Callable[[], None]]) -> Iterator[threading.Event]:
    """Each in a thread of its own; the event is set when all have ended, or one has failed."""
    failures: list[BaseException] = []
    ended = threading.Event()
    left = len(work)
    lock = threading.Lock()

    def run(one: Callable[[], None]) -> None:
        nonlocal left
        try:
            one()
        except BaseException as failure:
            failures.append(failure)
            ended.set()
            raise
        finally:
            with lock:
                left -= 1
                if left == 0:
                    ended.set()

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    try:
        yield ended
    finally:
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def traffic_of(rng: random.Random, site: Site, stop: threading.Event) -> Callable[[], None]:
    """Reads and writes of the steady namespace until the event, every byte judged."""

    def run() -> None:
        with site.pair(2, digests=3) as controller:
            traffic = Traffic(rng, controller.io, BlockModel(BLOCK), PLAN)
            traffic.prepare()
            while not stop.is_set():
                traffic.run(50)
            queue = controller.io[0]
            traffic.check_all(lambda slba, blocks: queue.read(slba, blocks, BLOCK, nsid=STEADY))

    return run


def idle(target: RunningTarget) -> bool:
    """No scheduler has anything left."""
    stats = target.rpc("prestage_get_stats")
    for subsystem in stats["subsystems"]:
        for namespace in subsystem["namespaces"]:
            scheduler = namespace["scheduler"]
            classes = scheduler["classes"].values()
            if scheduler["jobs"] or any(one["waiting"] + one["in_flight"] for one in classes):
                return False
    totals = stats["hints"]
    return not totals["sets"] + totals["signatures"] + totals["intents"]


@pytest.mark.stress
@pytest.mark.timeout(300)
@pytest.mark.parametrize("reactors", [1, 2])
def test_every_intent_ends_once_whatever_ends_around_it(directory: Path, reactors: int) -> None:
    rng = random.Random(SEED + reactors)
    target = RunningTarget(directory, config_of(directory, reactors))
    try:
        site = target.site()
        check_fresh_connection(site)
        before = target.at_rest()
        talkers = [Talker(random.Random(rng.random()), site, n) for n in range(HOSTS)]
        operator = Operator(random.Random(rng.random()), target, directory)
        stop = threading.Event()
        with beside([traffic_of(random.Random(rng.random()), site, stop)]):
            try:
                with beside([talker.run for talker in talkers]) as ended:
                    while not ended.wait(rng.random() * 0.1):
                        operator.step()
                    operator.finish()
            finally:
                stop.set()
        for talker in talkers:
            talker.finish()
        until(lambda: idle(target), bool)
        target.settled(before)
        assert sum(len(talker.ledger.events) for talker in talkers) > 100 * ASSOCIATIONS // 4
        assert target.stop() == 0, target.said()[-3000:]
        assert "Traceback" not in target.said()
    finally:
        target.kill()
