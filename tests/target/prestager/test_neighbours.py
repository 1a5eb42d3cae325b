from __future__ import annotations

import numpy as np
import pytest

from prestage.target.prestager import neighbours
from prestage.target.prestager.neighbours import (
    AGAIN_S,
    LOOKS,
    MOST,
    Neighbours,
    falling,
    hamming,
)

SEED = 2
EVERYWHERE = np.arange(5000, dtype=np.int32)
"""Each extent is a group of its own, with the number of its row."""


@pytest.fixture
def _all_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found, however likely it is."""
    monkeypatch.setattr(neighbours, "LEAST_CHANCE", 0.0)


def vector(value: int) -> bytes:
    return value.to_bytes(16, "little")


def touched(near: Neighbours, rows: list[int], now_s: float) -> dict[int, float]:
    found = near.after(np.array(rows, np.int64), EVERYWHERE, now_s)
    assert len(set(found.groups.tolist())) == len(found.groups)
    return dict(zip(found.groups.tolist(), found.chances.tolist(), strict=True))


def test_hamming_counts_bits() -> None:
    vectors = np.array([[0, 1, 0x123456789ABCDEF0], [2**64 - 1, 2, 0]], np.uint64)
    assert hamming(vectors, np.array([0, 0], np.uint64)).tolist() == [64, 2, 32]
    assert hamming(vectors, np.array([2**64 - 1, 0], np.uint64)).tolist() == [128, 64, 32]


def test_a_falling_series_is_the_nearest_that_never_rises() -> None:
    found = falling(np.array([0.5, 0.7, 0.2, 0.4]), np.array([1.0, 1.0, 3.0, 1.0]))
    assert np.allclose(found, [0.6, 0.6, 0.25, 0.25])


@pytest.mark.usefixtures("_all_are_said")
def test_the_nearest_of_the_same_family_are_found_and_others_are_not() -> None:
    rng = np.random.default_rng(SEED)
    near = Neighbours(4096, 1e9)
    base = int.from_bytes(rng.bytes(16), "little")
    for row in range(MOST):
        near.sign(
            row, vector(base ^ sum(1 << int(bit) for bit in rng.integers(0, 128, 12))), 128, 1
        )
    near.sign(100, vector(base), 128, 2)
    near.sign(101, vector(base), 64, 1)
    for row in range(200, 1200):
        near.sign(row, rng.bytes(16), 128, 1)
    near.sign(1300, vector(base), 128, 1)
    assert sorted(touched(near, [1300], 5.0)) == list(range(MOST)), f"seed {SEED}"


@pytest.mark.usefixtures("_all_are_said")
def test_extents_with_one_signature_come_together() -> None:
    near = Neighbours(64, 1e9)
    for row in range(40):
        near.sign(row, vector(row // 20), 128, 1)
    assert sorted(touched(near, [3, 4], 1.0)) == list(range(20, 40))
    near.sign(25, vector(77), 128, 1)
    near.forget(np.array([30, 4000]))
    assert sorted(touched(near, [3], 9.0)) == sorted(set(range(20, 40)) - {30})
    owner = np.repeat(np.arange(50), 20).astype(np.int32)
    assert near.after(np.array([3]), owner, 99.0).groups.tolist() == [1]
    owner[20:40] = -1
    assert near.after(np.array([3]), owner, 199.0).groups.tolist() == []


@pytest.mark.usefixtures("_all_are_said")
def test_how_near_is_near_is_learned() -> None:
    rng = np.random.default_rng(SEED)
    near = Neighbours(4096, 1e9)
    bases = [int.from_bytes(rng.bytes(16), "little") for _ in range(100)]
    for row in range(300):
        flips = 1 << int(rng.integers(0, 16)) if row % 3 == 1 else 0
        flips = 0xFF0F if row % 3 == 2 else flips
        near.sign(row, vector(bases[row // 3] ^ flips), 128, 1)
    now_s = 0.0
    for _ in range(20):
        for family in range(100):
            now_s += 200.0
            touched(near, [3 * family], now_s)
            touched(near, [3 * family + 1], now_s + 4.0)
    near.update()
    # One asks for the other too, which is not read again.
    assert near.chance(1) > 0.4 and near.chance(12) < 0.1, f"seed {SEED}"
    found = near.after(np.array([30]), EVERYWHERE, now_s + 500)
    assert found.chances[found.groups == 31][0] > 0.4
    assert 2 < found.lags_s[0] < 8


@pytest.mark.usefixtures("_all_are_said")
def test_what_several_neighbours_say_is_told_apart_from_what_one_says() -> None:
    near = Neighbours(64, 1e9)
    for row in range(8):
        near.sign(row, vector(1 << row), 128, 1)
    now_s = 0.0
    for turn in range(200):
        now_s += 1000.0
        for row in range(8 if turn % 4 == 0 else 1):  # who reads two of them reads them all
            touched(near, [row], now_s + 5 * row)
    near.update()
    assert touched(near, [0], now_s + 1000)[7] < 0.35
    assert touched(near, [1], now_s + 1005)[7] > 0.65


@pytest.mark.usefixtures("_all_are_said")
def test_what_is_touched_again_at_once_is_one_use_and_says_nothing_new() -> None:
    near = Neighbours(64, 1e9)
    for row in range(2):
        near.sign(row, vector(row), 128, 1)
    assert touched(near, [0], 1.0) != {}
    assert touched(near, [0], 1.0 + AGAIN_S / 2) == {}
    assert touched(near, [1], 1.0 + AGAIN_S / 2) == {}, "the other is in use"
    assert near.asked.sum() == 0 and near.used.sum() == 0
    touched(near, [0], 100.0)
    touched(near, [1], 100.0 + near.silence_s + 1)
    assert near.asked.sum() == 1 and near.used.sum() == 0, "it came too late"


@pytest.mark.usefixtures("_all_are_said")
def test_a_document_is_waited_for_until_its_neighbours_are_silent() -> None:
    near = Neighbours(64, 1e9)
    for row in range(3):
        near.sign(row, vector(1 << row), 128, 1)
    step_s = 0.9 * near.silence_s
    for turn in range(4):  # 0 and 1 in turn, 2 is asked for each time
        touched(near, [turn % 2], 100.0 + step_s * turn)
    touched(near, [2], 100.0 + step_s * 4)
    assert near.used.sum() == near.asked.sum() == 3 + 4, "0 and 1 came three times, 2 of four asks"


@pytest.mark.usefixtures("_all_are_said")
def test_how_long_neighbours_are_silent_is_learned() -> None:
    silences_s = []
    for lag_s in (3.0, 30.0):
        near = Neighbours(64, 1e9)
        for row in range(2):
            near.sign(row, vector(row), 128, 1)
        for turn in range(200):
            touched(near, [0], 1000.0 * turn)
            touched(near, [1], 1000.0 * turn + lag_s)
        near.update()
        silences_s.append(near.silence_s)
        found = near.after(np.array([0]), EVERYWHERE, 1e6)
        assert found.lags_s[0] == pytest.approx(lag_s, rel=0.1)
        assert found.given_up_s[0] > lag_s
    assert silences_s[0] < 20 < 100 < silences_s[1]


@pytest.mark.usefixtures("_all_are_said")
def test_many_at_once_are_looked_at_as_far_as_there_is_time() -> None:
    near = Neighbours(4096, 1e9)
    for row in range(4 * LOOKS):
        near.sign(row, vector(row << 3), 128, 1)
    touched(near, list(range(2 * LOOKS)), 1.0)
    touched(near, [], 2.0 + near.silence_s)
    assert near.asked.sum() == MOST * LOOKS


@pytest.mark.usefixtures("_all_are_said")
def test_the_oldest_signature_gives_way() -> None:
    near = Neighbours(2, 1e9)
    for row in range(3):
        near.sign(row, vector(row), 128, 1)
    assert touched(near, [0], 1.0) == {}
    assert sorted(touched(near, [1], 1.0)) == [2]


def test_what_is_unlikely_is_watched_and_not_said() -> None:
    near = Neighbours(64, 1e9)
    for row in range(2):
        near.sign(row, vector(row), 128, 1)
    assert touched(near, [0], 0.0) == {}
    touched(near, [], 1.0 + near.silence_s)
    assert near.asked.sum() == 1 and not near.are_likely
    for turn in range(1, 20):
        touched(near, [0], 1000.0 * turn)
        touched(near, [1], 1000.0 * turn + 10)
    near.update()
    assert touched(near, [0], 99_000.0)[1] > 0.3 and near.are_likely
