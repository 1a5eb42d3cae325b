"""Every test, and what it starts, has the signals that a terminal would give it."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Hear again what whoever started the tests has had ignored (nohup, a script's background)."""
    for number, handler in (
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGINT, signal.default_int_handler),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
