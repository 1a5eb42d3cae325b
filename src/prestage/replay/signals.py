"""Signals that end a program, while there is something that is to be gone with it.

Python makes an exception of SIGINT only, and of that only where it is not ignored, as it is in what
a script has put into the background. SIGTERM and SIGHUP are heard here whatever SIGINT is.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

from prestage.target.errors import Ended

__all__ = ["ending", "run"]

ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
Result = TypeVar("Result")


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise Ended within the block. One that is ignored stays so (nohup)."""
    with _handled(_raise):
        yield


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine as asyncio.run does, and let these signals cancel it as Ctrl-C does.

    Raises Ended then, when its tasks have ended: in the midst of one of them an exception would
    leave the others as they are.
    """
    told: list[int] = []

    async def cancelled_by_signals() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel(number: int, _frame: FrameType | None) -> None:
            told.append(number)
            loop.call_soon_threadsafe(task.cancel)

        with _handled(cancel):
            return await main

    try:
        return asyncio.run(cancelled_by_signals())
    except BaseException as error:
        # What is cancelled may also fail on its way out: that is not what ended it.
        if told:
            raise Ended(told[0]) from error
        raise


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    heard = {number: old for number, old in before.items() if old != signal.SIG_IGN}
    try:
        for number in heard:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in heard.items():
            signal.signal(number, old)


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    raise Ended(number)
