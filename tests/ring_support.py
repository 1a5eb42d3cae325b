"""The producer's side of a ring of facts."""

from __future__ import annotations

from prestage._core import ffi, lib
from prestage.target.ring import FactKind

CAPACITY = 16


class Ring:
    """The producer's side."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.ring = lib.ps_ring_new(capacity)
        assert self.ring != ffi.NULL
        self.fact = ffi.new("struct ps_fact *")
        self.put_count = 0

    @property
    def fd(self) -> int:
        """The memfd."""
        return int(lib.ps_ring_fd(self.ring))

    def must_wake(self) -> bool:
        """Whether the reader is to be woken."""
        return bool(lib.ps_ring_must_wake(self.ring))

    def put(self, count: int = 1, kind: FactKind = FactKind.READ) -> int:
        """Put facts with the numbers from `put_count` on; returns how many found room."""
        good = 0
        self.fact.kind = kind
        for _ in range(count):
            self.fact.id = self.put_count
            self.fact.value = self.put_count ^ 0xFFFF
            if lib.ps_ring_put(self.ring, self.fact):
                self.put_count += 1
                good += 1
        return good

    def close(self) -> None:
        """Free it once."""
        lib.ps_ring_free(self.ring)
