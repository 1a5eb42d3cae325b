"""Files over namespaces, against a bytearray that does the same."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prestage import testing
from prestage.host_client import InvalidRequest, NamespaceFile, connect, open_namespace

from .scripted import BLOCK, READ, WRITE, scripted

SIZE = 64 << 10
Opened = Callable[[], contextlib.AbstractAsyncContextManager[NamespaceFile]]


@pytest.fixture(scope="module")
def small() -> Iterator[dict[str, Any]]:
    """A target with two namespaces of 64 KiB: blocks of 4096 and of 512 bytes."""
    namespaces = [f"ram:,size={SIZE},block=4096", f"ram:,size={SIZE},block=512"]
    with testing.in_thread(testing.Target(namespaces=namespaces, dram="4M")) as target:
        yield {"url": f"nvme+tcp://127.0.0.1:{target.port}/{target.nqn}"}


@pytest.fixture(params=["4096", "512", "node"])
def opened(request: pytest.FixtureRequest, small: dict[str, Any], tmp_path: Path) -> Opened:
    """Opens a file of 64 KiB, over either namespace or a node of the kernel."""

    @contextlib.asynccontextmanager
    async def start() -> AsyncIterator[NamespaceFile]:
        if request.param == "node":
            path = tmp_path / "node"
            path.touch()
            os.truncate(path, SIZE)
            where: Any = path
        else:
            where = small["url"]
        nsid = 2 if request.param == "512" else 1
        async with open_namespace(where, nsid=nsid) as file:
            yield file

    return start


OFFSETS = st.one_of(
    st.integers(0, SIZE + 100), st.sampled_from([0, 511, 512, 4095, 4096, 8192, SIZE - 1, SIZE])
)
SIZES = st.one_of(st.integers(0, 3 * 4096), st.sampled_from([1, 511, 512, 4096, 8192]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), OFFSETS, st.just(0)),
        st.tuples(st.just("seek_by"), st.integers(-5000, 5000), st.just(0)),
        st.tuples(st.just("seek_end"), st.integers(-5000, 10), st.just(0)),
        st.tuples(st.just("read"), SIZES, st.just(0)),
        st.tuples(st.just("readinto"), SIZES, st.just(0)),
        st.tuples(st.just("write"), SIZES, st.integers(0, 255)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


class Model:
    """A file of fixed size in memory."""

    def __init__(self) -> None:
        self.bytes = bytearray(SIZE)
        self.at = 0

    def read(self, size: int) -> bytes:
        found = bytes(self.bytes[self.at : self.at + size])
        self.at += len(found)
        return found


async def step(file: NamespaceFile, model: Model, what: str, size: int, fill: int) -> None:
    if what.startswith("seek"):
        whence = {"seek": os.SEEK_SET, "seek_by": os.SEEK_CUR, "seek_end": os.SEEK_END}[what]
        position = {"seek": 0, "seek_by": model.at, "seek_end": SIZE}[what] + size
        if position < 0:
            with pytest.raises(ValueError, match="0 or more"):
                await file.seek(size, whence)
        else:
            assert await file.seek(size, whence) == position
            model.at = position
    elif what == "read":
        assert await file.read(size) == model.read(size)
    elif what == "readinto":
        buffer = bytearray(b"\xee" * size)
        count = await file.readinto(buffer)
        assert buffer == model.read(size).ljust(size, b"\xee")
        assert count == 0 or count <= size
    elif what == "flush":
        await file.flush()
    elif model.at + size > SIZE:
        with pytest.raises(OSError, match="beyond the end"):
            await file.write(bytes(size))
    else:
        data = bytes((fill + index) & 255 for index in range(size))
        assert await file.write(data) == size
        model.bytes[model.at : model.at + size] = data
        model.at += size
    assert await file.tell() == model.at


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_a_file_is_what_a_bytearray_would_be(
    opened: Opened, steps: list[tuple[str, int, int]]
) -> None:
    async def main() -> None:
        async with opened() as file:
            model = Model()
            await file.write(bytes(SIZE))
            await file.seek(0)
            for what, size, fill in steps:
                await step(file, model, what, size, fill)
            await file.seek(0)
            assert await file.readall() == model.bytes

    asyncio.run(main())


def test_long_unaligned_reads_and_writes(target: testing.Target, rng: random.Random) -> None:
    async def main() -> None:
        url = f"nvme+tcp://127.0.0.1:{target.port}/{target.nqn}"
        async with open_namespace(url) as file:
            assert file.size_bytes == 16 << 20
            data = rng.randbytes(3 << 20)
            await file.seek(777)
            await file.write(data)
            for start, size in ((777, 3 << 20), (4096, 2 << 20), (800, (2 << 20) + 13)):
                await file.seek(start)
                into = bytearray(size)
                assert await file.readinto(into) == size
                assert into == (bytes(777) + data + bytes(size))[start : start + size]

    asyncio.run(main())


def test_a_file_has_the_shape_of_aiofiles(opened: Opened) -> None:
    async def main() -> None:
        async with opened() as file:
            assert await file.readable() and await file.writable() and await file.seekable()
            assert not await file.isatty()
            assert (file.closed, file.mode) == (False, "rb+")
            await file.writelines([b"abc", memoryview(b"def"), bytearray(b"g")])
            await file.seek(0)
            assert await file.read(7) == b"abcdefg"
            assert len(await file.read()) == SIZE - 7
            assert await file.read(1) == b""
            with pytest.raises(io.UnsupportedOperation, match="size does not change"):
                await file.truncate(5)
            with pytest.raises(InvalidRequest, match="0, 1 or 2"):
                await file.seek(0, 9)
        assert file.closed
        for call in (file.read(), file.write(b"x"), file.seek(0), file.flush(), file.tell()):
            with pytest.raises(ValueError, match="the file is closed"):
                await call
        await file.close()

    asyncio.run(main())


def test_calls_of_several_tasks_are_carried_out_one_after_the_other(opened: Opened) -> None:
    async def main() -> None:
        async with opened() as file:
            await asyncio.gather(*(file.write(bytes([index]) * 100) for index in range(50)))
            await file.seek(0)
            pieces = await asyncio.gather(*(file.read(100) for _ in range(50)))
            assert all(len(set(piece)) == 1 for piece in pieces)
            assert sorted(piece[0] for piece in pieces) == list(range(50))

    asyncio.run(main())


def test_what_was_written_is_flushed_before_the_file_is_closed() -> None:
    async def main() -> None:
        async with scripted() as target:
            async with open_namespace(target.url) as file:
                await file.read(10)
            assert not target.io(0x00)
            async with open_namespace(target.url) as file:
                await file.write(b"x")
            assert len(target.io(0x00)) == 1
            assert target.memory[:1] == b"x"

    asyncio.run(main())


def test_parts_of_a_block_are_read_first_and_whole_blocks_are_not() -> None:
    async def main() -> None:
        async with scripted() as target, open_namespace(target.url) as file:
            await file.write(bytes(2 * BLOCK))
            assert (len(target.io(READ)), len(target.io(WRITE))) == (0, 1)
            await file.write(b"x")
            assert (len(target.io(READ)), len(target.io(WRITE))) == (1, 2)

    asyncio.run(main())


@pytest.mark.parametrize("read_ahead", [False, True])
def test_reads_that_go_on_tell_so_when_asked_to(read_ahead: bool) -> None:
    async def main() -> None:
        async with (
            scripted() as target,
            open_namespace(target.url, read_ahead=read_ahead) as file,
        ):
            await file.seek(8 * BLOCK)
            await file.read(BLOCK)
            await file.read(100)
            await file.read(100)
            await file.seek(0)
            await file.read(BLOCK)
            marks = [one.cdw(13) for one in target.io(READ)]
            assert marks == ([0, 7, 7, 0] if read_ahead else [0, 0, 0, 0])

    asyncio.run(main())


def test_a_controller_may_be_shared_and_stays_open(url: str) -> None:
    async def main() -> None:
        async with connect(url) as controller:
            async with (
                open_namespace(controller) as first,
                open_namespace(controller, nsid=2) as second,
            ):
                await asyncio.gather(first.write(b"one"), second.write(b"two"))
            assert (await controller.read(1, 0, 4096))[:3] == b"one"
            assert (await controller.read(2, 0, 512))[:3] == b"two"

    asyncio.run(main())


def test_where_there_is_nothing_no_file_opens(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(InvalidRequest, match="there is no namespace 8"):
            async with open_namespace(url, nsid=8):
                pytest.fail("it opened")
        with pytest.raises(FileNotFoundError):
            async with open_namespace(tmp_path / "none"):
                pytest.fail("it opened")
        with pytest.raises(InvalidRequest, match="or a path"):
            open_namespace("http://127.0.0.1/x")

    asyncio.run(main())
