"""Hints at random: what hosts may say beside their commands, from sensible to hostile."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.crc32c import crc32c

Ranges = list[tuple[int, int]]
MODES = ("off", "on", "random", "hostile")


@dataclasses.dataclass(frozen=True)
class Said:
    """A command that carries hints."""

    entry: bytes
    data: bytes = b""
    expected: int = 0
    codes: tuple[str, ...] = ("ok",)
    """Statuses that it may end with."""

    def options(self) -> dict[str, Any]:
        """For Queue.submit."""
        return {"data": self.data, "expected": self.expected}


class Noise:
    """A source of hints about `blocks` blocks of a namespace, and those of `others` by NSID."""

    def __init__(
        self,
        rng: random.Random,
        mode: str,
        *,
        nsid: int,
        extension: int,
        blocks: int,
        others: dict[int, int] | None = None,
    ) -> None:
        assert mode in MODES
        self.rng, self.mode = rng, mode
        self.nsid, self.extension, self.blocks = nsid, extension, blocks
        self.sizes = {nsid: blocks, **(others or {})}

    # ---- Reads ----

    def read_entry(self, slba: int, blocks: int, nsid: int | None = None) -> bytes:
        """A Read with whatever it may say of itself."""
        nsid = self.nsid if nsid is None else nsid
        if self.mode == "off":
            return nvme.block_command(nvme.READ, slba, blocks, nsid=nsid)
        dsm = 7 if self.mode == "on" else self.rng.randrange(256)
        if self.rng.random() < 0.6:
            return nvme.block_command(nvme.READ, slba, blocks, nsid=nsid, dsm=dsm)
        return hints.dated_read(
            slba,
            blocks,
            deadline_us=self.deadline_us(),
            priority=self.rng.randrange(4),
            session=self.rng.choice((0, 1, self.rng.getrandbits(64))),
            nsid=nsid,
            dsm=dsm,
        )

    def deadline_us(self) -> int:
        """Soon or late; never or at once where the host is hostile."""
        usual = (500, 5_000, 50_000, 1_000_000)
        extreme = (0, 1, 0x7FFFFFFF, 0xFFFFFFFF)
        return self.rng.choice(extreme if self.mode == "hostile" else usual)

    # ---- records ----

    def ranges(self, most: int = 4, nsid: int | None = None) -> Ranges:
        """Ranges of the namespace; where the host is not sensible, beyond its end too."""
        blocks, found = self.sizes[self.nsid if nsid is None else nsid], []
        for _ in range(self.rng.randrange(1, most + 1)):
            count = self.rng.choice((1, 8, 128, 1000))
            slba = self.rng.randrange(max(1, blocks - count))
            if self.mode == "hostile" and self.rng.random() < 0.3:
                slba = self.rng.choice((blocks, (1 << 64) - 1, self.rng.getrandbits(64)))
                count = self.rng.choice((1, 0xFFFFFFFF))
            found.append((slba, count))
        return found

    def record(self) -> bytes:
        """A well-formed record."""
        rng, nsid = self.rng, self.rng.choice(list(self.sizes))
        of_set = {"set_id": rng.randrange(1, 5)}
        of_ranges = {"ranges": self.ranges(nsid=nsid)}
        kinds: list[Callable[[], bytes]] = [
            lambda: hints.set_(
                rng.randrange(1, 5),
                self.ranges(nsid=nsid),
                nsid=nsid,
                op=rng.choice((hints.DEFINE, hints.EXTEND)),
                flags=rng.randrange(2),
                ttl_ms=rng.choice((0, 1, 50, 10_000)),
            ),
            lambda: hints.intent(
                rng.randrange(1, 50),
                nsid=nsid,
                deadline_us=self.deadline_us(),
                session=rng.randrange(3),
                priority=rng.randrange(4),
                confidence=rng.randrange(101),
                flags=rng.randrange(4),
                **rng.choice((of_set, of_ranges)),
            ),
            lambda: hints.signature(
                rng.randrange(self.blocks), 8, rng.randbytes(rng.choice((8, 16))), nsid=nsid
            ),
        ]
        if self.mode != "on":
            kinds += [
                lambda: hints.retain(
                    nsid=nsid,
                    duration_ms=rng.choice((0, 5, 0xFFFFFFFF)),
                    **rng.choice((of_set, of_ranges)),
                ),
                lambda: hints.cancel(rng.randrange(1, 5), rng.randrange(50)),
                lambda: hints.set_(rng.randrange(1, 5), op=hints.DROP, nsid=nsid),
                lambda: hints.residency(nsid=nsid, **rng.choice((of_set, of_ranges))),
                lambda: hints.outcome(rng.randrange(1, 50)),
            ]
        return rng.choice(kinds)()

    def batch(self) -> bytes:
        """A batch of at most a page, malformed at times where the host is hostile."""
        records: list[bytes] = []
        for _ in range(self.rng.randrange(1, 12)):
            record = self.record()
            if sum(map(len, records)) + len(record) + 32 <= hints.MAX_BATCH:
                records.append(record)
        raw = bytearray(hints.batch(*records, sequence=self.rng.getrandbits(32)))
        if self.mode == "hostile" and self.rng.random() < 0.5:
            for _ in range(self.rng.randrange(1, 4)):
                raw[self.rng.randrange(len(raw))] ^= 1 << self.rng.randrange(8)
            if self.rng.random() < 0.5:  # what lies within is looked at too
                raw = bytearray(_with_checksum(bytes(raw)))
        return bytes(raw)

    # ---- carriers ----

    def say(self) -> Said:
        """One command that says or asks something."""
        carriers = [self._submit, self._page, self._dataset, self._query, self._look]
        return self.rng.choice(carriers)()

    def _submit(self) -> Said:
        mailbox = self.rng.choice((hints.NO_MAILBOX, self.rng.randrange(hints.MAILBOXES)))
        codes = ("ok", "0/02") if self.mode == "hostile" else ("ok",)
        nsid = self.rng.choice((self.nsid, self.extension))
        return Said(hints.submit(mailbox, nsid=nsid), self.batch(), codes=codes)

    def _page(self) -> Said:
        count = self.rng.choice((1, 1, 2, 20))
        first = hints.MAILBOX_PAGE + self.rng.randrange(hints.MAILBOXES)
        if self.mode == "hostile":
            first = self.rng.randrange(hints.PAGES - count + 1)
        data = b"".join(hints.page(self.batch()) for _ in range(count))
        entry = nvme.block_command(nvme.WRITE, first, count, nsid=self.extension)
        return Said(entry, data)

    def _dataset(self) -> Said:
        ranges = [
            (slba % self.blocks, min(count, self.blocks - slba % self.blocks))
            for slba, count in self.ranges(8)
        ]
        attributes = self.rng.getrandbits(32)
        entry = nvme.sqe(nvme.DSM, self.nsid, cdw10=len(ranges) - 1, cdw11=1)
        return Said(entry, nvme.dsm_ranges(ranges, attributes))

    def _query(self) -> Said:
        kind = self.rng.randrange(5)
        number = self.rng.choice((self.rng.randrange(1, 50), self.rng.randrange(self.blocks)))
        entry = hints.query(
            kind,
            number,
            nsid=self.nsid,
            mailbox=self.rng.randrange(hints.MAILBOXES),
            blocks=self.rng.choice((1, 1000, self.blocks)),
        )
        return Said(entry, expected=self.rng.choice((64, 1024, 4096)), codes=("ok", "0/02"))

    def _look(self) -> Said:
        count = self.rng.choice((1, 16, 200))
        first = self.rng.randrange(hints.PAGES - count + 1)
        entry = nvme.block_command(nvme.READ, first, count, nsid=self.extension)
        return Said(entry, expected=count * hints.PAGE)


def _with_checksum(raw: bytes) -> bytes:
    """`raw` with the checksum that its size field asks for, as far as there are bytes."""
    size = min(int.from_bytes(raw[8:12], "little"), len(raw))
    blank = raw[:12] + bytes(4) + raw[16:]
    checksum = crc32c(blank[:size])
    return raw[:12] + checksum.to_bytes(4, "little") + raw[16:]
