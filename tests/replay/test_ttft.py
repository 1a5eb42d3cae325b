"""The model of the time to the first token."""

from __future__ import annotations

import math

import numpy as np
import pytest

from prestage.replay.ttft import Model, first_token, regime
from prestage.replay.workload import Requests, Workload, assemble

MODEL = Model()


def workload(*chains: list[int]) -> Workload:
    requests = Requests(
        np.arange(len(chains), dtype=np.float64),
        np.zeros(len(chains), np.int32),
        [np.array(chain, np.int64) for chain in chains],
    )
    return assemble(requests, name="few", seed=1)


def test_a_token_of_the_default_model_has_320_kib_of_keys_and_values() -> None:
    assert MODEL.kv_bytes_per_token == 320 << 10


def test_restoring_8192_tokens_pays_from_about_6_gb_a_second_as_published() -> None:
    assert MODEL.break_even_tokens(5.86e9) == pytest.approx(8192, rel=0.01)
    assert MODEL.break_even_tokens(19e9) == 0
    assert MODEL.break_even_tokens(0) == math.inf


def test_the_break_even_is_where_restoring_takes_as_long_as_computing() -> None:
    bandwidth = 5e9
    tokens = MODEL.break_even_tokens(bandwidth)
    restore_s = tokens * MODEL.kv_bytes_per_token / bandwidth
    assert MODEL.compute_s(np.array([tokens]))[0] == pytest.approx(restore_s)


def test_nothing_to_compute_takes_as_long_as_loading() -> None:
    few = workload([1, 2, 3], [1, 2, 3])
    found = first_token(few, np.array([np.nan, 0.0]), MODEL)
    load_s = 3 * 512 * MODEL.kv_bytes_per_token / MODEL.network_bytes_per_s
    assert found.ttft_s["p50"] == pytest.approx(load_s)
    assert found.recomputed == 0


def test_a_wait_beyond_prefilling_is_prefilled_instead() -> None:
    few = workload([1, 2, 3], [1, 2, 3])
    found = first_token(few, np.array([np.nan, 60.0]), MODEL)
    assert found.ttft_s["p50"] == pytest.approx(MODEL.compute_s(np.array([1536.0]))[0])
    assert found.recomputed == 1


def test_a_shorter_wait_never_means_a_later_token() -> None:
    few = workload([1, 2], [1, 2, 3, 4, 5], [3, 4, 9])
    waits = np.linspace(0, 2, 40)
    times = [first_token(few, np.array([np.nan, each, each]), MODEL).ttft_s for each in waits]
    means = [each["mean"] for each in times]
    assert means == sorted(means)


def test_without_reads_there_is_nothing_to_say() -> None:
    found = first_token(workload([1, 2]), np.array([np.nan]), MODEL)
    assert math.isnan(found.ttft_s["mean"])
    assert math.isnan(found.recomputed)


def test_the_regime_is_stated() -> None:
    stated = regime(workload([1, 2, 3], [1, 2]), MODEL, 5e9)
    assert stated["context_tokens_mean"] == 2.5 * 512
    assert stated["reuse_share"] == 0.4
    assert stated["flash_bytes_per_s"] == 5e9
    assert stated["break_even_tokens_from_flash"] > stated["break_even_tokens_from_dram"] == 0
