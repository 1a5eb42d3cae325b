"""A model of the time to the first token, so that a hit ratio can be read as what a user waits.

A request of n tokens, p of which are restored, prefills the rest while the KV cache of the p tokens
is loaded layer by layer. Computing takes flops(n) = l (a n^2 d + b n d^2) for the whole prompt (Qin
et al.: Mooncake, FAST 2025, equation 1 and table 1, where the constants of the default model are
from too); loading takes the simulated time to data, and the bytes over the network. Layers overlap:
the first must be loaded before anything is computed, then the slower of the two sets the pace.
Where prefilling everything is faster, that is what a host does. There is no queueing for the GPUs.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.replay.result import spread
from prestage.replay.workload import Workload

BLOCK_TOKENS: Final = 512


@dataclass(frozen=True, slots=True)
class Model:
    """A model, and what it runs on."""

    name: str = "LLaMA3-70B on 8 x A800"
    layers: int = 80
    dimension: int = 8192
    attention: float = 4.0
    """a of the equation."""
    linear: float = 22.0
    """b of the equation."""
    gqa: int = 8
    """Query heads for each key and value head."""
    element_bytes: int = 2
    flops_per_s: float = 8 * 312e12
    network_bytes_per_s: float = 100e9
    block_tokens: int = BLOCK_TOKENS

    @property
    def kv_bytes_per_token(self) -> float:
        """Keys and values of all layers."""
        return 2 * self.layers * self.dimension * self.element_bytes / self.gqa

    def compute_s(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how long it takes to prefill as many tokens from nothing."""
        size = self.dimension
        flops = self.layers * (self.attention * tokens**2 * size + self.linear * tokens * size**2)
        seconds: NDArray[np.float64] = flops / self.flops_per_s
        return seconds

    def break_even_tokens(self, bytes_per_s: float) -> float:
        """Return the context length above which restoring at this bandwidth beats prefilling.

        Infinite for no bandwidth; 0 when restoring always pays.
        """
        if bytes_per_s <= 0:
            return math.inf
        flops_per_token = self.kv_bytes_per_token * self.flops_per_s / bytes_per_s / self.layers
        attention = flops_per_token / self.dimension - self.linear * self.dimension
        return max(0.0, attention / self.attention)


@dataclass(frozen=True, slots=True)
class FirstToken:
    """What the model says of a run."""

    ttft_s: dict[str, float]
    """Mean and percentiles over requests with reads."""
    recomputed: float
    """The share of them that prefill everything, for it is faster."""


def first_token(workload: Workload, wait_s: NDArray[np.float64], model: Model) -> FirstToken:
    """Return the modelled TTFT of a run whose time to data was `wait_s` [requests]."""
    is_read = ~workload.is_write
    reads = np.bincount(workload.request[is_read], minlength=workload.requests)
    total = np.bincount(workload.request, minlength=workload.requests)
    asked = (reads > 0) & ~np.isnan(wait_s)
    restored = (reads[asked] * model.block_tokens).astype(np.float64)
    whole = (total[asked] * model.block_tokens).astype(np.float64)
    load_s = wait_s[asked] + restored * model.kv_bytes_per_token / model.network_bytes_per_s
    compute_s = model.compute_s(whole) - model.compute_s(restored)
    overlap = np.maximum(load_s, compute_s) * (model.layers - 1) / model.layers
    restore_s = (load_s + compute_s) / model.layers + overlap
    prefill_s = model.compute_s(whole)
    chosen = np.minimum(restore_s, prefill_s)
    share = float(np.mean(prefill_s < restore_s)) if len(chosen) else math.nan
    return FirstToken(spread(chosen), share)


def regime(workload: Workload, model: Model, flash_bytes_per_s: float) -> dict[str, Any]:
    """Return what the numbers stand on. `flash_bytes_per_s` is in bytes of KV cache."""
    bandwidth = min(flash_bytes_per_s, model.network_bytes_per_s)
    requests = max(workload.requests, 1)
    return {
        **asdict(model),
        "kv_bytes_per_token": model.kv_bytes_per_token,
        "context_tokens_mean": len(workload) * model.block_tokens / requests,
        "reuse_share": workload.reads / max(len(workload), 1),
        "flash_bytes_per_s": flash_bytes_per_s,
        "break_even_tokens_from_flash": model.break_even_tokens(bandwidth),
        "break_even_tokens_from_dram": model.break_even_tokens(model.network_bytes_per_s),
    }
