"""A Python face for the hints: over a real tier without payload, real schedulers, and media whose
work ends when it is told to. Every call is followed by a check of all invariants."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from typing import Any

from hints_media import BLOCK, MS, SECOND, SLOT, Media

from prestage._core import ffi, lib
from prestage.ext import codec, pages
from prestage.ext.answers import AnswerPage, decode_answer
from prestage.ext.layout import PAGE_BYTES
from prestage.ext.names import Carrier, Query
from prestage.ext.records import OutcomeAnswer, Record, ResidencyAnswer

NOWHERE = 64
TENANTS = 4
VOLUME_BYTES = 64 * SLOT + 3 * BLOCK
BUDGET = {
    "sets": 100,
    "set_ranges": 400,
    "signatures": 100,
    "intents": 50,
    "intent_bytes": 64 << 20,
    "tier_bytes": 64 * SLOT,
    "records_per_s": 100_000,
}
CONFIG = {
    "tenant_count": TENANTS,
    "volume_count": 4,
    "subsystem_count": 2,
    "sets": 1000,
    "set_ranges": 4000,
    "signatures": 1000,
    "intents": 100,
    "answer_pages": 4,
    "max_set_ranges": 300,
    "max_ttl_ms": 10_000,
    "slot_size": SLOT,
    "piece_bytes": 4 * SLOT,
    "part_items": 32,
    "follow_bytes": 8 * SLOT,
    "grace_ns": 50 * MS,
}
CAPABILITY = pages.Capability(Carrier.SUBMIT_QUERY | Carrier.DATED_READ, mailboxes=64)


@dataclass(frozen=True)
class Result:
    """What ps_hints_submit said."""

    fault: int
    fault_offset: int
    accepted: int
    dropped: int
    unknown: int


@dataclass(frozen=True)
class Fact:
    """What the ring was told, without its times."""

    kind: int
    tenant: int
    volume: int
    offset: int
    length: int
    id: int
    session: int
    value: int
    aux: int
    flags: int
    priority: int


@dataclass
class Rig(Media):
    """Volume n is namespace n + 1 of subsystem 0; volume 1 is namespace 1 of subsystem 1 too."""

    frames: int = 256
    config: dict[str, int] = field(default_factory=dict)
    budget: dict[str, int] = field(default_factory=dict)
    volumes: int = 2
    ring_facts: int = 0

    def __post_init__(self) -> None:
        self.now_ns = SECOND
        self.operations = []
        self.started = []
        self.namespaces = {(0, volume + 1): volume for volume in range(self.volumes)}
        self.namespaces[1, 1] = 1
        self.sizes: dict[int, int] = {}
        self.scheds = {}
        self.tier = self._new_tier()
        self.ring = ffi.NULL
        if self.ring_facts:
            self.ring = ffi.gc(lib.ps_ring_new(self.ring_facts), lib.ps_ring_free)
        self._resolve = ffi.callback("ps_hints_resolve", self._find)
        config = {**CONFIG, **self.config, "budget": {**BUDGET, **self.budget}}
        self.hints = ffi.gc(
            lib.ps_hints_new(
                ffi.new("struct ps_hints_config *", config),
                self.tier,
                self.ring,
                self._resolve,
                ffi.NULL,
            ),
            lib.ps_hints_free,
        )
        assert self.hints != ffi.NULL
        capability = ffi.new("struct pax_capability *")
        ffi.memmove(capability, pages.encode_capability(CAPABILITY), ffi.sizeof(capability[0]))
        lib.ps_hints_set_capability(self.hints, capability)
        for volume in range(self.volumes):
            self.add_volume(volume)

    def _new_tier(self) -> Any:
        config = {
            "frame_count": self.frames,
            "slot_size": SLOT,
            "extent_count": self.frames * 2,
            "dirty_limit": self.frames // 2,
            "volume_count": 4,
            "tenant_count": TENANTS,
            "unsynced_age_ns": SECOND,
            "writeback_age_ns": SECOND,
            "retry_ns": MS,
        }
        tier = lib.ps_tier_new(ffi.new("struct ps_tier_config *", config))
        assert tier != ffi.NULL
        return ffi.gc(tier, lib.ps_tier_free)

    def _find(self, _context: Any, subsystem: int, nsid: int, result: Any) -> bool:
        volume = self.namespaces.get((subsystem, nsid))
        if volume is None or volume not in self.sizes:
            return False
        result.volume = volume
        result.block_shift = BLOCK.bit_length() - 1
        result.blocks = self.sizes[volume] // BLOCK
        return True

    def add_volume(self, volume: int, size: int = VOLUME_BYTES) -> None:
        """Add a volume with a scheduler of its own."""
        config = {"window": 32, "merge_bytes": 0, "starvation_ns": 50 * MS}
        sched = lib.ps_sched_new(ffi.new("struct ps_sched_config *", config))
        self.scheds[volume] = ffi.gc(sched, lib.ps_sched_free)
        self.sizes[volume] = size
        assert lib.ps_tier_volume_add(self.tier, volume, size, BLOCK) == 0
        lib.ps_hints_volume(self.hints, self.now_ns, volume, sched)

    def remove_volume(self, volume: int) -> None:
        """Take a volume away from the hints, as a closing volume does."""
        del self.sizes[volume]
        lib.ps_hints_volume(self.hints, self.now_ns, volume, ffi.NULL)
        self.check()

    def check(self) -> None:
        """Fail when an invariant does not hold."""
        assert lib.ps_hints_check_all(self.hints) == 0
        assert lib.ps_tier_check(self.tier) == 0

    def tick(self, to_ns: int | None = None) -> None:
        """Let time go on (to now, or to a time), and tick as often as is due."""
        self.now_ns = self.now_ns if to_ns is None else max(self.now_ns, to_ns)
        for _ in range(1000):
            if lib.ps_hints_next_time(self.hints) > self.now_ns:
                return
            lib.ps_hints_tick(self.hints, self.now_ns)
            self.check()
        raise AssertionError("ticks without end")

    # ---- carriers ----

    def scope(self, tenant: int = 0, subsystem: int = 0) -> Any:
        """Return a struct ps_hints_scope."""
        values = {"tenant": tenant, "subsystem": subsystem, "extension_nsid": 9, "queue": 5}
        return ffi.new("struct ps_hints_scope *", values)

    def submit(
        self, *records: Record, tenant: int = 0, subsystem: int = 0, mailbox: int = NOWHERE
    ) -> Result:
        """Submit a batch of these records."""
        data = codec.encode_batch(records, writer=77, sequence=5)
        return self.submit_bytes(data, tenant=tenant, subsystem=subsystem, mailbox=mailbox)

    def submit_bytes(
        self, data: bytes, *, tenant: int = 0, subsystem: int = 0, mailbox: int = NOWHERE
    ) -> Result:
        """Submit bytes as they are."""
        result = ffi.new("struct ps_hints_result *")
        scope = self.scope(tenant, subsystem)
        lib.ps_hints_submit(self.hints, self.now_ns, scope, mailbox, data, len(data), result)
        self.check()
        return Result(
            result.fault, result.fault_offset, result.accepted, result.dropped, result.unknown
        )

    def dataset(self, nsid: int, *ranges: tuple[int, int], tenant: int = 0) -> None:
        """Say Dataset Management with IDR of (first block, blocks)."""
        data = b"".join(
            bytes(4) + blocks.to_bytes(4, "little") + slba.to_bytes(8, "little")
            for slba, blocks in ranges
        )
        scope = self.scope(tenant)
        lib.ps_hints_dataset(self.hints, self.now_ns, scope, nsid, data, len(ranges))
        self.check()

    def touch(self, offset: int, length: int = SLOT, **how: int) -> Any:
        """Say that a Read was parsed; return it for `read_ended`."""
        tenant = how.pop("tenant", 0)
        size = self.sizes.get(how.get("volume", 0), 0)
        values = {"offset": offset, "length": length, "volume_bytes": size, **how}
        read = ffi.new("struct ps_hints_read *", values)
        lib.ps_hints_touch(self.hints, self.now_ns, self.scope(tenant), read)
        self.check()
        return read

    def read_seen(self, read: Any, arrived_ns: int, *, tenant: int = 0) -> None:
        """Say that it is known whether all of a Read is in the tier."""
        lib.ps_hints_read_seen(self.hints, self.scope(tenant), read, arrived_ns)

    def read_ended(
        self, read: Any, arrived_ns: int, *, tenant: int = 0, is_cancelled: bool = False
    ) -> None:
        """Say that a Read has ended now."""
        lib.ps_hints_read_ended(
            self.hints, self.now_ns, self.scope(tenant), read, arrived_ns, is_cancelled
        )
        self.check()

    # ---- answers ----

    def answer(self, mailbox: int = 0, *, tenant: int = 0, subsystem: int = 0) -> AnswerPage:
        """Read the answer page of a mailbox."""
        page = ffi.new("uint8_t[]", PAGE_BYTES)
        scope = self.scope(tenant, subsystem)
        lib.ps_hints_answer(self.hints, self.now_ns, scope, mailbox, page)
        return decode_answer(bytes(ffi.buffer(page)))

    def query(
        self, kind: int, *dwords: int, nsid: int = 1, tenant: int = 0, subsystem: int = 0
    ) -> tuple[int, bytes]:
        """Ask by CDW10 and on; return the status and the page."""
        page = ffi.new("uint8_t[]", PAGE_BYTES)
        cdw = [kind, *dwords, *[0] * (5 - len(dwords))]
        status = lib.ps_hints_query(
            self.hints, self.now_ns, self.scope(tenant, subsystem), nsid, cdw, page
        )
        self.check()
        return status, bytes(ffi.buffer(page))

    def outcome(self, intent_id: int, *, tenant: int = 0) -> OutcomeAnswer:
        """Return what became of an intent."""
        status, page = self.query(Query.OUTCOME, 0, intent_id, tenant=tenant)
        assert status == 0
        (found,) = decode_answer(page).answers
        assert isinstance(found, OutcomeAnswer)
        return found

    def residency(
        self, slba: int, blocks: int, *, nsid: int = 1, tenant: int = 0
    ) -> ResidencyAnswer:
        """Return how much of a range is warm."""
        dwords = (0, slba & 0xFFFFFFFF, slba >> 32, blocks)
        status, page = self.query(Query.RESIDENCY_RANGE, *dwords, nsid=nsid, tenant=tenant)
        assert status == 0
        (found,) = decode_answer(page).answers
        assert isinstance(found, ResidencyAnswer)
        return found

    def status(self, tenant: int = 0) -> pages.Status:
        """Read the status page."""
        page = ffi.new("uint8_t[]", PAGE_BYTES)
        lib.ps_hints_status(self.hints, self.now_ns, self.scope(tenant), page)
        return pages.decode_status(bytes(ffi.buffer(page)))

    def events(self, tenant: int = 0, *, clear: bool = True) -> pages.EventLog:
        """Read the warm-event log."""
        page = ffi.new("uint8_t[]", PAGE_BYTES)
        lib.ps_hints_events(self.hints, tenant, clear, page)
        return pages.decode_events(bytes(ffi.buffer(page)))

    def stats(self) -> Any:
        """Return a struct ps_hints_stats."""
        stats = ffi.new("struct ps_hints_stats *")
        lib.ps_hints_get_stats(self.hints, stats)
        return stats

    def facts(self) -> list[Fact]:
        """Take all facts out of the ring."""
        size = PAGE_BYTES + self.ring_facts * ffi.sizeof("struct ps_fact")
        with mmap.mmap(lib.ps_ring_fd(self.ring), size) as memory:
            whole = ffi.from_buffer(memory)
            header = ffi.cast("struct ps_ring_header *", whole)
            facts = ffi.cast("struct ps_fact *", whole + header.facts_offset)
            numbers = range(header.tail, header.head)
            found = [_fact(facts[number % header.capacity]) for number in numbers]
            header.tail = header.head
            del whole, header, facts
        return found


def _fact(fact: Any) -> Fact:
    return Fact(
        fact.kind,
        fact.tenant,
        fact.volume,
        fact.offset,
        fact.length,
        fact.id,
        fact.session,
        fact.value,
        fact.aux,
        fact.flags,
        fact.priority,
    )
