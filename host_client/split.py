"""Requests in pieces: where a read or write lies, in blocks, and what of it one command carries."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from prestage.host_client.errors import InvalidRequest
from prestage.host_client.nvme import MAX_BLOCKS, Namespace


@dataclass(frozen=True, slots=True)
class Extent:
    """`nlb` blocks from `slba` on."""

    slba: int
    nlb: int


def extent_of(
    namespace: Namespace,
    *,
    offset: int | None,
    length: int | None,
    slba: int | None,
    nlb: int | None,
) -> Extent:
    """Return the blocks that were asked for, by bytes or by blocks. Raises `InvalidRequest`."""
    if (offset is None) == (slba is None):
        raise InvalidRequest("found both or none", "offset and slba", "one of them")
    block = namespace.block_bytes
    if slba is None:
        assert offset is not None
        if length is None:
            length = 0 if nlb is None else nlb * block
        for name, value in (("offset", offset), ("length", length)):
            if value % block:
                raise InvalidRequest(f"found {value}", name, f"a multiple of {block} bytes")
        slba, nlb = offset // block, length // block
    elif nlb is None:
        if length is None or length % block:
            raise InvalidRequest(f"found {length}", "length", f"a multiple of {block} bytes")
        nlb = length // block
    if nlb < 1 or slba < 0 or slba + nlb > namespace.blocks:
        where = f"namespace {namespace.nsid}"
        expected = f"at least one of its blocks, 0 to {namespace.blocks - 1}"
        raise InvalidRequest(f"found {nlb} blocks from {slba} on", where, expected)
    return Extent(slba, nlb)


def pieces(extent: Extent, block_bytes: int, most_bytes: int) -> Iterator[tuple[Extent, slice]]:
    """Yield what one command each carries, with its place in the data."""
    most = min(max(1, most_bytes // block_bytes), MAX_BLOCKS)
    for start in range(0, extent.nlb, most):
        nlb = min(most, extent.nlb - start)
        place = slice(start * block_bytes, (start + nlb) * block_bytes)
        yield Extent(extent.slba + start, nlb), place


def as_bytes(data: Any, name: str, *, writable: bool = False) -> memoryview:
    """Return any contiguous buffer as bytes, without a copy. Raises `InvalidRequest`."""
    try:
        view = memoryview(data)
        flat = view.cast("B") if view.nbytes else memoryview(b"")
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"found {type(data).__name__}: {error}", name, "a buffer") from None
    if writable and view.readonly:
        raise InvalidRequest(f"found a read-only {type(data).__name__}", name, "a writable buffer")
    return flat


async def all_of(requests: list[Coroutine[Any, Any, None]]) -> None:
    """Carry out several requests at a time; the first failure ends the others and is raised."""
    tasks = [asyncio.ensure_future(one) for one in requests]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
