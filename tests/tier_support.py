"""A Python face for the DRAM tier: payload, a medium of bytes, and a check after every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prestage._core import ffi, lib

SLOT = 16384
UNIT = SLOT // 16
MS = 1_000_000
SECOND = 1000 * MS
DONE, WAIT, ERROR = 0, 1, 2
READ, WRITE, SYNC = 1, 2, 3
DEMAND, DATED, SPECULATIVE = 0, 1, 2
OF_INTENT, OF_SET, OF_STREAM, OF_MODEL = range(4)
WARM, STARTED, COMING, NO_ROOM, BUSY, INVALID = range(6)
TENANT = 7
WHOLE = 2**64 - 1
NEVER = 2**64 - 1
EIO, ENOSPC = 5, 28

Waiter = Any


@dataclass(frozen=True)
class Action:
    """Work for a medium, as ps_tier_next_action gave it."""

    op: int
    volume: int
    offset: int
    length: int
    frame: int
    frame_offset: int
    ticket: int
    deadline_ns: int
    cookie: int
    urgency: int
    priority: int
    tenant: int


def access(
    urgency: int = DEMAND,
    *,
    tenant: int = TENANT,
    deadline_ns: int = NEVER,
    cookie: int = 0,
    keep_until_ns: int = 0,
    priority: int = 0,
    value_class: int = 0,
    value: float = 0,
    source: int = OF_INTENT,
    once: bool = False,
    is_again: bool = False,
) -> Any:
    """Return a struct ps_tier_access."""
    return ffi.new(
        "struct ps_tier_access *",
        {
            "deadline_ns": deadline_ns,
            "cookie": cookie,
            "keep_until_ns": keep_until_ns,
            "tenant": tenant,
            "urgency": urgency,
            "priority": priority,
            "value_class": value_class,
            "value": value,
            "source": source,
            "once": once,
            "is_again": is_again,
        },
    )


def waiter() -> Waiter:
    """Return a waiter that waits for nothing."""
    return ffi.new("struct ps_tier_waiter *")


class Tier:
    """A tier with one volume (number 0) of `size` bytes, whose medium is `self.medium`."""

    def __init__(
        self,
        *,
        frames: int = 8,
        size: int = 64 * SLOT,
        block: int = 512,
        payload: bool = True,
        **settings: Any,
    ) -> None:
        self.memory = ffi.new("uint8_t[]", frames * SLOT)
        config = {
            "frame_count": frames,
            "slot_size": SLOT,
            "extent_count": frames,
            "dirty_limit": max(1, frames // 2 - 1),
            "volume_count": 4,
            "tenant_count": 8,
            "unsynced_age_ns": 10 * SECOND,
            "writeback_age_ns": SECOND,
            "retry_ns": 10 * MS,
            "frames": self.memory if payload else ffi.NULL,
        }
        self.config = ffi.new("struct ps_tier_config *", config | settings)
        self.tier = ffi.gc(lib.ps_tier_new(self.config), lib.ps_tier_free)
        assert self.tier != ffi.NULL, "ps_tier_new refused"
        self.now_ns = SECOND
        self.waiters: list[Waiter] = []  # kept alive: the tier's queues link them
        self.media: dict[int, bytearray] = {}
        self.add_volume(0, size, block)

    @property
    def medium(self) -> bytearray:
        """The bytes of volume 0."""
        return self.media[0]

    def add_volume(self, volume: int, size: int, block: int = 512) -> None:
        """Add a volume of zeros."""
        assert lib.ps_tier_volume_add(self.tier, volume, size, block) == 0
        self.media[volume] = bytearray(size)

    def check(self) -> None:
        """Fail when an invariant does not hold."""
        assert lib.ps_tier_check(self.tier) == 0

    def frame_bytes(self, frame: int, offset: int, length: int) -> bytes:
        """Return what a frame holds of the volume's bytes at `offset`."""
        start = frame * SLOT + offset % SLOT
        return bytes(ffi.buffer(self.memory)[start : start + length])

    # ---- calls ----

    def read(
        self,
        offset: int,
        length: int = UNIT,
        who: Waiter = ffi.NULL,
        *,
        volume: int = 0,
        urgency: int = DEMAND,
        **how: Any,
    ) -> tuple[int, int]:
        """Return the result and the frame, pinned when DONE; `how`: see access()."""
        frame = ffi.new("uint32_t *")
        self.waiters.append(who)
        result = lib.ps_tier_read(
            self.tier, self.now_ns, volume, offset, length, access(urgency, **how), who, frame
        )
        self.check()
        return result, frame[0]

    def read_bytes(self, offset: int, length: int = UNIT, *, volume: int = 0) -> bytes:
        """Read to the end, through fills, and let go."""
        who = waiter()
        result, frame = self.read(offset, length, who, volume=volume)
        while result == WAIT:
            self.run()
            assert who in self.woken()
            result, frame = self.read(offset, length, who, volume=volume)
        assert result == DONE
        data = self.frame_bytes(frame, offset, length)
        self.release(frame)
        return data

    def touch(self, offset: int, **how: Any) -> None:
        """Read one unit to the end, once, and let go."""
        who = waiter()
        while (found := self.read(offset, UNIT, who, **how))[0] == WAIT:
            self.run()
            self.woken()
        assert found[0] == DONE
        self.release(found[1])

    def fresh(self, who: Waiter | None = None) -> tuple[int, int]:
        """Return the result and a fresh frame."""
        frame = ffi.new("uint32_t *")
        who = who or waiter()
        self.waiters.append(who)
        result = lib.ps_tier_fresh(self.tier, self.now_ns, who, frame)
        self.check()
        return result, frame[0]

    def overwrite(self, offset: int, data: bytes, *, volume: int = 0) -> bool:
        """Write data that is at hand over what is resident, if that can be done at once."""
        done: bool = lib.ps_tier_overwrite(
            self.tier, self.now_ns, volume, offset, len(data), ffi.from_buffer("uint8_t[]", data)
        )
        return done

    def publish(
        self,
        offset: int,
        length: int,
        frame: int,
        who: Waiter | None = None,
        *,
        volume: int = 0,
        tenant: int = TENANT,
    ) -> int:
        """Publish what stands in the fresh frame."""
        who = who or waiter()
        self.waiters.append(who)
        result: int = lib.ps_tier_publish(
            self.tier, self.now_ns, volume, offset, length, tenant, frame, who
        )
        self.check()
        return result

    def put(self, frame: int, offset: int, data: bytes) -> None:
        """Let host data arrive in a fresh frame, over whatever was there."""
        start = frame * SLOT
        ffi.buffer(self.memory)[start : start + SLOT] = b"\xa5" * SLOT
        start += offset % SLOT
        ffi.buffer(self.memory)[start : start + len(data)] = data

    def write(self, offset: int, data: bytes, *, volume: int = 0, tenant: int = TENANT) -> None:
        """Write to the end, through fills."""
        result, frame = self.fresh()
        assert result == DONE
        self.put(frame, offset, data)
        who = waiter()
        where = {"volume": volume, "tenant": tenant}
        while (result := self.publish(offset, len(data), frame, who, **where)) == WAIT:
            self.run()
        assert result == DONE

    def zero(self, offset: int, length: int, who: Waiter | None = None) -> int:
        """Return the result of ps_tier_zero."""
        who = who or waiter()
        self.waiters.append(who)
        result: int = lib.ps_tier_zero(self.tier, self.now_ns, 0, offset, length, TENANT, who)
        self.check()
        return result

    def flush(
        self,
        who: Waiter,
        offset: int = 0,
        length: int = WHOLE,
        *,
        sync: bool = True,
        volume: int = 0,
    ) -> int:
        """Return the result of ps_tier_flush."""
        self.waiters.append(who)
        result: int = lib.ps_tier_flush(self.tier, self.now_ns, volume, offset, length, sync, who)
        self.check()
        return result

    def hydrate(
        self,
        offset: int,
        length: int = UNIT,
        urgency: int = SPECULATIVE,
        *,
        volume: int = 0,
        **how: Any,
    ) -> int:
        """Return the result of ps_tier_hydrate; `how`: see access()."""
        result: int = lib.ps_tier_hydrate(
            self.tier, self.now_ns, volume, offset, length, access(urgency, **how)
        )
        self.check()
        return result

    def prestage(self, offset: int, length: int = UNIT, urgency: int = DATED, **how: Any) -> int:
        """Hydrate, and do all the media work there is; return the result of ps_tier_hydrate."""
        result = self.hydrate(offset, length, urgency, **how)
        self.run()
        return result

    def keep(
        self, offset: int, length: int, until_ns: int, *, tenant: int = TENANT, cookie: int = 0
    ) -> int:
        """Return how many bytes ps_tier_keep kept."""
        kept: int = lib.ps_tier_keep(
            self.tier, self.now_ns, 0, offset, length, tenant, cookie, until_ns
        )
        self.check()
        return kept

    def end_keeps(self, cookie: int) -> None:
        """End the keeps that a cookie owns."""
        lib.ps_tier_end_keeps(self.tier, self.now_ns, cookie)
        self.check()

    def classify(
        self, offset: int, length: int, value_class: int, age_ns: int = 0, *, volume: int = 0
    ) -> int:
        """Return how many extents ps_tier_classify found."""
        found: int = lib.ps_tier_classify(
            self.tier, self.now_ns, volume, offset, length, value_class, age_ns
        )
        self.check()
        return found

    def set_values(self, values: Mapping[int, Callable[[int], float]]) -> None:
        """Set the values of classes by bin; those of all others fall with age, from 63 to 0."""
        bins = range(lib.PS_TIER_AGE_BINS)
        table = [
            values[value_class](bin_) if value_class in values else 63.0 - bin_
            for value_class in range(lib.PS_TIER_CLASSES)
            for bin_ in bins
        ]
        lib.ps_tier_set_values(self.tier, ffi.new("float[]", table))
        self.check()

    def release(self, frame: int) -> None:
        """Let go of a pin or a fresh frame."""
        lib.ps_tier_release(self.tier, self.now_ns, frame)
        self.check()

    def forget(self, who: Waiter) -> None:
        """Take a waiter out of wherever it is."""
        lib.ps_tier_forget(self.tier, who)
        self.check()

    # ---- media ----

    def next(self, least: int = SPECULATIVE) -> Action | None:
        """Return the next action, if any; of fills only those that are at least so urgent."""
        found = ffi.new("struct ps_tier_action *")
        if not lib.ps_tier_next_action(self.tier, self.now_ns, least, found):
            self.check()
            return None
        self.check()
        return Action(
            found.op,
            found.volume,
            found.offset,
            found.length,
            found.frame,
            found.frame_offset,
            found.ticket,
            found.deadline_ns,
            found.cookie,
            found.urgency,
            found.priority,
            found.tenant,
        )

    def actions(self) -> list[Action]:
        """Return all actions there are now; none of them has ended."""
        return list(iter(self.next, None))

    def end(self, action: Action, error: int = 0) -> None:
        """Do what the action says with the medium's bytes, then complete it."""
        medium = self.media[action.volume]
        start = action.frame * SLOT + action.frame_offset
        if error == 0 and action.op == READ:
            data = medium[action.offset : action.offset + action.length]
            assert len(data) == action.length, "a read beyond the end of the volume"
            ffi.buffer(self.memory)[start : start + action.length] = bytes(data)
        elif error == 0 and action.op == WRITE:
            assert action.offset + action.length <= len(medium)
            data = ffi.buffer(self.memory)[start : start + action.length]
            medium[action.offset : action.offset + action.length] = data
        self.complete(action, error)

    def complete(self, action: Action, error: int = 0) -> None:
        """Complete the action without touching any bytes."""
        lib.ps_tier_complete(self.tier, self.now_ns, action.ticket, error)
        self.check()

    def run(self, error: int = 0) -> list[Action]:
        """End every action there is, and those that follow; return them."""
        ended = []
        while (action := self.next()) is not None:
            self.end(action, error)
            ended.append(action)
            assert len(ended) < 10_000
        return ended

    def promotions(self) -> list[tuple[int, int, int]]:
        """Return (ticket, urgency, deadline_ns) of each promotion there is, in order."""
        found = ffi.new("struct ps_tier_promotion *")
        promoted = []
        while lib.ps_tier_next_promotion(self.tier, found):
            promoted.append((found.ticket, found.urgency, found.deadline_ns))
        self.check()
        return promoted

    def woken(self) -> list[Waiter]:
        """Return the waiters that were woken, in order."""
        found = []
        while (who := lib.ps_tier_next_woken(self.tier)) != ffi.NULL:
            found.append(who)
        return found

    def settle(self, volume: int = 0) -> None:
        """Flush to the end."""
        who = waiter()
        while (result := self.flush(who, volume=volume)) == WAIT:
            self.run()
            self.woken()
        assert result == DONE

    # ---- what is there ----

    @property
    def stats(self) -> Any:
        """The tier's statistics."""
        stats = ffi.new("struct ps_tier_stats *")
        lib.ps_tier_get_stats(self.tier, stats)
        return stats

    def tenant(self, tenant: int = TENANT) -> Any:
        """What is counted for a tenant."""
        stats = ffi.new("struct ps_tier_tenant *")
        lib.ps_tier_get_tenant(self.tier, tenant, stats)
        return stats

    def outcome(self, tenant: int = TENANT, source: int = OF_INTENT) -> tuple[int, int]:
        """Return how many extents that hints brought in were used, and were not."""
        found = ffi.new("struct ps_tier_outcome *")
        lib.ps_tier_get_outcome(self.tier, tenant, source, found)
        return found.used, found.unused

    def model(self) -> Any:
        """Return what became of what the model brought in."""
        stats = ffi.new("struct ps_tier_tenant *")
        lib.ps_tier_get_model(self.tier, stats)
        return stats

    def residency(self, offset: int, length: int = SLOT, *, volume: int = 0) -> tuple[int, int]:
        """Return how many bytes of the range are warm, and how many are coming."""
        warm, coming = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        lib.ps_tier_residency(self.tier, volume, offset, length, warm, coming)
        return warm[0], coming[0]

    def resident(self, offset: int, length: int = SLOT, *, volume: int = 0) -> int:
        """Return how many bytes of the range are warm."""
        return self.residency(offset, length, volume=volume)[0]

    def unflushed(self, volume: int = 0) -> int:
        """Return the bytes of the volume that are not durable."""
        found: int = lib.ps_tier_unflushed(self.tier, volume)
        return found

    @property
    def next_time(self) -> int:
        """When there may be work although nothing completes."""
        found: int = lib.ps_tier_next_time(self.tier)
        return found
