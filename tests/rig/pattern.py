"""What stands in namespace 1 before its first start: every block repeats its own number.

So a block that comes from the medium is known wherever it is read, and none of them is warm.
"""

from __future__ import annotations

BLOCK_BYTES = 4096
FIRST = 2048
COUNT = 10240
"""Blocks 2048 to 12287: what the recipes of docs/hosts.md use, and no step reads before them."""


def blocks(first: int, count: int) -> bytes:
    """Return the bytes of some blocks."""
    return b"".join(
        n.to_bytes(8, "little") * (BLOCK_BYTES // 8) for n in range(first, first + count)
    )
