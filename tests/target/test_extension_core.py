"""The extension on the real data path: what the control plane and the data path must agree on."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.host import Controller, connected_queue_pair

from prestage import testing
from prestage.ext.layout import EXTENSION_UUID_PREFIX
from prestage.ext.names import State
from prestage.ext.pages import decode_events, decode_status, find_capability
from prestage.target.settings import (
    HintSettings,
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    SubsystemSettings,
    TargetSettings,
    TenantSettings,
    TierSettings,
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("prestage._core") is None, reason="the C module is not built"
)
NQN, PLAIN = "nqn.2026-11.io.prestage:extended", "nqn.2026-11.io.prestage:plain"
A, B = "nqn.2026-11.com.example:a", "nqn.2026-11.com.example:b"
RAM = NamespaceSettings(media="ram", size=16 << 20)
STATUS, EVENTS, FEATURE = 0xD0, 0xD1, 0xD0
MIB = 1 << 20


def settings(**more: Any) -> TargetSettings:
    is_on = more.get("hints", HintSettings()).enabled
    return TargetSettings(
        listeners=[ListenerSettings(port=0)],
        subsystems=[
            SubsystemSettings(nqn=NQN, namespaces=[RAM], extension=is_on),
            SubsystemSettings(nqn=PLAIN, namespaces=[RAM]),
        ],
        tier=TierSettings(size=16 * MIB, huge_pages=False),
        limits=LimitSettings(connections=64),
        **more,
    )


@pytest.fixture
def target() -> Iterator[testing.Target]:
    own = TenantSettings(host=A, sets=1, tier_percent=10)
    given = settings(hints=HintSettings(sets=2, tenants=[own]))
    with testing.in_thread(testing.Target(settings=given)) as running:
        yield running


def host(
    target: testing.Target, nqn: str = NQN, name: str = A
) -> contextlib.AbstractContextManager[Controller]:
    return connected_queue_pair((target.address, target.port), nqn, hostnqn=name)


def get_log(controller: Controller, lid: int, *, rae: bool = False) -> nvme.Completion:
    """A page of the extension, by its UUID."""
    cdw10 = lid | rae << 15 | 1023 << 16
    entry = nvme.sqe(nvme.GET_LOG, 0xFFFFFFFF, cdw10=cdw10, cdw14=1)
    return controller.admin.execute(entry, expected=4096)


def ask_for_events(controller: Controller) -> nvme.Completion:
    entry = nvme.sqe(nvme.SET_FEATURES, cdw10=FEATURE, cdw11=1, cdw14=1)
    return controller.admin.execute(entry)


def intend(controller: Controller, intent_id: int) -> None:
    batch = hints.batch(hints.intent(intent_id, [(0, 16)]), sequence=intent_id)
    assert controller.io[0].execute(hints.submit(), data=batch).is_ok


@pytest.mark.parametrize("nqn", [NQN, PLAIN])
def test_the_status_page_begins_with_the_capability_of_identify(
    target: testing.Target, nqn: str
) -> None:
    with host(target, nqn) as controller:
        status = get_log(controller, STATUS)
        assert status.is_ok
        assert status.data[:128] == controller.identify(1)[3072:3200]
        found = find_capability(controller.identify(1))
        assert found is not None
        assert found.extension_nsid == (1024 if nqn == NQN else 0)


def test_each_host_has_its_budget(target: testing.Target) -> None:
    with host(target, name=A) as a, host(target, name=B) as b:
        mine, others = (decode_status(get_log(one, STATUS).data) for one in (a, b))
        assert (mine.sets.limit, others.sets.limit) == (1, 2)
        assert (mine.tier_bytes.limit, others.tier_bytes.limit) == (16 * MIB // 10, 8 * MIB)
        assert mine.records_per_s.limit == others.records_per_s.limit == 200_000


def test_an_intent_that_ends_wakes_its_host_and_no_other(target: testing.Target) -> None:
    with host(target, name=A) as a, host(target, name=B) as b:
        assert ask_for_events(a).is_ok and ask_for_events(b).is_ok
        waiting = [one.admin.submit(nvme.sqe(nvme.AER)) for one in (a, b)]
        intend(a, 5)
        event = a.admin.wait(waiting[0])
        assert event.dw0 == 7 | EVENTS << 16
        log = decode_events(get_log(a, EVENTS).data)
        assert [(one.intent_id, one.state) for one in log.events] == [(5, State.MET)]
        assert decode_events(get_log(a, EVENTS).data).events == (), "it was read"
        assert decode_events(get_log(b, EVENTS).data).events == ()
        again = a.admin.submit(nvme.sqe(nvme.AER))
        intend(a, 6)
        assert a.admin.wait(again).dw0 == 7 | EVENTS << 16, "the log was read in between"
        assert b.admin.execute(nvme.sqe(nvme.KEEP_ALIVE)).is_ok
        assert waiting[1] in b.admin.in_flight, "its request still waits"


def test_a_namespace_takes_all_of_thousands_of_intents_along() -> None:
    """More than fit into the tier wait for room; they end in several portions."""
    given = settings(hints=HintSettings(intents=4000))
    with (
        testing.in_thread(testing.Target(settings=given)) as target,
        host(target, PLAIN) as controller,
    ):
        for first in range(1, 2000, 60):
            intents = [
                hints.intent(number, [(number * 16 % 4096, 16)], deadline_us=60_000_000)
                for number in range(first, first + 60)
            ]
            batch = hints.batch(*intents, sequence=first)
            assert controller.io[0].execute(hints.submit(), data=batch).is_ok
        with target.client() as client:
            client.call("nvmf_subsystem_remove_ns", nqn=PLAIN, nsid=1)
        counts = decode_status(get_log(controller, STATUS).data).intent_counts[1]
        assert (counts.arrived, counts.pending) == (2040, 0)
        assert counts.met + counts.late + counts.dropped + counts.cancelled == 2040
        assert counts.cancelled > 1000


def test_what_hosts_did_is_in_the_report(target: testing.Target) -> None:
    with host(target, name=A) as a:
        intend(a, 5)
        ranges = nvme.dsm_ranges([(0, 8), (64, 8)])
        said = nvme.sqe(nvme.DSM, 1, cdw10=1, cdw11=1)
        assert a.io[0].execute(said, data=ranges).is_ok
        with target.client() as client:
            (mine,) = client.call("prestage_get_hints", host=A)["tenants"]
            stats = client.call("prestage_get_stats")
        assert (mine["batches"], mine["dataset_sets"]) == (1, 1)
        assert mine["intents"]["high"]["arrived"] == 1
        assert mine["budgets"]["sets"] == {"limit": 1, "used": 1}
        (space,) = [one for s in stats["subsystems"] if s["nqn"] == NQN for one in s["namespaces"]]
        assert set(space["scheduler"]["classes"]) == {"demand", "dated", "write", "speculative"}
        assert space["scheduler"]["window"] > 0


def test_a_subsystem_goes_and_comes_back_with_its_extension(target: testing.Target) -> None:
    with host(target) as controller:
        before = controller.identify(3, 1024)
        assert before[4:8] == bytes.fromhex(EXTENSION_UUID_PREFIX)
        page = controller.io[0].execute(
            nvme.block_command(nvme.READ, 0, 1, nsid=1024), expected=4096
        )
        assert page.is_ok and decode_status(page.data).capability.extension_nsid == 1024
    with target.client() as client:
        client.call("nvmf_delete_subsystem", nqn=NQN)
        client.call("nvmf_create_subsystem", nqn=NQN, allow_any_host=True, extension=True)
    with host(target) as controller:
        assert controller.identify(3, 1024) == before


def test_with_hints_off_opcodes_and_pages_are_not_there() -> None:
    given = settings(hints=HintSettings(enabled=False))
    with testing.in_thread(testing.Target(settings=given)) as target, host(target) as controller:
        batch = hints.batch(hints.intent(1, [(0, 8)]), sequence=1)
        queue = controller.io[0]
        assert queue.execute(hints.submit(), data=batch).code == "0/01"
        assert queue.execute(hints.query(hints.ASK_STATUS), expected=4096).code == "0/01"
        dated = hints.dated_read(0, 1, deadline_us=1000)
        assert queue.execute(dated, expected=4096).code == "0/01"
        assert get_log(controller, STATUS).code == "1/09"
        assert ask_for_events(controller).code == "0/02"
        hinted = nvme.block_command(nvme.READ, 0, 1)
        hinted = hinted[:52] + b"\x07" + hinted[53:]
        assert queue.execute(hinted, expected=4096).is_ok, "attributes are not looked at"
        with target.client() as client:
            found = client.call("prestage_get_hints")
        assert found["enabled"] is False and found["records"] == 0
