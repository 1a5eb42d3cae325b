"""The prestager's process, with a prestager of the tests' own inside."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from follower import SLOW_S
from prestager_support import FETCH, FETCHED, INTENT, PARENT, SLOT, WITHIN_S, Memories, Prestaged

from prestage.target.prestager import snapshot
from prestage.target.prestager.launch import Alive

CHAIN = [7, 3, 11, 5, 2]
UUIDS = {4: "11111111-0000-0000-0000-000000000000", 9: "99999999-0000-0000-0000-000000000000"}


@pytest.fixture
def memories() -> Iterator[Memories]:
    with Memories() as made:
        yield made


def read_chain(process: Prestaged, *slots: int, volume: int = 4, tenant: int = 2) -> None:
    """The data path sees reads of these slots."""
    for slot in slots:
        process.memories.put(offset=slot * SLOT, volume=volume, tenant=tenant)
    process.memories.wake()


def has_seen(count: int) -> Callable[[Alive], bool]:
    return lambda alive: bool(alive.report["seen"] == count)


def until_taken(memories: Memories) -> None:
    """Wait until every fact has been taken."""
    limit = time.monotonic() + WITHIN_S
    while memories.taken < memories.ring.read("Q", 64):
        assert time.monotonic() < limit
        time.sleep(0.005)


def learn(process: Prestaged, volume: int = 4) -> Alive:
    """The chain is read once; returns what the process says then."""
    process.hear()
    process.name(volumes=UUIDS, tenants={2: "nqn.2026-11.com.example:a"})
    read_chain(process, *CHAIN, volume=volume)
    return process.hear_of(lambda alive: alive.report["seen"] >= len(CHAIN))


def test_what_followed_once_is_ordered_when_the_first_is_read_again(
    memories: Memories, tmp_path: Path
) -> None:
    with Prestaged(memories, tmp_path / "snapshot") as process:
        learn(process)
        read_chain(process, CHAIN[0])
        orders = process.fetches(4)
        assert [order.offset // SLOT for order in orders] == CHAIN[1:]
        assert {(one.kind, one.volume, one.tenant) for one in orders} == {(FETCH, 4, 2)}
        now_ns = time.monotonic_ns()
        assert all(now_ns < order.expires_ns < now_ns + 61 * 10**9 for order in orders)
        assert process.end() == 0


def test_it_counts_every_order_that_it_puts_and_the_processor_time_of_its_work(
    memories: Memories, tmp_path: Path
) -> None:
    with Prestaged(memories, tmp_path / "snapshot", "slow") as process:
        learn(process)
        read_chain(process, CHAIN[0])
        process.fetches(4)
        put = memories.orders.read("Q", 64)
        counters = process.hear_of(lambda alive: alive.counters["orders"] >= put).counters
        # Value tables among them, as the data path counts.
        assert counters["orders"] == put > 4
        slept_ns = counters["decisions"] * int(SLOW_S * 1e9)
        assert counters["observe_ns"] + counters["decide_ns"] < slept_ns / 2
        assert process.end() == 0


def test_it_stands_back_and_says_how_it_is(memories: Memories, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    with Prestaged(memories, tmp_path / "snapshot", cpus=[cpu]) as process:
        assert process.hear().report["holdout_share"] == 0.25
        pid = process.process.pid
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        assert os.sched_getaffinity(pid) == {cpu}
        alive = learn(process)
        assert alive.counters["facts"] == len(CHAIN)
        assert alive.counters["facts_waiting"] == 0
        assert alive.counters["memory_bytes"] > 1 << 20
        assert alive.troubles == {}
        assert process.end() == 0


def test_it_can_have_a_share_and_does_without_a_processor_that_is_not_there(
    memories: Memories, tmp_path: Path
) -> None:
    with Prestaged(memories, tmp_path / "snapshot", is_idle=False, cpus=[4095]) as process:
        process.hear()
        pid = process.process.pid
        assert os.sched_getscheduler(pid) == os.SCHED_OTHER
        niceness = os.getpriority(os.PRIO_PROCESS, 0) + 10
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(niceness, 19)
        assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
        assert process.end() == 0


def test_at_rest_it_wakes_a_few_times_a_second(memories: Memories, tmp_path: Path) -> None:
    with Prestaged(memories, tmp_path / "snapshot", report_s=1) as process:
        first = process.hear()
        later = [process.hear() for _ in range(3)]
        assert later[-1].counters["wake_ups"] - first.counters["wake_ups"] <= 3 * 7
        assert process.end() == 0


def test_facts_are_taken_although_nobody_wakes_it(memories: Memories, tmp_path: Path) -> None:
    with Prestaged(memories, tmp_path / "snapshot") as process:
        process.hear()
        memories.put(INTENT, offset=0)
        process.hear_of(lambda alive: alive.report["seen"] == 1)
        assert process.end() == 0


def test_a_ring_that_is_full_is_emptied_in_portions(memories: Memories, tmp_path: Path) -> None:
    with Memories(facts=1 << 15) as larger, Prestaged(larger, tmp_path / "snapshot") as process:
        for number in range(larger.capacity):
            larger.put(INTENT, offset=number * SLOT)
        larger.wake()
        process.hear_of(lambda alive: alive.report["seen"] == larger.capacity)
        assert larger.taken == larger.capacity
        assert process.end() == 0


def test_a_reader_goes_round_the_ring(memories: Memories, tmp_path: Path) -> None:
    with Memories(facts=8) as small, Prestaged(small, tmp_path / "snapshot") as process:
        for turn in range(1, 6):
            for slot in range(6):
                small.put(offset=slot * SLOT)
            small.wake()
            alive = process.hear_of(has_seen(6 * turn))
        assert alive.report["known"] == 6
        assert process.end() == 0


# ---- the end ----


def test_it_ends_with_a_target_that_stops_and_keeps_what_it_learned(
    memories: Memories, tmp_path: Path
) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        learn(process)
        assert process.end() == 0
    assert snapshot.load(path) is not None


def test_it_ends_with_a_target_that_died_and_leaves_its_files_alone(
    memories: Memories, tmp_path: Path
) -> None:
    with Prestaged(memories, tmp_path / "snapshot") as process:
        learn(process)
        process.channel.close()
        assert process.process.wait(20) == 0
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_learned_of_a_target_that_stops(memories: Memories, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        learn(process)
        process.process.send_signal(signal.SIGSTOP)
        process.say_goodbye()
        read_chain(process, 100, 101)
        process.process.send_signal(signal.SIGCONT)
        assert process.process.wait(20) == 0
    found = snapshot.load(path)
    assert found is not None
    assert len(found[1]["next"]) == len(CHAIN) - 1


def test_a_signal_to_end_is_obeyed_in_order(memories: Memories, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        learn(process)
        for number in (signal.SIGINT, signal.SIGHUP):
            process.process.send_signal(number)
        process.hear()
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(20) == 0
    assert path.exists()


def test_nothing_is_written_when_nothing_was_learned(memories: Memories, tmp_path: Path) -> None:
    with Prestaged(memories, tmp_path / "snapshot") as process:
        process.hear()
        assert process.end() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("trouble", ["hang", "wait"])
def test_one_that_hangs_ends_soon_after_a_target_that_was_killed(
    memories: Memories, tmp_path: Path, trouble: str
) -> None:
    with Prestaged(
        memories, tmp_path / "snapshot", trouble, parent=PARENT, orphan_s=0.1
    ) as process:
        process.hear()
        read_chain(process, 1)
        until_taken(memories)
        process.process.kill()
        process.until_gone()


def test_one_that_hangs_where_no_python_runs_ends_by_itself(
    memories: Memories, tmp_path: Path
) -> None:
    with Prestaged(memories, tmp_path / "snapshot", "native", hang_s=0.5) as process:
        process.hear()
        read_chain(process, 1)
        assert process.process.wait(20) == -signal.SIGPROF


def test_one_that_works_more_than_a_hang_is_long_goes_on(
    memories: Memories, tmp_path: Path
) -> None:
    with Prestaged(memories, tmp_path / "snapshot", hang_s=0.2, report_s=0.005) as process:
        first = process.hear().counters["cpu_ns"]
        process.hear_of(lambda alive: alive.counters["cpu_ns"] - first > 300_000_000)
        assert process.end() == 0


def test_to_be_continued_is_not_to_be_left_alone(memories: Memories, tmp_path: Path) -> None:
    with Prestaged(memories, tmp_path / "snapshot", orphan_s=0.001) as process:
        process.hear()
        process.process.send_signal(signal.SIGCONT)
        learn(process)
        assert process.end() == 0


# ---- what was learned ----


def test_what_was_learned_is_known_by_name_after_a_restart(
    memories: Memories, tmp_path: Path
) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        learn(process)
        assert process.end() == 0
    with Prestaged(memories, path) as process:
        assert process.hear().report["loaded"] == len(CHAIN) - 1
        process.name(volumes={1: UUIDS[4]}, tenants={8: "nqn.2026-11.com.example:a"})
        read_chain(process, CHAIN[0], volume=1, tenant=8)
        orders = process.fetches(4)
        assert [order.offset // SLOT for order in orders] == CHAIN[1:]
        assert {(one.volume, one.tenant) for one in orders} == {(1, 8)}
        read_chain(process, CHAIN[0], volume=4, tenant=8)
        process.hear_of(lambda alive: alive.report["seen"] == 2)
        assert memories.fetches() == [], "another volume now has the number of the first"
        assert process.end() == 0


def test_facts_that_wait_at_the_start_are_about_what_is_named_first(
    memories: Memories, tmp_path: Path
) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        learn(process)
        assert process.end() == 0
    memories.put(offset=CHAIN[0] * SLOT, volume=1, tenant=8)
    with Prestaged(memories, path, first={"volumes": {1: UUIDS[4]}}) as process:
        orders = process.fetches(4)
        assert {one.volume for one in orders} == {1}
        assert process.end() == 0


def test_an_order_for_a_volume_that_is_not_there_has_failed(
    memories: Memories, tmp_path: Path
) -> None:
    with Prestaged(memories, tmp_path / "snapshot") as process:
        process.hear()
        process.name(volumes=UUIDS)
        read_chain(process, 1, volume=4)
        read_chain(process, 2, volume=9)
        process.hear_of(lambda alive: alive.report["known"] == 1)
        process.name(volumes={9: "22222222-0000-0000-0000-000000000000"})
        read_chain(process, 1, volume=4)
        alive = process.hear_of(lambda alive: alive.report["fetched"] > 0)
        assert alive.counters["orders_nowhere"] == alive.report["fetched"]
        assert {order.volume for order in memories.fetches()} <= {4}
        assert process.end() == 0


def test_time_goes_on_after_a_restart(memories: Memories, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        first = learn(process)
        assert process.end() == 0
    with Prestaged(memories, path) as process:
        process.hear()
        memories.put(offset=0, time_ns=1)
        memories.wake()
        later = process.hear_of(lambda alive: alive.report["seen"] == 1)
        assert later.report["last_ns"] >= first.report["last_ns"] > 0
        assert process.end() == 0


def test_a_clock_that_steps_back_stops_nothing(memories: Memories, tmp_path: Path) -> None:
    with Prestaged(memories, tmp_path / "snapshot", "clock") as process:
        learn(process)
        read_chain(process, CHAIN[0])
        assert [order.offset // SLOT for order in process.fetches(4)] == CHAIN[1:]
        assert process.end() == 0


@pytest.mark.parametrize("damage", [b"", b"PRESTAGE", bytes(1000)])
def test_a_damaged_file_is_set_aside_and_learning_starts_anew(
    memories: Memories, tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(damage)
    with Prestaged(memories, path) as process:
        alive = process.hear()
        assert alive.report["loaded"] == 0
        assert "set aside" in alive.troubles["snapshot"]
        learn(process)
        assert process.end() == 0
    assert (tmp_path / "snapshot.bad").read_bytes() == damage
    assert snapshot.load(path) is not None


def test_what_was_learned_of_another_tier_is_set_aside(memories: Memories, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        learn(process)
        assert process.end() == 0
    with Prestaged(memories, path, slot_size=2 * SLOT) as process:
        trouble = process.hear().troubles["snapshot"]
        assert f"learned with slots of {SLOT} bytes (expected {2 * SLOT})" in trouble
        assert process.end() == 0


def test_what_the_prestager_cannot_take_over_is_set_aside(
    memories: Memories, tmp_path: Path
) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        learn(process)
        assert process.end() == 0
    about, state = snapshot.load(path) or ({}, {})
    snapshot.write(path, snapshot.encode(about, {"next": state["next"][:, :5]}))
    with Prestaged(memories, path) as process:
        assert "of another form" in process.hear().troubles["snapshot"]
        assert process.end() == 0


def test_what_is_not_trusted_is_not_read(memories: Memories, tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path) as process:
        learn(process)
        assert process.end() == 0
    with Prestaged(memories, path, distrust=True) as process:
        alive = process.hear()
        assert alive.report["loaded"] == 0
        assert "again and again" in alive.troubles["snapshot"]
        assert process.end() == 0
    assert (tmp_path / "snapshot.bad").exists()


def test_it_is_kept_while_it_runs_and_a_full_disk_stops_nothing(
    memories: Memories, tmp_path: Path
) -> None:
    path = tmp_path / "snapshot"
    with Prestaged(memories, path, snapshot_s=0.01) as process:
        learn(process)
        process.hear_of(lambda alive: alive.counters["snapshots"] > 0)
        kept = path.read_bytes()
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (10, 10))
        read_chain(process, 50, 51)
        alive = process.hear_of(lambda alive: "snapshot_write" in alive.troubles)
        assert str(path) in alive.troubles["snapshot_write"]
        read_chain(process, CHAIN[0])
        assert [order.offset // SLOT for order in process.fetches(4)] == CHAIN[1:]
        assert process.end() == 0
    assert path.read_bytes() == kept


def test_the_ends_of_orders_are_facts_like_others(memories: Memories, tmp_path: Path) -> None:
    with Prestaged(memories, tmp_path / "snapshot") as process:
        process.hear()
        memories.put(FETCHED, offset=0)
        memories.wake()
        process.hear_of(lambda alive: alive.report["fetched"] == 1)
        assert process.end() == 0


def test_it_takes_no_more_memory_than_it_may(memories: Memories, tmp_path: Path) -> None:
    with Prestaged(memories, tmp_path / "snapshot", memory_bytes=200 << 20) as process:
        process.hear()
        soft, _ = resource.prlimit(process.process.pid, resource.RLIMIT_DATA)
        taken = process.hear().counters["memory_bytes"]
        assert soft > (200 << 20) + taken // 4, "what it has at the start does not count"
        assert process.end() == 0
