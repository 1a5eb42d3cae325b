"""Open files: one for each connection, and some more; the limit of the process must allow them."""

from __future__ import annotations

import contextlib
import resource

SPARE = 64
"""Descriptors that are no connections: media, rings, listeners, the control socket."""


def needed(connections: int) -> int:
    """Return how many descriptors a target with that many connections may hold."""
    return connections + SPARE


def raise_limit(connections: int) -> None:
    """Raise this process's own limit as far as is needed and allowed: up to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed(connections)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if most > soft:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def shortage(connections: int) -> str | None:
    """Return a warning if the limit does not allow that many connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed(connections):
        return None
    return (
        f"the limit of open files (RLIMIT_NOFILE) is {soft}: connections beyond about"
        f" {max(soft - SPARE, 0)} are refused, limits.connections allows {connections} (expected"
        f" {needed(connections)} or more)"
    )
