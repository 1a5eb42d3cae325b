"""Latencies from the data path's histograms: four steps in each power of two nanoseconds.

A percentile is given as the end of the bin it falls into, so it is at most a quarter too high.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.uint64]
"""Shape (PS_LATENCY_BINS,): how many commands ended in each bin (csrc/core.h)."""

SHARES = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999}


def bin_ends_ns(bins: int) -> NDArray[np.uint64]:
    """Return the first time, in ns, that is beyond each bin. Shape (bins,)."""
    index = np.arange(1, bins + 1, dtype=np.uint64)
    octave, step = index // 4, index % 4
    # A bin below 4 ns is one nanosecond wide; from there on it is a quarter of its power of two.
    return np.where(index < 4, index, (4 + step) << (np.maximum(octave, 1) - 1))


def percentiles(counts: Counts) -> dict[str, int]:
    """Return `count` and the percentiles of SHARES in ns; these are 0 when nothing was counted."""
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    if total == 0:
        return {"count": 0, **dict.fromkeys(SHARES, 0)}
    # The smallest bin up to which the share, rounded up to whole commands, has ended.
    wanted = np.ceil(np.array(list(SHARES.values())) * total).astype(np.uint64)
    ends = bin_ends_ns(len(counts))[np.searchsorted(cumulative, wanted)]
    return {"count": total, **{name: int(end) for name, end in zip(SHARES, ends, strict=True)}}
