"""Who reads the ring of facts sleeps until what it waits for is there, and misses nothing."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest
from ring_support import CAPACITY, Ring

from prestage._core import ffi
from prestage.target.ring import HEADER, FactKind, RingError, RingReader, RingWaits

HINTS = (
    *(FactKind.SET, FactKind.RANGE, FactKind.SIGNATURE, FactKind.INTENT),
    *(FactKind.RETAIN, FactKind.CANCEL, FactKind.UNMAPPED),
)


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring()
    yield made
    made.close()


def test_what_a_reader_may_wait_for_in_python_is_what_the_header_says() -> None:
    expected = ffi.typeof("enum ps_ring_waits").relements
    assert {f"PS_RING_WAITS_{member.name}": int(member) for member in RingWaits} == expected


def test_nobody_is_woken_who_does_not_wait(ring: Ring) -> None:
    with RingReader(ring.fd):
        assert not ring.must_wake()
        ring.put()
        assert not ring.must_wake()


def test_who_waits_for_all_is_woken_once_by_any_fact(ring: Ring) -> None:
    with RingReader(ring.fd) as reader:
        assert not reader.wait_for(RingWaits.ALL)
        assert not ring.must_wake(), "there is nothing new"
        ring.put()
        assert ring.must_wake()
        ring.put()
        assert not ring.must_wake(), "it does not wait any more"


@pytest.mark.parametrize("kind", FactKind)
def test_who_waits_for_hints_is_woken_by_facts_of_hints_alone(ring: Ring, kind: FactKind) -> None:
    with RingReader(ring.fd) as reader:
        assert not reader.wait_for(RingWaits.HINTS)
        ring.put(2, FactKind.READ)
        assert not ring.must_wake()
        ring.put(1, kind)
        ring.put(2, FactKind.WRITE)
        assert ring.must_wake() == (kind in HINTS)


@pytest.mark.parametrize("kind", FactKind)
def test_what_is_there_already_is_seen_before_sleeping(ring: Ring, kind: FactKind) -> None:
    with RingReader(ring.fd) as reader:
        ring.put(9)
        reader.take(3)
        assert reader.wait_for(RingWaits.ALL)
        ring.put(1, kind)
        ring.put(2)
        assert reader.wait_for(RingWaits.HINTS) == (kind in HINTS)
        ring.put(1, FactKind.SET)
        assert ring.must_wake() == (kind not in HINTS), "it waits only if it was to sleep"


def test_facts_that_were_taken_are_nothing_to_wake_for(ring: Ring) -> None:
    with RingReader(ring.fd) as reader:
        ring.put(12, FactKind.SET)
        reader.take()
        assert not reader.wait_for(RingWaits.ALL)
        assert not reader.wait_for(RingWaits.HINTS)
        ring.put(4, FactKind.READ)
        assert reader.wait_for(RingWaits.ALL)
        assert not reader.wait_for(RingWaits.HINTS), "at the end of the memory and its begin"
        reader.take()
        ring.put(5, FactKind.READ)
        ring.put(1, FactKind.INTENT)
        assert reader.wait_for(RingWaits.HINTS)


def test_who_waits_no_longer_is_not_woken(ring: Ring) -> None:
    with RingReader(ring.fd) as reader:
        assert not reader.wait_for(RingWaits.ALL)
        assert not reader.wait_for(RingWaits.NOT)
        ring.put()
        assert not ring.must_wake()


def test_a_full_ring_wakes_whoever_waits(ring: Ring) -> None:
    with RingReader(ring.fd) as reader:
        assert not reader.wait_for(RingWaits.HINTS)
        ring.put(CAPACITY)
        assert not ring.must_wake()
        ring.put()
        assert ring.must_wake()


@pytest.mark.parametrize("waits", [3, 2**64 - 1])
def test_nonsense_in_what_a_reader_waits_for_wakes_nobody(ring: Ring, waits: int) -> None:
    with mmap.mmap(ring.fd, os.fstat(ring.fd).st_size) as memory:
        header = np.frombuffer(memory, HEADER, count=1)
        header["waits"] = waits
        ring.put()
        assert not ring.must_wake()
        del header


def test_who_is_about_to_sleep_notices_counts_that_cannot_be(ring: Ring) -> None:
    with RingReader(ring.fd) as reader, mmap.mmap(ring.fd, os.fstat(ring.fd).st_size) as memory:
        header = np.frombuffer(memory, HEADER, count=1)
        header["head"] = CAPACITY + 1
        with pytest.raises(RingError, match="17 facts wait"):
            reader.wait_for(RingWaits.HINTS)
        del header
