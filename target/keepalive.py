"""The keep-alive timer of one controller, fed by traffic (Base 2.0, 3.9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

GRANULARITY_MS = 500
"""KAS is this in units of 100 ms; timeouts are rounded up to it (3.9.1)."""
LONGEST_MS = 0xFFFFFFFF // GRANULARITY_MS * GRANULARITY_MS
"""What fits into feature 0Fh."""
QUIET_CHECKS = 3
"""Checks in a row without a command before the controller is given up.

There are two checks in a timeout: a host is given up between 1.5 and 2 times its timeout after its
last command. Half a timeout is grace for a host that sends at the last moment.
"""


def round_up(kato_ms: int) -> int:
    """Return the timeout that is used for the one a host asked for; 0 stays 0 (no timer)."""
    return min(-(-kato_ms // GRANULARITY_MS) * GRANULARITY_MS, LONGEST_MS)


class KeepAlive:
    """Calls `expired` when `activity` has not changed for the timeout and its grace.

    `activity` returns anything that differs after every command. A timeout of 0 is no timer.
    """

    def __init__(self, activity: Callable[[], object], expired: Callable[[], None]) -> None:
        self._activity = activity
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None
        self._seen: object = None
        self._quiet = 0
        self.kato_ms = 0

    def set(self, kato_ms: int) -> None:
        """Set the timeout in ms (rounded up) and start over."""
        self.stop()
        self.kato_ms = round_up(kato_ms)
        self._seen = self._activity()
        self._quiet = 0
        self._arm()

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self.kato_ms:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.kato_ms / 2000, self._check)

    def _check(self) -> None:
        self._timer = None
        seen = self._activity()
        self._quiet = self._quiet + 1 if seen == self._seen else 0
        self._seen = seen
        if self._quiet >= QUIET_CHECKS:
            self._expired()
        else:
            self._arm()
