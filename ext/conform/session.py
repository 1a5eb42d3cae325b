"""A run of the kit: connections, what the target offers, ranges to try hints on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from ..errors import Malformed
from ..names import Carrier
from ..pages import Capability, find_capability
from ..records import Range, Residency, ResidencyAnswer
from . import nvme
from .host import Command, Completion, Host, Tenant
from .registry import Failed, Skipped
from .side import Side

MakeHost = Callable[[Tenant], Awaitable[Host]]
POLL_S: Final = 0.01
PLENTY_A_SECOND: Final = 20_000
"""Records; with a budget below, checks wait for a second to pass."""
LEAST: Final = {
    "sets": 2,
    "set_ranges": 16,
    "signatures": 2,
    "intents": 2,
    "intent_bytes": 4 << 20,
    "tier_bytes": 1 << 20,
    "records_per_s": 200,
}
"""Budgets of a tenant below which checks of records are skipped: they would say nothing."""
SEARCHES: Final = 8
"""How often ranges are looked for that are cold, this many at once:"""
CANDIDATES: Final = 32
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DataNamespace:
    """A namespace whose blocks have no metadata. Nothing of it is written."""

    nsid: int
    block_bytes: int
    blocks: int


class Session:
    """Both tenants of a run. `patience_s` is how long something may take that has no deadline."""

    def __init__(self, make_host: MakeHost, patience_s: float, seed: int) -> None:
        self._make_host = make_host
        self.patience_s = patience_s
        self.random = random.Random(seed)
        self._number = self.random.getrandbits(40) << 16
        self._sides: dict[Tenant, Side] = {}
        self._data: DataNamespace | None = None
        self.capability: Capability | None = None
        self.pause_s = 0.0
        self.scarce = ""

    async def open(self) -> None:
        """Connect as the first tenant and see what the controller offers."""
        host = await self._make_host(Tenant.FIRST)
        probe = Side(host, Capability(Carrier.NONE), self.random.getrandbits(64))
        self.capability = find_capability(await probe.identify(0x01))
        probe.capability = self.capability or probe.capability
        self._sides[Tenant.FIRST] = probe
        if self.capability is not None:
            await self._look_at_budgets()

    async def _look_at_budgets(self) -> None:
        """See how long to rest before a check, so that its records are within the rate (8.2).

        And which budget is too small for checks of records.
        """
        try:
            status = await self.first.status()
        except (Skipped, Malformed, ConnectionError, TimeoutError):
            return  # the checks will say so
        if status.records_per_s.limit < PLENTY_A_SECOND:
            self.pause_s = 1.0
        limits = {name: getattr(status, name).limit for name in LEAST}
        small = [name for name, least in LEAST.items() if limits[name] < least]
        if small:
            name = small[0]
            self.scarce = f"the budget of {name} is {limits[name]}; {LEAST[name]} are needed"

    async def close(self) -> None:
        """End all connections."""
        for side in self._sides.values():
            await side.close()

    @property
    def first(self) -> Side:
        """The first tenant."""
        return self._sides[Tenant.FIRST]

    async def second(self) -> Side:
        """Return the second tenant, connected."""
        if Tenant.SECOND not in self._sides:
            host = await self._make_host(Tenant.SECOND)
            side = Side(host, self.first.capability, self.random.getrandbits(64))
            found = find_capability(await side.identify(0x01))
            if found is None:
                raise Skipped("the second host is offered no PAX")
            side.capability = found
            self._sides[Tenant.SECOND] = side
        return self._sides[Tenant.SECOND]

    def number(self) -> int:
        """Return a number for a set, an intent or a session that was not used before."""
        self._number += 1
        return self._number

    def needs(self, carrier: Carrier) -> Capability:
        """Return the capability. Skips the check when it has not this carrier."""
        if self.capability is None or carrier not in self.capability.carriers:
            raise Skipped(f"no carrier {carrier!r}")
        return self.capability

    async def until(
        self, probe: Callable[[], Awaitable[T]], is_good: Callable[[T], bool], what: str
    ) -> T:
        """Probe until it is good, and return it. Fails after `patience_s`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.patience_s
        while not is_good(found := await probe()):
            if loop.time() >= end:
                raise Failed(f"not {what} within {self.patience_s:g} s: {found}")
            await asyncio.sleep(POLL_S)
        return found

    # ---- the namespace for data ----

    async def data(self) -> DataNamespace:
        """Return the first namespace that holds data. Skips the check when there is none."""
        if self._data is None:
            extension = self.capability.extension_nsid if self.capability else 0
            for nsid in await self.first.namespaces():
                found = await self._described(nsid) if nsid != extension else None
                if found is not None:
                    self._data = found
                    break
            else:
                raise Skipped("no namespace for data, without metadata, whose blocks can be read")
        return self._data

    async def _described(self, nsid: int) -> DataNamespace | None:
        """Return a namespace unless it is empty or its blocks have metadata (NVM, figure 97)."""
        page = await self.first.identify(0x00, nsid)
        index = page[26] & 0xF | page[26] >> 1 & 0x30
        lba_format = int.from_bytes(page[128 + 4 * index : 132 + 4 * index], "little")
        blocks = int.from_bytes(page[0:8], "little")
        has_metadata = bool(lba_format & 0xFFFF)
        if has_metadata or not blocks:
            return None
        return DataNamespace(nsid, 1 << (lba_format >> 16 & 0xFF), blocks)

    async def read(self, where: Range, attributes: int = 0, nsid: int = 0) -> Completion:
        """Read data by a plain Read with CDW13 `attributes`."""
        return await self.first.host.io(
            await self._read_command(nvme.Io.READ, where, attributes, nsid)
        )

    async def dated_read(
        self, where: Range, deadline_us: int, priority: int = 2, session: int = 0, nsid: int = 0
    ) -> Completion:
        """Read data by a dated read."""
        plain = await self._read_command(self.first.capability.dated_read_opcode, where, 0, nsid)
        command = Command(
            plain.opcode,
            nsid=plain.nsid,
            cdw2=session & 0xFFFFFFFF,
            cdw3=session >> 32,
            cdw10=plain.cdw10,
            cdw11=plain.cdw11,
            cdw12=plain.cdw12,
            cdw14=deadline_us,
            cdw15=priority,
            data_in_bytes=plain.data_in_bytes,
        )
        return await self.first.host.io(command)

    async def _read_command(self, opcode: int, where: Range, attributes: int, nsid: int) -> Command:
        data = await self.data()
        return Command(
            opcode,
            nsid=nsid or data.nsid,
            cdw10=where.slba & 0xFFFFFFFF,
            cdw11=where.slba >> 32,
            cdw12=where.nlb - 1,
            cdw13=attributes,
            data_in_bytes=where.nlb * data.block_bytes,
        )

    async def dataset(self, *ranges: Range, attributes: int = 0) -> Completion:
        """Say by Dataset Management that ranges are a set (Integral Dataset for Read)."""
        data = await self.data()
        parts = (
            attributes.to_bytes(4, "little")
            + each.nlb.to_bytes(4, "little")
            + each.slba.to_bytes(8, "little")
            for each in ranges
        )
        command = Command(
            nvme.Io.DATASET_MANAGEMENT,
            nsid=data.nsid,
            cdw10=len(ranges) - 1,
            cdw11=1,
            data_out=b"".join(parts),
        )
        return await self.first.host.io(command)

    async def granule(self) -> int:
        """Return how many blocks are one granularity of the tier, one at least."""
        data = await self.data()
        return max(self.first.capability.granularity_bytes // data.block_bytes, 1)

    async def place(self, granules: int = 1) -> Range:
        """Return a range at random. Skips the check when the namespace is too small for it."""
        data, size = await self.data(), await self.granule() * granules
        if data.blocks < size:
            raise Skipped(f"namespace {data.nsid} has {data.blocks} blocks; {size} are needed")
        return Range(self.random.randrange(data.blocks // size) * size, size)

    async def cold(self, granules: int = 1) -> Range:
        """Return a range of which nothing is warm or coming. Skips the check when none is found."""
        data = await self.data()
        for _ in range(SEARCHES):
            places = [await self.place(granules) for _ in range(CANDIDATES)]
            queries = [Residency(data.nsid, (each,)) for each in places]
            answers = (await self.first.say(*queries, mailbox=3)).answers
            for each, answer in zip(places, answers, strict=False):
                if isinstance(answer, ResidencyAnswer) and _is_cold(answer):
                    return each
        raise Skipped("nothing of the namespace is cold")

    async def beyond(self) -> Range:
        """Return a block beyond the end of the namespace."""
        return Range((await self.data()).blocks, 1)

    def bytes_of(self, where: Range) -> int:
        """Return the size of a range of the namespace for data."""
        assert self._data is not None, "a range was made for it"
        return where.nlb * self._data.block_bytes


def _is_cold(answer: ResidencyAnswer) -> bool:
    return not (answer.reason or answer.warm_bytes or answer.coming_bytes)
