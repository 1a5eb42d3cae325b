"""Where a read or write lies, in blocks; and its memory, as bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from prestage.host_client.arguments import integer
from prestage.host_client.errors import InvalidRequest
from prestage.host_client.nvme import MAX_BLOCKS, Namespace

PLAIN = (bytes, bytearray)
TENSOR = "a contiguous tensor of the CPU"


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
    slba = _in_blocks(namespace.block_bytes, ("offset", "slba"), offset, slba)
    nlb = _in_blocks(namespace.block_bytes, ("length", "nlb"), length, nlb)
    if nlb < 1 or slba < 0 or slba + nlb > namespace.blocks:
        where = f"namespace {namespace.nsid}"
        expected = f"at least one of its blocks, 0 to {namespace.blocks - 1}"
        raise InvalidRequest(f"found {nlb} blocks from {slba} on", where, expected)
    return Extent(slba, nlb)


def _in_blocks(block_bytes: int, names: tuple[str, str], in_bytes: Any, in_blocks: Any) -> int:
    """Return in blocks what is said in bytes or in blocks, but not in both."""
    if (in_bytes is None) == (in_blocks is None):
        found = "found none" if in_bytes is None else "found both"
        raise InvalidRequest(found, " and ".join(names), "one of them")
    if in_bytes is None:
        return integer(in_blocks, names[1])
    size = integer(in_bytes, names[0])
    if size % block_bytes:
        raise InvalidRequest(f"found {size}", names[0], f"a multiple of {block_bytes} bytes")
    return size // block_bytes


def pieces(extent: Extent) -> Iterator[Extent]:
    """Yield what one command each covers of an extent, as far as the number of blocks limits it."""
    for start in range(0, extent.nlb, MAX_BLOCKS):
        yield Extent(extent.slba + start, min(MAX_BLOCKS, extent.nlb - start))


def as_buffer(data: Any) -> Any:
    """Return what has the buffer protocol: the data itself, or the memory of a torch tensor.

    Raises `InvalidRequest` for a tensor that is not contiguous, or not in memory of the CPU, and
    for an array of Python objects, whose bytes are pointers.
    """
    if isinstance(data, PLAIN):
        return data
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(data, torch.Tensor):
        return _tensor_bytes(data, torch)
    is_array = isinstance(data, np.ndarray) and data.dtype.hasobject
    if is_array or (isinstance(data, memoryview) and "O" in data.format):
        raise InvalidRequest(f"found a {type(data).__name__} of objects", "array", "numbers")
    return data


def _tensor_bytes(data: Any, torch: Any) -> Any:
    try:
        is_contiguous = data.is_contiguous()
        if data.device.type == "cpu" and is_contiguous:
            # As bytes: numpy has no bfloat16.
            return data.detach().reshape(-1).view(torch.uint8).numpy()
    except RuntimeError as error:  # It is sparse, say, or conjugated on demand.
        raise InvalidRequest(f"found {error}", "tensor", TENSOR) from None
    how = "contiguous" if is_contiguous else "strided"
    raise InvalidRequest(f"found a {how} tensor of {data.device}", "tensor", TENSOR)


def as_bytes(data: Any, name: str, *, writable: bool = False) -> memoryview:
    """Return any contiguous buffer as bytes, without a copy. Raises `InvalidRequest`."""
    place = as_buffer(data)
    if isinstance(place, np.ndarray) and place.flags.c_contiguous:
        # Some kinds of numbers (dates, those of other packages) numpy lends as bytes only.
        place = place.reshape(-1).view(np.uint8)
    try:
        view = memoryview(place)
        flat = view.cast("B") if view.nbytes else memoryview(b"")
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidRequest(f"found {type(data).__name__}: {error}", name, "a buffer") from None
    if writable and view.readonly:
        raise InvalidRequest(f"found a read-only {type(data).__name__}", name, "a writable buffer")
    return flat
