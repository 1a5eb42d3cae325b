"""Many signatures, or the many ranges of a set, at once with numpy: no value object each.

The batches are those that `prestage.ext.codec` would make of the same values, whole pages of them.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from . import layout
from .codec import CRC_OFFSET, HEADER_BYTES, decode_batch, seal
from .crc import crc32c_pages
from .dtypes import DTYPES
from .errors import BadRecord
from .names import Magic, RecordType, SetFlag, SetOp
from .packing import packer
from .rules import TARGET_SET

Integers = np.ndarray[Any, np.dtype[np.integer[Any]]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
SIGNATURES_A_PAGE: Final = (layout.PAGE_BYTES - HEADER_BYTES) // layout.SIGNATURE.size
RANGES_A_PAGE: Final = (layout.PAGE_BYTES - HEADER_BYTES - layout.SET.size) // layout.RANGE.size
"""Of one set."""
_SEQUENCES: Final = 1 << 32


def _checked_blocks(slba: Integers, nlb: Integers) -> None:
    if slba.shape != nlb.shape or slba.ndim != 1:
        raise BadRecord("slba and nlb are two arrays of one length")
    if nlb.size and (int(nlb.min()) < 1 or int(nlb.max()) > 0xFFFFFFFF):
        raise BadRecord("every nlb is 1 to FFFFFFFFh")
    if slba.size and int(slba.min()) < 0:
        raise BadRecord("no slba is negative")


def encode_signatures(
    slba: Integers,
    nlb: Integers,
    vectors: Bytes,
    *,
    nsid: int,
    writer: int,
    sequence: int,
    family: int = 0,
    ttl_ms: int = 0,
) -> list[bytes]:
    """Return batches of signatures, as many a batch as a page takes.

    `slba` and `nlb` are [count], in logical blocks of namespace `nsid`; `vectors` is [count, 8] or
    [count, 16] bytes. Sequence numbers go up from `sequence`. Raises BadRecord.
    """
    _checked_blocks(slba, nlb)
    if vectors.shape not in {(slba.size, 8), (slba.size, 16)} or vectors.dtype != np.uint8:
        raise BadRecord("vectors are [count, 8] or [count, 16] bytes")
    rows = np.zeros(slba.size, dtype=DTYPES["signature"])
    rows["type"] = RecordType.SIGNATURE
    rows["size"] = layout.SIGNATURE.size
    rows["slba"], rows["nlb"] = slba, nlb
    rows["bits"] = vectors.shape[1] * 8
    try:
        rows["nsid"], rows["family"], rows["ttl_ms"] = nsid, family, ttl_ms
    except OverflowError as error:
        raise BadRecord(str(error)) from error
    rows["vector"][:, : vectors.shape[1]] = vectors
    whole = slba.size // SIGNATURES_A_PAGE * SIGNATURES_A_PAGE
    body = rows[:whole].view(np.uint8).reshape(-1, SIGNATURES_A_PAGE * layout.SIGNATURE.size)
    pages = _sealed(body, SIGNATURES_A_PAGE, writer, sequence)
    if whole < slba.size:
        rest = rows[whole:]
        head = _head(HEADER_BYTES + rest.nbytes, rest.size, writer, sequence + len(pages))
        pages.append(seal(head + rest.tobytes()))
    return pages


def _head(size: int, record_count: int, writer: int, sequence: int) -> bytes:
    return packer("batch").pack(
        {
            "magic": Magic.BATCH,
            "major": layout.MAJOR,
            "minor": layout.MINOR,
            "header_size": HEADER_BYTES,
            "size": size,
            "writer": writer,
            "sequence": sequence % _SEQUENCES,
            "record_count": record_count,
        }
    )


def _sealed(bodies: Bytes, record_count: int, writer: int, sequence: int) -> list[bytes]:
    """Return a batch for each row of bytes."""
    size = HEADER_BYTES + bodies.shape[1]
    pages = np.zeros((len(bodies), size), dtype=np.uint8)
    head = _head(size, record_count, writer, 0)
    pages[:, :HEADER_BYTES] = np.frombuffer(head, dtype=np.uint8)
    heads = pages[:, :HEADER_BYTES].view(DTYPES["batch"])[:, 0]
    heads["sequence"] = (np.arange(len(bodies)) + sequence) % _SEQUENCES
    pages[:, HEADER_BYTES:] = bodies
    pages[:, CRC_OFFSET : CRC_OFFSET + 4] = (
        crc32c_pages(pages).astype("<u4")[:, None].view(np.uint8)
    )
    return [page.tobytes() for page in pages]


def encode_set(
    set_id: int,
    slba: Integers,
    nlb: Integers,
    *,
    nsid: int,
    writer: int,
    sequence: int,
    flags: SetFlag = SetFlag.NONE,
    ttl_ms: int = 0,
) -> list[bytes]:
    """Return batches that define a set of many ranges: one definition, then extensions.

    `slba` and `nlb` are [count], in logical blocks of namespace `nsid`. Raises BadRecord.
    """
    _checked_blocks(slba, nlb)
    if not slba.size or not 0 < set_id < TARGET_SET:
        raise BadRecord("a set has ranges, and an id from 1 to 7FFFFFFFFFFFFFFFh")
    rows = np.zeros(slba.size, dtype=DTYPES["range"])
    rows["slba"], rows["nlb"] = slba, nlb
    pages: list[bytes] = []
    for start in range(0, slba.size, RANGES_A_PAGE):
        part = rows[start : start + RANGES_A_PAGE]
        record = packer("set").pack(
            {
                "type": RecordType.SET,
                "size": layout.SET.size + part.nbytes,
                "set_id": set_id,
                "op": SetOp.EXTEND if start else SetOp.DEFINE,
                "flags": flags,
                "range_count": part.size,
                "nsid": nsid,
                "ttl_ms": ttl_ms,
            }
        )
        size = HEADER_BYTES + len(record) + part.nbytes
        head = _head(size, 1, writer, sequence + len(pages))
        pages.append(seal(head + record + part.tobytes()))
    return pages


def decode_signatures(data: bytes) -> np.ndarray[Any, np.dtype[np.void]]:
    """Return the signatures of a batch of nothing else, as an array of dtype `signature`.

    Raises Malformed as `decode_batch`, BadRecord when there are records of another kind.
    """
    decode_batch(data)
    head = packer("batch").unpack(data)
    body = data[head["header_size"] : head["size"]]
    if len(body) != head["record_count"] * layout.SIGNATURE.size:
        raise BadRecord("not only signatures")
    rows = np.frombuffer(body, dtype=DTYPES["signature"])
    if (rows["type"] != RecordType.SIGNATURE).any():
        raise BadRecord("not only signatures")
    return rows
