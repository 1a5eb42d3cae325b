from __future__ import annotations

import numpy as np

from prestage.target.prestager.neighbours import Neighbours, falling, hamming

SEED = 2


def vector(value: int) -> bytes:
    return value.to_bytes(16, "little")


def test_hamming_counts_bits() -> None:
    left = np.array([[0, 0xFFFF], [1, 2]], np.uint16)
    assert hamming(left, np.array([0, 0], np.uint16)).tolist() == [16, 2]


def test_a_falling_series_is_the_nearest_that_never_rises() -> None:
    found = falling(np.array([0.5, 0.7, 0.2, 0.4]), np.array([1.0, 1.0, 3.0, 1.0]))
    assert np.allclose(found, [0.6, 0.6, 0.25, 0.25])


def test_near_vectors_of_one_family_are_found_and_others_are_not() -> None:
    near = Neighbours(64, 1e9)
    owner = np.arange(10, dtype=np.int32) + 100
    near.sign(0, vector(0), 128, 1)
    near.sign(1, vector(0b111), 128, 1)
    near.sign(2, vector(int("5a" * 16, 16)), 128, 1)
    near.sign(3, vector(0), 128, 2)
    found = near.near(np.array([0]), owner, 1.0)
    assert found.groups.tolist() == [101]


def test_how_near_is_near_is_learned() -> None:
    rng = np.random.default_rng(SEED)
    near = Neighbours(4096, 1e9)
    owner = np.arange(300, dtype=np.int32)
    bases = [int.from_bytes(rng.bytes(16), "little") for _ in range(100)]
    for row in range(300):
        flips = 1 << int(rng.integers(0, 16)) if row % 3 == 1 else 0
        flips = 0xFF0F if row % 3 == 2 else flips
        near.sign(row, vector(bases[row // 3] ^ flips), 128, 1)
    now_s = 0.0
    for _ in range(20):
        for family in range(100):
            now_s += 200.0
            near.near(np.array([3 * family]), owner, now_s)
            near.see(np.array([3 * family + 1]), now_s + 4.0)
    near.update()
    assert near.chance(1) > 0.8 and near.chance(12) < 0.2, f"seed {SEED}"
    found = near.near(np.array([30]), owner, now_s + 500)
    assert found.chances[found.groups == 31][0] > 0.8
    assert 2 < found.lags_s[0] < 8


def test_the_oldest_signature_gives_way() -> None:
    near = Neighbours(2, 1e9)
    owner = np.arange(10, dtype=np.int32)
    for row in range(3):
        near.sign(row, vector(row), 128, 1)
    assert near.near(np.array([0]), owner, 1.0).groups.tolist() == []
    assert near.near(np.array([1]), owner, 1.0).groups.tolist() == [2]
