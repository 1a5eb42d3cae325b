from __future__ import annotations

from fake_data_path import DISCOVERY, NQN, Rig, ram, run, settle, sqe

from prestage.target.datapath import HealthNotice

NAMESPACE_EVENT = 0x040002
NAMESPACE_BIT = 0x100


def test_the_fifth_request_is_over_the_limit() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            slots = [host.request_event(cid) for cid in range(6)]
            answers = [host.answer(slot) for slot in slots]
            assert answers[:4] == [None] * 4
            assert [a.code for a in answers[4:] if a] == ["1/05 DNR"] * 2

    run(main())


def test_a_change_is_reported_to_hosts_that_asked_for_it() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host, deaf = rig.host(), rig.host()
            host.set_feature(0x0B, 0x900)
            slots = host.request_event(), deaf.request_event()
            nsid = await rig.target.add_namespace(NQN, ram())
            answered = host.answer(slots[0])
            assert answered is not None
            assert (answered.code, answered.dw0) == ("0/00", NAMESPACE_EVENT)
            assert deaf.answer(slots[1]) is None
            assert host.log(4, 4096).data[:8] == nsid.to_bytes(4, "little") + bytes(4)

    run(main())


def test_an_event_waits_for_a_request_and_comes_once_until_its_log_is_read() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.set_feature(0x0B, NAMESPACE_BIT)
            await rig.target.resize_namespace(NQN, 1, 2 << 20)
            first = host.answer(host.request_event())
            assert first is not None and first.dw0 == NAMESPACE_EVENT
            second = host.request_event()
            await rig.target.resize_namespace(NQN, 1, 3 << 20)
            assert host.answer(second) is None, "masked until the log is read"
            host.log(4, 4096, rae=1)
            await rig.target.resize_namespace(NQN, 1, 4 << 20)
            assert host.answer(second) is None, "reading with RAE set clears nothing"
            assert host.log(4, 4096).number(0, 4) == 1
            assert host.log(4, 4096).number(0, 4) == 0
            await rig.target.resize_namespace(NQN, 1, 5 << 20)
            assert host.answer(second) is not None

    run(main())


def test_aborting_a_request_ends_it_and_frees_its_place() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            slots = [host.request_event(cid) for cid in range(4)]
            answered = host.do(sqe(0x08, cdw10=2 << 16))
            assert (answered.code, answered.dw0) == ("0/00", 0)
            aborted = host.answer(slots[2])
            assert aborted is not None and aborted.status & 0x7FF == 0x007
            assert host.answer(host.request_event(9)) is None
            assert host.do(sqe(0x08, cdw10=2 << 16)).dw0 == 1, "not there any more"

    run(main())


def test_failing_deferred_writes_are_a_smart_event() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.set_feature(0x0B, 1 << 2)
            slot = host.request_event()
            volume = rig.target.subsystem(NQN).namespace(1).volume
            assert host.log(2, 512).data[0] == 0
            rig.fake.receive(HealthNotice(volume, 5))
            answered = host.answer(slot)
            assert answered is not None and answered.dw0 == 0x020001
            assert host.log(2, 512).data[0] == 1 << 2
            again = host.request_event()
            rig.fake.receive(HealthNotice(volume, 28))
            assert host.answer(again) is None, "it fails already"
            rig.fake.receive(HealthNotice(volume, 0))
            assert host.log(2, 512).data[0] == 0

    run(main())


def test_requests_end_without_an_answer_when_the_host_goes() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.set_feature(0x0B, NAMESPACE_BIT)
            slot = host.request_event()
            rig.fake.close(host.admin, False)
            await settle()
            await rig.target.add_namespace(NQN, ram())
            assert host.answer(slot) is None

    run(main())


def test_only_events_that_exist_can_be_asked_for() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host, discovery = rig.host(), rig.host(DISCOVERY)
            host.set_feature(0x0B, 0xFFFFFFFF)
            assert host.get_feature(0x0B).dw0 == 0x9FF
            discovery.set_feature(0x0B, 0xFFFFFFFF)
            assert discovery.get_feature(0x0B).dw0 == 0x80000000
            assert discovery.get_feature(0x0B, select=1).dw0 == 0

    run(main())
