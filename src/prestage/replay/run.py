"""Runs a workload through the simulated target, with or without a prestager.

The prestager is driven as its process drives it live (prestage.target.prestager.process): it hears
of facts, is asked when what it waits for has come or its time has, and its orders go through the
same memory. Only that thinking takes no time here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prestage.ext.codec import encode_batches
from prestage.replay.hint_plans import Hint
from prestage.replay.machine import EVENT, NEVER_NS, Flash, Machine, MachineConfig, Op
from prestage.replay.result import Regime, Result, Run, judge
from prestage.replay.workload import QUEUES, Layout, Workload, place
from prestage.target.prestager.exchange import wakes
from prestage.target.prestager.process import PrestagerLike
from prestage.target.prestager.shared import OrdersWriter
from prestage.target.ring import FACT, RingReader, RingWaits
from prestage.target.settings import HintSettings, TargetSettings, TierSettings

START_NS: Final = 1_000_000_000
"""When the first access comes: before, there is time for the first orders."""
REST_NS: Final = 250_000_000
"""Facts that nobody is woken for are taken at least so often, as live."""
THINK_NS: Final = 100_000
"""Who wants to be asked again at once is asked after this: a thought takes time, live."""
DRAIN_NS: Final = 60_000_000_000
"""How long after the last access the prestager still looks, while something has not ended."""
RING_FACTS: Final = 1 << 18
PORTION: Final = RING_FACTS >> 4
"""Accesses that begin, or blocks that flash can bring, between two looks at the ring at most: each
means some facts, none of which may find it full."""
ORDERS: Final = 1 << 14
"""That wait at most, as live."""
STEP_NS: Final = 10_000_000_000
"""How far a target without a prestager runs in one call, unless nothing happens for longer."""
PROGRESS_TURNS: Final = 64
"""Between words of progress: a fraction of a second, and of a bar that will take days."""
HINT_QUEUE: Final = QUEUES
"""Hints come by a connection of their own."""

Progress = Callable[[float], None]
"""Called now and then with the share of the workload's time that is behind, 0 to 1."""


class Batch(NamedTuple):
    """A batch of hints (prestage.ext.codec) that a host of `tenant` sends at `time_s`."""

    time_s: float
    tenant: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Script:
    """Events of a machine, and where the workload's accesses stand among them."""

    events: NDArray[np.void]
    """dtype EVENT"""
    place: NDArray[np.int64]
    """[n]: of each access, its event."""
    data: bytes
    """What batches lie in."""


def layout_of(workload: Workload, regime: Regime) -> Layout:
    """Return where blocks lie: what hints and orders of this run speak of."""
    return place(workload, slot_size=regime.slot_size, block_size=regime.block_size)


def _clock(workload: Workload, time_s: NDArray[np.float64]) -> NDArray[np.uint64]:
    first_s = float(workload.request_time_s.min()) if workload.requests else 0.0
    passed_ns = np.rint(np.maximum(time_s - first_s, -START_NS / 1e9 + 1e-9) * 1e9)
    return (passed_ns.astype(np.int64) + START_NS).astype(np.uint64)


def _one_by_one(time_ns: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return times of accesses with those of one request a nanosecond apart, as hosts send them."""
    number = np.arange(len(time_ns))
    spread = number + np.maximum.accumulate(time_ns.astype(np.int64) - number)
    return spread.astype(np.uint64)


def encode_hints(hints: Iterable[Hint]) -> list[Batch]:
    """Return batches of hints in order of time: those of one host at one time go together."""
    batches: list[Batch] = []
    for (time_s, tenant), group in itertools.groupby(
        hints, lambda hint: (hint.time_s, hint.tenant)
    ):
        records = (hint.record for hint in group)
        encoded = encode_batches(records, writer=tenant + 1, sequence=len(batches) + 1)
        batches += [Batch(time_s, tenant, data) for data in encoded]
    return batches


def make_script(workload: Workload, layout: Layout, hints: Sequence[Batch] = ()) -> Script:
    """Return the events of a workload; batches of hints go before accesses of the same time."""
    accesses = np.zeros(len(workload), EVENT)
    accesses["time_ns"] = _one_by_one(_clock(workload, workload.time_s))
    accesses["offset"] = layout.extent[workload.block] * layout.slot_size
    accesses["length"] = layout.slot_size
    accesses["queue"] = workload.queue
    accesses["tenant"] = workload.tenant
    accesses["op"] = np.where(workload.is_write, Op.WRITE, Op.READ)
    batches = np.zeros(len(hints), EVENT)
    sizes = np.array([len(each.data) for each in hints], np.int64)
    batches["time_ns"] = _clock(workload, np.array([each.time_s for each in hints], np.float64))
    batches["offset"] = np.cumsum(sizes) - sizes
    batches["length"] = sizes
    batches["queue"] = HINT_QUEUE
    batches["tenant"] = [each.tenant for each in hints]
    batches["op"] = Op.BATCH
    events = np.concatenate([batches, accesses])
    order = np.argsort(events["time_ns"], kind="stable")
    where = np.empty(len(events), np.int64)
    where[order] = np.arange(len(events))
    data = b"".join(each.data for each in hints)
    return Script(events[order], where[len(batches) :], data)


def machine_config(
    workload: Workload,
    regime: Regime,
    layout: Layout,
    *,
    seed: int,
    with_model: bool,
    tenants: int,
) -> MachineConfig:
    """Return the machine that a regime stands for; `tenants` of hosts read, write or say hints."""
    frames = regime.frames(workload)
    settings = TargetSettings(
        tier=TierSettings(size=frames * regime.slot_size, slot=regime.slot_size),
        hints=HintSettings(tier_percent=regime.hint_percent),
    )
    flash = Flash(
        bandwidth=max(regime.flash_per_s(workload) * regime.slot_size, 1.0),
        seed=seed,
        read_median_us=regime.read_median_us,
        read_p99_us=regime.read_p99_us,
        channels=regime.channels,
    )
    return MachineConfig(
        settings=settings,
        flash=flash,
        volume_bytes=layout.volume_bytes,
        block_size=regime.block_size,
        tenant_count=tenants,
        ring_facts=RING_FACTS if with_model else 0,
        orders=ORDERS if with_model else 0,
    )


class Driver:
    """Lets a prestager see and order, beside a machine, as its process does."""

    def __init__(self, machine: Machine, prestager: PrestagerLike) -> None:
        self._machine = machine
        self._prestager = prestager
        config = machine.config
        moved_per_s = config.flash.bandwidth / config.settings.tier.slot
        self._portion_ns = max(round(PORTION / moved_per_s * 1e9), THINK_NS)
        self._reader = RingReader(machine.ring_fd)
        self._writer = OrdersWriter(machine.orders_fd)
        self._next_ns = 0
        self._waits = RingWaits.ALL
        self._now_ns = machine.stats().now_ns

    def turn(self, until_ns: int) -> int:
        """Run until the prestager is to hear of something, or until then; return the time."""
        self._reader.wait_for(self._waits)
        now_ns = self._now_ns
        stop_ns = min(until_ns, now_ns + REST_NS, max(self._next_ns, now_ns + THINK_NS))
        stop_ns = min(stop_ns, _event_ns(self._machine, PORTION))
        if self._machine.pending > PORTION:
            stop_ns = min(stop_ns, now_ns + self._portion_ns)
        self._now_ns = self._machine.run(stop_ns)
        self._hear(self._now_ns)
        return self._now_ns

    def _hear(self, now_ns: int) -> None:
        parts = self._reader.take()
        facts = np.concatenate(parts) if parts else np.empty(0, FACT)
        self._reader.release()
        assert self._reader.lost == 0, f"{self._reader.lost} facts found the ring full"
        if len(facts):
            self._prestager.observe(facts)
        if not wakes(facts, self._waits) and now_ns < self._next_ns:
            return
        decision = self._prestager.decide(now_ns, self._writer.gauges())
        if decision.values is not None:
            self._writer.publish(decision.values)
        self._writer.put(decision.orders)
        self._next_ns, self._waits = decision.next_ns, decision.waits

    def close(self) -> None:
        """Forget the memory, and let nothing wake who reads it no more."""
        self._reader.wait_for(RingWaits.NOT)
        self._reader.close()
        self._writer.close()


def _event_ns(machine: Machine, ahead: int) -> int:
    """Return when the event begins that has so many to come before it; NEVER_NS: none has."""
    times, place = machine.events["time_ns"], machine.begun + ahead
    return int(times[place]) if place < len(times) else NEVER_NS


def run_all(machine: Machine, prestager: PrestagerLike | None, progress: Progress | None) -> None:
    """Run all events and what they lead to. Whether progress is told of changes nothing."""
    driver = Driver(machine, prestager) if prestager is not None else None
    last_ns = int(machine.events["time_ns"][-1]) if len(machine.events) else START_NS
    now_ns, turns, end_ns = 0, 0, last_ns + DRAIN_NS
    while now_ns < last_ns or (now_ns < end_ns and not machine.is_done):
        step_ns = max(now_ns + STEP_NS, min(_event_ns(machine, 0), last_ns))
        now_ns = machine.run(step_ns) if driver is None else driver.turn(end_ns)
        turns += 1
        if progress is not None and turns % PROGRESS_TURNS == 0:
            progress(min(now_ns, last_ns) / last_ns)
    if progress is not None:
        progress(1.0)
    if driver is not None:
        driver.close()
    if not machine.is_done:
        # Reads may wait long for flash that is slow: most of a trace's accesses can be its last.
        machine.run()


def replay(
    workload: Workload,
    policy: PrestagerLike | None,
    regime: Regime,
    seed: int,
    hints: Iterable[Hint] = (),
    progress: Progress | None = None,
    *,
    name: str = "",
) -> Result:
    """Return what becomes of a workload in the simulated target.

    `policy`: a prestager that has seen nothing, or knows what it was given; None: the tier evicts
    what was used longest ago, and nobody orders anything. `seed` is of the flash's latencies.
    `hints` are what hosts say whatever the policy, in order of time, by the layout of `layout_of`.
    `name` is what the result calls the policy. Raises Invalid when the regime cannot be simulated.
    """
    layout = layout_of(workload, regime)
    batches = encode_hints(hints)
    script = make_script(workload, layout, batches)
    tenants = max([workload.tenants, *(each.tenant + 1 for each in batches)])
    config = machine_config(
        workload, regime, layout, seed=seed, with_model=policy is not None, tenants=tenants
    )
    with Machine(config, script.events, script.data) as machine:
        run_all(machine, policy, progress)
        run = Run(
            results=machine.results[script.place],
            arrived_ns=script.events["time_ns"][script.place],
            batches=len(batches),
            machine=machine.stats(),
            tier=machine.tier_stats(),
            orders=machine.order_stats(),
            flash_bytes_per_s=config.flash.bandwidth,
            frames=regime.frames(workload),
            report=policy.report() if policy is not None else None,
        )
    label = name or ("none" if policy is None else type(policy).__name__.lower())
    return judge(workload, regime, run, policy=label, seed=seed)
