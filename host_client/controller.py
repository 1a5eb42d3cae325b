"""An NVMe-over-TCP initiator for asyncio: `async with connect(URL) as controller`.

A controller may be used by many tasks at a time. Buffers are lent to a request until it returns or
raises, cancellation included: after that nothing writes to them and nothing is read from them.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prestage.host_client import nvme
from prestage.host_client.address import parse_target
from prestage.host_client.arguments import flag, integer
from prestage.host_client.batch import Blocks, borrow, extents_of, pieces_of
from prestage.host_client.connection import Connection
from prestage.host_client.engine import Batch, Memory
from prestage.host_client.errors import ConnectionLost, InvalidRequest, NvmeError, ProtocolError
from prestage.host_client.link import Uncut
from prestage.host_client.nvme import Completion, Namespace
from prestage.host_client.options import Options
from prestage.host_client.read_hint import (
    ReadHint,
    Seconds,
    dated_entry,
    dated_read_opcode,
    read_hint,
)
from prestage.host_client.split import Extent, as_bytes, extent_of, pieces
from prestage.host_client.status import COMPARE_FAILURE, INVALID_FIELD, INVALID_OPCODE


class Mover(Protocol):
    """Moves the data of a request by as many commands as it takes; `entry` makes one of SLBA, NLB.

    `repeat`: it may be carried out twice, so it is sent again when the connection is lost under it.
    """

    def __call__(self, entry: Callable[[int, int], bytes], *, repeat: bool) -> Awaitable[None]:
        """Carry the request out."""


class Controller(Connection):
    """A connection to a subsystem; `connect` makes one.

    `connected` is an event that is set while there is an association; `wait_connected` waits for
    it, or raises `ConnectionLost` when the controller is given up.

    All requests raise `InvalidRequest` (nothing was sent), `NvmeError` (the controller said no),
    `ConnectionLost`, `ProtocolError`, `RequestTimeout`, `DigestError`. While the controller is away
    they wait for it.

    When the connection is lost under them, reads and compares are sent again. Writes and their kin
    are not: what was lost may still be carried out, after newer data was written. Nor is Flush: a
    target that was started again knows nothing of what it is to flush.
    """

    # ---- reads and writes ----

    async def read(
        self,
        nsid: int,
        offset: int | None = None,
        length: int | None = None,
        *,
        slba: int | None = None,
        nlb: int | None = None,
        into: Any = None,
        access: int = nvme.Access.NONE,
        fua: bool = False,
        deadline: Seconds | None = None,
        priority: int | None = None,
        session: int = 0,
    ) -> Any:
        """Read blocks; return `into`, or a new bytearray.

        By bytes (`offset`, `length`, multiples of the block size) or by blocks (`slba`, `nlb`). The
        size may be left to `into`: any writable contiguous buffer, filled whole. `access` is the
        access frequency of CDW13 (`nvme.Access`). Large reads go as several commands at a time.

        `deadline` (seconds or a timedelta, from arrival; one of more than 71.6 minutes, the latest
        that can be said, is said as that), `priority` (0 urgent to 3 low) and `session` (64 bits,
        opaque) say when the data is needed: by the dated read of PAX where the target has it, else
        as far as the attributes of a plain Read can. They change when the read is served, never
        what it returns.
        """
        hint = read_hint(deadline, priority, session, access)
        namespace = self._known(nsid) or await self.namespace(nsid)
        if into is None:
            extent = extent_of(namespace, offset=offset, length=length, slba=slba, nlb=nlb)
            into = bytearray(extent.nlb * namespace.block_bytes)
        with as_bytes(into, "into", writable=True) as view:
            if length is None and nlb is None:
                length = len(view)
            extent = extent_of(namespace, offset=offset, length=length, slba=slba, nlb=nlb)
            if len(view) != extent.nlb * namespace.block_bytes:
                expected = f"{extent.nlb * namespace.block_bytes} bytes"
                raise InvalidRequest(f"found {len(view)} bytes", "into", expected)
            move = partial(self._move, namespace, extent, view, is_read=True)
            await self._read(move, namespace.nsid, hint, fua=fua)
        return into

    async def read_many(
        self,
        nsid: int,
        slba: Any,
        nlb: Any,
        *,
        into: Any = None,
        access: int = nvme.Access.NONE,
        fua: bool = False,
        deadline: Seconds | None = None,
        priority: int | None = None,
        session: int = 0,
    ) -> Any:
        """Read many extents in one request; return `into`, or a new bytearray.

        `slba` is an array of blocks, `nlb` their number: one for all extents, or an array as long.
        `into` is one writable contiguous buffer that gets the extents one after the other, or a
        list or tuple with a buffer for each; either is filled whole. The other arguments are those
        of `read`.

        The commands are spread over all queues, and there is nothing in Python for each of them, so
        this is the way to read small blocks fast. They are carried out in any order. The first that
        fails ends the others; what the buffers hold then is not said.
        """
        hint = read_hint(deadline, priority, session, access)
        namespace = self._known(nsid) or await self.namespace(nsid)
        starts, counts = extents_of(namespace, slba, nlb)
        if into is None:
            into = bytearray(int(counts.sum()) * namespace.block_bytes)
        move = partial(self._move_many, namespace, starts, counts, into, is_read=True)
        await self._read(move, namespace.nsid, hint, fua=fua)
        return into

    async def _read(self, move: Mover, nsid: int, hint: ReadHint, *, fua: bool) -> None:
        """Read as `move` says, by the dated read where it is wished for and the target has it."""
        control = nvme.FORCE_UNIT_ACCESS if flag(fua, "fua") else 0
        if not await self._dated_read(move, nsid, hint, control):
            plain = partial(
                nvme.block_entry, nvme.Io.READ, nsid, control=control, cdw13=hint.attributes
            )
            await move(plain, repeat=True)

    async def _dated_read(self, move: Mover, nsid: int, hint: ReadHint, control: int) -> bool:
        """Read by the dated read opcode; False when it is not dated, or the target has none."""
        opcode = dated_read_opcode(self.capability) if hint.is_dated else 0
        if not opcode:
            return False
        try:
            await move(partial(dated_entry, opcode, nsid, hint=hint, control=control), repeat=False)
        except ProtocolError:
            raise
        except ConnectionLost:
            # The opcode may mean something else to whoever is there next.
            return False
        except NvmeError as error:
            # A plain Read says the same of the data; only the hint is lost.
            if error.sct << 8 | error.sc not in (INVALID_OPCODE, INVALID_FIELD):
                raise
            return False
        return True

    async def write(
        self,
        nsid: int,
        data: Any,
        offset: int | None = None,
        *,
        slba: int | None = None,
        fua: bool = False,
    ) -> None:
        """Write `data`, a contiguous buffer of whole blocks, at a byte offset or a block.

        `fua`: it is on the medium when this returns. What lies between two commands of a large
        write is not atomic. When the connection is lost, it may have been written or not.
        """
        namespace = self._known(nsid) or await self.namespace(nsid)
        control = nvme.FORCE_UNIT_ACCESS if flag(fua, "fua") else 0
        entry = partial(nvme.block_entry, nvme.Io.WRITE, namespace.nsid, control=control)
        with as_bytes(data, "data") as view:
            extent = extent_of(namespace, offset=offset, length=len(view), slba=slba, nlb=None)
            await self._move(namespace, extent, view, entry, repeat=False)

    async def write_many(
        self, nsid: int, data: Any, slba: Any, nlb: Any, *, fua: bool = False
    ) -> None:
        """Write many extents in one request: `data` as `into` of `read_many`, to `slba` and `nlb`.

        In any order, so extents should not overlap. When one fails, or the connection is lost, each
        of the others may have been written or not. `fua`: as in `write`.
        """
        namespace = self._known(nsid) or await self.namespace(nsid)
        control = nvme.FORCE_UNIT_ACCESS if flag(fua, "fua") else 0
        entry = partial(nvme.block_entry, nvme.Io.WRITE, namespace.nsid, control=control)
        starts, counts = extents_of(namespace, slba, nlb)
        await self._move_many(namespace, starts, counts, data, entry, repeat=False)

    async def compare(
        self, nsid: int, data: Any, offset: int | None = None, *, slba: int | None = None
    ) -> bool:
        """Return whether the blocks hold `data`; the controller compares."""
        namespace = self._known(nsid) or await self.namespace(nsid)
        entry = partial(nvme.block_entry, nvme.Io.COMPARE, namespace.nsid)
        try:
            with as_bytes(data, "data") as view:
                extent = extent_of(namespace, offset=offset, length=len(view), slba=slba, nlb=None)
                await self._move(namespace, extent, view, entry, repeat=True)
        except NvmeError as error:
            if error.sct << 8 | error.sc == COMPARE_FAILURE:
                return False
            raise
        return True

    async def _move(
        self,
        namespace: Namespace,
        extent: Extent,
        view: memoryview,
        entry: Callable[[int, int], bytes],
        *,
        repeat: bool,
        is_read: bool = False,
    ) -> None:
        """Move `view`: a `Mover` when the first arguments are given."""
        if len(view) <= self._link.max_transfer_bytes:
            whole = entry(extent.slba, extent.nlb)
            try:
                await self._transfer(whole, view[:], repeat=repeat, is_read=is_read)
            except Uncut:
                pass
            else:
                return
        memory = Memory(view, writable=is_read)
        starts, counts = np.array([extent.slba]), np.array([extent.nlb])
        places = np.array([memory.address], np.uint64)
        how = {"repeat": repeat, "is_read": is_read}
        await self._carry_out(namespace, starts, counts, places, [memory], entry, **how)

    async def _move_many(
        self,
        namespace: Namespace,
        starts: Blocks,
        counts: Blocks,
        buffers: Any,
        entry: Callable[[int, int], bytes],
        *,
        repeat: bool,
        is_read: bool = False,
    ) -> None:
        """Move many extents: a `Mover` when the first arguments are given."""
        name = "into" if is_read else "data"
        block = namespace.block_bytes
        memories, places = borrow(buffers, counts, block, writable=is_read, name=name)
        how = {"repeat": repeat, "is_read": is_read}
        await self._carry_out(namespace, starts, counts, places, memories, entry, **how)

    async def _carry_out(
        self,
        namespace: Namespace,
        starts: Blocks,
        counts: Blocks,
        places: NDArray[np.uint64],
        memories: list[Memory],
        entry: Callable[[int, int], bytes],
        *,
        repeat: bool,
        is_read: bool,
    ) -> None:
        """Carry out as many commands as it takes in one batch, and release the memory."""
        block = namespace.block_bytes
        first = entry(0, 1)
        try:
            pieces = pieces_of(starts, counts, places, block, self._link.max_transfer_bytes)
            batch = Batch(first, pieces, memories, block, is_read=is_read, is_repeatable=repeat)
        except BaseException:
            for memory in memories:
                memory.release()
            raise
        failed = await self._link.carry_out(batch)
        if failed is not None:
            self._require(failed, first)
            raise _short(failed, batch.failed_bytes, first)

    async def _transfer(
        self, entry: bytes, view: memoryview, *, repeat: bool, is_read: bool
    ) -> None:
        """Carry out a command that moves exactly the bytes of `view`, and release it."""
        # The view ends here, or whoever keeps our exception would keep the caller's buffer.
        with view:
            answer = await self._link.execute(
                entry, view, is_read=is_read, repeat=repeat, may_cut=True
            )
            self._require(answer, entry)
            if answer.transferred != len(view):
                raise _short(answer, len(view), entry)

    def _require(self, answer: Completion, entry: bytes) -> None:
        if not answer.ok:
            raise NvmeError(answer.status, io_name(entry), answer.dw0)

    # ---- commands without data of their own ----

    async def flush(self, nsid: int) -> None:
        """Wait until all writes that have ended are on the medium."""
        entry = nvme.entry(nvme.Io.FLUSH, integer(nsid, "nsid", 1, nvme.ALL_NAMESPACES))
        self._require(await self._link.execute(entry), entry)

    async def write_zeroes(
        self,
        nsid: int,
        offset: int | None = None,
        length: int | None = None,
        *,
        slba: int | None = None,
        nlb: int | None = None,
        deallocate: bool = False,
    ) -> None:
        """Make blocks read as zeros without sending any; `deallocate`: they may lose their room."""
        namespace = await self.namespace(nsid)
        extent = extent_of(namespace, offset=offset, length=length, slba=slba, nlb=nlb)
        control = nvme.DEALLOCATE if flag(deallocate, "deallocate") else 0
        zeroes = partial(nvme.block_entry, nvme.Io.WRITE_ZEROES, namespace.nsid, control=control)
        for one in pieces(extent):
            entry = zeroes(one.slba, one.nlb)
            self._require(await self._link.execute(entry), entry)

    async def deallocate(self, nsid: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Tell that nobody needs the contents of `ranges`, pairs of SLBA and NLB, any more."""
        await self.dataset(nsid, ranges, deallocate=True)

    async def dataset(
        self,
        nsid: int,
        ranges: Iterable[tuple[int, int]],
        *,
        integral_read: bool = False,
        integral_write: bool = False,
        deallocate: bool = False,
        attributes: int = 0,
    ) -> None:
        """Dataset Management (NVM 1.0, 3.2.3) of `ranges`, pairs of SLBA and NLB.

        `attributes` are the context attributes of every range. More than 256 ranges go as several
        commands, each of which is a set of its own.
        """
        nsid = integer(nsid, "nsid", 1, nvme.ALL_NAMESPACES)
        every = _ranges_data(ranges, integer(attributes, "attributes", 0, 0xFFFFFFFF))
        cdw11 = (
            (nvme.INTEGRAL_READ if flag(integral_read, "integral_read") else 0)
            | (nvme.INTEGRAL_WRITE if flag(integral_write, "integral_write") else 0)
            | (nvme.RANGES_DEALLOCATE if flag(deallocate, "deallocate") else 0)
        )
        most_bytes = nvme.MAX_RANGES * nvme.RANGE_BYTES
        for start in range(0, len(every), most_bytes):
            some = every[start : start + most_bytes]
            count = len(some) // nvme.RANGE_BYTES
            entry = nvme.entry(nvme.Io.DATASET_MANAGEMENT, nsid, cdw10=count - 1, cdw11=cdw11)
            self._require(await self._link.execute(entry, some), entry)


def _ranges_data(ranges: Iterable[tuple[int, int]], attributes: int) -> bytes:
    """Return the data of Dataset Management, all of it checked before any is sent."""
    try:
        return nvme.dataset_ranges(ranges, attributes)
    except (struct.error, TypeError, ValueError) as error:
        raise InvalidRequest(f"{error}", "ranges", "pairs of SLBA and NLB") from None


def _short(answer: Completion, wanted_bytes: int, entry: bytes) -> ProtocolError:
    text = f"success, and {answer.transferred} of {wanted_bytes} bytes"
    return ProtocolError(text, io_name(entry))


def io_name(entry: bytes) -> str:
    """Return the name of an I/O command, for messages."""
    try:
        name = nvme.Io(entry[0]).name.replace("_", " ").title()
    except ValueError:
        name = f"I/O command {entry[0]:02X}h"
    return f"{name} on namespace {int.from_bytes(entry[4:8], 'little')}"


def connect(url: str, *, nqn: str | None = None, **options: Any) -> Controller:
    """Return a controller that `async with` connects: `connect("nvme+tcp://HOST:PORT/NQN")`.

    Or `connect("HOST:PORT", nqn=NQN)`. The other keyword arguments are those of
    `prestage.host_client.options.Options`. Raises `InvalidRequest` for a wrong URL, NQN or option.
    """
    return Controller(parse_target(url, nqn=nqn), Options(**options))
