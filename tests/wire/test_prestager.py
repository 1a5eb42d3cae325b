"""The prestager beside a target on the wire: what it is good for; its ends cost no byte."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from follower import AHEAD
from nvme_tcp import hints

from prestage.ext.pages import decode_status
from prestage.target.supervisor import COMMAND
from prestage.testing import spawn_target

from . import hinting
from .prestaging import (
    CHAIN_SLOTS,
    TESTS,
    WITHIN_S,
    Host,
    chain,
    fill_the_disk,
    is_there,
    served,
    until_gone,
    until_heard,
)
from .probing import Site

ORDER = chain()
RHYTHM_S = 0.1
"""From one set that the host reads to the next."""
MOST = 0.8
"""Of the chain is hit once what follows what is known."""
TROUBLE = "PRESTAGE_TEST_TROUBLE"


@pytest.fixture(autouse=True)
def _own_target() -> None:
    if os.environ.get("PRESTAGE_TEST_TARGET"):
        pytest.skip("needs a target of its own")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with served(tmp_path / "target", snapshot_s=0) as host:
        host.until_running()
        yield host


def learns_again(host: Host) -> None:
    """The chain is read once, and then it comes before it is read."""
    host.learn(ORDER)
    # What was brought in too late before, and was not read, is read now and makes room.
    host.read_in_a_rhythm(ORDER)
    assert host.read_in_a_rhythm(ORDER) >= MOST * CHAIN_SLOTS, host.prestager()


def until_logged(log: Path, text: str) -> None:
    """Wait until a target says something."""
    limit = time.monotonic() + WITHIN_S
    while text not in log.read_text():
        assert time.monotonic() < limit, log.read_text()
        time.sleep(0.005)


def test_what_is_read_in_a_rhythm_is_there_before(host: Host) -> None:
    host.learn(ORDER)
    assert host.hits == 0, "nothing is known yet"
    before = host.call("prestage_get_stats")["tier"]
    assert host.read_in_a_rhythm(ORDER) >= MOST * CHAIN_SLOTS
    after = host.call("prestage_get_stats")["tier"]
    assert after["timely_hits"] - before["timely_hits"] >= MOST * CHAIN_SLOTS
    orders = host.prestager()["orders"]
    assert orders["landed"] >= MOST * CHAIN_SLOTS
    assert orders["refused"] == 0


def test_without_it_the_same_reads_find_nothing(tmp_path: Path) -> None:
    with served(tmp_path / "target", enabled=False) as host:
        assert host.prestager()["state"] == "off"
        for _ in range(2):
            host.read_all(ORDER)
        assert host.hits == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_dies_costs_no_byte_and_learns_again(host: Host, number: signal.Signals) -> None:
    host.learn(ORDER)
    os.kill(host.prestager()["pid"], number)
    host.read_all(ORDER)
    now = host.until_running(restarts=1)
    assert now["orders"]["resets"] >= 1
    learns_again(host)
    assert host.prestager()["restarts"] == 1


def test_one_that_is_stopped_costs_no_byte_and_learns_again(tmp_path: Path) -> None:
    with served(tmp_path / "target", silence_s=2) as host:
        first = host.until_running()["pid"]
        host.learn(ORDER)
        os.kill(first, signal.SIGSTOP)
        host.read_all(ORDER)
        now = host.until_running(restarts=1)
        assert "no sign of life" in now["last_error"]
        assert not is_there(first)
        learns_again(host)


@pytest.mark.parametrize("trouble", ["fail", "hang", "die"])
def test_one_that_does_not_work_costs_no_byte(
    tmp_path: Path, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TROUBLE, trouble)
    with served(tmp_path / "target", silence_s=1) as host:
        host.read_all(ORDER)
        host.until(lambda now: now["restarts"] >= 1)
        host.read_all(ORDER)
        monkeypatch.setenv(TROUBLE, "")
        restarts = host.prestager()["restarts"]
        host.until_running(restarts + 1 if trouble == "die" else restarts)
        host.read_all(ORDER)


def test_a_clock_that_steps_costs_no_byte_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TROUBLE, "clock")
    with served(tmp_path / "target") as host:
        host.until_running()
        host.learn(ORDER)
        host.read_all(ORDER)
        assert host.prestager()["restarts"] == 0


def test_a_full_disk_is_said_once_and_learning_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path / "target", snapshot_s=1) as host:
        fill_the_disk(host.until_running()["pid"])
        learns_again(host)
        host.until(lambda now: bool(host.call("prestage_get_stats")["warnings"]))
        (warning,) = host.call("prestage_get_stats")["warnings"]
        assert warning.startswith("prestager: snapshot_write: ")
        assert os.strerror(27) in warning
        host.read_in_a_rhythm(ORDER[:20])
    assert caplog.text.count("what is learned is not kept") == 1


def test_what_was_learned_serves_the_next_start(tmp_path: Path) -> None:
    with served(tmp_path / "target") as host:
        host.until_running()
        host.learn(ORDER)
    with served(tmp_path / "target") as host:
        assert host.until_running()["learned"]["loaded"] == CHAIN_SLOTS - 1
        known = ORDER[:-AHEAD]
        assert host.read_in_a_rhythm(known) >= MOST * len(known)


def test_a_damaged_snapshot_is_set_aside_and_learning_starts_anew(tmp_path: Path) -> None:
    with served(tmp_path / "target") as host:
        host.until_running()
        host.learn(ORDER)
    learned = tmp_path / "target" / "learned"
    data = bytearray(learned.read_bytes())
    data[len(data) // 2] ^= 1
    learned.write_bytes(data)
    with served(tmp_path / "target") as host:
        host.until(lambda now: now["learned"] != {})
        (warning,) = host.call("prestage_get_stats")["warnings"]
        assert f"set aside as {learned}.bad" in warning
        learns_again(host)
    assert (tmp_path / "target" / "learned.bad").read_bytes() == data


def test_the_one_that_is_shipped_finds_what_the_plain_tier_never_has(tmp_path: Path) -> None:
    sets = [ORDER[start : start + 12] for start in range(0, CHAIN_SLOTS, 12)]
    with served(tmp_path / "target", COMMAND) as host:
        host.until_running()
        limit = time.monotonic() + WITHIN_S
        hits = 0
        while hits < CHAIN_SLOTS // 8:
            assert time.monotonic() < limit, host.prestager()
            before = host.hits
            for one in sets:
                host.read_all(one)
                time.sleep(RHYTHM_S)
            hits = host.hits - before
        assert host.prestager()["last_error"] == ""
        learned = host.until(lambda now: now["learned"]["benefit"]["acted"] > 0)["learned"]
        page = hinting.ask(host.controller.io[0], hints.ASK_STATUS)
        assert decode_status(page).benefit.acted >= learned["benefit"]["acted"]
    with served(tmp_path / "target", COMMAND) as host:
        known = host.until(lambda now: now["learned"] != {})["learned"]
        assert known["groups"] > 0, "what was learned is known after a restart"
        assert host.call("prestage_get_stats")["warnings"] == []


def test_a_mad_one_costs_no_byte(tmp_path: Path) -> None:
    command = (sys.executable, str(TESTS / "mad.py"))
    with served(tmp_path / "target", command) as host:
        host.until(lambda now: now["orders"]["orders"] > 1000)
        for _ in range(3):
            host.read_all(ORDER)
        assert host.prestager()["orders"]["refused"] > 0


# ---- the daemon ----


def test_it_goes_with_a_target_that_was_killed(tmp_path: Path) -> None:
    with spawn_target(directory=tmp_path) as target, target.client() as client:
        pid = client.call("prestage_get_prestager")["pid"]
        assert is_there(pid)
        target.kill()
        until_gone(pid)


def test_one_that_was_stopped_goes_with_a_target_that_was_killed(tmp_path: Path) -> None:
    with spawn_target(directory=tmp_path) as target, target.client() as client:
        pid = until_heard(client)
        os.kill(pid, signal.SIGSTOP)
        target.kill()
        until_gone(pid)


def test_a_clean_stop_keeps_what_it_learned(tmp_path: Path) -> None:
    with spawn_target(directory=tmp_path) as target, target.client() as client:
        pid = until_heard(client)
        with Site((target.address, target.port), target.nqn).pair(1) as controller:
            controller.io[0].read(0, 1, 4096)
            until_heard(client, 1)
        assert target.terminate() == 0
        assert not is_there(pid)
        assert (tmp_path / "prestager.snapshot").exists()
        assert "warning" not in target.log.read_text()


def test_a_hurried_stop_does_not_wait_for_one_that_hangs_and_is_clean(tmp_path: Path) -> None:
    with spawn_target(directory=tmp_path) as target, target.client() as client:
        pid = client.call("prestage_get_prestager")["pid"]
        os.kill(pid, signal.SIGSTOP)
        for said in ("told to stop", "told to stop again"):
            os.kill(target.process.pid, signal.SIGTERM)
            until_logged(target.log, said)
        assert target.process.wait(WITHIN_S) == 0
        assert not is_there(pid)
        assert "the prestager was killed: the stop is hurried" in target.log.read_text()


def test_it_is_not_there_when_it_is_not_wanted(tmp_path: Path) -> None:
    with spawn_target("--no-prestager", directory=tmp_path) as target, target.client() as client:
        found = client.call("prestage_get_prestager")
        assert (found["state"], found["pid"]) == ("off", None)
