"""`prestage replay` as it is typed."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest

from prestage.cli import main
from prestage.host_client.address import Address
from prestage.host_client.controller import Controller
from prestage.host_client.hints import Hints
from prestage.host_client.options import Options
from prestage.replay import commands
from prestage.replay.commands import run_policies
from prestage.replay.compare import Row
from prestage.replay.generators import Sessions, sessions
from prestage.replay.report import Trial, judge
from prestage.replay.result import Regime
from prestage.replay.ttft import Model
from prestage.target.config import load_config
from prestage.target.settings import HintSettings, SchedulerSettings, TierSettings
from prestage.testing import Target, in_thread

HEAD = "time_s,request,block,op\n"
FAST = ["--policy", "lru", "--policy", "mq", "--policy", "belady", "--policy", "clairvoyant"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two sessions in turns, of which a tier of half the blocks can keep one."""
    ops = ["write", *["read"] * 11]
    lines = [
        f"{turn}.{session},{2 * turn + session},{session * 10 + block},{ops[turn]}\n"
        for turn in range(12)
        for session in range(2)
        for block in range(10)
    ]
    path = tmp_path / "turns.csv"
    path.write_text(HEAD + "".join(lines))
    return path


def test_a_table_says_what_it_stands_on(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(trace), "--tier", "50%", "--seed", "3", *FAST]) == 0
    out = capsys.readouterr().out
    assert "24 requests, 220 reads, 20 blocks; tier 50.0% (10 blocks), flash 5 x" in out
    assert out.splitlines()[2].split()[:2] == ["policy", "hit"]
    assert [line.split()[0] for line in out.splitlines()[3:]] == FAST[1::2]


def test_json_has_every_measure_and_the_regime(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(trace), "--tier", "0.5", "--seed", "1", "--seed", "2", "--json", *FAST]
    assert main(words) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["seed"], second["seed"]) == (1, 2)
    assert first["regime"]["tier"] == 0.5
    assert first["regime"]["frames"] == 10
    assert first["regime"]["reads"] == 220
    lru, _, belady, bound = first["policies"]
    assert lru["gap_closed"] == 0
    assert bound["gap_closed"] == 1
    assert 0 < belady["gap_closed"] <= 1
    assert set(lru["time_to_data_s"]) == {"mean", "p50", "p90", "p99", "p99.9"}
    for name in ("precision", "flash_reads_per_read", "ready_requests", "ttft_s"):
        assert name in lru


def test_pictures_are_drawn_where_asked(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    words = ["--tier", "50%", *FAST, "--policy", "oracle:1", "--policy", "oracle:10"]
    assert main(["replay", str(trace), "--plot", str(tmp_path / "plots"), *words]) == 0
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"time-to-data.svg", "gap-closed.svg", "look-ahead.svg"} <= drawn
    assert str(tmp_path / "plots" / "gap-closed.svg") in capsys.readouterr().err


def test_what_was_predicted_is_drawn_against_what_came(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from prestage.replay.plots import draw

    shape = Sessions(requests=500, sessions_per_s=0.5, turns=6, chain=8, gap_s=60, gap_sigma=0.3)
    workload, regime, model = sessions(4, shape), Regime(), Model()
    rows = run_policies(workload, 4, regime, [], ["prestage"])
    assert rows[0].report.reliability, "nothing was predicted"
    judged = tuple(judge(workload, row, model) for row in rows)
    made = draw([Trial(workload, regime, None, 4, model, judged)], tmp_path)
    assert tmp_path / "calibration.svg" in made


def test_the_configuration_of_a_target_for_it_is_good(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "target.toml"
    words = ["replay", "poisson", "--write-config", str(path), "--speed", "20x", "--seed", "5"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"prestage serve --config {path}" in out
    assert "\\x0a" not in out, "lines of our own end where they should"
    settings = load_config(path)
    (subsystem,) = settings.subsystems
    (namespace,) = subsystem.namespaces
    assert namespace.media == "model"
    assert settings.prestager.time_scale == 20
    assert settings.prestager.enabled
    assert settings.tier.slot == 64 << 10
    assert settings.tier.size % settings.tier.slot == 0
    # What happens by itself after a time happens as much sooner.
    assert settings.tier.writeback_s == pytest.approx(TierSettings().writeback_s / 20)
    starvation_ms = SchedulerSettings().starvation_ms
    assert settings.scheduler.starvation_ms == pytest.approx(starvation_ms / 20)
    assert settings.hints.grace_s == pytest.approx(HintSettings().grace_s / 20)
    other = tmp_path / "other.toml"
    words[words.index(str(path))] = str(other)
    assert main([*words, "--policy", "lru", "--slot", "16K"]) == 0
    settings = load_config(other)
    assert not settings.prestager.enabled
    assert settings.tier.slot == 16 << 10


def test_over_the_wire_each_policy_of_a_target_has_one_of_its_own(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(trace), "--tier", "90%", "--live", "own", "--speed", "20x", "--json"]
    assert main([*words, "--policy", "lru", "--policy", "mq", "--slot", "16K"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    lru, mq, live = found["policies"]
    assert [lru["policy"], mq["policy"], live["policy"]] == ["lru", "mq", "live lru"]
    assert live["read_hit_ratio"] is not None
    assert live["ready_requests"] is not None
    assert live["precision"] is None
    assert set(live["behind_s"]) == {"mean", "p50", "p90", "p99", "p99.9"}
    assert lru["behind_s"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tier", "six"], "--tier: found"),
        (["--flash", "0"], "--flash: found"),
        (["--policy", "fifo"], "--policy: found fifo"),
        (["--policy", "hints", "--hints", "when=now"], "--hints: found"),
        (
            ["--policy", "lru", "--hints", "lead=1s"],
            "--hints: no policy takes hints (expected --policy hints or --policy prestage+hints",
        ),
        (["--live", "own", "--hints", ""], "--hints: no policy takes hints"),
        (["--write-config", "x.toml", "--hints", "lead=1s"], "--hints: nothing is replayed"),
        (["--slot", "24K"], "--slot: found"),
        (["--slot", "4M"], "--slot: found"),
        (["--slot", "much"], "--slot: "),
        (["--policy", "oracle:soon"], "--policy: found oracle:soon"),
        (["--policy", "hints", "--tier", "50%"], "--policy hints: hosts say nothing"),
        (
            ["--tier", "5%"],
            "--tier: found 5% of 20 blocks, a tier of 1 (expected 40% or more, a tier of 8)",
        ),
        (
            ["--tier", "50%", "--live", "own"],
            "--tier: found 50% of 20 blocks, a tier of 10 (expected 80% or more, a tier of 16)",
        ),
        (
            ["--tier", "50%", "--write-config", "x.toml"],
            "--tier: found 50% of 20 blocks, a tier of 10 (expected 80% or more, a tier of 16)",
        ),
        (["--seed", "-1"], '--seed: found "-1"'),
        (["--seed", "1", "--seed", str(1 << 63)], f'--seed: found "{1 << 63}"'),
        (["--flash", "1e-12x"], "--flash: found 1e-12x"),
        (["--seed", "1", "--seed", "1"], "--seed: found 1 twice"),
        (["--policy", "lru", "--policy", "lru"], "--policy: found lru twice"),
        (
            ["--policy", "hints", "--tier", "50%", "--hints", "share=0"],
            "--policy hints: hosts say nothing (expected a PLAN of --hints that says something)",
        ),
        (
            ["--filter", "100%", "--tier", "100%"],
            "--filter: found 100%, which leaves 0 reads among 20 accesses",
        ),
    ],
)
def test_wrong_flags_are_named(
    trace: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(trace), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--write-config", "x.toml", "--live", "own"], "--live: nothing is replayed"),
        (["--write-config", "x.toml", "--json"], "--json: nothing is replayed"),
        (["--speed", "20x"], "--speed: nothing goes over the wire"),
        (["--overwrite"], "--overwrite: nothing goes over the wire"),
        (["--overwrite", "--live", "own"], "--overwrite: --live own has targets of its own"),
        (["--control-socket", "x"], "--control-socket: nothing goes over the wire"),
        (
            ["--policy", "lru", "--policy", "prestage", "--write-config", "x.toml"],
            "--policy: found some with and some without the prestager",
        ),
        (
            ["--write-config", "x.toml", "--seed", "1", "--seed", "2"],
            "--seed: found 2 of them (expected one with --write-config)",
        ),
        (
            ["--write-config", "x.toml", "--policy", "belady"],
            "--policy: found belady, which no target has",
        ),
        (["--write-config", "/nonexistent/x.toml"], "--write-config: found /nonexistent/x.toml"),
        (["--live", "own", "--policy", "belady"], "--live own: no policy that a target can have"),
        (["--live", "127.0.0.1:99999", "--speed", "9x"], "--live: found 127.0.0.1:99999"),
        (["--live", "own", "--speed", "2000x"], "--speed: found"),
    ],
)
def test_flags_of_a_target_that_mean_nothing_are_named(
    trace: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(trace), *words]) == 2
    assert said in capsys.readouterr().err


def test_a_configuration_is_written_over_nothing_not_even_its_trace(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = trace.read_bytes()
    assert main(["replay", str(trace), "--tier", "90%", "--write-config", str(trace)]) == 2
    said = f"--write-config: found {trace}, which is there already (expected a new file)"
    assert said in capsys.readouterr().err
    assert trace.read_bytes() == before


@pytest.mark.parametrize("name", ["taken", "taken/plots"])
def test_a_place_for_pictures_that_cannot_be_is_found_at_once(
    trace: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "taken").write_text("")
    assert main(["replay", str(trace), "--tier", "50%", "--plot", str(tmp_path / name)]) == 2
    assert f"--plot: found {tmp_path / name} (expected a folder" in capsys.readouterr().err


def test_a_tool_that_is_missing_is_found_at_once(
    trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRESTAGE_CLASSICAL_PYTHON", "/nonexistent/python")
    monkeypatch.setattr(commands, "trial", lambda *_, **__: pytest.fail("it was simulated"))
    assert main(["replay", str(trace), "--tier", "50%", "--policy", "sieve"]) == 1
    assert "/nonexistent/python: cannot be run" in capsys.readouterr().err


def test_a_load_without_reads_is_refused_and_not_offered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["replay", "writes"]) == 2
    assert "writes: found 0 reads among" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["replay", "--help"])
    assert "writes" not in capsys.readouterr().out.partition("--overwrite")[0]


def test_a_trace_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "/nonexistent/trace.jsonl"]) == 1
    assert "/nonexistent/trace.jsonl" in capsys.readouterr().err


def test_a_name_that_is_neither_a_file_nor_a_generator_gets_to_see_the_generators(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["replay", "possion"]) == 1
    said = "possion: there is no such file (expected a file, or a generator: poisson, random, scan"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["affinity:2", "affinity:much", "poisson:3"])
def test_a_wrong_argument_of_a_generator_is_wrong_usage(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", name]) == 2
    assert f'TRACE: found "{name}"' in capsys.readouterr().err


def test_a_trace_without_read_demand_is_no_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.csv"
    path.write_text(HEAD + "0,r,a,read\n")
    assert main(["replay", str(path), "--tier", "100%"]) == 1
    assert f"{path}: found 1 reads among 1 accesses" in capsys.readouterr().err


def test_lines_that_are_no_trace_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + "0,0,1,write\n1,1,1,raed\n")
    assert main(["replay", str(path)]) == 1
    err = capsys.readouterr().err
    assert str(path) in err
    assert "line 3, op" in err


def test_what_a_target_holds_is_not_written_over_unasked(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(trace), "--tier", "50%", "--policy", "lru", "--slot", "16K"]
    words += ["--speed", "100x"]
    with in_thread(Target(namespaces=["1M"])) as target, target.client() as client:
        words += ["--live", f"{target.address}:{target.port}"]
        words += ["--control-socket", target.control_socket]

        def writes() -> int:
            found = client.call("prestage_get_stats")["subsystems"]
            namespaces = [one for subsystem in found for one in subsystem["namespaces"]]
            return sum(int(one["counters"]["writes"]) for one in namespaces)

        assert main(words) == 0
        written = writes()
        assert written > 0
        assert main(words) == 1
        err = capsys.readouterr().err
        assert "are not zero (expected an empty namespace, or --overwrite)" in err
        assert f"namespace 1 of nvme+tcp://{target.address}:{target.port}/{target.nqn}: byte" in err
        assert writes() == written
        assert main([*words, "--overwrite"]) == 0
        assert writes() > written


@pytest.fixture
def never_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object) -> list[Row]:
        raise AssertionError("it simulates what will be thrown away")

    monkeypatch.setattr(commands, "run_policies", run)


@pytest.mark.usefixtures("never_simulated")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("address", "refused"),
        ("socket", "cannot reach a target at /nonexistent/c.sock"),
        ("size", "namespace 1 of nvme+tcp://"),
        ("contract", "the target does not speak PAX"),
        ("data", "are not zero (expected an empty namespace, or --overwrite)"),
    ],
)
def test_what_is_wrong_with_a_target_is_found_before_anything_is_simulated(
    trace: Path,
    wrong: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["replay", str(trace), "--tier", "50%", "--policy", "lru", "--slot", "16K"]
    if wrong == "contract":
        words += ["--hints", "lead=1s"]
        monkeypatch.setattr(Hints, "_look", lambda _: asyncio.sleep(0))
    size = "64K" if wrong == "size" else "1M"
    with in_thread(Target(namespaces=[size])) as target:
        port = free_port() if wrong == "address" else target.port
        control = "/nonexistent/c.sock" if wrong == "socket" else target.control_socket
        words += ["--live", f"{target.address}:{port}", "--control-socket", control]
        if wrong == "data":
            asyncio.run(spoil(target))
        words += ["--overwrite"] if wrong == "size" else []
        assert main(words) == 1
    assert said in capsys.readouterr().err


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def spoil(target: Target) -> None:
    address = Address(target.address, target.port, target.nqn)
    async with Controller(address, Options(queues=1)) as controller:
        await controller.write(1, bytes([1]) * 4096, 0)


def test_what_the_replay_itself_has_written_is_written_over_by_its_next_seed(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(trace), "--tier", "50%", "--policy", "lru", "--slot", "16K", "--json"]
    with in_thread(Target(namespaces=["1M"])) as target:
        words += ["--live", f"{target.address}:{target.port}", "--speed", "100x"]
        words += ["--control-socket", target.control_socket, "--seed", "1", "--seed", "2"]
        assert main(words) == 0
    trials = json.loads(capsys.readouterr().out)
    assert [len(each["policies"]) for each in trials] == [2, 2]
    lru, live = trials[0]["policies"]
    assert (lru["tier_blocks"], lru["medium"]) == (None, None)
    assert live["tier_blocks"] > trials[0]["regime"]["frames"] == 10
    assert live["medium"] == "ram"


def test_a_target_of_another_regime_is_said_to_be_one(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(trace), "--tier", "50%", "--policy", "lru", "--slot", "16K"]
    with in_thread(Target(namespaces=["1M"])) as target:
        words += ["--live", f"{target.address}:{target.port}", "--speed", "100x"]
        assert main([*words, "--control-socket", target.control_socket]) == 0
    (said,) = (each for each in capsys.readouterr().out.splitlines() if "another regime" in each)
    assert said.startswith("live is of another regime: that target has ")
    assert "frames before 'ram' media, where 10 blocks before modelled flash were meant" in said
