"""A prestager that has gone mad: it writes nonsense into all memory that it has, until it is ended.

Started as the prestager's process is. Its orders are of all kinds, with numbers near every limit.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import select
import struct
import sys
import time

from prestager_support import ITEM, START

LIMITS = (0, 1, 4095, 4096, 65536, 1 << 20, 1 << 28, (1 << 28) + 1, 1 << 62, (1 << 64) - 1)


def nonsense(rng: random.Random) -> bytes:
    def number() -> int:
        return rng.choice((*LIMITS, rng.getrandbits(64), rng.randrange(256) * 65536))

    value = rng.choice((0.0, 1.0, -1.0, float("nan"), float("inf"), rng.random()))
    return struct.pack(
        "<QQQQQfIHHBB10x", number(), number(), number(), number(), number(), value,
        rng.getrandbits(32), rng.choice((0, 0, 1, 65535)), rng.choice((0, 1, 4096, 65535)),
        rng.randrange(8), rng.randrange(256),
    )  # fmt: skip


def main() -> None:
    launch = json.loads(sys.argv[1])
    rng = random.Random(launch["seed"])
    orders = mmap.mmap(launch["orders"], 0)
    ring = mmap.mmap(launch["ring"], 0)
    (capacity,) = struct.unpack_from("<Q", orders, 24)
    values = START + capacity * ITEM
    poll = select.poll()
    poll.register(launch["channel"], select.POLLIN)
    alive = json.dumps({"counters": {}, "troubles": {}, "report": {}}).encode() + b"\n"
    next_s = 0.0
    while True:
        if time.monotonic() >= next_s:
            os.write(launch["channel"], alive)
            next_s = time.monotonic() + 0.5
        if any(not os.read(launch["channel"], 65536) for _ in poll.poll(0)):
            return
        (head,) = struct.unpack_from("<Q", orders, 64)
        for number in range(head, head + 50):
            at = START + number % capacity * ITEM
            orders[at : at + ITEM] = nonsense(rng)
        at = values + rng.randrange(2 * 16384 - 64)
        orders[at : at + 64] = rng.randbytes(64)
        struct.pack_into("<Q", orders, 64, head + 50)
        if rng.random() < 0.02:
            place = rng.choice((64, 128, 136))
            struct.pack_into("<Q", orders, place, rng.getrandbits(64))
            struct.pack_into("<Q", orders, 64, struct.unpack_from("<Q", orders, 128)[0])
        struct.pack_into("<QQ", ring, 128, rng.getrandbits(64), rng.getrandbits(2))
        os.eventfd_write(launch["orders_wake"], 1)
        time.sleep(0.001)


if __name__ == "__main__":
    main()
