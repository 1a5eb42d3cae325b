from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from prestage.replay.bounds import belady, oracle
from prestage.replay.fluid import run_policy
from prestage.replay.generators import (
    GENERATORS,
    Affinity,
    Sessions,
    Uniform,
    affinity,
    generate,
    is_generator,
    phase_change,
    random_reads,
    scan,
    sessions,
    write_only,
)
from prestage.replay.policies import Lru
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid, InvalidFlag

SMALL = Uniform(requests=2000, blocks=1000)


def return_gaps(workload: Workload) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return each gap between requests of a session, and when it began."""
    order = np.lexsort((workload.request_time_s, workload.request_session))
    times, session = workload.request_time_s[order], workload.request_session[order]
    is_same = np.diff(session) == 0
    return np.diff(times)[is_same], times[:-1][is_same]


def ones(vectors: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return how many bits of each are set."""
    octets = np.ascontiguousarray(vectors).view(np.uint8).reshape(*vectors.shape, 8)
    count: NDArray[np.int64] = np.unpackbits(octets, axis=-1).sum(axis=-1, dtype=np.int64)
    return count


@pytest.mark.parametrize("name", GENERATORS)
def test_a_seed_repeats_a_workload_and_another_makes_another(name: str) -> None:
    first, again, other = (generate(name, seed=seed) for seed in (4, 4, 5))
    for field in ("time_s", "request", "block", "is_write", "queue", "request_session"):
        assert np.array_equal(getattr(first, field), getattr(again, field)), field
    assert not np.array_equal(first.time_s, other.time_s)
    assert (np.diff(first.time_s) >= 0).all() and (first.time_s >= 0).all()


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(Invalid, match=r'there is no generator "nosuch" \(expected poisson, '):
        generate("nosuch", seed=1)


def test_the_affinity_may_stand_behind_the_name() -> None:
    named, shaped = generate("affinity:0.75", seed=3), affinity(3, Affinity(affinity=0.75))
    assert np.array_equal(named.block, shaped.block)
    assert is_generator("affinity:0") and not is_generator("trace.jsonl")
    for wrong in ("affinity:2", "affinity:", "affinity:nan"):
        with pytest.raises(InvalidFlag, match="expected affinity:SHARE, 0 to 1"):
            generate(wrong, seed=1)
    with pytest.raises(InvalidFlag, match="expected scan, which takes nothing"):
        generate("scan:1", seed=1)


@pytest.mark.parametrize("seed", range(3))
def test_poisson_sessions_return_whenever_they_like(seed: int) -> None:
    print(f"seed {seed}")
    workload = sessions(seed)
    assert workload.requests == 4000
    assert set(np.diff(workload.request_start).tolist()) == {30}
    gaps, began = return_gaps(workload)
    # Of gaps that began early enough for their end to be seen whatever it is, within 5 sigma.
    seen = gaps[began < workload.request_time_s[-1] - 600]
    assert seen.mean() == pytest.approx(100, abs=5 * 100 / len(seen) ** 0.5)
    assert np.median(seen) == pytest.approx(100 * np.log(2), rel=0.15)
    arrivals = np.diff(workload.request_time_s[np.unique(workload.request_session, True)[1]])
    assert arrivals.mean() == pytest.approx(1 / 1.5, rel=0.15)
    assert arrivals.std() == pytest.approx(arrivals.mean(), rel=0.2)


def test_a_return_reads_the_chain_that_its_session_wrote() -> None:
    workload = sessions(1, Sessions(requests=300))
    chains: dict[int, list[int]] = {}
    for request, session in enumerate(workload.request_session.tolist()):
        chain = workload.blocks_of(request).tolist()
        assert chains.setdefault(session, chain) == chain
    assert workload.block_count == 30 * len(chains)


def test_random_reads_are_uniform_and_were_there_before() -> None:
    workload = random_reads(2, SMALL)
    assert workload.reads == len(workload)
    # Few of its requests name a block twice, which is then read once.
    assert 15_900 < len(workload) < 16_000
    counts = np.bincount(workload.block)
    chi_squared = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
    assert abs(chi_squared - 1000) < 5 * (2 * 1000) ** 0.5
    result = run_policy(workload, Lru(200), 1)
    assert result.read_hit_ratio == pytest.approx(0.2, abs=0.02)


def test_a_scan_defeats_lru_and_not_who_knows_it() -> None:
    workload = scan(1, SMALL)
    assert workload.block[:2000].tolist() == [*range(1000), *range(1000)]
    assert workload.reads == len(workload)
    rate = 5 * workload.reads_per_s
    assert run_policy(workload, Lru(50), rate).read_hit_ratio == 0
    assert belady(workload, capacity=50, flash_per_s=rate).read_hit_ratio > 0.03
    assert oracle(workload, capacity=50, flash_per_s=rate).read_hit_ratio > 0.95


def test_write_only_has_no_reads() -> None:
    workload = write_only(1, SMALL)
    assert (workload.reads, len(workload)) == (0, 16_000)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_documents_of_a_topic_are_read_together_as_often_as_said(share: float) -> None:
    shape = Affinity(affinity=share)
    workload = affinity(3, shape)
    assert workload.signature is not None
    whole = shape.picks * shape.blocks
    starts = workload.request_start[:-1][np.diff(workload.request_start) == whole]
    heads = workload.block[starts[:, None] + np.arange(0, whole, shape.blocks)]
    vectors = workload.signature[heads]
    first, others = vectors[:, :1], vectors[:, 1:]
    distance = ones(first ^ others)
    near = float((distance <= 2 * shape.noise_bits).mean())
    # Two picks are of one topic when both are the session's, or by chance.
    expected = share**2 + (1 - share**2) / shape.topics
    assert near == pytest.approx(expected, abs=0.03)
    assert set(np.unique(workload.signature, return_counts=True)[1].tolist()) == {shape.blocks}


def test_noise_bits_are_as_many_as_said() -> None:
    for bits in (0, 6):
        shape = Affinity(noise_bits=bits, topics=1, documents=400, requests=2000)
        workload = affinity(1, shape)
        assert workload.signature is not None
        vectors = np.unique(workload.signature)
        if bits == 0:
            assert len(vectors) == 1
        else:
            distance = ones(vectors[:, None] ^ vectors[None, :])
            assert distance.max() <= 2 * bits and distance.mean() > bits


def test_after_the_change_sessions_return_ten_times_later() -> None:
    workload = phase_change(1)
    gaps, began = return_gaps(workload)
    change = workload.request_time_s[4000]
    before, after = gaps[began + gaps < change], gaps[began > change]
    assert np.median(before) == pytest.approx(20, rel=0.1)
    assert np.median(after) == pytest.approx(200, rel=0.1)
    shared = set(workload.request_session[:4000].tolist()) & set(
        workload.request_session[4000:].tolist()
    )
    assert not shared
