"""Write a small seed corpus for fuzz_engine: each mode with each digest setting, seeded scripts."""

from __future__ import annotations

import random
import sys
from pathlib import Path


def main() -> None:
    """Write the corpus into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for mode in range(4):
        for digests in range(4):
            for size in (64, 512, 3000):
                script = random.Random(mode << 16 | digests << 12 | size).randbytes(size)
                name = f"mode{mode}-digests{digests}-{size}"
                (folder / name).write_bytes(bytes([mode, digests]) + script)


if __name__ == "__main__":
    main()
