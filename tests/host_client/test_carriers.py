"""What is particular to each carrier of hints."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prestage.ext import layout
from prestage.ext.names import Carrier
from prestage.host_client import (
    HintError,
    Hints,
    InitiatorCarrier,
    InvalidRequest,
    NotSupported,
    PassthroughCarrier,
    connect,
    open_hints,
)
from prestage.host_client.extension_node import ExtensionNodeCarrier
from prestage.host_client.hint_open import carrier_of
from prestage.host_client.passthrough import ADMIN_COMMAND, IO_COMMAND

from .fake_pax import (
    CAPABILITY,
    DATED,
    EXTENSION_NSID,
    SUBMIT,
    FakeKernel,
    FakeNode,
    FakePax,
    PaxTarget,
    hints_by,
)
from .scripted import BLOCK, READ, SILENCE, Answer, Command, scripted

NO_MAILBOX = 0xFFFFFFFF


async def started(pax: FakePax, **arguments: Any) -> PaxTarget:
    target = PaxTarget(pax, **arguments)
    await target.start()
    return target


# ---- the initiator ----


def test_of_a_batch_that_asks_nothing_and_is_taken_no_answer_is_read() -> None:
    async def main() -> None:
        target = await started(FakePax())
        async with connect(target.url) as controller, Hints(controller) as hints:
            await hints.drop_set(1)
            await hints.residency([(0, 1)])
            submits = target.io(SUBMIT)
            assert all(one.cdw(10) < layout.MAILBOXES for one in submits)
            assert len(target.io(0x82)) == 1
            assert {one.cdw(1) for one in submits} == {1}
        await target.stop()

    asyncio.run(main())


def test_a_dated_read_says_its_deadline_priority_and_session() -> None:
    async def main() -> None:
        target = await started(FakePax(), mdts=1)
        async with connect(target.url) as controller:
            target.memory[:BLOCK] = b"\x77" * BLOCK
            found = await controller.read(
                1, 0, 4 * BLOCK, deadline=0.25, priority=1, session=5 << 32 | 6, fua=True
            )
            assert found == target.memory[: 4 * BLOCK]
            first, second = sorted(target.io(DATED), key=lambda one: one.cdw(10))
            assert [first.cdw(n) for n in (2, 3, 14, 15)] == [6, 5, 250000, 1]
            assert first.cdw(12) == 1 | 1 << 30
            assert second.cdw(10) == 2
            assert not target.io(READ)
            await controller.read(1, 0, BLOCK)
            assert len(target.io(READ)) == 1
        await target.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "attributes"),
    [
        ({"deadline": 0.001}, 0x30),
        ({"priority": 0}, 0x30),
        ({"deadline": 5.0, "priority": 3, "access": 6}, 0x16),
        ({"deadline": 0.5, "session": 3}, 0x00),
        ({"access": 7}, 0x07),
    ],
)
def test_without_the_dated_read_attributes_say_what_they_can(
    arguments: dict[str, Any], attributes: int
) -> None:
    async def main() -> None:
        few = replace(CAPABILITY, carriers=Carrier.READ_ATTRIBUTES)
        for pax in (FakePax(few), FakePax(None)):
            target = await started(pax)
            async with connect(target.url) as controller:
                await controller.read(1, 0, BLOCK, **arguments)
                (command,) = target.io(READ)
                assert command.cdw(13) == attributes
            await target.stop()

    asyncio.run(main())


@pytest.mark.parametrize("status", [0x4001, 0x4002])
def test_a_dated_read_that_is_refused_is_read_plainly(status: int) -> None:
    async def main() -> None:
        target = await started(FakePax())
        target.handlers[False, DATED] = lambda command: Answer(status)
        async with connect(target.url) as controller:
            assert await controller.read(1, 0, BLOCK, deadline=1) == target.memory[:BLOCK]
            assert len(target.io(READ)) == 1
        await target.stop()

    asyncio.run(main())


def test_a_dated_read_that_is_lost_is_not_sent_to_who_may_not_know_its_opcode() -> None:
    async def main() -> None:
        target = await started(FakePax())
        target.handlers[False, DATED] = lambda command: SILENCE
        async with connect(target.url, backoff_s=(0.01, 0.1)) as controller:
            task = asyncio.create_task(controller.read(1, 0, BLOCK, deadline=1))
            await target.until(lambda: bool(target.io(DATED)))
            target.capability = b""
            target.drop()
            assert await task == target.memory[:BLOCK]
            assert (len(target.io(DATED)), len(target.io(READ))) == (1, 1)
        await target.stop()

    asyncio.run(main())


def test_failing_hints_leave_reads_alone() -> None:
    async def main() -> None:
        target = await started(FakePax())
        for opcode in (SUBMIT, 0x82):
            target.handlers[False, opcode] = lambda command: Answer(0x4006)
        async with connect(target.url) as controller, Hints(controller) as hints:
            with pytest.raises(HintError, match="Internal Error"):
                await hints.drop_set(1)
            with pytest.raises(HintError, match="Internal Error"):
                await hints.status()
            assert len(await controller.read(1, 0, BLOCK)) == BLOCK
        await target.stop()

    asyncio.run(main())


def test_a_page_that_is_none_is_a_hint_error() -> None:
    async def main() -> None:
        target = await started(FakePax())
        target.handlers[False, 0x82] = lambda command: Answer(data=bytes(command.length))
        async with connect(target.url) as controller, Hints(controller) as hints:
            for call in (hints.residency([(0, 1)]), hints.status()):
                with pytest.raises(HintError, match="the target's page is malformed"):
                    await call
        await target.stop()

    asyncio.run(main())


def test_hints_by_pages_go_to_the_extension_namespace(tmp_path: Path) -> None:
    async def main() -> None:
        pax = FakePax()
        async with hints_by("pages", pax, tmp_path) as hints:
            await hints.residency([(0, 1)])
            carrier = hints.carrier
            assert isinstance(carrier, InitiatorCarrier)
            assert (await carrier.controller.namespace(EXTENSION_NSID)).blocks == 256
        assert len(pax.batches) == 1

    asyncio.run(main())


def test_a_target_without_carriers_for_batches_says_so() -> None:
    async def main() -> None:
        few = replace(CAPABILITY, carriers=Carrier.READ_ATTRIBUTES, extension_nsid=0)
        target = await started(FakePax(few))
        async with connect(target.url) as controller, Hints(controller) as hints:
            with pytest.raises(NotSupported, match="neither vendor opcodes nor"):
                await hints.drop_set(1)
        await target.stop()

    asyncio.run(main())


def test_warm_events_are_told_as_they_come() -> None:
    async def main() -> None:
        pax = FakePax()
        target = await started(pax)
        async with (
            asyncio.timeout(60),
            connect(target.url) as controller,
            Hints(controller) as hints,
        ):
            answers = [await hints.intend([(0, 1)], deadline=1) for _ in range(3)]
            pax.warm_up(answers[0].intent_id)
            watch = hints.watch()
            assert (await anext(watch)).intent_id == answers[0].intent_id
            (wish,) = (one for one in target.commands if one.opcode == 9 and one.cdw(10) == 0xCB)
            assert (wish.cdw(11), wish.cdw(14)) == (1, 1)
            coming = asyncio.ensure_future(anext(watch))
            await target.until(lambda: bool(target.listening))
            pax.warm_up(answers[1].intent_id)
            pax.warm_up(answers[2].intent_id)
            target.listening.pop().end(Answer(dw0=7 | 0xCA << 16))
            assert (await coming).intent_id == answers[1].intent_id
            assert (await anext(watch)).intent_id == answers[2].intent_id
            await watch.aclose()
            assert (await hints.events()).events == ()
        await target.stop()

    asyncio.run(main())


def test_events_may_be_looked_at_and_kept() -> None:
    async def main() -> None:
        pax = FakePax()
        target = await started(pax)
        async with connect(target.url) as controller, Hints(controller) as hints:
            answer = await hints.intend([(0, 1)], deadline=1)
            pax.warm_up(answer.intent_id)
            for clear in (False, False, True):
                log = await hints.events(clear=clear)
                assert [one.intent_id for one in log.events] == [answer.intent_id]
            assert (await hints.events()).events == ()
        await target.stop()

    asyncio.run(main())


# ---- the kernel ----


def test_passthrough_commands_are_what_the_kernel_takes(tmp_path: Path) -> None:
    async def main() -> None:
        kernel = FakeKernel(FakePax())
        node = tmp_path / "ng0n1"
        node.touch()
        async with Hints(PassthroughCarrier(node, ioctl=kernel)) as hints:
            await hints.drop_set(1)
            await hints.events()
            await hints.residency([(0, 1)])
        identify, submit, log, ask, query = kernel.commands
        # request, opcode, flags, -, nsid, cdw2, cdw3, metadata, address, -, length, cdw10 ...
        assert identify[:2] == (ADMIN_COMMAND, 6) and identify[4] == 0 and identify[11] == 1
        assert submit[:2] == (IO_COMMAND, SUBMIT) and submit[4] == 1
        assert submit[11] < 64 and ask[11] < 64
        assert log[:2] == (ADMIN_COMMAND, 2) and log[11] == 0xCA | 1023 << 16 and log[15] == 1
        assert query[:2] == (IO_COMMAND, 0x82) and query[12] == ask[11] and query[10] == 4096

    asyncio.run(main())


def test_what_the_kernel_forbids_is_a_hint_error(tmp_path: Path) -> None:
    def forbidden(fd: int, request: int, argument: bytearray) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    async def main() -> None:
        node = tmp_path / "ng0n1"
        node.touch()
        with pytest.raises(HintError, match="Permission denied"):
            await Hints(PassthroughCarrier(node, ioctl=forbidden)).open()
        with pytest.raises(HintError, match="No such file"):
            await Hints(PassthroughCarrier(tmp_path / "none")).open()

    asyncio.run(main())


def test_a_file_is_no_node_for_ioctls(tmp_path: Path) -> None:
    """The real call, which the kernel refuses for what is no NVMe device."""
    node = tmp_path / "file"
    node.touch()

    async def main() -> None:
        with pytest.raises(HintError, match="it is no device of NVMe"):
            await Hints(PassthroughCarrier(node)).open()

    asyncio.run(main())


def test_a_node_is_closed_after_the_call_that_uses_it(tmp_path: Path) -> None:
    entered, release = threading.Event(), threading.Event()
    kernel = FakeKernel(FakePax())
    states: list[int] = []

    def slow(fd: int, request: int, argument: bytearray) -> int:
        if request == IO_COMMAND:
            entered.set()
            release.wait()
            states.append(os.fstat(fd).st_mode)  # it must still be open
        return kernel(fd, request, argument)

    async def main() -> None:
        node = tmp_path / "ng0n1"
        node.touch()
        carrier = PassthroughCarrier(node, ioctl=slow)
        await carrier.open()
        task = asyncio.create_task(carrier.status())
        await asyncio.to_thread(entered.wait)
        task.cancel()
        closing = asyncio.create_task(carrier.close())
        await asyncio.wait({closing}, timeout=0.2)
        release.set()
        await closing
        await asyncio.gather(task, return_exceptions=True)
        assert len(states) == 1

    asyncio.run(main())


def test_only_the_initiator_waits_for_events(tmp_path: Path) -> None:
    async def main() -> None:
        for carrier in ("ioctl", "node"):
            async with hints_by(carrier, FakePax(), tmp_path) as hints:
                with pytest.raises(NotSupported):
                    await anext(hints.watch())

    asyncio.run(main())


# ---- the extension namespace's node ----


def test_a_node_of_another_size_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        small = tmp_path / "small"
        small.write_bytes(bytes(4096))
        with pytest.raises(HintError, match=r"it has 4096 bytes \(expected an extension namespace"):
            await Hints(ExtensionNodeCarrier(small)).open()
        with pytest.raises(HintError, match="it is no block device"):
            await Hints(ExtensionNodeCarrier("/dev/zero")).open()

    asyncio.run(main())


def test_pages_go_around_the_page_cache(tmp_path: Path) -> None:
    async def main() -> None:
        node = FakeNode(FakePax(), tmp_path / "node")
        try:
            os.close(os.open(node.path, os.O_RDWR | os.O_DIRECT))
        except OSError:
            pytest.skip("this file system has no direct I/O")
        carrier = ExtensionNodeCarrier(node.path)
        await carrier.open()
        assert fcntl.fcntl(carrier._fd, fcntl.F_GETFL) & os.O_DIRECT
        await carrier.close()

    asyncio.run(main())


def test_a_namespace_of_the_right_size_that_is_no_extension_has_no_pax(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "disk"
        path.write_bytes(bytes(layout.EXTENSION_PAGES * layout.PAGE_BYTES))
        async with Hints(ExtensionNodeCarrier(path)) as hints:
            assert hints.capability is None

    asyncio.run(main())


def test_the_carrier_is_chosen_by_what_there_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert isinstance(carrier_of(file), ExtensionNodeCarrier)
    assert isinstance(carrier_of("/dev/null"), PassthroughCarrier)
    with pytest.raises(HintError, match="No such file"):
        open_hints(tmp_path / "none")


def test_a_call_that_is_cancelled_does_not_lose_its_thread(tmp_path: Path) -> None:
    """The descriptor is closed after the thread that uses it, whoever waits for that."""

    async def main() -> None:
        node = FakeNode(FakePax(), tmp_path / "node")
        carrier = ExtensionNodeCarrier(node.path)
        await carrier.open()
        tasks = [asyncio.create_task(carrier.status()) for _ in range(20)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await carrier.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(OSError, match="Bad file descriptor"):
            await carrier.status()

    asyncio.run(main())


def test_a_target_that_answers_nothing_to_raw_commands_is_seen(tmp_path: Path) -> None:
    async def main() -> None:
        async with scripted() as target, connect(target.url) as controller:

            def half(command: Command) -> Answer:
                return Answer(data=bytes(command.length // 2))

            target.handlers[False, READ] = half
            answer = await controller.command(READ, nsid=1, read_bytes=BLOCK)
            assert answer.transferred == BLOCK // 2
            with pytest.raises(InvalidRequest):
                await controller.read(1, 0, BLOCK, session=-1)

    asyncio.run(main())


def test_hints_go_on_with_whoever_is_there_after_a_reconnect() -> None:
    async def main() -> None:
        pax = FakePax()
        target = await started(pax)
        async with (
            connect(target.url, backoff_s=(0.01, 0.1)) as controller,
            Hints(controller) as hints,
        ):
            target.handlers[False, 0x82] = lambda command: SILENCE
            task = asyncio.create_task(hints.status())
            await target.until(lambda: bool(target.io(0x82)))
            target.handlers.clear()
            target.drop()
            assert (await task).capability == CAPABILITY
            target.capability = b""
            target.drop()
            await controller.wait_connected()
            while controller.connects < 3:
                await controller.read(1, 0, BLOCK)
            await hints.drop_set(1)
            assert hints.capability is None
            assert hints.skipped == 1
        await target.stop()

    asyncio.run(main())
