"""Many extents in one request: where they lie, and what of them one command each carries.

Everything here works on whole arrays: a request of ten thousand extents is as many rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prestage.host_client.engine import PIECE_DONE, Memory
from prestage.host_client.errors import InvalidRequest
from prestage.host_client.nvme import MAX_BLOCKS, Namespace
from prestage.host_client.split import as_buffer

PIECE = np.dtype([("slba", "<u8"), ("address", "<u8"), ("nlb", "<u4"), ("state", "<u4")])
"""`struct ps_host_piece` of csrc/host.h."""
Blocks = NDArray[np.int64]


def extents_of(namespace: Namespace, slba: Any, nlb: Any) -> tuple[Blocks, Blocks]:
    """Return SLBA and NLB of many extents as arrays of one length. Raises `InvalidRequest`.

    `nlb` may be one number for all of them.
    """
    starts, counts = _integers(slba, "slba"), _integers(nlb, "nlb")
    if starts.ndim != 1 or counts.shape not in ((), starts.shape):
        found = f"found shapes {starts.shape} and {counts.shape}"
        raise InvalidRequest(found, "slba and nlb", "an array, and a number or an array as long")
    counts = np.broadcast_to(counts, starts.shape)
    # Subtracting cannot overflow where adding can.
    wrong = (counts < 1) | (starts < 0) | (counts > namespace.blocks - starts.clip(0))
    if wrong.any():
        at = int(wrong.argmax())
        expected = f"1 block or more, all within its blocks 0 to {namespace.blocks - 1}"
        found = f"found {counts[at]} blocks from {starts[at]} on, extent {at}"
        raise InvalidRequest(found, f"namespace {namespace.nsid}", expected)
    return starts, counts


def _integers(value: Any, name: str) -> Blocks:
    try:
        found = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidRequest(f"found {type(value).__name__}: {error}", name, "integers") from None
    if found.size == 0:
        return found.astype(np.int64)
    if found.dtype.kind not in "iu":
        raise InvalidRequest(f"found {found.dtype}", name, "integers")
    if found.dtype.kind == "u" and found.max() > np.iinfo(np.int64).max:
        raise InvalidRequest(f"found {found.max()}", name, "less than 2**63")
    # A copy: what was checked must not change while the request waits.
    return found.astype(np.int64)


def borrow(
    buffers: Any, nlb: Blocks, block_bytes: int, *, writable: bool, name: str
) -> tuple[list[Memory], NDArray[np.uint64]]:
    """Borrow the memory of extents; return it, and the address of each extent's.

    `buffers` is one contiguous buffer that holds them one after the other, or a list or tuple with
    a buffer for each. Raises `InvalidRequest`, and has borrowed nothing then.
    """
    sizes = nlb * block_bytes
    is_each = isinstance(buffers, list | tuple)
    places = [as_buffer(one) for one in buffers] if is_each else [as_buffer(buffers)]
    wanted = sizes.tolist() if is_each else [int(sizes.sum())]
    if len(places) != len(wanted):
        raise InvalidRequest(f"found {len(places)} buffers", name, f"{len(wanted)}")
    memories: list[Memory] = []
    try:
        for place, size in zip(places, wanted, strict=True):
            memories.append(Memory(place, writable=writable, name=name))
            if memories[-1].length != size:
                raise InvalidRequest(f"found {memories[-1].length} bytes", name, f"{size} bytes")
    except InvalidRequest:
        for memory in memories:
            memory.release()
        raise
    addresses = np.array([memory.address for memory in memories], np.uint64)
    if not is_each:
        addresses = addresses + (np.cumsum(sizes) - sizes).astype(np.uint64)
    return memories, addresses


def cut_anew(pieces: Any, block_bytes: int, most_bytes: int) -> NDArray[np.void] | None:
    """Return what is not done of pieces, cut for a controller that takes `most_bytes` at a time.

    None where each of them is small enough as it is.
    """
    left = pieces[pieces["state"] != PIECE_DONE]
    if not (left["nlb"] > blocks_of(block_bytes, most_bytes)).any():
        return None
    slba, nlb = left["slba"].astype(np.int64), left["nlb"].astype(np.int64)
    return pieces_of(slba, nlb, left["address"], block_bytes, most_bytes)


def blocks_of(block_bytes: int, most_bytes: int) -> int:
    """Return how many blocks one command carries at most."""
    return min(max(1, most_bytes // block_bytes), MAX_BLOCKS)


def pieces_of(
    slba: Blocks, nlb: Blocks, addresses: NDArray[np.uint64], block_bytes: int, most_bytes: int
) -> NDArray[np.void]:
    """Return what one command each carries of extents, in their order."""
    most = blocks_of(block_bytes, most_bytes)
    counts = -(-nlb // most)
    extent = np.repeat(np.arange(len(slba)), counts)
    # Blocks of its extent that are before each piece.
    before = (np.arange(len(extent)) - np.repeat(np.cumsum(counts) - counts, counts)) * most
    pieces = np.zeros(len(extent), PIECE)
    pieces["slba"] = slba[extent] + before
    pieces["nlb"] = np.minimum(most, nlb[extent] - before)
    pieces["address"] = addresses[extent] + (before * block_bytes).astype(np.uint64)
    return pieces
