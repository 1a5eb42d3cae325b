"""The processors that threads of this process can be kept on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

Found = tuple[str, str]
"""A field's path, and what was found and expected."""


def available() -> frozenset[int]:
    """Return the processors that this process may run on."""
    return frozenset(os.sched_getaffinity(0))


def check_processors(path: str, cpus: Iterable[int]) -> Iterator[Found]:
    """Yield those of `cpus`, the field at `path`, on which this process may not run."""
    there = available()
    for index, cpu in enumerate(cpus):
        if cpu not in there:
            expected = f"a processor that this process may run on: {listed(there)}"
            yield f"{path}[{index}]", f"found {cpu}, expected {expected}"


def listed(cpus: Iterable[int]) -> str:
    """Return processors as the kernel lists them: "0-3,8"."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
