from __future__ import annotations

import numpy as np

from prestage.target.prestager.bursts import LONGEST_S, Bursts
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Accesses


def accesses(flows: list[int], times_s: list[float]) -> Accesses:
    count = len(flows)
    no = np.zeros(count, bool)
    rows = np.round(np.array(times_s) * 1000).astype(np.int64)
    return Accesses(rows, np.array(flows), np.array(times_s), no, no, np.zeros(count, np.uint16))


def made(count: int) -> Bursts:
    flows = Flows()
    flows.find(np.arange(count, dtype=np.uint64))
    return Bursts(flows)


def test_a_burst_is_given_back_when_its_flow_has_been_still() -> None:
    bursts = made(2)
    bursts.add(accesses([0, 1, 0], [1.0, 1.001, 1.002]))
    assert bursts.take(1.003) is None
    bursts.add(accesses([1], [1.02]))
    over = bursts.take(1.03)
    assert over is not None and over.times_s.tolist() == [1.0, 1.002]
    rest = bursts.open()
    assert rest is not None and rest.times_s.tolist() == [1.001, 1.02]
    over = bursts.take(2.0)
    assert over is not None and over.flows.tolist() == [1, 1]
    assert bursts.take(3.0) is None and bursts.open() is None


def test_a_burst_that_does_not_end_is_taken_in_parts() -> None:
    bursts = made(1)
    times_s = np.arange(0, LONGEST_S + 0.5, 0.01).tolist()
    bursts.add(accesses([0] * len(times_s), times_s))
    over = bursts.take(times_s[-1])
    assert over is not None and len(over.rows) == len(times_s)


def test_a_burst_waits_for_its_reads_that_are_late_as_others_were() -> None:
    bursts = made(2)
    bursts.add(accesses([0, 1, 0], [1.0, 1.5, 1.0]))
    bursts.add(accesses([1], [2.0]))
    assert bursts.take(1.4) is None, "a read was heard of half a second after it had come"
    bursts.add(accesses([1], [1.999]))
    over = bursts.take(2.4)
    assert over is not None and over.flows.tolist() == [0, 0]
    over = bursts.take(3.0)
    assert over is not None and over.times_s.tolist() == [1.5, 1.999, 2.0], "in order of time"


def test_all_can_be_taken_by_flow() -> None:
    bursts = made(2)
    bursts.add(accesses([1, 0, 1], [1.0, 1.1, 1.2]))
    every = bursts.take_all()
    assert every is not None and every.flows.tolist() == [0, 1, 1]
    assert every.times_s.tolist() == [1.1, 1.0, 1.2]
    assert bursts.take_all() is None
