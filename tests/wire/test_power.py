"""The power goes: what Flush and FUA promised is there, whatever else the medium lost.

The namespace's file is behind the `powercut` wrapper, which holds what was written until it is
synced. A cut loses, reorders and tears that, and the process is killed before it can notice.
PRESTAGE_TEST_CUTS sets how many cuts a run makes.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from .model import BlockModel
from .probing import SEED, turns
from .running import MIB, NQN, ROOT, Config, RunningTarget, base_config, merge
from .test_stop import started, wire_reader
from .traffic import Plan, Traffic

SIZE = 64 * MIB
CUTS = turns("PRESTAGE_TEST_CUTS", 12)


@pytest.fixture(autouse=True)
def _own_target() -> None:
    if os.environ.get("PRESTAGE_TEST_TARGET"):
        pytest.skip("needs a target of its own")


def config_of(directory: Path, rng: random.Random, block: int) -> Config:
    """A file behind a volatile cache; everything else as the dice fall."""
    namespace: dict[str, Any] = {
        "path": str(directory / "ns"),
        "size": SIZE,
        "block": block,
        "write_policy": rng.choice(("back", "back", "through")),
        "faults": [f"powercut:seed={rng.randrange(1 << 32)},sector={block}"],
    }
    changes = {
        "tier": {
            "size": rng.choice((4, 8)) * MIB,
            "slot": rng.choice((16, 64)) << 10,
            "writeback_s": rng.choice((0.01, 1.0)),
        },
        "limits": {"max_transfer": 512 << 10, "connections": 16},
        "reactors": rng.choice((1, 2)),
        "subsystems": [{"nqn": NQN, "namespaces": [namespace]}],
    }
    return merge(base_config(directory), changes)


def cut_the_power(target: RunningTarget, block: int) -> None:
    """Cut it, and see that it has happened: by a read that comes after it."""
    with target.site().pair(1) as controller:
        target.media_control("powercut", "cut")
        controller.io[0].read(SIZE // block - 1, 1, block)
    target.kill()


@pytest.mark.stress
@pytest.mark.timeout(60 + 10 * CUTS)
@pytest.mark.parametrize("block", [512, 4096])
def test_power_cut_loses_no_flushed_write(directory: Path, block: int) -> None:
    rng = random.Random(SEED + block)
    # Up to 256 KiB a command: ranges of zeros are cleared on the medium, and the tier evicts.
    plan = Plan(clusters=24, stride=SIZE // block // 25, span=80)
    traffic = Traffic(rng, [], BlockModel(block), plan)
    for turn in range(CUTS // 2 + 1):
        with (
            started(directory, config_of(directory, rng, block)) as target,
            target.site().pair(3) as controller,
        ):
            traffic.use(controller.io)
            if turn == 0:
                traffic.prepare(is_new=True)
            else:
                traffic.check_crashed(wire_reader(controller, block))
            traffic.run(rng.randrange(300), to_the_end=False)
            cut_the_power(target, block)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_target_that_does_not_sync_is_found(tmp_path: Path) -> None:
    """A build whose flushes do not sync must fail the test above, or that proves nothing."""
    tree = tmp_path / "tree"
    left_out = shutil.ignore_patterns(".git", ".venv", "build", "var", "tests")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=left_out)
    source, line = tree / "csrc" / "tier" / "flush.c", "if (sync) waiter->state |= FLUSH_SYNC;"
    text = source.read_text("utf-8")
    assert text.count(line) == 1, f"{source.name} has changed: say anew how it is broken"
    source.write_text(text.replace(line, ""), "utf-8")
    places = [f"--build-base={tmp_path / 'build'}", f"--build-lib={tmp_path / 'lib'}"]
    subprocess.run([sys.executable, "setup.py", "-q", "build", *places], cwd=tree, check=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "lib"),
        "PRESTAGE_TEST_CUTS": "80",
        "PRESTAGE_TEST_SEED": "1",
    }
    test = f"{__file__}::{test_power_cut_loses_no_flushed_write.__name__}"
    # Unix sockets have short paths, which folders in folders of pytest are not.
    with tempfile.TemporaryDirectory() as short:
        command = [sys.executable, "-m", "pytest", test, f"--basetemp={short}/run"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "are possible" in done.stdout, done.stdout
