"""What a target sees of a workload: hosts have memory of their own in front of it."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from prestage.replay.workload import Workload


def behind_host_cache(workload: Workload, share: float) -> Workload:
    """Return what is left behind one host cache (LRU) of a `share` of the distinct blocks.

    Reads that hit it are not seen; writes go through and enter it, as read misses do. A share of 0
    is no cache.
    """
    assert 0 <= share <= 1
    capacity = int(share * workload.block_count)
    if capacity == 0:
        return workload
    cache: OrderedDict[int, None] = OrderedDict()
    use = cache.move_to_end
    evict = cache.popitem
    is_hit = bytearray(len(workload))
    for position, block in enumerate(workload.block.tolist()):
        if block in cache:
            use(block)
            is_hit[position] = 1
        else:
            cache[block] = None
            if len(cache) > capacity:
                evict(last=False)
    is_seen = (np.frombuffer(is_hit, np.uint8) == 0) | workload.is_write
    return workload.select(is_seen, f"{workload.name} behind {share:.0%} of host cache")
