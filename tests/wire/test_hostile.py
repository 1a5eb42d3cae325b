"""Thousands of hostile inputs: every one is answered or ends its connection, and harms no other.

PRESTAGE_HOSTILE_SECONDS makes each test here go on for so long, and PRESTAGE_TEST_SEED repeats it.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.connection import RawConnection, WireError
from nvme_tcp.host import Controller

from .hostile import await_answers, drop_input, hostile_command, hostile_pdu
from .probing import SEED, Site
from .running import RunningTarget

SECONDS = float(os.environ.get("PRESTAGE_HOSTILE_SECONDS", "0"))
PATTERN_BLOCKS = 16


def rounds(count: int) -> Iterator[int]:
    """`count` rounds, or as many as fit into the time that was asked for."""
    end = time.monotonic() + SECONDS
    number = 0
    while number < count or time.monotonic() < end:
        yield number
        number += 1


@pytest.fixture
def bystander(site: Site, target: RunningTarget) -> Iterator[Controller]:
    """A host of a namespace that nobody else writes; afterwards it reads what it wrote."""
    pattern = random.Random(SEED).randbytes(PATTERN_BLOCKS * 512)
    with site.pair(1, nqn=site.restricted_nqn, hostnqn=site.allowed_host) as controller:
        controller.io[0].write(0, pattern, 512)
        yield controller
        assert controller.io[0].read(0, PATTERN_BLOCKS, 512) == pattern


def open_at(site: Site, rng: random.Random) -> tuple[RawConnection, list[RawConnection]]:
    """A connection at some stage of its life, and all connections of its association."""
    stage, digests = rng.randrange(6), rng.choice((0, 0, 1, 2, 3))
    if stage < 2:
        connection = RawConnection(site.address)
        if stage == 1:
            connection.initialize(digests=digests)
        return connection, [connection]
    nqn = site.nqn if stage > 3 or rng.random() < 0.7 else nvme.DISCOVERY_NQN
    controller = Controller(site.address, nqn, digests=digests, kato=rng.choice((0, 2000)))
    if stage > 2:
        controller.enable()
    if stage < 4:
        return controller.admin.connection, [controller.admin.connection]
    queue = controller.add_queue(sqsize=rng.choice((1, 31, 127)))
    for cid in range(rng.randrange(1, 9) if stage == 5 else 0):
        # In the middle of transfers: R2Ts that are never, or wrongly, honoured.
        blocks = rng.choice((1, 128, 2048))
        data = nvme.sgl(nvme.SGL_TRANSPORT, blocks * 512)
        entry = nvme.block_command(nvme.WRITE, cid * 100, blocks, data=data)
        queue.connection.send(queue.capsule(nvme.with_cid(entry, cid)))
    return queue.connection, [each.connection for each in controller.queues()]


def attack(site: Site, rng: random.Random) -> None:
    """One connection that sends up to 60 hostile PDUs, then vanishes."""
    connection, association = open_at(site, rng)
    try:
        with contextlib.suppress(WireError):
            for _ in range(rng.randrange(1, 60)):
                connection.send(hostile_pdu(rng, connection.digests))
                if rng.random() < 0.2 and drop_input(connection):
                    break
    finally:
        for each in association:
            (each.reset if rng.random() < 0.5 else each.close)()


@pytest.mark.stress
def test_hostile_pdus_at_every_stage(site: Site, bystander: Controller) -> None:
    for number in rounds(80):
        attack(site, random.Random(f"{SEED} {number}"))
        if number % 20 == 0:
            bystander.io[0].read(0, PATTERN_BLOCKS, 512)


@pytest.mark.stress
@pytest.mark.parametrize("where", ["admin", "discovery", "io"])
def test_every_opcode_is_answered_or_ends_its_connection(
    site: Site, bystander: Controller, where: str
) -> None:
    nqn = nvme.DISCOVERY_NQN if where == "discovery" else site.nqn
    for number in rounds(1):
        rng = random.Random(f"{SEED} {where} {number}")
        controller: Controller | None = None
        for opcode in range(256):
            if controller is None:
                controller = Controller(site.address, nqn, digests=rng.choice((0, 3)))
                controller.enable()
            queue = controller.admin
            if where == "io":
                queue = controller.io[0] if controller.io else controller.add_queue()
            opcodes = [opcode, *(rng.randrange(256) for _ in range(rng.choice((0, 0, 2))))]
            if where != "io":
                opcodes = [each for each in opcodes if each != nvme.AER]
            raw = [queue.capsule(*hostile_command(rng, o, c)) for c, o in enumerate(opcodes)]
            if where == "io":  # Ends the half of a fused pair.
                raw.append(queue.capsule(nvme.sqe(nvme.FLUSH, 1, cid=len(raw))))
            try:
                queue.connection.send(b"".join(raw))
                ending = await_answers(queue, set(range(len(raw))))
            except WireError as error:
                ending = str(error)
            assert "no answer" not in ending, f"opcode {opcode:#x}: {ending}"
            if ending != "ok":
                controller.vanish()
                controller = None
        if controller is not None:
            controller.close()
