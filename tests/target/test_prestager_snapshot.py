"""What was learned, in a file: prestage.target.prestager.snapshot and keeper."""

from __future__ import annotations

import os
import random
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prestage.target.prestager import snapshot
from prestage.target.prestager.keeper import Keeper
from prestage.target.prestager.snapshot import SnapshotError

SEED = 20261130
PAIR = np.dtype([("a", "<u4"), ("b", "<f4", (3,))])


def state() -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(SEED)
    pairs = np.zeros(9, PAIR)
    pairs["a"] = np.arange(9)
    return {"numbers": rng.integers(0, 99, (5, 7)), "pairs": pairs, "file": np.zeros(0, np.uint8)}


def same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and np.array_equal(one[name], other[name])
        for name in one
    )


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    snapshot.write(path, snapshot.encode({"slot_size": 7}, state()))
    found = snapshot.load(path)
    assert found is not None
    assert found[0] == {"slot_size": 7}
    assert same(found[1], state())
    assert [one.name for one in tmp_path.iterdir()] == ["snapshot"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_file_is_nothing_learned(tmp_path: Path) -> None:
    assert snapshot.load(tmp_path / "snapshot") is None


def test_any_changed_byte_and_any_cut_is_noticed() -> None:
    rng = random.Random(SEED)
    good = snapshot.encode({"slot_size": 7}, state())
    for _ in range(300):
        bad = bytearray(good)
        bad[rng.randrange(len(bad))] ^= 1 << rng.randrange(8)
        with pytest.raises(SnapshotError, match="here"):
            snapshot.decode(bytes(bad), "here")
    for length in (0, 7, 31, 32, len(good) - 1):
        with pytest.raises(SnapshotError, match="here"):
            snapshot.decode(good[:length], "here")


def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "VERSION", 9)
    later = snapshot.encode({}, state())
    monkeypatch.undo()
    with pytest.raises(SnapshotError, match=rf"version 9 \(expected version {snapshot.VERSION}\)"):
        snapshot.decode(later, "here")


def test_objects_are_not_taken_out_of_a_file() -> None:
    with pytest.raises(ValueError, match="Object arrays"):
        snapshot.encode({}, {"objects": np.array([{}, []], object)})


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As a full disk: what is beyond cannot be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    snapshot.write(path, snapshot.encode({"old": 1}, {}))
    with files_of_at_most(100), pytest.raises(OSError, match="too large"):
        snapshot.write(path, bytes(1000))
    found = snapshot.load(path)
    assert found == ({"old": 1}, {})
    assert [one.name for one in tmp_path.iterdir()] == ["snapshot"]


class Seconds:
    """A clock that shows what a test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_it_is_written_once_a_period(tmp_path: Path) -> None:
    clock = Seconds()
    keeper = Keeper(str(tmp_path / "snapshot"), 60, clock)
    seen = [keeper.is_due]
    clock.now += 60
    seen.append(keeper.is_due)
    keeper.start(snapshot.encode({}, {}))
    assert [*seen, keeper.is_due] == [False, True, False]
    keeper.finish(snapshot.encode({"last": 1}, {}))
    assert snapshot.load(tmp_path / "snapshot") == ({"last": 1}, {})
    assert (keeper.written, keeper.troubles) == (2, {})


def test_one_that_is_being_written_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, go_on = Seconds(), threading.Event()
    monkeypatch.setattr(snapshot, "write", lambda *_: go_on.wait())
    keeper = Keeper(str(tmp_path / "snapshot"), 60, clock)
    keeper.start(b"")
    clock.now += 600
    assert not keeper.is_due
    go_on.set()
    keeper.finish(b"")
    assert keeper.is_due


def test_a_period_of_0_is_never(tmp_path: Path) -> None:
    clock = Seconds()
    keeper = Keeper(str(tmp_path / "snapshot"), 0, clock)
    clock.now += 1e9
    assert not keeper.is_due


def test_a_damaged_file_is_set_aside_and_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "snapshot"
    path.write_bytes(b"no snapshot at all, but long enough for a header")
    keeper = Keeper(str(path), 60)
    assert keeper.load() is None
    assert keeper.troubles["snapshot"] == (
        f"set aside as {path}.bad, learning starts anew: {path}: it is no snapshot of a prestager"
    )
    assert not path.exists()
    assert (tmp_path / "snapshot.bad").exists()


def test_a_disk_that_is_full_is_said_until_it_is_not(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path / "snapshot"), 60)
    with files_of_at_most(10):
        keeper.finish(bytes(1000))
    (about,) = keeper.troubles
    assert about == "snapshot_write"
    assert str(tmp_path / "snapshot") in keeper.troubles[about]
    keeper.finish(bytes(1000))
    assert keeper.troubles == {}
    assert (keeper.written, keeper.size_bytes) == (1, 1000)


def test_a_place_that_is_not_there_is_said_and_nothing_raised(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path / "gone" / "snapshot"), 60)
    assert keeper.load() is None
    keeper.set_aside("nothing there")
    keeper.finish(b"")
    assert os.strerror(2) in keeper.troubles["snapshot_write"]
