from __future__ import annotations

import random

import numpy as np

from prestage.target.prestager.extents import ABSENT, ExtentMap, extent_keys


def keys_of(*extents: int, volume: int = 3) -> np.ndarray:
    return extent_keys(np.full(len(extents), volume), np.array(extents))


def test_a_key_says_volume_and_extent() -> None:
    assert extent_keys(np.array([2]), np.array([5])).tolist() == [(2 << 48) | 5]


def test_rows_are_given_in_the_order_of_first_sight_and_found_again() -> None:
    extents = ExtentMap(64)
    rows = extents.find_or_add(keys_of(900, 7, 900, 3))
    assert rows.tolist() == [0, 1, 0, 2]
    assert extents.find(keys_of(3, 8, 7)).tolist() == [2, ABSENT, 1]
    assert extents.group[rows].tolist() == [ABSENT] * 4


def test_it_is_what_a_dictionary_is_through_growth_removal_and_reuse() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    extents = ExtentMap(64)
    model: dict[int, int] = {}
    for _ in range(300):
        some = [rng.randrange(5000) for _ in range(rng.randrange(1, 60))]
        rows = extents.find_or_add(keys_of(*some)).tolist()
        for extent, row in zip(some, rows, strict=True):
            assert model.setdefault(extent, row) == row
        if rng.random() < 0.3:
            gone = rng.sample(sorted(model), len(model) // 4)
            extents.remove(np.array([model.pop(extent) for extent in gone], np.int64))
        assert extents.count == len(model)
        assert len(set(model.values())) == len(model)
        assert extents.live_rows().tolist() == sorted(model.values())
    missing = [extent for extent in range(5000) if extent not in model]
    assert (extents.find(keys_of(*missing)) == ABSENT).all()


def test_a_range_finds_only_its_volume_and_its_extents() -> None:
    extents = ExtentMap()
    extents.find_or_add(keys_of(1, 2, 3, 100))
    extents.find_or_add(keys_of(2, volume=4))
    assert extents.in_range(3, 2, 101).tolist() == [1, 2, 3]
    assert extents.in_range(3, 0, 1 << 48).tolist() == [0, 1, 2, 3]
    assert extents.in_range(4, 2, 3).tolist() == [4]
    assert extents.in_range(5, 0, 10).tolist() == []
