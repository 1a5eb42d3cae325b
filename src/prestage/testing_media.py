"""Media driven from Python, and the conformance checks that every medium must pass.

For tests of this project and for authors of media and wrappers: `check_media(make)` runs a medium
against a byte-exact model. Nothing here is fast; the data path never goes through Python.
"""

from __future__ import annotations

import errno
import mmap
import random
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from prestage._core import ffi, lib

READ, WRITE, SYNC, DISCARD, ZERO, PREFETCH = range(1, 7)
"""enum ps_media_op."""
BUFFERED, THREADS, NO_PUNCH = 1, 2, 4
"""enum ps_media_warning."""
NEVER = 2**64 - 1
ERROR_BYTES = 1024
MOST_BYTES = 256 * 1024
"""Longest request of the random operations."""
ALIGNMENT = 4096
"""Of buffers and of parts."""
GAP_BYTE = b"\xa5"
"""What stands between parts, so that a medium that writes beyond one is seen."""


class MediaError(Exception):
    """A medium that cannot be opened or started, or an order that it refuses."""


@dataclass(eq=False)
class Request:
    """One operation. `error` is an errno once `is_done`; `data` is what a read brought."""

    op: int
    offset: int
    length: int
    memory: mmap.mmap
    raw: Any
    buffer: Any
    parts: tuple[int, ...] = ()
    iovecs: Any = None
    is_done: bool = False
    error: int = 0

    @property
    def data(self) -> bytes:
        """Bytes of the buffer, or of the parts one after the other."""
        if not self.parts:
            return self.memory[: self.length]
        places = zip(part_places(self.parts), self.parts, strict=True)
        return b"".join(self.memory[at : at + length] for at, length in places)

    def is_whole(self) -> bool:
        """Return whether the gaps between and behind the parts are as they were."""
        places = part_places(self.parts)
        ends = [at + length for at, length in zip(places, self.parts, strict=True)]
        gaps = zip(ends, [*places[1:], len(self.memory)], strict=True)
        return all(
            self.memory[end:start] == GAP_BYTE * (start - end) for end, start in gaps if end < start
        )


def part_places(parts: Sequence[int]) -> list[int]:
    """Return where parts of these lengths stand in the memory: aligned, with a page between."""
    rooms = [-(-length // ALIGNMENT) * ALIGNMENT + ALIGNMENT for length in parts]
    return [sum(rooms[:i]) for i in range(len(rooms))]


@dataclass(frozen=True)
class Limits:
    """struct ps_media_limits."""

    size: int
    block_size: int
    queue_depth: int
    warnings: int
    has_volatile_cache: bool
    is_rotational: bool
    bandwidth: int
    read_ns: int


@ffi.callback("void(struct ps_media_request *)")  # type: ignore[untyped-decorator, unused-ignore]
def _done(raw: Any) -> None:
    request: Request = ffi.from_handle(raw.owner)
    assert not request.is_done, "a request ended twice"
    request.error = raw.error
    request.is_done = True


@dataclass
class Medium:
    """An open medium, started in this thread.

    Raises MediaError with the library's own text when the spec is wrong or cannot be started.
    """

    spec: str
    start: bool = True
    media: Any = field(init=False, default=None)
    under_way: dict[Request, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        text = ffi.new("char[]", ERROR_BYTES)
        self.media = lib.ps_media_open(self.spec.encode(), text, ERROR_BYTES)
        if self.media == ffi.NULL:
            raise MediaError(ffi.string(text).decode("utf-8", "backslashreplace"))
        error = lib.ps_media_start(self.media) if self.start else 0
        if error != 0:
            self.close()
            raise MediaError(f"{self.spec}: {errno.errorcode.get(error, error)} on starting")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(abandon=bool(self.under_way))

    @property
    def limits(self) -> Limits:
        """What the medium says of itself."""
        raw = ffi.new("struct ps_media_limits *")
        lib.ps_media_get_limits(self.media, raw)
        return Limits(
            raw.size,
            raw.block_size,
            raw.queue_depth,
            raw.warnings,
            bool(raw.has_volatile_cache),
            bool(raw.is_rotational),
            raw.bandwidth,
            raw.read_ns,
        )

    def submit(
        self,
        op: int,
        offset: int = 0,
        length: int = 0,
        data: bytes = b"",
        parts: Sequence[int] = (),
    ) -> Request:
        """Hand over a request, without kick; `data` (of a write) gives the length.

        `parts` are the lengths of the places that a read goes to, in bytes.
        """
        length = len(data) or length
        rooms = part_places([*parts, 0])[-1]
        memory = mmap.mmap(-1, max(length, rooms, 1))
        memory[: len(data)] = data
        raw = ffi.new("struct ps_media_request *")
        buffer = ffi.from_buffer("uint8_t[]", memory, require_writable=True)
        request = Request(op, offset, length, memory, raw, buffer, tuple(parts))
        handle = ffi.new_handle(request)
        raw.op, raw.offset, raw.length = op, offset, length
        raw.buffer, raw.owner, raw.done = buffer, handle, _done
        if parts:
            self._set_parts(request)
        self.under_way[request] = handle
        lib.ps_media_submit(self.media, raw)
        return request

    def _set_parts(self, request: Request) -> None:
        request.memory[:] = GAP_BYTE * len(request.memory)
        request.iovecs = ffi.new("struct iovec[]", len(request.parts))
        for i, at in enumerate(part_places(request.parts)):
            request.iovecs[i].iov_base = request.buffer + at
            request.iovecs[i].iov_len = request.parts[i]
        request.raw.buffer = ffi.NULL
        request.raw.parts, request.raw.part_count = request.iovecs, len(request.parts)

    def kick(self) -> None:
        """Start what was submitted."""
        lib.ps_media_kick(self.media)

    def poll(self, now_ns: int | None = None) -> int:
        """Reap; returns how many the medium says it reaped."""
        count: int = lib.ps_media_poll(
            self.media, time.monotonic_ns() if now_ns is None else now_ns
        )
        for request in [request for request in self.under_way if request.is_done]:
            del self.under_way[request]
        return count

    def is_readable(self, timeout_ms: float = 0) -> bool:
        """Return whether the wait descriptor says that poll has something to do."""
        descriptor = lib.ps_media_wait_fd(self.media)
        if descriptor < 0:
            return False
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout_ms))

    def pause(self, until_ns: int) -> None:
        """Sleep as an owner does: until the descriptor, the medium's own time, or `until_ns`."""
        next_ns = min(lib.ps_media_next_time(self.media), until_ns)
        left_ms = (next_ns - time.monotonic_ns()) / 1e6
        if left_ms > 0:
            self.is_readable(left_ms)

    def wait(self, *requests: Request, timeout_s: float = 20) -> None:
        """Kick and poll until `requests` (all, when none is named) have ended.

        Raises TimeoutError.
        """
        end_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        self.kick()
        while not all(each.is_done for each in requests or tuple(self.under_way)):
            if time.monotonic_ns() > end_ns:
                raise TimeoutError(f"{self.spec}: requests did not end in {timeout_s} s")
            self.pause(end_ns)
            self.poll()

    def run(
        self,
        op: int,
        offset: int = 0,
        length: int = 0,
        data: bytes = b"",
        parts: Sequence[int] = (),
    ) -> Request:
        """Submit one request and wait for its end."""
        request = self.submit(op, offset, length, data, parts)
        self.wait(request)
        return request

    def read(self, offset: int, length: int) -> bytes:
        """Read; raises OSError."""
        return self._good(self.run(READ, offset, length)).data

    def write(self, offset: int, data: bytes) -> None:
        """Write; raises OSError."""
        self._good(self.run(WRITE, offset, data=data))

    def sync(self) -> None:
        """Make completed writes durable; raises OSError."""
        self._good(self.run(SYNC))

    def _good(self, request: Request) -> Request:
        if request.error:
            raise OSError(request.error, f"{self.spec}: operation {request.op} failed")
        return request

    def control(self, kind: str, verb: str) -> None:
        """Give an order to the wrapper `kind`; raises MediaError."""
        text = ffi.new("char[]", ERROR_BYTES)
        if lib.ps_media_control(self.media, kind.encode(), verb.encode(), text, ERROR_BYTES) != 0:
            raise MediaError(ffi.string(text).decode("utf-8", "backslashreplace"))

    def resize(self, size: int) -> int:
        """Change the size, or read it again (0). Returns 0 or -errno."""
        result: int = lib.ps_media_resize(self.media, size)
        return result

    def close(self, *, abandon: bool = False) -> None:
        """Close once; requests under way must have ended unless `abandon`."""
        if self.media is not None:
            lib.ps_media_close(self.media, abandon)
            self.media = None


# ---- the conformance checks ----


class ByteModel:
    """What the medium must hold, with the ranges that requests under way are changing."""

    def __init__(self, medium: Medium, seed: int) -> None:
        self.medium = medium
        self.random = random.Random(seed)
        limits = medium.limits
        self.block = limits.block_size
        self.size = limits.size
        self.depth = min(limits.queue_depth, 32)
        self.bytes = bytearray(limits.size)
        self.open: list[Request] = []

    def fill(self) -> None:
        """Write everything, so that every byte is known."""
        for offset in range(0, self.size, MOST_BYTES):
            data = self.random.randbytes(min(MOST_BYTES, self.size - offset))
            self.medium.write(offset, data)
            self.bytes[offset : offset + len(data)] = data

    def free_range(self) -> tuple[int, int] | None:
        """Return a random range that no open request touches, if luck finds one."""
        blocks = self.size // self.block
        most = max(1, min(MOST_BYTES, self.size) // self.block)
        for _ in range(8):
            length = self.random.choice([1, self.random.randint(1, 16), most]) * self.block
            length = min(length, self.size)
            offset = self.random.randint(0, blocks - length // self.block) * self.block
            touched = (each for each in self.open if each.op != SYNC)
            if all(
                each.offset + each.length <= offset or offset + length <= each.offset
                for each in touched
            ):
                return offset, length
        return None

    def step(self) -> None:
        """Submit one random operation."""
        op = self.random.choices(
            [READ, WRITE, SYNC, DISCARD, ZERO, PREFETCH], weights=[30, 40, 4, 6, 10, 10]
        )[0]
        if op == SYNC:
            self.open.append(self.medium.submit(SYNC))
            return
        place = self.free_range()
        if place is None:
            return
        offset, length = place
        data = self.random.randbytes(length) if op == WRITE else b""
        parts = self.cut(length) if op in (READ, PREFETCH) else ()
        self.open.append(self.medium.submit(op, offset, length, data, parts))
        if self.random.random() < 0.5:
            self.medium.kick()

    def cut(self, length: int) -> tuple[int, ...]:
        """Return a random cut of `length` into parts; none in half of the cases."""
        blocks = length // self.block
        most = min(blocks, lib.PS_MEDIA_PARTS)
        count = self.random.choice([0, self.random.randint(1, most)])
        if count == 0:
            return ()
        ends = [0, *sorted(self.random.sample(range(1, blocks), count - 1)), blocks]
        return tuple((ends[i + 1] - ends[i]) * self.block for i in range(count))

    def settle(self) -> None:
        """Wait for all open requests and compare what they say with the model."""
        self.medium.wait()
        for request in self.open:
            assert request.error == 0, f"operation {request.op}: {errno.errorcode[request.error]}"
            self.apply(request)
        self.open.clear()

    def apply(self, request: Request) -> None:
        """Check a read, and let a change into the model."""
        place = slice(request.offset, request.offset + request.length)
        if request.op in (READ, PREFETCH):
            assert request.data == self.bytes[place], f"read at {request.offset}: other bytes"
            assert not request.parts or request.is_whole(), "bytes beside the parts were changed"
        elif request.op == WRITE:
            self.bytes[place] = request.data
        elif request.op == ZERO:
            self.bytes[place] = bytes(request.length)
        elif request.op == DISCARD:
            self.discarded(request)

    def discarded(self, request: Request) -> None:
        """Each block of a discarded range is zeros or what it was, and stays so."""
        found = self.medium.read(request.offset, request.length)
        for at in range(0, request.length, self.block):
            part = found[at : at + self.block]
            place = slice(request.offset + at, request.offset + at + self.block)
            assert part in (bytes(self.block), self.bytes[place]), "discard made up bytes"
            self.bytes[place] = part


def check_same_bytes(medium: Medium, seed: int, operations: int) -> None:
    """Check random operations, many at once and never two on one range, against a byte model."""
    model = ByteModel(medium, seed)
    model.fill()
    for _ in range(operations):
        model.step()
        if len(model.open) >= model.random.randint(1, model.depth):
            model.settle()
    model.settle()
    for offset in range(0, model.size, MOST_BYTES):
        length = min(MOST_BYTES, model.size - offset)
        assert medium.read(offset, length) == model.bytes[offset : offset + length]


def check_ranges(medium: Medium) -> None:
    """Check that wrong ranges end with EINVAL, the last block works, and the rest is untouched."""
    limits = medium.limits
    size, block = limits.size, limits.block_size
    before = medium.read(size - block, block)
    wrong = [
        (WRITE, size, block),
        (WRITE, size - block, 2 * block),
        (READ, 2**63, block),
        (READ, 2**64 - block, block),
        (WRITE, 1, block),
        (READ, 0, block - 1),
        (READ, 0, 0),
        (ZERO, size, block),
        (DISCARD, size, block),
        (99, 0, block),
    ]
    for op, offset, length in wrong:
        request = medium.run(op, offset, length)
        assert request.error == errno.EINVAL, f"operation {op} at {offset}, {length} bytes"
    for op, length, parts in wrong_parts(block):
        request = medium.run(op, 0, length, parts=parts)
        assert request.error == errno.EINVAL, f"operation {op}, {length} bytes, parts {parts}"
    assert medium.limits == limits
    assert medium.read(size - block, block) == before


def wrong_parts(block: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return operations at 0 whose parts do not make up their range, or that may have none."""
    most: int = lib.PS_MEDIA_PARTS
    return [
        (READ, 2 * block, (block,)),
        (READ, block, (block, block)),
        (READ, 2 * block, (block, 0, block)),
        (READ, 2 * block, (block // 2, block + block // 2)),
        (PREFETCH, 2 * block, (block, block - 1)),
        (READ, (most + 1) * block, (block,) * (most + 1)),
        (WRITE, 2 * block, (block, block)),
        (ZERO, 2 * block, (block, block)),
    ]


def check_quiet(medium: Medium) -> None:
    """Check that a medium with nothing to do says so: no spinning owner."""
    medium.wait()
    medium.poll()
    assert medium.poll() == 0
    assert not medium.is_readable()
    assert lib.ps_media_next_time(medium.media) == NEVER


def check_media(make: Callable[[], Medium], *, seed: int, operations: int = 300) -> None:
    """Run every check on media from `make`, which opens a small one (1 to 8 MiB) each time.

    Raises AssertionError with the seed when the medium breaks a rule of csrc/media.h.
    """
    print(f"check_media seed={seed}")  # noqa: T201
    with make() as medium:
        assert medium.limits.queue_depth >= 1
        assert medium.limits.size % medium.limits.block_size == 0
        check_quiet(medium)
        check_same_bytes(medium, seed, operations)
        check_ranges(medium)
        check_quiet(medium)
