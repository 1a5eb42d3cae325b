"""What ends a program is heard, whatever SIGINT is, and by the tasks of an event loop in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from prestage.replay.signals import ENDING, ending, run
from prestage.target.errors import Ended


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN])
def _sigint(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_sigint")
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_the_block_and_is_told(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Ended) as caught, ending():
        os.kill(os.getpid(), number)
    assert caught.value.status == 128 + number
    assert signal.getsignal(number) == before


def test_one_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending():
            os.kill(os.getpid(), signal.SIGHUP)
            assert run(asyncio.sleep(0, "done")) == "done"
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_sigint")
@pytest.mark.parametrize("fails", [False, True])
def test_the_tasks_of_an_event_loop_end_in_order(fails: bool) -> None:
    ended = []

    async def wait() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append(True)
            if fails:
                raise ConnectionError

    with ending():
        inside = signal.getsignal(signal.SIGTERM)
        with pytest.raises(Ended, match="SIGTERM"):
            run(wait())
        assert signal.getsignal(signal.SIGTERM) == inside
    assert ended == [True]


def test_what_fails_by_itself_is_told_as_it_is() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(fail())
