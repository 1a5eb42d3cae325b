"""A million sets of four ranges, or a million signatures, fit in 256 MiB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hints_media import NEVER
from hints_support import Rig

from prestage._core import ffi, lib
from prestage.ext.bulk import encode_signatures
from prestage.ext.crc import crc32c_pages
from prestage.ext.dtypes import DTYPES
from prestage.ext.layout import MAJOR
from prestage.ext.names import Magic, RecordType, SetFlag, SetOp

COUNT = 1_000_000
MOST_BYTES = 256 << 20
RANGES = 4
SETS_A_PAGE = 40
CHUNK_PAGES = 500
BLOCKS = 1 << 31


def large_rig() -> Rig:
    """Return hints that take a million of everything, and a volume of a tebibyte."""
    rig = Rig(
        config={
            "sets": COUNT,
            "set_ranges": COUNT * RANGES,
            "signatures": COUNT,
            "max_ttl_ms": 3_600_000,
        },
        budget={
            "sets": COUNT,
            "set_ranges": COUNT * RANGES,
            "signatures": COUNT,
            "records_per_s": NEVER,
        },
    )
    rig.add_volume(2, BLOCKS * 512)
    rig.namespaces[0, 3] = 2
    return rig


def submit(rig: Rig, batches: Iterator[bytes]) -> int:
    """Submit batches without a check after each; return how many records were taken."""
    result = ffi.new("struct ps_hints_result *")
    scope = rig.scope()
    taken = 0
    for batch in batches:
        lib.ps_hints_submit(rig.hints, rig.now_ns, scope, 64, batch, len(batch), result)
        assert (result.fault, result.dropped) == (0, 0)
        taken += result.accepted
    return taken


def pages_of_sets(chosen: np.random.Generator) -> Iterator[bytes]:
    """Yield batches of ordered sets of four ranges of 64 KiB, anywhere."""
    record = np.dtype([("head", DTYPES["set"]), ("ranges", DTYPES["range"], (RANGES,))])
    page = np.dtype([("head", DTYPES["batch"]), ("sets", record, (SETS_A_PAGE,))])
    for first in range(0, COUNT, CHUNK_PAGES * SETS_A_PAGE):
        rows: Any = np.zeros(CHUNK_PAGES, page)
        head, sets = rows["head"], rows["sets"]["head"]
        head["magic"], head["major"], head["header_size"] = Magic.BATCH, MAJOR, 32
        head["size"], head["record_count"] = page.itemsize, SETS_A_PAGE
        sets["type"], sets["size"] = RecordType.SET, record.itemsize
        sets["op"], sets["flags"], sets["nsid"] = SetOp.DEFINE, SetFlag.ORDERED, 3
        sets["range_count"] = RANGES
        sets["set_id"] = np.arange(first + 1, first + 1 + sets.size).reshape(sets.shape)
        ranges = rows["sets"]["ranges"]
        ranges["nlb"] = 128
        ranges["slba"] = chosen.integers(0, BLOCKS // 128, ranges.shape) * 128
        head["crc32c"] = crc32c_pages(rows.view(np.uint8).reshape(CHUNK_PAGES, -1))
        yield from (row.tobytes() for row in rows)


def test_a_million_sets_of_four_ranges() -> None:
    rig = large_rig()
    assert submit(rig, pages_of_sets(np.random.default_rng(1))) == COUNT
    stats = rig.stats()
    print(f"{stats.memory_bytes} bytes for {stats.sets} sets")
    assert (stats.sets, stats.set_ranges) == (COUNT, COUNT * RANGES)
    assert stats.memory_bytes <= MOST_BYTES
    rig.check()


def test_a_million_signatures() -> None:
    rig = large_rig()
    slba = np.arange(COUNT, dtype=np.uint64) * 128
    nlb = np.full(COUNT, 128, dtype=np.uint64)
    vectors = np.random.default_rng(1).integers(0, 256, (COUNT, 16), np.uint8)
    batches = encode_signatures(slba, nlb, vectors, nsid=3, writer=1, sequence=0)
    assert submit(rig, iter(batches)) == COUNT
    stats = rig.stats()
    print(f"{stats.memory_bytes} bytes for {stats.signatures} signatures")
    assert stats.signatures == COUNT
    assert stats.memory_bytes <= MOST_BYTES
    rig.check()
