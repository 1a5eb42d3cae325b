"""Hints to a real target: what is said happens, and reads are what they are without it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prestage import testing
from prestage.ext.names import Carrier, Reason, State
from prestage.ext.records import Range, SetRecord
from prestage.host_client import (
    Access,
    ConnectFailed,
    Controller,
    HintError,
    Hints,
    InitiatorCarrier,
    connect,
)
from prestage.host_client.conform_host import ConformHost

SIZE = 32 << 20
BLOCK = 4096
BLOCKS = SIZE // BLOCK


class Pages(InitiatorCarrier):
    """The initiator, as if the target had no vendor opcodes."""

    async def capability(self) -> Any:
        found = await super().capability()
        assert found is not None
        return replace(found, carriers=Carrier.EXTENSION_NAMESPACE)


CARRIERS = {"opcodes": InitiatorCarrier, "pages": Pages}


@pytest.fixture(scope="module")
def served() -> Iterator[testing.Target]:
    """A target whose tier is a quarter of its namespace."""
    arguments: dict[str, Any] = {"namespaces": [SIZE], "dram": "8M", "extension": True}
    with testing.in_thread(testing.Target(**arguments)) as target:
        yield target


@pytest.fixture
def address(served: testing.Target) -> str:
    return f"nvme+tcp://127.0.0.1:{served.port}/{served.nqn}"


@pytest.fixture(params=sorted(CARRIERS))
def carrier(request: pytest.FixtureRequest) -> type[InitiatorCarrier]:
    return CARRIERS[request.param]


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    """A host of the test's own: sets and intents are its own, too."""
    return f"nqn.2026-11.org.example:{zlib.crc32(request.node.nodeid.encode()):x}"


def test_why_a_record_was_dropped_is_told(
    address: str, tenant: str, carrier: type[InitiatorCarrier]
) -> None:
    async def main() -> None:
        async with (
            connect(address, host_nqn=tenant) as controller,
            Hints(carrier(controller)) as hints,
        ):
            report = await hints.submit([SetRecord(5, 9, (Range(0, 1),))])
            assert (report.dropped, report.dropped_reason) == (1, Reason.NAMESPACE)
            beyond = 1 << 40
            for call, reason in (
                (hints.define_set(5, [(beyond, 1)]), Reason.NAMESPACE),
                (hints.define_set(5, np.array([[beyond, 1]])), Reason.NAMESPACE),
                (hints.sign(beyond, 1, bytes(8)), Reason.NAMESPACE),
                (hints.sign([beyond, beyond + 1], 1, [bytes(8)] * 2), Reason.NAMESPACE),
                (hints.retain([(beyond, 1)], duration=1), Reason.NAMESPACE),
                (hints.retain(set_id=99, duration=1), Reason.SET),
            ):
                found = await call
                assert found.dropped > 0
                assert found.dropped_reason == reason

    asyncio.run(main())


def test_a_subsystem_that_does_not_exist_is_told(address: str) -> None:
    async def main() -> None:
        async with connect(f"{address}-other"):
            pass

    with pytest.raises(ConnectFailed, match="the target has no subsystem of this NQN"):
        asyncio.run(main())


async def cold(controller: Controller, hints: Hints, rng: random.Random) -> int:
    """The first of 64 blocks of which nothing is warm, once 12 MiB of others were read."""
    start = rng.randrange(0, BLOCKS, 4096)
    await controller.read(1, slba=(start + 4096) % BLOCKS, nlb=3072)
    for slba in range(start, start + 4096, 64):
        answer = await hints.residency([(slba, 64)])
        if not answer.warm_bytes and not answer.coming_bytes:
            return slba
    pytest.fail("everything is warm")


def test_a_set_that_is_intended_becomes_warm(
    address: str, carrier: type[InitiatorCarrier], tenant: str, rng: random.Random
) -> None:
    async def main() -> None:
        async with (
            connect(address, host_nqn=tenant) as controller,
            Hints(carrier(controller)) as hints,
        ):
            slba = await cold(controller, hints, rng)
            await hints.define_set(5, [(slba, 32), (slba + 32, 32)])
            assert (await hints.residency(set_id=5)).warm_bytes == 0
            answer = await hints.intend(set_id=5, deadline=10.0, late_ok=True)
            assert answer.total_bytes == 64 * BLOCK
            ended = await hints.ended(answer.intent_id)
            assert ended.state == State.MET
            assert (await hints.residency(set_id=5)).warm_bytes == 64 * BLOCK
            status = await hints.status()
            assert status.intent_counts[2].met == 1
            assert status.sets.used == 1

    asyncio.run(main())


def test_tenants_do_not_see_each_other(
    address: str, carrier: type[InitiatorCarrier], tenant: str
) -> None:
    async def main() -> None:
        async with (
            connect(address, host_nqn=tenant) as one,
            connect(address, host_nqn=f"{tenant}-2") as two,
            Hints(carrier(one)) as mine,
            Hints(carrier(two)) as theirs,
        ):
            await mine.define_set(5, [(0, 8)])
            with pytest.raises(HintError, match="no such set"):
                await theirs.residency(set_id=5)
            answer = await mine.intend(set_id=5, deadline=1)
            assert (await theirs.outcome(answer.intent_id)).state == State.UNKNOWN

    asyncio.run(main())


def test_warm_events_come_as_intents_end(address: str, tenant: str) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(60),
            connect(address, host_nqn=tenant) as controller,
            Hints(controller) as hints,
        ):
            wanted = set()
            watch = hints.watch()
            for index in range(5):
                answer = await hints.intend([(index * 64, 64)], deadline=10, late_ok=True)
                wanted.add(answer.intent_id)
            async for event in watch:
                wanted.discard(event.intent_id)
                if not wanted:
                    break
            await watch.aclose()

    asyncio.run(main())


def test_a_dated_read_is_counted_as_such(address: str, tenant: str) -> None:
    async def main() -> None:
        async with connect(address, host_nqn=tenant) as controller, Hints(controller) as hints:
            await controller.read(1, 0, BLOCK, deadline=10.0, priority=1, session=7)
            counts = (await hints.status()).read_counts[1]
            assert (counts.arrived, counts.met) == (1, 1)

    asyncio.run(main())


async def say_anything(hints: Hints, own: random.Random) -> None:
    """One hint at random, some of them nonsense."""
    ranges = [(own.randrange(BLOCKS + 50), own.randint(1, 300)) for _ in range(own.randint(1, 5))]
    number = own.randint(1, 6)
    call = own.randrange(8)
    with contextlib.suppress(HintError):
        if call == 0:
            nsid = own.choice([1, 1, 9])
            await hints.define_set(number, ranges, ordered=own.random() < 0.5, nsid=nsid)
        elif call == 1:
            await hints.extend_set(number, ranges)
        elif call == 2:
            await hints.drop_set(number)
        elif call == 3:
            await hints.intend(ranges, deadline_us=own.choice([0, 100, 10**6]), late_ok=True)
        elif call == 4:
            await hints.intend(set_id=number, deadline_us=1000, prefix=True, intent_id=number)
        elif call == 5:
            await hints.retain(ranges, duration=own.random())
        elif call == 6:
            starts = np.array([slba for slba, _ in ranges])
            await hints.sign(starts, 8, np.zeros((len(ranges), 8), np.uint8))
        else:
            await (hints.cancel(everything=True) if number == 6 else hints.cancel(number))


def test_whatever_is_said_every_read_returns_what_was_written(
    address: str, carrier: type[InitiatorCarrier], tenant: str, rng: random.Random
) -> None:
    async def main() -> None:
        async with (
            connect(address, host_nqn=tenant, queues=2) as controller,
            Hints(carrier(controller)) as hints,
        ):
            model = bytearray(rng.randbytes(SIZE))
            await controller.write(1, model, 0)

            async def io(part: int, seed: int) -> None:
                own = random.Random(seed)
                first, count = part * BLOCKS // 4, BLOCKS // 4
                for _ in range(60):
                    nlb = own.randint(1, 64)
                    slba = first + own.randrange(count - nlb)
                    place = slice(slba * BLOCK, (slba + nlb) * BLOCK)
                    if own.random() < 0.3:
                        model[place] = own.randbytes(nlb * BLOCK)
                        await controller.write(1, model[place], slba=slba)
                    deadline = own.choice([None, 0.0, 0.001, 1.0])
                    found = await controller.read(
                        1,
                        slba=slba,
                        nlb=nlb,
                        deadline=deadline,
                        access=own.choice([Access.NONE, Access.ONE_TIME, Access.SPECULATIVE]),
                    )
                    assert found == model[place]

            async def talk(seed: int) -> None:
                own = random.Random(seed)
                for _ in range(80):
                    await say_anything(hints, own)

            seeds = [rng.getrandbits(30) for _ in range(6)]
            await asyncio.gather(
                *(io(part, seed) for part, seed in enumerate(seeds[:4])),
                *(talk(seed) for seed in seeds[4:]),
            )
            assert await controller.read(1, 0, SIZE) == model

    asyncio.run(main())


def test_the_kit_reaches_a_target_by_the_initiator(address: str, tenant: str) -> None:
    from prestage.ext.conform import conform
    from prestage.host_client.address import parse_url
    from prestage.host_client.options import Options

    async def main() -> None:
        async def make_host(who: Any) -> ConformHost:
            options = Options(host_nqn=f"{tenant}-{who.value}", keep_alive_s=0)
            return await ConformHost(parse_url(address), options).open()

        report = await conform(make_host, chosen=lambda check: check.clause.startswith("4.3"))
        assert report.capability is not None
        assert not report.failed, report.table()
        assert len(report.results) > 5

    asyncio.run(main())
