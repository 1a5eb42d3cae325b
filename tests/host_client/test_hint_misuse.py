"""What a caller of hints can do wrong: it is said by `InvalidHint`, and nothing was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest

from prestage import testing
from prestage.host_client import Hints, InvalidHint, connect

Call = Callable[[Any], Awaitable[Any]]
BLOCKS = [(0, 8)]
WRONG: dict[str, Call] = {
    "a negative set": lambda h: h.define_set(-1, BLOCKS),
    "a fraction as set": lambda h: h.define_set(1.5, BLOCKS),
    "text as set": lambda h: h.define_set("x", BLOCKS),
    "a negative NSID": lambda h: h.define_set(1, BLOCKS, nsid=-1),
    "a range before the start": lambda h: h.define_set(1, [(-1, 8)]),
    "a range of no blocks": lambda h: h.define_set(1, [(0, 0)]),
    "a range of three": lambda h: h.define_set(1, [(1, 2, 3)]),
    "a range of fractions": lambda h: h.define_set(1, [(0.0, 8)]),
    "a number as range": lambda h: h.define_set(1, [5]),
    "text as ranges": lambda h: h.define_set(1, "ab"),
    "no ranges": lambda h: h.define_set(1, None),
    "an array of fractions": lambda h: h.define_set(1, np.array([[0, 8.5]])),
    "an array of one dimension": lambda h: h.define_set(1, np.array([0, 8])),
    "a time to live of text": lambda h: h.define_set(1, BLOCKS, ttl="5"),
    "a negative time to live": lambda h: h.define_set(1, BLOCKS, ttl=-1),
    "signatures of fractions": lambda h: h.sign(np.array([0.5]), 8, np.zeros((1, 8), np.uint8)),
    "sizes of fractions": lambda h: h.sign(np.array([0]), 8.5, np.zeros((1, 8), np.uint8)),
    "sizes of another number": lambda h: h.sign(
        np.array([0, 8]), np.array([1, 2, 3]), np.zeros((2, 8), np.uint8)
    ),
    "a number as vector": lambda h: h.sign(0, 8, 8),
    "text as vector": lambda h: h.sign(0, 8, "12345678"),
    "a vector of no bytes": lambda h: h.sign(0, 8, b""),
    "an intent of nothing": lambda h: h.intend(deadline=0.1),
    "a deadline of text": lambda h: h.intend(set_id=1, deadline="soon"),
    "a deadline before now": lambda h: h.intend(set_id=1, deadline=-1),
    "no such priority": lambda h: h.intend(set_id=1, deadline=0.1, priority=9),
    "a fraction as priority": lambda h: h.intend(set_id=1, deadline=0.1, priority=1.5),
    "a negative session": lambda h: h.intend(set_id=1, deadline=0.1, session=-1),
    "a cancel of nothing": lambda h: h.cancel(),
    "a cancel of text": lambda h: h.cancel("x"),
    "numbers as records": lambda h: h.submit([5]),
    "no records": lambda h: h.submit(None),
}


@pytest.fixture(scope="module")
def pax() -> Iterator[str]:
    """A target that speaks PAX."""
    with testing.in_thread(testing.Target(namespaces=["1M"], extension=True)) as running:
        yield f"nvme+tcp://127.0.0.1:{running.port}/{running.nqn}"


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_a_hint_is_said(pax: str, what: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), connect(pax) as controller, Hints(controller) as hints:
            with pytest.raises(InvalidHint):
                await WRONG[what](hints)
            assert (await hints.define_set(1, np.array(BLOCKS, np.int32))).accepted == 1

    asyncio.run(main())


def test_numbers_of_numpy_will_do(pax: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), connect(pax) as controller, Hints(controller) as hints:
            small: Any = np.int8(8)
            start: Any = np.int16(200)
            first: Any = np.int32(0)
            number: Any = np.uint8(7)
            assert (await hints.define_set(number, [(start, small)])).accepted == 1
            vector = np.arange(8, dtype=np.uint8)
            assert (await hints.sign(first, small, vector)).accepted == 1

    asyncio.run(main())
