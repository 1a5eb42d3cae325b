"""Random work for the media scheduler, by seed: nothing is lost, nothing starts twice."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from sched_support import (
    DATED,
    DEMAND,
    EXTENT,
    MS,
    NEVER,
    SPECULATIVE,
    US,
    WRITES,
    Medium,
    Scheduler,
    chain,
)

from prestage._core import ffi, lib

STARTED = 2


class Model:
    """What a caller knows, beside the scheduler under test."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.window = self.random.choice([1, 2, 8, 32])
        self.sched = Scheduler(window=self.window, starvation_ns=5 * MS)
        self.medium = Medium(self.sched, self.random.choice([0.1e9, 1e9, 8e9]))
        self.waiting: dict[Any, Any] = {}
        self.started = 0
        self.pushed = 0
        self.jobs: list[Any] = []

    def address(self, item: Any) -> int:
        """What names an item."""
        return int(ffi.cast("uintptr_t", item))

    def note(self, item: Any) -> None:
        """An operation starts: each item of it waited, and its range follows on the one before."""
        end = item.offset
        for each in chain(item):
            assert self.waiting.pop(self.address(each)) == each
            assert each.offset == end
            assert (each.sched_class, each.op) == (item.sched_class, item.op)
            assert each.state == STARTED
            end += each.length
            self.started += 1

    def push(self) -> None:
        """An item of any class, often beside another."""
        sched_class = self.random.choice([DEMAND, DATED, WRITES, SPECULATIVE])
        after_ns = int(self.random.expovariate(1 / (2 * MS)))
        item = self.sched.push(
            sched_class,
            offset=self.random.randrange(64) * EXTENT,
            length=self.random.choice([4096, EXTENT]),
            deadline_ns=self.sched.now + after_ns if sched_class == DATED else NEVER,
            priority=self.random.randrange(4),
        )
        self.waiting[self.address(item)] = item
        self.pushed += 1

    def promote(self) -> None:
        """Something that waits becomes urgent."""
        if not self.waiting:
            return
        item = self.random.choice(list(self.waiting.values()))
        if item.sched_class == WRITES:
            return
        sched_class = self.random.choice([DEMAND, DATED])
        deadline_ns = NEVER if sched_class == DEMAND else self.sched.now + MS
        lib.ps_sched_promote(self.sched.sched, self.sched.now, item, sched_class, deadline_ns)

    def add_job(self) -> None:
        """A job, dated or not."""
        dated = self.random.random() < 0.7
        deadline_ns = self.sched.now + int(self.random.expovariate(1 / (20 * MS)))
        self.jobs.append(
            self.sched.job(
                self.random.randint(1, 32) * EXTENT,
                deadline_ns if dated else NEVER,
                value=self.random.random(),
                priority=self.random.randrange(4),
            )
        )

    def change_job(self) -> None:
        """A job gets another deadline, or fewer bytes, or goes."""
        self.jobs = [job for job in self.jobs if job.state != 0]
        if not self.jobs:
            return
        job = self.random.choice(self.jobs)
        if self.random.random() < 0.3:
            lib.ps_sched_remove_job(self.sched.sched, job)
            return
        job.bytes = self.random.randint(1, job.bytes)
        if job.sched_class == DATED:
            job.deadline_ns = self.sched.now + int(self.random.expovariate(1 / (20 * MS)))
        lib.ps_sched_update_job(self.sched.sched, self.sched.now, job)

    def start(self) -> None:
        """Start what the scheduler gives; pieces of jobs sometimes find no memory."""
        while True:
            item = self.sched.pop()
            if item != ffi.NULL:
                self.note(item)
                self.medium.start(item)
                continue
            job = self.sched.next_job()
            if job == ffi.NULL:
                return
            if self.random.random() < 0.1:
                continue
            piece = self.sched.start_piece(job, self.random.choice([4096, EXTENT, 4 * EXTENT]))
            self.waiting[self.address(piece)] = piece
            self.pushed += 1

    def check(self) -> None:
        """The counters say what the model knows."""
        stats = self.sched.stats()
        assert sum(stats.waiting) == len(self.waiting) == lib.ps_sched_waiting(self.sched.sched)
        assert sum(stats.in_flight) == len(self.medium.under_way)
        assert sum(stats.in_flight) <= self.window
        assert sum(stats.started) - sum(stats.ended) == sum(stats.in_flight)
        assert sum(stats.started) + stats.merges == self.started
        live = [job for job in self.jobs if job.state != 0]
        assert stats.jobs == len(live)
        assert stats.job_bytes == sum(job.bytes for job in live if job.sched_class == DATED)
        ready_ns, in_time = self.sched.forecast(8 * EXTENT, self.sched.now + 10 * MS)
        assert ready_ns > self.sched.now
        assert in_time <= 8 * EXTENT

    def step(self) -> None:
        """Something happens."""
        actions = [self.push, self.push, self.promote, self.add_job, self.change_job, self.start]
        self.random.choice(actions)()
        if self.random.random() < 0.3:
            self.start()
        if self.random.random() < 0.4:
            self.medium.step()
        self.sched.now += self.random.choice([0, 0, US, 50 * US])

    def finish(self) -> None:
        """Nothing new comes: everything ends."""
        for _ in range(200_000):
            self.start()
            if not self.medium.step():
                return
        msg = "work is left, and no end of it"
        raise AssertionError(msg)


@pytest.mark.parametrize("seed", [int.from_bytes(os.urandom(4), "little") for _ in range(6)])
def test_no_work_is_lost_and_none_starts_twice(seed: int) -> None:
    print("seed", seed)
    model = Model(seed)
    for _ in range(3000):
        model.step()
        model.check()
    model.finish()
    model.check()
    assert not model.waiting
    assert model.started == model.pushed
    assert model.sched.stats().jobs == 0
    assert model.sched.next_time() == NEVER
