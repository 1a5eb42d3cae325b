from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from workload_support import CONVERSATION, random_workload

from prestage.replay import classical
from prestage.replay.classical import PYTHON_VARIABLE, read_hit_ratios
from prestage.replay.fluid import run_policy
from prestage.replay.policies import Lru
from prestage.replay.traces import load_trace
from prestage.target.errors import NotFound, TargetError

REAL = os.environ.get(PYTHON_VARIABLE)
FAKE = """
import json, sys
import numpy
arguments = sys.argv[1:]
stream = numpy.load(arguments[0])
assert stream["is_write"].dtype == bool
ratio = [len(stream["block"]) / int(each) for each in arguments[2:4:2]]
print(json.dumps({"version": "0", "read_hit_ratio": {arguments[-1]: [*ratio, None]}}))
"""


def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    path = tmp_path / "classical"
    path.write_text(text)
    monkeypatch.setattr(classical, "SCRIPT", path)
    return Path(sys.executable)


def test_the_tool_gets_the_stream_and_its_answer_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = script(tmp_path, monkeypatch, FAKE)
    workload = random_workload(1)
    found = read_hit_ratios(workload, [10, 20], policies=["LRU"], python=python)
    assert found["LRU"][0] == len(workload) / 10 and np.isnan(found["LRU"][1])


def test_without_libcachesim_it_says_how_to_get_it(tmp_path: Path) -> None:
    # An interpreter of an empty environment has neither libcachesim nor numpy.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(NotFound, match="No module named 'libcachesim'.*classical-requirements"):
        read_hit_ratios(random_workload(1), [10], python=bare)
    with pytest.raises(NotFound, match="cannot be run.*classical-requirements"):
        read_hit_ratios(random_workload(1), [10], python=tmp_path / "nosuch")


def test_outside_a_checkout_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classical, "SCRIPT", tmp_path / "nosuch")
    with pytest.raises(NotFound, match="a checkout of the project"):
        read_hit_ratios(random_workload(1), [10])


@pytest.mark.parametrize(
    ("text", "timeout_s", "message"),
    [
        ("raise SystemExit('out of luck')", 100, "out of luck"),
        ("raise SystemExit(4)", 100, "ended with 4"),
        ("print('no JSON')", 100, "its JSON"),
        ("import threading; threading.Event().wait()", 0.3, "did not end within 0.3 s"),
    ],
)
def test_a_failing_tool_is_told(
    text: str, timeout_s: float, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = script(tmp_path, monkeypatch, text)
    with pytest.raises(TargetError, match=message):
        read_hit_ratios(random_workload(1), [10], python=python, timeout_s=timeout_s)


@pytest.mark.skipif(REAL is None, reason=f"{PYTHON_VARIABLE} names no interpreter")
def test_libcachesim_agrees_with_our_lru() -> None:
    workload = load_trace(CONVERSATION, seed=1)
    capacities = [workload.block_count // 20, workload.block_count // 5]
    found = read_hit_ratios(workload, capacities)
    assert set(found) == {"LRU", "MQ", "S3-FIFO", "SIEVE", "ARC", "LIRS", "W-TinyLFU"}
    ours = [run_policy(workload, Lru(each), 1).read_hit_ratio for each in capacities]
    assert found["LRU"] == pytest.approx(ours, abs=1e-12)
