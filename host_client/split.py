"""Where a read or write lies, in blocks; and its memory, as bytes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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


def pieces(extent: Extent) -> Iterator[Extent]:
    """Yield what one command each covers of an extent, as far as the number of blocks limits it."""
    for start in range(0, extent.nlb, MAX_BLOCKS):
        yield Extent(extent.slba + start, min(MAX_BLOCKS, extent.nlb - start))


def as_buffer(data: Any) -> Any:
    """Return what has the buffer protocol: the data itself, or the memory of a torch tensor.

    Raises `InvalidRequest` for a tensor that is not contiguous, or not in memory of the CPU.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(data, torch.Tensor):
        return data
    if data.device.type != "cpu" or not data.is_contiguous():
        how = "contiguous" if data.is_contiguous() else "strided"
        wanted = "a contiguous tensor of the CPU"
        raise InvalidRequest(f"found a {how} tensor of {data.device}", "tensor", wanted)
    # As bytes: numpy has no bfloat16.
    return data.detach().reshape(-1).view(torch.uint8).numpy()


def as_bytes(data: Any, name: str, *, writable: bool = False) -> memoryview:
    """Return any contiguous buffer as bytes, without a copy. Raises `InvalidRequest`."""
    try:
        view = memoryview(as_buffer(data))
        flat = view.cast("B") if view.nbytes else memoryview(b"")
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"found {type(data).__name__}: {error}", name, "a buffer") from None
    if writable and view.readonly:
        raise InvalidRequest(f"found a read-only {type(data).__name__}", name, "a writable buffer")
    return flat
