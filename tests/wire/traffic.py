"""Random commands on several queues at once, each answer held against the model."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable

from nvme_tcp import commands as nvme
from nvme_tcp.commands import Completion
from nvme_tcp.queue import Queue, ready_queues

from .model import ZERO, BlockModel

Finish = Callable[[Completion], None]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the traffic is made of."""

    clusters: int
    """Places that are written and read, far apart."""
    stride: int
    """Blocks from one place to the next."""
    span: int = 80
    """Blocks of a place."""
    depth: int = 12
    nsid: int = 1
    with_compare: bool = True


class Traffic:
    """A driver of queues; `run` submits commands until there were enough."""

    def __init__(
        self, rng: random.Random, queues: list[Queue], model: BlockModel, plan: Plan
    ) -> None:
        self.rng, self.queues, self.model, self.plan = rng, queues, model, plan
        self._finish: dict[tuple[Queue, int], Finish] = {}
        self._stamp = 0
        self.submitted = 0
        self.accept_errors = False
        """True while the target stops: a command may fail, its write may have happened or not."""
        self.counts: dict[str, int] = {}

    # ---- commands ----

    def _range(self, most: int = 64) -> tuple[int, int]:
        blocks = min(self.rng.choice((1, 1, 1, 2, 3, 8, 16, 33, 64)), most, self.plan.span)
        cluster = self.rng.randrange(self.plan.clusters)
        return cluster * self.plan.stride + self.rng.randrange(self.plan.span - blocks + 1), blocks

    def _submit(self, queue: Queue, entry: bytes, finish: Finish, **options: object) -> None:
        cid = queue.submit(entry, **options)  # type: ignore[arg-type]
        self._finish[queue, cid] = finish
        self.submitted += 1

    def _is_ok(self, what: str, answer: Completion) -> bool:
        assert answer.is_ok or self.accept_errors, f"{what}: {answer.text()}"
        return answer.is_ok

    def write(self, queue: Queue) -> None:
        """A Write, with or without FUA, in the capsule or by R2T."""
        slba, blocks = self._range()
        self._stamp += 1
        data = self.model.payload(self._stamp, slba, blocks)
        made = self.model.write_submitted(self._stamp, slba, blocks)
        fua = self.rng.random() < 0.1

        def finish(answer: Completion) -> None:
            if self._is_ok(f"Write {slba}+{blocks}", answer):
                self.model.write_completed(made, durable=fua)

        entry = nvme.block_command(nvme.WRITE, slba, blocks, nsid=self.plan.nsid, fua=fua)
        fits = len(data) <= queue.in_capsule
        self._submit(
            queue,
            entry,
            finish,
            data=data,
            in_capsule=fits and (queue.in_capsule > 8192 or self.rng.random() < 0.7),
        )

    def read_entry(self, slba: int, blocks: int) -> bytes:
        """The entry of a Read."""
        dsm = self.rng.choice((0, 0, 6, 7))
        return nvme.block_command(nvme.READ, slba, blocks, nsid=self.plan.nsid, dsm=dsm)

    def read(self, queue: Queue) -> None:
        """A Read, checked block by block."""
        slba, blocks = self._range()
        reading = self.model.read_submitted(slba, blocks)

        def finish(answer: Completion) -> None:
            self.model.read_completed(reading)
            if not self._is_ok(f"Read {slba}+{blocks}", answer):
                return
            fault = self.model.fault(reading, answer.data)
            assert fault is None, f"Read {slba}+{blocks}: {fault}"

        entry = self.read_entry(slba, blocks)
        self._submit(queue, entry, finish, expected=blocks * self.model.block_size)

    def write_zeroes(self, queue: Queue) -> None:
        """Write Zeroes, with and without DEAC and FUA."""
        slba, blocks = self._range()
        made = self.model.write_submitted(ZERO, slba, blocks)
        fua = self.rng.random() < 0.2

        def finish(answer: Completion) -> None:
            if self._is_ok(f"Write Zeroes {slba}+{blocks}", answer):
                self.model.write_completed(made, durable=fua)

        cdw12 = blocks - 1 | self.rng.choice((0, 1 << 25)) | (1 << 30 if fua else 0)
        entry = nvme.sqe(nvme.WRITE_ZEROES, self.plan.nsid, cdw10=slba, cdw12=cdw12)
        self._submit(queue, entry, finish)

    def deallocate(self, queue: Queue) -> None:
        """Dataset Management of one to three ranges: zeros, or what was there."""
        ranges = [self._range(16) for _ in range(self.rng.randrange(1, 4))]
        made = [
            self.model.write_submitted(ZERO, slba, blocks, replaces=False)
            for slba, blocks in ranges
        ]

        def finish(answer: Completion) -> None:
            if self._is_ok(f"Deallocate {ranges}", answer):
                for one in made:
                    self.model.write_completed(one)

        entry = nvme.sqe(nvme.DSM, self.plan.nsid, cdw10=len(ranges) - 1, cdw11=4)
        data = nvme.dsm_ranges(ranges)
        self._submit(queue, entry, finish, data=data.ljust(self.rng.choice((48, 4096)), b"\0"))

    def compare(self, queue: Queue) -> None:
        """A Compare with one possible value; what else may be there decides the answer."""
        slba, blocks = self._range(8)
        reading = self.model.read_submitted(slba, blocks)
        stamps = [self.rng.choice(sorted(allowed)) for allowed in reading.allowed]
        data = b"".join(self.model.content(stamp, slba + i) for i, stamp in enumerate(stamps))

        def finish(answer: Completion) -> None:
            self.model.read_completed(reading)
            certain = all(
                allowed == {stamp} for allowed, stamp in zip(reading.allowed, stamps, strict=True)
            )
            right = ("ok",) if certain else ("ok", "2/85")
            if not answer.is_ok and self.accept_errors:
                return
            assert answer.code in right, f"Compare {slba}+{blocks}: {answer.text()}, {right}"

        entry = nvme.block_command(nvme.COMPARE, slba, blocks, nsid=self.plan.nsid)
        inline = len(data) <= queue.in_capsule and self.rng.random() < 0.7
        self._submit(queue, entry, finish, data=data, in_capsule=inline)

    def flush(self, queue: Queue) -> None:
        """A Flush."""
        submitted = self.model.flush_submitted()

        def finish(answer: Completion) -> None:
            if self._is_ok("Flush", answer):
                self.model.flush_completed(submitted)

        self._submit(queue, nvme.sqe(nvme.FLUSH, self.plan.nsid), finish)

    # ---- running ----

    def further_kinds(self) -> list[Callable[[Queue], None]]:
        """What else is submitted; each as often as it is in the list, of about two dozen."""
        return []

    def use(self, queues: list[Queue]) -> None:
        """Go on with other queues; what was in flight on the old ones is never answered."""
        self.queues = queues
        self._finish = {}
        self.model.forget_readings()

    def prepare(self, *, is_new: bool = False) -> None:
        """Give every block a known value; nothing says that it is durable.

        `is_new`: nobody has written to the namespace, so a crash may bring zeros back.
        """
        queue = self.queues[0]
        for cluster in range(self.plan.clusters):
            slba, span = cluster * self.plan.stride, self.plan.span
            if is_new:
                self.model.starts_as_zeros(slba, span)
            self._stamp += 1
            made = self.model.write_submitted(self._stamp, slba, span)
            queue.write(
                slba,
                self.model.payload(self._stamp, slba, span),
                self.model.block_size,
                nsid=self.plan.nsid,
            )
            self.model.write_completed(made)

    def run(self, commands: int, within_s: float = 120.0, *, to_the_end: bool = True) -> None:
        """Submit this many commands in random order and see them all answered.

        Not `to_the_end`: return with commands in flight.
        """
        kinds: list[Callable[[Queue], None]] = [self.write_zeroes, self.deallocate, self.flush]
        kinds += [self.write] * 9 + [self.read] * 9
        if self.plan.with_compare:
            kinds.append(self.compare)
        kinds += self.further_kinds()
        limit = time.monotonic() + within_s
        goal = self.submitted + commands
        while self.submitted < goal or (self._finish and to_the_end):
            assert time.monotonic() < limit, f"{len(self._finish)} commands are not answered"
            room = [queue for queue in self.queues if len(queue.in_flight) < self.plan.depth]
            if self.submitted < goal and room and self.rng.random() < 0.7:
                kind = self.rng.choice(kinds)
                self.counts[kind.__name__] = self.counts.get(kind.__name__, 0) + 1
                kind(self.rng.choice(room))
                self._take(0.0)
            else:
                self._take(0.5)

    def _take(self, wait_s: float) -> None:
        """Work on the PDUs that are there, in the order of a random choice of queues."""
        # Queues that wait for nothing would only let the time pass.
        buffered = ready_queues([queue for queue in self.queues if queue.in_flight], wait_s)
        self.rng.shuffle(buffered)
        for queue in buffered:
            queue.pump(10.0)
            for cid in list(queue.completions):
                self._finish.pop((queue, cid))(queue.completions.pop(cid))

    def check_crashed(self, read: Callable[[int, int], bytes]) -> None:
        """After a crash every block, by `read(slba, blocks)`, has a value that it may have."""
        for cluster in range(self.plan.clusters):
            slba = cluster * self.plan.stride
            fault = self.model.crashed(slba, read(slba, self.plan.span))
            assert fault is None, fault

    def check_all(self, read: Callable[[int, int], bytes]) -> None:
        """Every block, by `read(slba, blocks)`, has a value that it may have."""
        for cluster in range(self.plan.clusters):
            slba = cluster * self.plan.stride
            reading = self.model.read_submitted(slba, self.plan.span)
            self.model.read_completed(reading)
            fault = self.model.fault(reading, read(slba, self.plan.span))
            assert fault is None, fault
