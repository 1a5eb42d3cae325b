"""nvmf_*: each method, and what each refuses."""

from __future__ import annotations

from typing import Any

import pytest
from rpc_tools import HOST, NQN, Rig

from prestage.target.settings import DISCOVERY_NQN

OTHER = "nqn.2026-11.com.example:b"
ADDRESS = {"trtype": "tcp", "adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": "4420"}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_subsystems_are_described(rig: Rig) -> None:
    discovery, found = rig.call("nvmf_get_subsystems")
    address = {"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}
    assert discovery == {
        "nqn": DISCOVERY_NQN,
        "subtype": "Discovery",
        "listen_addresses": [address],
        "allow_any_host": True,
        "hosts": [],
    }
    namespace = found["namespaces"][0]
    assert len(namespace.pop("nguid")) == 32
    assert len(namespace.pop("uuid")) == 36
    assert found == {
        "nqn": NQN,
        "subtype": "NVMe",
        "listen_addresses": [address],
        "allow_any_host": True,
        "hosts": [],
        "serial_number": "S1",
        "model_number": "prestage",
        "max_namespaces": 256,
        "passthrough": False,
        "min_cntlid": 1,
        "max_cntlid": 0xFFEF,
        "namespaces": [{"nsid": 1, "bdev_name": f"{NQN}/1", "name": f"{NQN}/1", "anagrpid": 1}],
    }


def test_one_subsystem_is_found_by_name(rig: Rig) -> None:
    assert [one["nqn"] for one in rig.call("nvmf_get_subsystems", nqn=NQN)] == [NQN]
    discovery = rig.call("nvmf_get_subsystems", nqn=DISCOVERY_NQN)
    assert [one["nqn"] for one in discovery] == [DISCOVERY_NQN]
    assert rig.fail("nvmf_get_subsystems", nqn="x") == (
        -19,
        'No such device: nqn: there is no subsystem "x"',
    )


def test_a_subsystem_is_created_and_deleted(rig: Rig) -> None:
    created = {"nqn": OTHER, "serial_number": "S2", "model_number": "M", "max_namespaces": 4}
    assert rig.call("nvmf_create_subsystem", **created, allow_any_host=True) is True
    found = rig.call("nvmf_get_subsystems", nqn=OTHER)[0]
    assert {name: found[name] for name in created} == created
    assert found["allow_any_host"] is True
    assert rig.fail("nvmf_create_subsystem", nqn=OTHER)[0] == -17
    assert rig.call("nvmf_delete_subsystem", nqn=OTHER) is True
    assert rig.fail("nvmf_delete_subsystem", nqn=OTHER)[0] == -19


def test_an_extension_namespace_is_part_of_the_saved_configuration(rig: Rig) -> None:
    rig.call("nvmf_create_subsystem", nqn=OTHER, extension=True)
    assert rig.target.by_nqn[OTHER].extension is not None
    saved = [
        call["params"]
        for call in rig.call("framework_get_config", name="nvmf")
        if call["method"] == "nvmf_create_subsystem"
    ]
    plain, extended = saved
    assert "extension" not in plain, "which other targets would not know"
    assert (extended["extension"], extended["extension_nsid"]) == (True, 1024)
    rig.call("nvmf_delete_subsystem", nqn=OTHER)
    assert rig.call("nvmf_create_subsystem", **extended) is True
    assert rig.fail("nvmf_create_subsystem", nqn=NQN, extension_nsid=5)[0] == -32602


def test_a_new_subsystem_lets_no_host_in_unless_told(rig: Rig) -> None:
    rig.call("nvmf_create_subsystem", nqn=OTHER)
    assert rig.call("nvmf_get_subsystems", nqn=OTHER)[0]["allow_any_host"] is False


@pytest.mark.parametrize(
    ("params", "code", "message"),
    [
        ({"nqn": "x"}, -32602,
         ('Invalid parameters: nqn: found "x", expected an NQN such as '
         "nqn.2026-11.com.example:name")),
        ({"nqn": OTHER, "serial_number": "x" * 21}, -32602,
         ('Invalid parameters: serial_number: found "xxxxxxxxxxxxxxxxxxxxx", expected 0 to 20 '
         "printable ASCII characters")),
        ({"nqn": OTHER, "model_number": "x" * 41}, -32602,
         ('Invalid parameters: model_number: found "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", '
         "expected 1 to 40 printable ASCII characters")),
        ({"nqn": OTHER, "max_namespaces": 5000}, -32602,
         "Invalid parameters: max_namespaces: found 5000, expected 1 to 1024"),
        ({"nqn": OTHER, "passthrough": True}, -95,
         "Operation not supported: passthrough: found True, expected none"),
        ({"nqn": OTHER, "min_cntlid": 2}, -95,
         "Operation not supported: min_cntlid: expected 1, and max_cntlid 65519"),
    ],
)  # fmt: skip
def test_a_subsystem_that_cannot_be_is_refused(
    rig: Rig, params: dict[str, Any], code: int, message: str
) -> None:
    assert rig.fail("nvmf_create_subsystem", **params) == (code, message)
    assert len(rig.target.subsystems) == 1


def test_a_bdev_becomes_a_namespace_and_stays_when_that_goes(rig: Rig) -> None:
    rig.call("bdev_malloc_create", name="m", block_size=512, num_blocks=2048)
    wanted = {
        "bdev_name": "m",
        "nsid": 7,
        "nguid": "0123456789ABCDEF0123456789ABCDEF",
        "uuid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    }
    assert rig.call("nvmf_subsystem_add_ns", nqn=NQN, namespace=wanted) == 7
    found = rig.call("nvmf_get_subsystems", nqn=NQN)[0]["namespaces"][1]
    assert {name: found[name] for name in wanted} == wanted
    assert rig.fail("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "m"})[0] == -16
    assert rig.call("nvmf_subsystem_remove_ns", nqn=NQN, nsid=7) is True
    assert rig.fail("nvmf_subsystem_remove_ns", nqn=NQN, nsid=7)[0] == -19
    assert rig.call("bdev_get_bdevs", name="m")[0]["claimed"] is False
    assert rig.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "m"}) == 2


@pytest.mark.parametrize(
    ("namespace", "code", "message"),
    [
        ({"bdev_name": "x"}, -19, 'No such device: there is no bdev "x"'),
        ({"bdev_name": "m", "nsid": 1025}, -22,
         "Invalid argument: namespace.nsid: found 1025, expected 0 to 1024"),
        ({"bdev_name": "m", "nsid": 1}, -17, "File exists: "),
        ({"bdev_name": "m", "uuid": "x"}, -22, "Invalid argument: namespace.uuid: "),
        ({"bdev_name": "m", "nguid": "x"}, -22, "Invalid argument: namespace.nguid: "),
        ({"bdev_name": "m", "eui64": "0123456789abcdef"}, -95,
         'Operation not supported: eui64: found "0123456789abcdef", expected none'),
        ({"bdev_name": "m", "anagrpid": 2}, -95,
         "Operation not supported: anagrpid: found 2, expected 1"),
    ],
)  # fmt: skip
def test_a_namespace_that_cannot_be_is_refused(
    rig: Rig, namespace: dict[str, Any], code: int, message: str
) -> None:
    rig.call("bdev_malloc_create", name="m", block_size=512, num_blocks=2048)
    found = rig.fail("nvmf_subsystem_add_ns", nqn=NQN, namespace=namespace)
    assert found[0] == code
    assert found[1].startswith(message)
    assert len(rig.target.subsystems[0].namespaces) == 1


def test_listeners_come_and_go_for_all_subsystems(rig: Rig) -> None:
    new = ADDRESS | {"trsvcid": "4421"}
    assert rig.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=new) is True
    assert rig.call("nvmf_subsystem_add_listener", nqn=DISCOVERY_NQN, listen_address=new) is True
    found = rig.call("nvmf_subsystem_get_listeners", nqn=NQN)
    assert [one["address"]["trsvcid"] for one in found] == ["4420", "4421"]
    assert found[0]["ana_states"] == [{"ana_group": 1, "ana_state": "optimized"}]
    assert rig.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=new) is True
    assert rig.fail("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=new)[0] == -19


def test_an_ipv6_listener_is_added(rig: Rig) -> None:
    where = {"trtype": "TCP", "adrfam": "IPv6", "traddr": "::1", "trsvcid": 4420}
    rig.call("nvmf_subsystem_add_listener", nqn=NQN, listen_address=where)
    assert rig.target.listeners[-1] == ("::1", 4420)
    where["traddr"] = "0:0:0::1"
    rig.call("nvmf_subsystem_remove_listener", nqn=NQN, listen_address=where)
    assert ("::1", 4420) not in rig.target.listeners


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trtype": "RDMA"}, 'listen_address.trtype: found "RDMA", expected TCP'),
        ({"traddr": "localhost"},
         ('listen_address.traddr: found "localhost", expected an IPv4 or IPv6 address such as '
         "127.0.0.1 or ::1")),
        ({"trsvcid": "65536"},
         'listen_address.trsvcid: found "65536", expected a port, 1 to 65535'),
        ({"trsvcid": "0"}, 'listen_address.trsvcid: found "0", expected a port, 1 to 65535'),
        ({"trsvcid": "http"}, 'listen_address.trsvcid: found "http", expected a port, 1 to 65535'),
        ({"adrfam": "IPv6"}, 'listen_address.adrfam: found "IPv6", expected IPv4'),
    ],
)  # fmt: skip
def test_a_wrong_address_is_named(rig: Rig, change: dict[str, Any], message: str) -> None:
    params = {"nqn": NQN, "listen_address": ADDRESS | change}
    found = rig.fail("nvmf_subsystem_add_listener", **params)
    assert found == (-32602, f"Invalid parameters: {message}")


def test_tls_and_other_ana_states_are_refused(rig: Rig) -> None:
    base = {"nqn": NQN, "listen_address": ADDRESS}
    assert rig.fail("nvmf_subsystem_add_listener", **base, secure_channel=True)[0] == -95
    assert rig.fail("nvmf_subsystem_add_listener", **base, ana_state="inaccessible")[0] == -95


def test_hosts_come_and_go(rig: Rig) -> None:
    assert rig.call("nvmf_subsystem_add_host", nqn=NQN, host=HOST) is True
    assert rig.call("nvmf_get_subsystems", nqn=NQN)[0]["hosts"] == [{"nqn": HOST}]
    assert rig.fail("nvmf_subsystem_add_host", nqn=NQN, host=HOST)[0] == -17
    assert rig.fail("nvmf_subsystem_add_host", nqn=NQN, host="me") == (
        -32602,
        (
            'Invalid parameters: host: found "me", expected an NQN such as '
            "nqn.2026-11.com.example:name"
        ),
    )
    assert rig.fail("nvmf_subsystem_add_host", nqn=NQN, host=HOST, psk="key")[0] == -95
    assert rig.call("nvmf_subsystem_remove_host", nqn=NQN, host=HOST) is True
    assert rig.fail("nvmf_subsystem_remove_host", nqn=NQN, host=HOST)[0] == -19


def test_any_host_may_be_allowed_or_not(rig: Rig) -> None:
    for allowed in (False, True):
        rig.call("nvmf_subsystem_allow_any_host", nqn=NQN, allow_any_host=allowed)
        assert rig.target.subsystems[0].allow_any_host is allowed


def test_what_is_connected_is_listed(rig: Rig) -> None:
    rig.target.connect(NQN, HOST, queues=2)
    assert rig.call("nvmf_subsystem_get_controllers", nqn=NQN) == [
        {"cntlid": 1, "cntrltype": "io", "hostnqn": HOST, "hostid": "00" * 16, "num_io_qpairs": 2}
    ]
    queues = rig.call("nvmf_subsystem_get_qpairs", nqn=NQN)
    assert [queue["qid"] for queue in queues] == [0, 1, 2]
    assert queues[1]["peer_address"]["trsvcid"] == "50000"
    (group,) = rig.call("nvmf_get_stats")["poll_groups"]
    assert (group["admin_qpairs"], group["io_qpairs"], group["completed_nvme_io"]) == (1, 2, 7)


@pytest.mark.parametrize(
    "method",
    ["nvmf_subsystem_get_controllers", "nvmf_subsystem_get_qpairs", "nvmf_delete_subsystem",
     "nvmf_subsystem_get_listeners"],
)  # fmt: skip
def test_an_unknown_subsystem_is_named(rig: Rig, method: str) -> None:
    assert rig.fail(method, nqn="x") == (-19, 'No such device: nqn: there is no subsystem "x"')


def test_the_transport_is_there_and_may_be_created_again(rig: Rig) -> None:
    assert rig.call("nvmf_create_transport", trtype="TCP", no_srq=False, zcopy=True) is True
    assert rig.fail("nvmf_create_transport", trtype="RDMA") == (
        -22,
        'Invalid argument: trtype: found "RDMA", expected TCP',
    )
    (transport,) = rig.call("nvmf_get_transports", trtype="tcp")
    assert transport["max_io_qpairs_per_ctrlr"] == 128
    assert transport["max_io_size"] == 1 << 20


def test_a_saved_configuration_makes_the_same_target_again(rig: Rig) -> None:
    rig.call("bdev_malloc_create", name="m", block_size=512, num_blocks=2048)
    rig.call("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "m", "nsid": 9})
    rig.call("nvmf_create_subsystem", nqn=OTHER, serial_number="S2")
    rig.call("nvmf_subsystem_add_host", nqn=OTHER, host=HOST)
    calls = [
        call
        for part in rig.call("framework_get_subsystems")
        for call in rig.call("framework_get_config", name=part["subsystem"]) or []
    ]
    empty = Rig(rig.target.settings.__class__())
    for call in calls:
        empty.call(call["method"], **call.get("params", {}))
    assert empty.call("nvmf_get_subsystems") == rig.call("nvmf_get_subsystems")
