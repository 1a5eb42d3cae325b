"""What a caller can do wrong: it is said at once, by `InvalidRequest`, and nothing was sent."""

from __future__ import annotations

import array
import asyncio
import copy
import ctypes
import mmap
import pickle
import random
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from prestage import testing
from prestage.host_client import (
    BatchRefused,
    ConnectFailed,
    ConnectionLost,
    Controller,
    HostError,
    InvalidRequest,
    NvmeError,
    RequestTimeout,
    connect,
    open_namespace,
)
from prestage.host_client.association import ConnectRefused
from prestage.host_client.nvme import Completion

from .scripted import (
    AER,
    BLOCK,
    BLOCKS,
    READ,
    WRITE,
    Answer,
    Command,
    ScriptedTarget,
    scripted,
)
from .test_requests import run

Call = Callable[..., Awaitable[Any]]
COMPARE = 0x05
RAGGED = [[0], [1, 2]]


def objects() -> Any:
    """An array whose bytes are pointers."""
    return np.zeros(BLOCK // 8, object)


WRONG: dict[str, Call] = {
    # What is no bool.
    "text as fua of a read": lambda c: c.read(1, 0, BLOCK, fua="no"),
    "text as fua of a write": lambda c: c.write(1, bytes(BLOCK), 0, fua="no"),
    "text as fua of many reads": lambda c: c.read_many(1, [0], 1, fua="no"),
    "text as fua of many writes": lambda c: c.write_many(1, bytes(BLOCK), [0], 1, fua="no"),
    "text as deallocate": lambda c: c.write_zeroes(1, 0, BLOCK, deallocate="no"),
    "text as integral read": lambda c: c.dataset(1, [(0, 1)], integral_read="no"),
    # Where it lies.
    "no offset": lambda c: c.read(1, length=BLOCK),
    "two offsets": lambda c: c.read(1, 0, BLOCK, slba=0),
    "no length": lambda c: c.read(1, 0),
    "two lengths": lambda c: c.read(1, 0, BLOCK, nlb=1),
    "a misaligned offset": lambda c: c.read(1, 512, BLOCK),
    "a misaligned length": lambda c: c.read(1, 0, 512),
    "a negative offset": lambda c: c.read(1, -BLOCK, BLOCK),
    "a negative length": lambda c: c.read(1, 0, -BLOCK),
    "a length of 0": lambda c: c.read(1, 0, 0),
    "a fraction as offset": lambda c: c.read(1, 4096.0, BLOCK),
    "a fraction as SLBA": lambda c: c.read(1, slba=1.0, nlb=1),
    "a fraction as NLB": lambda c: c.read(1, slba=1, nlb=1.5),
    "text as offset": lambda c: c.read(1, "0", BLOCK),
    "beyond the namespace": lambda c: c.read(1, slba=BLOCKS, nlb=1),
    "over its end": lambda c: c.read(1, slba=BLOCKS - 1, nlb=2),
    "far beyond": lambda c: c.read(1, slba=1 << 70, nlb=1),
    "a negative NSID": lambda c: c.read(-1, 0, BLOCK),
    "an NSID of 33 bits": lambda c: c.read(1 << 32, 0, BLOCK),
    "all namespaces": lambda c: c.read(0xFFFFFFFF, 0, BLOCK),
    "no namespace": lambda c: c.read(0, 0, BLOCK),
    "text as NSID": lambda c: c.read("1", 0, BLOCK),
    "a list as NSID": lambda c: c.read([1], 0, BLOCK),
    "a fraction as NSID": lambda c: c.read(1.0, 0, BLOCK),
    "a flush of text": lambda c: c.flush("1"),
    "a flush of namespace 0": lambda c: c.flush(0),
    "zeros before the start": lambda c: c.write_zeroes(1, -BLOCK, BLOCK),
    # Many places.
    "ragged extents": lambda c: c.read_many(1, RAGGED, 1),
    "extents of text": lambda c: c.read_many(1, "abc", 1),
    "extents of fractions": lambda c: c.read_many(1, [0.0], 1),
    "extents of nothing": lambda c: c.read_many(1, None, 1),
    "one number as extents": lambda c: c.read_many(1, 5, 1),
    "an extent of 0 blocks": lambda c: c.read_many(1, [0], 0),
    "a negative extent": lambda c: c.read_many(1, [-1], 1),
    "an extent of 64 bits": lambda c: c.read_many(1, [1 << 63], 1),
    "an extent of 65 bits": lambda c: c.read_many(1, [1 << 64], 1),
    "an extent that wraps": lambda c: c.read_many(1, [1], (1 << 63) - 1),
    "sizes of another number": lambda c: c.read_many(1, [0, 1], [1]),
    # Memory.
    "a read-only buffer": lambda c: c.read(1, 0, into=bytes(BLOCK)),
    "a read-only array": lambda c: c.read(1, 0, into=np.frombuffer(bytes(BLOCK), np.uint8)),
    "no memory": lambda c: c.read(1, 0, into=bytearray()),
    "a list": lambda c: c.read(1, 0, into=[0] * BLOCK),
    "text": lambda c: c.write(1, "x" * BLOCK, 0),
    "nothing": lambda c: c.write(1, None, 0),
    "no bytes": lambda c: c.write(1, b"", 0),
    "too few bytes": lambda c: c.write(1, b"x", 0),
    "every other column": lambda c: c.write(1, np.zeros((BLOCK, 2), np.uint8)[:, 0], 0),
    "an array backwards": lambda c: c.write(1, np.zeros(BLOCK, np.uint8)[::-1], 0),
    "columns first": lambda c: c.read(1, 0, into=np.zeros((64, 64), np.uint8, order="F")),
    "columns first, many": lambda c: c.read_many(1, [0], 1, into=np.zeros((8, 512), order="F").T),
    "objects": lambda c: c.read(1, 0, into=objects()),
    "objects, many": lambda c: c.read_many(1, [0], 1, into=objects()),
    "a view of objects": lambda c: c.read(1, 0, into=memoryview(objects())),
    "objects to write": lambda c: c.write_many(1, [objects()], [0], 1),
    "too few buffers": lambda c: c.read_many(1, [0, 1], 1, into=[bytearray(BLOCK)]),
    "a buffer of wrong size": lambda c: c.write_many(1, bytes(BLOCK), [0, 1], 1),
    # When, and how.
    "a fraction as priority": lambda c: c.read(1, 0, BLOCK, priority=1.5),
    "text as priority": lambda c: c.read(1, 0, BLOCK, priority="high"),
    "no such priority": lambda c: c.read(1, 0, BLOCK, priority=4),
    "text as deadline": lambda c: c.read(1, 0, BLOCK, deadline="5ms"),
    "a deadline before now": lambda c: c.read(1, 0, BLOCK, deadline=-1),
    "no number as deadline": lambda c: c.read(1, 0, BLOCK, deadline=float("nan")),
    "a negative session": lambda c: c.read(1, 0, BLOCK, session=-1),
    "text as session": lambda c: c.read(1, 0, BLOCK, session="abc"),
    "no such access": lambda c: c.read(1, 0, BLOCK, access=16),
    "a fraction as access": lambda c: c.read(1, 0, BLOCK, access=1.0),
    # Ranges: all are looked at before any is sent.
    "a negative range": lambda c: c.deallocate(1, [(-1, 8)]),
    "a number as range": lambda c: c.deallocate(1, [5]),
    "a range of three": lambda c: c.deallocate(1, [(1, 2, 3)]),
    "no ranges": lambda c: c.deallocate(1, None),
    "the last of many ranges": lambda c: c.deallocate(1, [(0, 1)] * 300 + [(0, -1)]),
    "negative attributes": lambda c: c.dataset(1, [(0, 8)], attributes=-1),
    # Any command.
    "an opcode of 9 bits": lambda c: c.command(256),
    "text as opcode": lambda c: c.command("x"),
    "a negative size": lambda c: c.command(READ, nsid=1, read_bytes=-1),
    "a fraction as size": lambda c: c.command(READ, nsid=1, read_bytes=4096.0),
    "more than a transfer has": lambda c: c.command(READ, nsid=1, read_bytes=1 << 32),
    "text as data": lambda c: c.command(1, nsid=1, data="x"),
    "a list as data": lambda c: c.command(1, nsid=1, data=[1]),
    "half an entry": lambda c: c.raw(bytes(32)),
    "an entry of text": lambda c: c.raw("x" * 64),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_at_once_and_nothing_is_sent(what: str) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await controller.namespace(1)
        before = len(target.commands)
        with pytest.raises(InvalidRequest) as caught:
            await WRONG[what](controller)
        assert caught.value.where
        assert await controller.read(1, 0, BLOCK) == bytes(BLOCK)
        sent = [one.opcode for one in target.commands[before:] if one.opcode not in (AER, 6)]
        assert sent == [READ]

    run(body)


# ---- what is right, though it looks odd ----


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with testing.in_thread(testing.Target(namespaces=["1M"])) as running:
        yield f"nvme+tcp://127.0.0.1:{running.port}/{running.nqn}"


def use(url: str, body: Callable[[Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), connect(url) as controller:
            await body(controller)

    asyncio.run(main())


PLACES: dict[str, Callable[[], Any]] = {
    "big-endian numbers": lambda: np.zeros(BLOCK // 4, ">i4"),
    "complex numbers": lambda: np.zeros(BLOCK // 8, np.complex64),
    "dates": lambda: np.zeros(BLOCK // 8, "M8[s]"),
    "records": lambda: np.zeros(BLOCK // 8, [("key", "<i4"), ("value", "<f4")]),
    "truths": lambda: np.zeros(BLOCK, bool),
    "a plane": lambda: np.zeros((64, 64), np.uint8),
    "halves": lambda: np.zeros(BLOCK // 2, np.float16),
    "ctypes": ctypes.c_uint8 * BLOCK,
    "ctypes numbers": ctypes.c_int * (BLOCK // 4),
    "mmap": lambda: mmap.mmap(-1, BLOCK),
    "array": lambda: array.array("d", bytes(BLOCK)),
    "numbers of a view": lambda: memoryview(bytearray(BLOCK)).cast("I"),
}


@pytest.mark.parametrize("kind", PLACES)
def test_any_contiguous_buffer_will_do(plain: str, rng: random.Random, kind: str) -> None:
    async def body(controller: Controller) -> None:
        data = rng.randbytes(BLOCK)
        await controller.write(1, data, slba=3)
        one, many, out = PLACES[kind](), PLACES[kind](), PLACES[kind]()
        assert await controller.read(1, slba=3, into=one) is one
        assert await controller.read_many(1, [3], 1, into=many) is many
        memoryview(raw(out))[:] = data
        assert raw(one) == raw(many) == data
        await controller.write(1, out, slba=4)
        await controller.write_many(1, [out], [5], 1)
        assert await controller.read(1, slba=4, nlb=2) == data * 2

    use(plain, body)


def raw(place: Any) -> Any:
    """The bytes of a place, for comparing and for writing."""
    if isinstance(place, np.ndarray):
        place = place.reshape(-1).view(np.uint8)
    return memoryview(place).cast("B")


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
def test_numbers_of_numpy_do_not_overflow(plain: str, rng: random.Random, kind: Any) -> None:
    async def body(controller: Controller) -> None:
        data = rng.randbytes(64 * BLOCK)
        await controller.write(kind(1), data, slba=kind(100))
        assert await controller.read(kind(1), slba=kind(100), nlb=kind(64)) == data
        assert await controller.read_many(1, [kind(100)], kind(64)) == data

    use(plain, body)


def test_nothing_is_read_from_nowhere(plain: str) -> None:
    async def body(controller: Controller) -> None:
        assert await controller.read_many(1, [], 1) == b""
        assert await controller.read_many(1, [], [], into=[]) == []
        await controller.write_many(1, b"", [], 1)
        await controller.deallocate(1, [])

    use(plain, body)


def test_extents_may_change_once_they_were_given(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dated read that the controller refuses is read once more, plainly."""

    async def body(target: ScriptedTarget, controller: Controller) -> None:
        target.memory[:] = rng.randbytes(len(target.memory))
        starts = np.array([7], np.int64)
        moves: list[Any] = []

        async def refuse(_controller: Controller, move: Any, *_: Any) -> bool:
            moves.append(move)
            starts[:] = BLOCKS + 5
            return False

        monkeypatch.setattr(Controller, "_dated_read", refuse)
        found = await controller.read_many(1, starts, 1, deadline=0.1)
        assert found == target.memory[7 * BLOCK : 8 * BLOCK]
        assert moves

    run(body)


# ---- when, and from where ----

CALLS: dict[str, Call] = {
    "read": lambda c: c.read(1, 0, BLOCK),
    "read_many": lambda c: c.read_many(1, [0], 1),
    "write": lambda c: c.write(1, bytes(BLOCK), 0),
    "flush": lambda c: c.flush(1),
    "command": lambda c: c.command(0, nsid=1),
    "admin": lambda c: c.command(6, cdw10=1, read_bytes=4096, admin=True),
    "namespaces": lambda c: c.namespaces(),
    "wait_connected": lambda c: c.wait_connected(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_controller_that_was_not_opened_says_so(plain: str, name: str) -> None:
    async def main() -> None:
        controller = connect(plain)
        with pytest.raises(InvalidRequest, match="it was not opened"):
            async with asyncio.timeout(10):
                await CALLS[name](controller)

    asyncio.run(main())


@pytest.mark.parametrize("name", [name for name in CALLS if name != "namespaces"])
def test_a_controller_is_of_the_event_loop_that_opened_it(plain: str, name: str) -> None:
    async def body(controller: Controller) -> None:
        await controller.namespace(1)

        def elsewhere() -> None:
            with pytest.raises(InvalidRequest, match="another event loop"):
                asyncio.run(asyncio.wait_for(CALLS[name](controller), 10))

        await asyncio.to_thread(elsewhere)
        assert len(await controller.read(1, 0, BLOCK)) == BLOCK

    use(plain, body)


def test_a_controller_is_opened_once(plain: str) -> None:
    async def body(controller: Controller) -> None:
        with pytest.raises(InvalidRequest, match="opened before"):
            await controller.open()
        assert len(await controller.read(1, 0, BLOCK)) == BLOCK
        await controller.close()
        with pytest.raises(InvalidRequest, match="opened before"):
            await controller.open()
        with pytest.raises(ConnectionLost, match="was closed"):
            await controller.read(1, 0, BLOCK)

    use(plain, body)


def test_opening_may_be_tried_until_it_works(plain: str) -> None:
    async def main() -> None:
        controller = connect("127.0.0.1:1", nqn="nqn.2026-11.org.example:nobody")
        for _ in range(3):
            with pytest.raises(ConnectFailed):
                await controller.open()
        await controller.close()

    asyncio.run(main())


def test_a_controller_that_is_closed_while_it_is_opened_stays_closed() -> None:
    async def main() -> None:
        async with asyncio.timeout(60), scripted() as target:
            controller = connect(target.url)
            opening = asyncio.create_task(controller.open())
            await target.until(lambda: bool(target.commands))
            await controller.close()
            with pytest.raises(ConnectionLost, match="was closed"):
                await opening
            assert not controller.connected.is_set()
            # Nothing of it stays open, or the target would wait for it.
            await asyncio.gather(*target._tasks)

    asyncio.run(main())


def test_commands_need_queues(plain: str) -> None:
    async def main() -> None:
        async with asyncio.timeout(10), connect(plain, queues=0) as controller:
            assert (await controller.namespace(1)).block_bytes
            for name in ("read", "read_many", "write", "flush", "command"):
                with pytest.raises(InvalidRequest, match="queues: found 0"):
                    await CALLS[name](controller)

    asyncio.run(main())


@pytest.mark.parametrize(
    "options",
    [
        {"queue_depth": 2.5},
        {"queue_depth": "2"},
        {"queues": 1.5},
        {"timeout_s": None},
        {"timeout_s": float("nan")},
        {"keep_alive_s": "5"},
        {"backoff_s": 1.0},
        {"backoff_s": (1.0,)},
        {"backoff_s": (2.0, 1.0)},
        {"host_id": "x" * 16},
        {"host_nqn": None},
        {"nqn": 5},
        {"header_digest": "no"},
        {"data_digest": 1},
        {"sq_flow_control": None},
    ],
)
def test_wrong_options_are_said_before_anything_is_connected(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        connect("127.0.0.1:4420", **{"nqn": "nqn.2026-11.org.example:x", **options})


@pytest.mark.parametrize("url", [None, b"127.0.0.1:4420", 4420, ""])
def test_a_wrong_address_is_said(url: Any) -> None:
    with pytest.raises(InvalidRequest):
        connect(url, nqn="nqn.2026-11.org.example:x")


# ---- what is the caller's own fault, and must not become ours ----


def test_a_callback_that_fails_ends_nothing() -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
        controller.on_connect(fail)
        controller.on_event(fail)
        await target.until(lambda: len(events(target)) == 1)
        target.drop()
        assert len(await controller.read(1, 0, BLOCK)) == BLOCK
        await target.until(lambda: len(events(target)) == 2)
        for _ in range(3):
            seen = events(target)
            seen[-1].end(Answer(dw0=6))
            await target.until(partial(has_more_events, target, len(seen)))
        assert [type(one["exception"]) for one in reported] == [ZeroDivisionError] * 4

    run(body, backoff_s=(0.01, 0.05), keep_alive_s=0)


def has_more_events(target: ScriptedTarget, count: int) -> bool:
    return len(events(target)) > count


def fail(*_: int) -> None:
    """A callback with a fault."""
    raise ZeroDivisionError


def events(target: ScriptedTarget) -> list[Command]:
    """The Asynchronous Event Requests so far."""
    return [one for one in target.commands if one.opcode == AER and one.link.qid == 0]


@pytest.mark.parametrize(
    "error",
    [
        HostError("what", "where", "expected"),
        InvalidRequest("found 5", "length", "a multiple of 4096 bytes"),
        NvmeError(0x4281, "Read on namespace 1", 5),
        ConnectionLost("the target closed the connection", "I/O queue 1"),
        RequestTimeout("the controller has not answered in 1 s", "I/O queue 1"),
        BatchRefused("bad checksum", 16, "mailbox 3"),
        ConnectRefused(Completion(0x184, 0, 0, 0), "admin queue"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_go_to_other_processes_whole(error: HostError) -> None:
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


FAILING: dict[str, Call] = {
    "read": lambda c, b: c.read(1, 0, into=b),
    "read_many": lambda c, b: c.read_many(1, [0, 1], 1, into=b),
    "read_many, each": lambda c, b: c.read_many(1, [0], 2, into=[b]),
    "write": lambda c, b: c.write(1, b, 0),
    "write_many": lambda c, b: c.write_many(1, b, [0, 1], 1),
    "compare": lambda c, b: c.compare(1, b, 0),
    "readinto": lambda c, b: use_file(c, lambda file: file.readinto(b)),
    "write to a file": lambda c, b: use_file(c, lambda file: file.write(b)),
    "write from within a block": lambda c, b: use_file(c, lambda file: file.write(b), 5),
    "beyond the end": lambda c, b: c.read(1, slba=BLOCKS, into=b),
    "a wrong size": lambda c, b: c.read(1, 0, BLOCK, into=b),
    "one of wrong size": lambda c, b: c.read_many(1, [0, 1], 2, into=[b, bytearray(1)]),
}


async def use_file(
    controller: Controller, use: Callable[[Any], Awaitable[Any]], at: int = 0
) -> Any:
    async with open_namespace(controller) as file:
        await file.seek(at)
        return await use(file)


@pytest.mark.parametrize("name", FAILING)
def test_who_keeps_an_error_does_not_keep_the_buffer(name: str) -> None:
    async def body(target: ScriptedTarget, controller: Controller) -> None:
        await controller.namespace(1)
        for opcode in (READ, WRITE, COMPARE):
            target.handlers[False, opcode] = lambda command: Answer(status=0x281)
        buffer = bytearray(2 * BLOCK)
        with pytest.raises(HostError) as caught:
            await FAILING[name](controller, buffer)
        buffer += b"ours"
        assert caught.value.__traceback__ is not None

    run(body)
