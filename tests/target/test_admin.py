from __future__ import annotations

import pytest
from fake_data_path import NQN, Rig, run, settle, sqe

from prestage.target import admin


@pytest.mark.parametrize("opcode", [0x00, 0x01, 0x05, 0x0D, 0x80, 0x93, 0xC0, 0xFF])
def test_unknown_opcodes_whatever_their_direction(opcode: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            answered = host.do(sqe(opcode, length=512), bytes(512))
            assert (answered.code, answered.data) == ("0/01 DNR", b"")
            assert host.identify(1).code == "0/00", "the queue is usable"

    run(main())


@pytest.mark.parametrize("flags", [0x00, 0x80, 0xC0, 0x41, 0x42, 0x43])
def test_psdt_and_fuse_have_one_legal_value(flags: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            for opcode in (0x18, 0x06, 0x0C):
                assert host.do(sqe(opcode, flags=flags)).code == "0/02 DNR"

    run(main())


def test_abort_of_nothing_says_that_nothing_was_aborted() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            for sqid, cid in ((0, 99), (1, 99), (99, 1)):
                answered = host.do(sqe(8, cdw10=sqid | cid << 16))
                assert (answered.code, answered.dw0) == ("0/00", 1)

    run(main())


@pytest.mark.parametrize(("result", "dw0"), [(1, 0), (0, 1)])
def test_abort_of_an_io_command_answers_what_the_data_path_found(result: int, dw0: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            rig.fake.held = {"abort": []}
            slot = host.send(sqe(8, cdw10=1 | 0xBEEF << 16))
            assert host.answer(slot) is None
            assert rig.fake.aborted == [(host.queues[1], 0xBEEF)]
            rig.fake.release("abort", result)
            await settle()
            answered = host.answer(slot)
            assert answered is not None and (answered.code, answered.dw0) == ("0/00", dw0)

    run(main())


def test_four_aborts_may_be_under_way_and_the_fifth_is_too_many() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            rig.fake.held = {"abort": []}
            slots = [host.send(sqe(8, cdw10=1 | n << 16)) for n in range(5)]
            assert [host.answer(slot) for slot in slots[:4]] == [None] * 4
            fifth = host.answer(slots[4])
            assert fifth is not None and fifth.code == "1/03"
            rig.fake.release("abort", 1)
            await settle()
            assert all(host.answer(slot) for slot in slots)
            again = host.send(sqe(8, cdw10=1))
            await settle()
            answered = host.answer(again)
            assert answered is not None and answered.code == "0/00"
            assert rig.runtime.subsystems[NQN].controllers[1].aborts == 0

    run(main())


def test_an_abort_ends_when_the_queue_of_its_command_dies() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            rig.fake.held = {"abort": []}
            slot = host.send(sqe(8, cdw10=1 | 7 << 16))
            rig.fake.close(host.queues[1], False)
            await settle()
            answered = host.answer(slot)
            assert answered is not None and answered.dw0 == 1

    run(main())


def test_a_defect_of_ours_is_an_internal_error_for_one_host_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            with monkeypatch.context() as patch:
                patch.setitem(admin.HANDLERS, 0x06, broken)
                assert host.identify(1).code == "0/06"
            assert host.identify(1).code == "0/00"

    run(main())
    assert "ZeroDivisionError" in caplog.text


def test_commands_of_a_connection_that_is_closing_are_left_alone() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            rig.fake.held = {"closed": []}
            rig.runtime.close(rig.runtime.connections[host.admin])
            assert host.answer(host.send(sqe(0x18))) is None
            assert host.answer(host.send(sqe(0x18), connection=999), 999) is None

    run(main())
