"""The demonstration: what it counts, what it shows, and that nothing of it stays."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import xml.etree.ElementTree as ET
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_support import WITHIN_S, started, target_of
from workload_support import workload_of

from prestage.replay.demo import main, returning
from prestage.replay.demo_picture import picture
from prestage.replay.demo_view import BAR, bar, table

SVG = "{http://www.w3.org/2000/svg}"


def test_a_request_returns_when_its_session_had_asked_before_and_it_reads() -> None:
    workload = workload_of((0, [1, 2]), (1, [1, 2, 3]), (2, [1]), (3, [4]))
    sessions = np.array([7, 7, 8, 7], np.int32)
    assert returning(dataclasses.replace(workload, request_session=sessions)).tolist() == [1]


@pytest.mark.parametrize(
    ("share", "drawn"), [(0.0, ""), (0.5, "██"), (0.53, "██▏"), (1.0, "████"), (7.0, "████")]
)
def test_a_bar_is_as_long_as_its_share(share: float, drawn: str) -> None:
    assert bar(share, 4) == drawn


def run_of(name: str, median_s: float) -> dict[str, Any]:
    waits = {"p50": median_s, "p90": 2.0, "p99": float("nan")}
    return {
        "name": name,
        "returning_requests": 9,
        "ready": 0.25,
        "wait_s": waits,
        "warm_wait_s": 0.125,
        "read_hit_ratio": 0.5,
        "flash_reads_per_read": 0.5,
        "behind_s": {"p99": 0.75},
    }


def test_the_table_has_runs_beside_each_other_with_bars_of_one_scale() -> None:
    text = table([run_of("without", 4.0), run_of("with", 1.0)])
    lines = text.splitlines()
    assert lines[0].split() == ["9", "returning", "requests", "without", "with"]
    (median,) = (line for line in lines if "median" in line and line.startswith("waited"))
    assert [median.count("█"), median.count("4.00 s"), median.count("1.00 s")] == [15, 1, 1]
    assert BAR == 12
    (longest,) = (line for line in lines if line.startswith("waited, p99"))
    assert longest.split()[-2:] == ["-", "-"]
    assert "0.75 s late" in text


def test_the_picture_has_a_line_for_each_request_of_each_run() -> None:
    time_s, wait_s = np.array([0.0, 1.0, 5.0]), np.array([1.0, 0.0, 2.0])
    is_ready = np.array([False, True, False])
    text = picture(time_s, [("a < b", wait_s, is_ready), ("c", wait_s, is_ready)], "words " * 40)
    drawn = ET.fromstring(text)
    lines = [each for each in drawn.iter(f"{SVG}line") if each.get("stroke-width")]
    assert len(lines) == 6
    heights = [float(each.attrib["y1"]) - float(each.attrib["y2"]) for each in lines[:3]]
    assert heights[2] > heights[0] > heights[1] > 0
    assert len({each.get("stroke") for each in lines}) == 2
    assert "a < b" in [each.text for each in drawn.iter(f"{SVG}text")]


def demo(folder: Path, *flags: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return started("prestage.replay.demo", *flags, folder=folder)


def test_three_runs_are_shown_and_only_the_picture_is_left(tmp_path: Path) -> None:
    with demo(tmp_path, "--speed", "200x", "--json") as process:
        output, errors = process.communicate(timeout=WITHIN_S * 3)
        assert (process.returncode, errors) == (0, "")
        found = json.loads(output)
        without, unhinted, hinted = found["runs"]
        assert without["precision"] is None
        assert unhinted["returning_requests"] == hinted["returning_requests"] > 100
        assert hinted["read_hit_ratio"] > without["read_hit_ratio"]
        assert found["command"] == "scripts/demo --speed 200x --json"
        assert [path.name for path in tmp_path.iterdir()] == ["prestage-demo.svg"]
        ET.parse(tmp_path / "prestage-demo.svg")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tier", "0%"], "--tier: found 0% of 3204 blocks, a tier of 0 (expected 0.5% or more"),
        (["--seed", "-1"], '--seed: found "-1"'),
        (["--picture", "/nonexistent/x.svg"], "--picture: found /nonexistent/x.svg"),
        (["--speed", "1e9x"], '--speed: found "1e9x"'),
        (["--trace", "{csv}"], "--tier: found 10% of 3 blocks, a tier of 0 (expected 100%)"),
    ],
)
def test_what_cannot_be_shown_is_refused_before_a_target_is_started(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.csv"
    path.write_text("time_s,request,block,op\n0,r,a,write\n0,r,b,write\n1,s,a,read\n1,s,c,read\n")
    assert main([each.format(csv=path) for each in flags]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"scripts/demo: {said}"), err


def test_the_usage_says_what_may_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "[--trace FILE]" in capsys.readouterr().out


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_whoever_ends_it_ends_the_target_too(tmp_path: Path, number: int, status: int) -> None:
    with demo(tmp_path) as process:
        target, folder = target_of(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, errors) == (status, "interrupted; the target is stopped\n")
        assert not Path(f"/proc/{target}").exists()
        assert not folder.exists()
        assert list(tmp_path.iterdir()) == []
