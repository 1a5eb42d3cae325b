"""The target on a virtual clock: what becomes of reads, writes, hints and orders, and when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prestage.ext.codec import encode_batch
from prestage.ext.names import IntentFlag
from prestage.ext.records import Intent, Range
from prestage.replay.machine import EVENT, RESULT, Flash, Machine, MachineConfig, Op, State
from prestage.target.errors import Invalid
from prestage.target.prestager.shared import ORDER, OrderEnd, OrderKind, OrdersWriter
from prestage.target.ring import FACT, FactFlag, FactKind, RingReader, RingWaits
from prestage.target.settings import TargetSettings, TierSettings

SLOT = 64 << 10
BLOCK = 4096
FRAMES = 16
BLOCKS = 256
MS = 1_000_000
SECOND = 1_000_000_000
TRANSFER_NS = 1 * MS
"""Of one slot."""
LATENCY_NS = 80_000


def config(**changed: Any) -> MachineConfig:
    values: dict[str, Any] = {
        "settings": TargetSettings(tier=TierSettings(size=FRAMES * SLOT, slot=SLOT)),
        # No spread of latencies, so that times can be foretold.
        "flash": Flash(bandwidth=SLOT * 1000.0, read_median_us=80, read_p99_us=80, channels=4),
        "volume_bytes": BLOCKS * SLOT,
        "ring_facts": 1024,
        "orders": 64,
        "fetches": 64,
    }
    return MachineConfig(**{**values, **changed})


def events(*rows: tuple[Op, int, int], **columns: Any) -> NDArray[np.void]:
    """Whole slots: (what, time in ns, which)."""
    made = np.zeros(len(rows), EVENT)
    for name, column in zip(("op", "time_ns", "offset"), zip(*rows, strict=True), strict=True):
        made[name] = column
    made["offset"] *= SLOT
    made["length"] = SLOT
    for name, values in columns.items():
        made[name] = values
    return made


def states(machine: Machine) -> list[State]:
    return [State(state) for state in machine.results["state"]]


def fetch(block: int, value: float = 1e9, **changed: Any) -> NDArray[np.void]:
    order = np.zeros(1, ORDER)
    order["kind"], order["id"], order["value"] = OrderKind.FETCH, block + 1, value
    order["offset"], order["length"] = block * SLOT, SLOT
    order["expires_ns"] = 1000 * SECOND
    for name, each in changed.items():
        order[name] = each
    return order


@contextmanager
def model(machine: Machine) -> Iterator[tuple[RingReader, OrdersWriter]]:
    with RingReader(machine.ring_fd) as reader, OrdersWriter(machine.orders_fd) as writer:
        yield reader, writer


def take(reader: RingReader) -> NDArray[np.void]:
    parts = reader.take()
    facts = np.concatenate([np.empty(0, FACT), *parts])
    reader.release()
    return facts


# ---- reads and writes ----


def test_what_was_written_is_a_hit_at_once() -> None:
    with Machine(config(), events((Op.WRITE, 5, 3), (Op.READ, 6, 3))) as machine:
        machine.run()
        assert states(machine) == [State.WRITTEN, State.HIT]
        assert machine.results["ready_ns"].tolist() == [5, 6]
        assert machine.stats().demand_reads == 0
        machine.check()


def test_a_miss_takes_the_transfer_and_the_latency_of_the_flash() -> None:
    with Machine(config(), events((Op.READ, 7, 3), (Op.READ, SECOND, 3))) as machine:
        machine.run()
        assert states(machine) == [State.MISS, State.HIT]
        assert machine.results["ready_ns"][0] == 7 + TRANSFER_NS + LATENCY_NS
        stats = machine.stats()
        assert (stats.demand_reads, stats.demand_bytes, stats.fetch_reads) == (1, SLOT, 0)
        assert stats.busy_ns == TRANSFER_NS


def test_reads_of_one_time_are_begun_together_and_share_the_bandwidth() -> None:
    rows = [(Op.READ, 1, block) for block in (9, 2, 7, 4)]
    with Machine(config(), events(*rows)) as machine:
        machine.run()
        expected = [1 + LATENCY_NS + (place + 1) * TRANSFER_NS for place in range(4)]
        assert machine.results["ready_ns"].tolist() == expected


def test_second_read_of_a_block_that_is_coming_waits_for_the_same_fill() -> None:
    with Machine(config(), events((Op.READ, 1, 3), (Op.READ, 2, 3))) as machine:
        machine.run()
        assert states(machine) == [State.MISS, State.MISS]
        assert machine.results["ready_ns"][0] == machine.results["ready_ns"][1]
        assert machine.stats().demand_reads == 1


def test_what_was_used_longest_ago_is_evicted() -> None:
    rows = [(Op.WRITE, block + 1, block) for block in range(FRAMES)]
    rows += [(Op.READ, 5 * SECOND, 0), (Op.WRITE, 6 * SECOND, 100)]
    rows += [(Op.READ, 7 * SECOND, 0), (Op.READ, 7 * SECOND, 2), (Op.READ, 7 * SECOND, 1)]
    with Machine(config(), events(*rows)) as machine:
        machine.run()
        assert states(machine)[-3:] == [State.HIT, State.HIT, State.MISS]


def test_more_reads_at_once_than_the_tier_holds_all_end() -> None:
    rows = [(Op.READ, 1, block) for block in range(4 * FRAMES)]
    with Machine(config(), events(*rows)) as machine:
        machine.run()
        assert set(states(machine)) == {State.MISS}
        assert machine.is_done
        machine.check()


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": BLOCKS * SLOT},
        {"length": 2 * SLOT},
        {"length": 0},
        {"offset": 512},
        {"tenant": 1},
        {"op": 9},
        {"op": int(Op.BATCH), "offset": 1},
    ],
)
def test_event_out_of_range_is_refused_and_the_others_go_on(wrong: dict[str, int]) -> None:
    made = events((Op.READ, 1, 3), (Op.READ, 2, 3))
    for name, value in wrong.items():
        made[name][0] = value
    with Machine(config(), made) as machine:
        machine.run()
        assert states(machine) == [State.REFUSED, State.MISS]


# ---- time ----


def test_run_goes_as_far_as_it_is_told_and_on_from_there() -> None:
    with Machine(config(), events((Op.READ, 1, 3), (Op.READ, 10 * MS, 4))) as machine:
        assert machine.run(1 + TRANSFER_NS) == 1 + TRANSFER_NS
        assert (states(machine)[0], machine.begun, machine.pending) == (State.PENDING, 1, 1)
        assert machine.run(5 * MS) == 5 * MS
        assert (states(machine)[0], machine.is_done) == (State.MISS, False)
        assert machine.results["ready_ns"][0] == 1 + TRANSFER_NS + LATENCY_NS
        machine.run(20 * MS)
        assert machine.is_done


def random_events(rng: np.random.Generator, count: int) -> NDArray[np.void]:
    made = np.zeros(count, EVENT)
    made["time_ns"] = 1 + np.sort(rng.integers(0, count, count)) * MS
    made["op"] = rng.choice([Op.READ, Op.WRITE], count, p=[0.8, 0.2])
    made["offset"] = rng.integers(0, BLOCKS, count) * SLOT
    made["length"] = SLOT
    made["flags"] = rng.choice([0, FactFlag.SEQUENTIAL | FactFlag.ATTRIBUTES], count)
    return made


def test_same_input_gives_the_same_bytes_however_it_is_cut() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    rng = np.random.default_rng(seed)
    made = random_events(rng, 2000)
    with Machine(config(), made) as whole, Machine(config(), made) as cut:
        whole.run(10 * SECOND)
        for until_ns in sorted(rng.integers(1, 10 * SECOND, 300).tolist()):
            cut.run(until_ns)
        cut.run(10 * SECOND)
        assert whole.results.tobytes() == cut.results.tobytes()
        assert whole.stats() == cut.stats()
        assert whole.tier_stats() == cut.tier_stats()


# ---- the model's side ----


def test_facts_tell_of_reads_and_writes_as_the_reactors_do() -> None:
    made = events((Op.WRITE, 1, 3), (Op.READ, 2, 3), (Op.READ, 3, 4), queue=[7, 8, 9])
    with Machine(config(), made) as machine, model(machine) as (reader, _):
        machine.run()
        facts = take(reader)
        kinds = [FactKind.WRITE, FactKind.READ, FactKind.READ]
        assert facts["kind"].tolist() == kinds
        assert facts["time_ns"].tolist() == [1, 2, 3]
        assert facts["flags"].tolist() == [0, FactFlag.HIT, 0]
        assert facts["queue"].tolist() == [7, 8, 9]
        assert facts["offset"].tolist() == [3 * SLOT, 3 * SLOT, 4 * SLOT]


def test_a_read_that_misses_is_told_of_when_it_comes_and_once() -> None:
    made = events((Op.READ, 1, 3), (Op.READ, SECOND, 3))
    with Machine(config(), made) as machine, model(machine) as (reader, _):
        machine.run(LATENCY_NS // 2)
        assert machine.results["ready_ns"][0] == 0, "its data is not there yet"
        assert take(reader)["flags"].tolist() == [0]
        machine.run()
        rest = take(reader)
        assert rest["time_ns"].tolist() == [SECOND]
        assert rest["flags"].tolist() == [FactFlag.HIT]


def test_run_stops_when_the_reader_has_what_it_waits_for() -> None:
    made = events((Op.WRITE, 10, 3), (Op.WRITE, 20, 4), (Op.WRITE, 30, 5))
    with Machine(config(), made) as machine, model(machine) as (reader, _):
        for time_ns in (10, 20):
            assert not reader.wait_for(RingWaits.ALL)
            assert machine.run(SECOND) == time_ns
            assert take(reader)["time_ns"].tolist() == [time_ns]
        assert machine.run(SECOND) == SECOND
        assert take(reader)["time_ns"].tolist() == [30]


def test_reader_that_waits_for_hints_is_not_woken_by_reads() -> None:
    batch = encode_batch([Intent(1, 1000, nsid=1, ranges=(Range(0, 16),))], writer=1, sequence=1)
    made = events((Op.READ, 10, 3), (Op.BATCH, 20, 0), (Op.READ, 30, 4))
    made["length"][1] = len(batch)
    with Machine(config(), made, batch) as machine, model(machine) as (reader, _):
        assert not reader.wait_for(RingWaits.HINTS)
        assert machine.run(SECOND) == 20
        assert FactKind.INTENT in take(reader)["kind"]


def test_fetch_makes_a_hit_of_a_read_to_come() -> None:
    with Machine(config(), events((Op.READ, SECOND, 3))) as machine, model(machine) as parts:
        reader, writer = parts
        writer.put(fetch(3))
        machine.run()
        assert states(machine) == [State.HIT]
        stats, tier = machine.stats(), machine.tier_stats()
        assert (stats.fetch_reads, stats.demand_reads) == (1, 0)
        assert (tier.timely_hits, tier.late_hits, tier.wasted_bytes) == (1, 0, 0)
        assert machine.order_stats().landed == 1
        ended = take(reader)
        assert ended["kind"].tolist() == [FactKind.FETCHED, FactKind.READ]
        assert (ended["id"][0], ended["aux"][0]) == (4, OrderEnd.LANDED)


def test_read_that_finds_its_block_on_the_way_is_late() -> None:
    with Machine(config(), events((Op.READ, MS, 3))) as machine, model(machine) as (_, writer):
        writer.put(fetch(3))
        machine.run()
        assert states(machine) == [State.LATE]
        assert machine.results["ready_ns"][0] < MS + TRANSFER_NS
        assert machine.stats().fetch_reads == 1


def test_demand_goes_before_fetches_that_wait() -> None:
    with Machine(config(), events((Op.READ, MS, 200))) as machine, model(machine) as (_, writer):
        for block in range(10):
            writer.put(fetch(block))
        machine.run()
        # At most a piece of speculation was under way when it came.
        assert machine.results["ready_ns"][0] < MS + 6 * TRANSFER_NS
        assert machine.stats().fetch_reads == 10


def test_value_table_of_the_model_says_what_is_evicted() -> None:
    values = np.zeros((64, 64), np.float32)
    values[8] = 5
    rows = [(Op.WRITE, block + 1, block) for block in range(FRAMES)]
    rows += [(Op.WRITE, SECOND, 100), (Op.READ, 2 * SECOND, 0), (Op.READ, 2 * SECOND, 1)]
    kept = fetch(0, kind=OrderKind.CLASSIFY, value_class=8)
    with Machine(config(), events(*rows)) as machine, model(machine) as (_, writer):
        machine.run(SECOND - 1)
        writer.publish(values)
        writer.put(kept)
        machine.run()
        assert states(machine)[-2:] == [State.HIT, State.MISS]


def test_machine_without_a_model_has_neither_ring_nor_orders() -> None:
    with Machine(config(ring_facts=0, orders=0), events((Op.READ, 1, 3))) as machine:
        machine.run()
        assert (machine.ring_fd, machine.orders_fd) == (-1, -1)
        assert machine.order_stats().orders == 0


# ---- hints ----


def test_intent_makes_hits_of_what_it_names() -> None:
    per_slot = SLOT // BLOCK
    intent = Intent(
        1,
        deadline_us=100_000,
        nsid=1,
        ranges=(Range(5 * per_slot, 2 * per_slot),),
        flags=IntentFlag.LATE_OK,
    )
    batch = encode_batch([intent], writer=1, sequence=1)
    rows = [(Op.BATCH, MS, 0), (Op.READ, 101 * MS, 5), (Op.READ, 101 * MS, 6)]
    made = events(*rows)
    made["length"][0] = len(batch)
    with Machine(config(), made, batch) as machine:
        machine.run()
        assert states(machine) == [State.TAKEN, State.HIT, State.HIT]
        assert machine.tier_stats().timely_hits == 2
        machine.check()


def test_malformed_batch_is_refused() -> None:
    made = events((Op.BATCH, 1, 0))
    made["length"] = 64
    with Machine(config(), made, bytes(64)) as machine:
        machine.run()
        assert states(machine) == [State.REFUSED]


# ---- wrong input ----


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"settings": TargetSettings(tier=TierSettings(size=SLOT, slot=SLOT))}, "frame_count is 1"),
        (
            {"settings": TargetSettings(tier=TierSettings(size=SLOT, slot=1000))},
            "slot_size is 1000",
        ),
        ({"block_size": 100}, "block_size is 100"),
        ({"volume_bytes": 5}, "volume_bytes is 5"),
        ({"tenant_count": 0}, "tenant_count is 0"),
        ({"ring_facts": 3}, "ring_capacity is 3"),
        ({"orders": 3}, "orders_capacity is 3"),
        ({"fetches": 0}, "fetches is 0"),
        ({"flash": Flash(bandwidth=0)}, "flash"),
    ],
)
def test_what_cannot_be_simulated_is_refused_by_name(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid, match=text):
        Machine(config(**changed), events((Op.READ, 1, 3)))


def test_events_must_be_in_order_of_time() -> None:
    for times in ([0, 1], [2, 1]):
        with pytest.raises(Invalid, match="order of time"):
            Machine(config(), events((Op.READ, times[0], 3), (Op.READ, times[1], 3)))
    with pytest.raises(Invalid, match="events"):
        Machine(config(), np.zeros(3, RESULT))
