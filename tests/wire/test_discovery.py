"""The discovery log: in pieces, by address family, per host, with its generation counter."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.connection import Address
from nvme_tcp.host import Controller, connected_queue_pair

from .running import ALLOWED_HOST, NQN, RESTRICTED_NQN, RunningTarget

CONFIG: dict[str, Any] = {
    "listeners": [
        {"address": "127.0.0.1", "port": 0},
        {"address": "::1", "port": 0},
        {"address": "0.0.0.0", "port": 0},
        {"address": "::", "port": 0},
    ]
}


@dataclasses.dataclass(frozen=True)
class Record:
    """A discovery log page entry (Base 2.0, figure 295)."""

    trtype: int
    adrfam: int
    subtype: int
    cntlid: int
    trsvcid: str
    subnqn: str
    traddr: str


@dataclasses.dataclass(frozen=True)
class Log:
    """The discovery log page."""

    genctr: int
    numrec: int
    records: list[Record]

    def of(self, nqn: str) -> list[Record]:
        """The records of one subsystem."""
        return [record for record in self.records if record.subnqn == nqn]


def parse(data: bytes) -> Log:
    """The log page in `data`, as many records as are there."""

    def text(piece: bytes) -> str:
        return piece.split(b"\0")[0].decode().strip()

    records = [
        Record(
            one[0],
            one[1],
            one[2],
            int.from_bytes(one[6:8], "little"),
            text(one[32:64]),
            text(one[256:512]),
            text(one[512:768]),
        )
        for one in (data[at : at + 1024] for at in range(1024, len(data), 1024))
    ]
    genctr, numrec = (int.from_bytes(data[at : at + 8], "little") for at in (0, 8))
    return Log(genctr, numrec, records)


def read_log(controller: Controller, piece: int = 4096) -> bytes:
    """The whole log, read in pieces of this many bytes."""
    numrec = int.from_bytes(controller.get_log(0x70, 16)[8:16], "little")
    total = 1024 * (numrec + 1)
    data = b""
    while len(data) < total:
        size = min(piece, total - len(data))
        data += controller.get_log(0x70, size, offset=len(data), rae=len(data) + size < total)
    return data


def discover(address: Address, hostnqn: str = nvme.HOST_NQN) -> Log:
    """The log as a host sees it that connects to this address."""
    with connected_queue_pair(address, nvme.DISCOVERY_NQN, 0, hostnqn=hostnqn) as controller:
        return parse(read_log(controller))


def address_of(target: RunningTarget, index: int) -> tuple[str, int]:
    """Listener `index` of CONFIG, wildcards as loopback."""
    address, port = target.listeners[index]
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address), port


def test_log_names_the_subsystem(target: RunningTarget) -> None:
    log = discover(target.address)
    assert log.numrec == len(log.records)
    found = log.of(NQN)
    assert found and all(one.trtype == 3 and one.subtype == 2 for one in found), found
    assert all(one.cntlid == 0xFFFF for one in found)
    assert ("127.0.0.1", str(target.address[1])) in {(one.traddr, one.trsvcid) for one in found}
    assert all(one.subtype == 3 for one in log.of(nvme.DISCOVERY_NQN))


@pytest.mark.parametrize("index", range(4))
def test_addresses_are_those_that_the_host_can_reach(target: RunningTarget, index: int) -> None:
    # Row A17: a wildcard listener is reported by the address that the host used.
    address, port = address_of(target, index)
    found = discover((address, port)).of(NQN)
    assert not [one for one in found if one.traddr in ("0.0.0.0", "::")], found
    mine = [one for one in found if (one.traddr, one.trsvcid) == (address, str(port))]
    assert len(mine) == 1, found
    for one in found:
        assert one.adrfam == (2 if ":" in one.traddr else 1), one
    with connected_queue_pair((mine[0].traddr, int(mine[0].trsvcid)), NQN) as controller:
        controller.io[0].read(0, 1, 512)


@pytest.mark.parametrize("piece", [4, 16, 20, 512, 1000, 1024, 1028, 4096])
def test_log_in_pieces_is_the_log(target: RunningTarget, piece: int) -> None:
    with connected_queue_pair(target.address, nvme.DISCOVERY_NQN, 0) as controller:
        assert read_log(controller, piece) == read_log(controller, 1 << 16)


def test_read_past_the_end_is_zeros(target: RunningTarget) -> None:
    # SPDK's host asks for 4 KiB pieces whatever NUMREC says.
    with connected_queue_pair(target.address, nvme.DISCOVERY_NQN, 0) as controller:
        whole = read_log(controller)
        entry = nvme.get_log(0x70, len(whole) + 4096)
        answer = controller.admin.execute(entry, expected=len(whole) + 4096)
        assert answer.is_ok and answer.data == whole + bytes(4096)


def test_restricted_subsystem_is_shown_to_its_host_only(target: RunningTarget) -> None:
    assert not discover(target.address).of(RESTRICTED_NQN)
    assert discover(target.address, ALLOWED_HOST).of(RESTRICTED_NQN)


def test_generation_counter_moves_with_what_the_host_sees(target: RunningTarget) -> None:
    # Row D73.
    before = discover(target.address)
    target.rpc("nvmf_subsystem_add_host", nqn=RESTRICTED_NQN, host="nqn.2026-11.io.prestage:x")
    assert discover(target.address).genctr == before.genctr, "moved by another host's right"
    target.rpc("nvmf_create_subsystem", nqn=f"{NQN}-new", allow_any_host=True)
    after = discover(target.address)
    assert after.genctr != before.genctr and after.of(f"{NQN}-new")
    target.rpc("nvmf_delete_subsystem", nqn=f"{NQN}-new")
    last = discover(target.address)
    assert last.genctr not in (before.genctr, after.genctr) and not last.of(f"{NQN}-new")
    target.rpc("nvmf_subsystem_remove_host", nqn=RESTRICTED_NQN, host="nqn.2026-11.io.prestage:x")


def test_change_between_two_pieces_shows_in_the_header(target: RunningTarget) -> None:
    # Row D74: 200 subsystems, one more between the head and the tail.
    names = [f"nqn.2026-11.io.prestage:many-{index}" for index in range(200)]
    try:
        for name in names[:-1]:
            target.rpc("nvmf_create_subsystem", nqn=name, allow_any_host=True)
        with connected_queue_pair(target.address, nvme.DISCOVERY_NQN, 0) as controller:
            first = parse(read_log(controller))
            assert first.numrec == len(first.records)
            assert {name for name in names[:-1] if first.of(name)} == set(names[:-1])
            head = controller.get_log(0x70, 4096, rae=True)
            target.rpc("nvmf_create_subsystem", nqn=names[-1], allow_any_host=True)
            tail = controller.get_log(0x70, 1024 * first.numrec - 3072, offset=4096)
            assert len(parse(head + tail).records) == first.numrec
            assert parse(controller.get_log(0x70, 1024)).genctr != parse(head).genctr
            again = parse(read_log(controller))
            assert again.numrec > first.numrec and again.of(names[-1])
    finally:
        for name in names:
            target.rpc("nvmf_delete_subsystem", nqn=name)


def test_change_is_announced_by_an_event(target: RunningTarget) -> None:
    with connected_queue_pair(target.address, nvme.DISCOVERY_NQN, 0) as controller:
        admin = controller.admin
        assert int.from_bytes(controller.identify(1)[92:96], "little") >> 31, "OAES bit 31"
        assert admin.execute(nvme.set_features(0x0B, 1 << 31)).is_ok
        aer = admin.submit(nvme.sqe(nvme.AER))
        target.rpc("nvmf_create_subsystem", nqn=f"{NQN}-event", allow_any_host=True)
        try:
            event = admin.wait(aer, 5.0)
            assert event.dw0 & 0xFFFF == 0xF002 and event.dw0 >> 16 & 0xFF == 0x70, event.text()
            second = admin.submit(nvme.sqe(nvme.AER))
            # Masked until the log is read without Retain Asynchronous Event.
            controller.get_log(0x70, 1024)
        finally:
            target.rpc("nvmf_delete_subsystem", nqn=f"{NQN}-event")
        assert admin.wait(second, 5.0).dw0 & 0xFFFF == 0xF002


@pytest.mark.parametrize("port", ["0", "70000", "-1", "44x", "", "4420 "])
def test_listener_with_a_wrong_port_is_refused(target: RunningTarget, port: str) -> None:
    # Row A16.
    before = target.rpc("nvmf_get_subsystems")
    address = {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port}
    with pytest.raises(AssertionError, match=r"error|trsvcid|port"):
        target.rpc("nvmf_subsystem_add_listener", nqn=NQN, listen_address=address)
    assert target.rpc("nvmf_get_subsystems") == before
