"""Probes: one input each, and the answer in words that a table can hold.

An answer is `ok`, a status such as `0/0b dnr`, `term 01/3` (C2HTermReq, FES and, where it is an
offset, FEI), `fin` (closed without C2HTermReq), or `silence`. Every probe states which answers are
right for a target, and what Linux's nvmet-tcp (6.1.192, 6.12.117) answers: run against that
target, a probe is known to ask what it means to ask.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

from nvme_tcp.connection import (
    Address,
    ConnectionClosed,
    ProtocolError,
    RawConnection,
    Silence,
    Terminated,
)
from nvme_tcp.host import Controller, connected_queue_pair, open_queue
from nvme_tcp.queue import Queue

SEED = int(os.environ.get("PRESTAGE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
"""Where all randomness of a run starts; a failure's report names it."""


def turns(variable: str, usual: int) -> int:
    """How often a test repeats itself: as the variable says; less often where all is slow."""
    is_native = os.environ.get("PRESTAGE_TEST_VARIANT", "native") == "native"
    return int(os.environ.get(variable) or (usual if is_native else max(2, usual // 5)))


@dataclasses.dataclass(frozen=True)
class Site:
    """Where probes are sent to."""

    address: Address
    nqn: str
    silence_s: float = 2.0
    """So long without a byte is `silence`. Longer than the target's handshake bound."""
    restricted_nqn: str = ""
    """A subsystem that only `allowed_host` may connect to; empty: there is none."""
    allowed_host: str = ""
    is_reference: bool = False
    """The target is nvmet: its known answers are expected instead of the right ones."""

    @contextlib.contextmanager
    def raw(self, *, timeout_s: float = 10.0) -> Iterator[RawConnection]:
        """A TCP connection on which nothing was said yet."""
        with RawConnection(self.address, timeout_s=timeout_s) as connection:
            yield connection

    @contextlib.contextmanager
    def queue(self, **options: Any) -> Iterator[Queue]:
        """A queue with ICReq and ICResp done and no Connect."""
        queue = open_queue(self.address, **options)
        try:
            yield queue
        finally:
            queue.connection.close()

    @contextlib.contextmanager
    def admin(self, **options: Any) -> Iterator[Controller]:
        """A connected admin queue, the controller not enabled."""
        with Controller(self.address, options.pop("nqn", self.nqn), **options) as controller:
            yield controller

    @contextlib.contextmanager
    def pair(self, io_queues: int = 1, **options: Any) -> Iterator[Controller]:
        """An enabled controller with I/O queues."""
        nqn = options.pop("nqn", self.nqn)
        with connected_queue_pair(self.address, nqn, io_queues, **options) as controller:
            yield controller


@dataclasses.dataclass(frozen=True)
class Probe:
    """One row of the table."""

    name: str
    row: str
    """Row of docs/faults.md: a letter and number, or "ref" for a line of the reference list."""
    right: str
    """Right answers, separated by "|"."""
    nvmet: str
    """Answers of the reference target, separated by "|"."""
    run: Callable[[Site], str]

    def expected(self, site: Site) -> str:
        """The answers that this site must give."""
        return self.nvmet if site.is_reference else self.right


PROBES: list[Probe] = []


def probe(
    row: str, *, right: str, nvmet: str = ""
) -> Callable[[Callable[[Site], str]], Callable[[Site], str]]:
    """Enter a probe into the table. `nvmet` defaults to `right`."""

    def enter(run: Callable[[Site], str]) -> Callable[[Site], str]:
        PROBES.append(Probe(run.__name__, row, right, nvmet or right, run))
        return run

    return enter


def variants(
    row: str, cases: list[tuple[str, Any, str, str]]
) -> Callable[[Callable[[Site, Any], str]], Callable[[Site, Any], str]]:
    """Enter a probe once per case: name, argument, right answers, nvmet's answers ("" = right)."""

    def enter(run: Callable[[Site, Any], str]) -> Callable[[Site, Any], str]:
        for name, argument, right, nvmet in cases:

            def bound(site: Site, argument: Any = argument) -> str:
                return run(site, argument)

            bound.__module__ = run.__module__
            PROBES.append(Probe(f"{run.__name__}[{name}]", row, right, nvmet or right, bound))
        return run

    return enter


def observe(run: Callable[[Site], str], site: Site) -> str:
    """Run a probe; endings of the connection become answers. Breaches of the protocol raise."""
    try:
        return run(site)
    except Terminated as end:
        return end.text()
    except ConnectionClosed:
        return "fin"
    except Silence:
        return "silence"


def agrees(answer: str, expected: str) -> bool:
    """One of the expected answers has no word that `answer` lacks, and the same first word.

    A FES without FEI ("01") stands for every FEI ("01/3").
    """
    words = answer.split()
    words += [word.partition("/")[0] for word in words if words[0] == "term"]
    for choice in expected.split("|"):
        wanted = choice.split()
        if wanted and words and wanted[0] == words[0] and set(wanted) <= set(words):
            return True
    return False


def check_fresh_connection(site: Site) -> None:
    """A new host connects, writes a block, reads it back. Raises on anything else."""
    with site.pair(1) as controller:
        block_size = controller.block_size()
        pattern = bytes(range(256)) * (block_size // 256)
        queue = controller.io[0]
        queue.write(controller.block_count() - 1, pattern, block_size)
        if queue.read(controller.block_count() - 1, 1, block_size) != pattern:
            raise ProtocolError("a fresh connection read other bytes than it wrote")
