from __future__ import annotations

import random

import numpy as np
import pytest

from prestage.target.latency import bin_ends_ns, percentiles

BINS = 192
SEED = 20261129


def bin_of(time_ns: int) -> int:
    """By the words of csrc/core.h, not by its arithmetic."""
    if time_ns < 4:
        return time_ns
    octave = time_ns.bit_length() - 1
    step = (time_ns - (1 << octave)) * 4 // (1 << octave)
    return min(4 * (octave - 1) + step, BINS - 1)


def counted(times_ns: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    counts = np.zeros(BINS, np.uint64)
    for time_ns in times_ns:
        counts[bin_of(time_ns)] += 1
    return counts


def test_bins_follow_one_another_without_a_gap() -> None:
    ends = [int(end) for end in bin_ends_ns(BINS)]
    assert ends[:10] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    for index, end in enumerate(ends[:-1]):
        assert (bin_of(end - 1), bin_of(end)) == (index, index + 1)


def test_nothing_counted_has_no_percentiles() -> None:
    assert percentiles(counted([])) == {"count": 0, "p50_ns": 0, "p99_ns": 0, "p999_ns": 0}


@pytest.mark.parametrize("count", [1, 2, 3, 100, 1000, 4321])
def test_a_percentile_is_at_most_a_quarter_too_high(count: int) -> None:
    rng = random.Random(SEED + count)
    times = sorted(int(rng.lognormvariate(11, 2)) + 4 for _ in range(count))
    found = percentiles(counted(times))
    assert found["count"] == count
    for name, share in (("p50_ns", 0.5), ("p99_ns", 0.99), ("p999_ns", 0.999)):
        exact = times[-(-round(share * 1000) * count // 1000) - 1]
        assert exact < found[name] <= exact * 1.25 + 1, f"{name}, seed {SEED + count}"
