"""The stock client of SPDK against our control socket, as it is installed from its package."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_target import FakeTarget
from nvme_tcp.host import Controller
from rpc_tools import NQN, fake_settings

from prestage import testing
from prestage.target.rpc.context import Context
from prestage.target.rpc.server import ControlServer
from prestage.target.settings import DISCOVERY_NQN, TargetSettings

pytest.importorskip("spdk", reason="the client of SPDK is not installed")

OTHER = "nqn.2026-11.com.example:b"


class Rpc:
    """Runs the stock `spdk-rpc` against a fake target."""

    def __init__(self, target: FakeTarget, path: str) -> None:
        self.target = target
        self.path = path

    def run(self, *words: str, text: str = "", code: int = 0) -> str:
        """Run a command line that is to end with `code`; return what it printed."""
        found = subprocess.run(
            [sys.executable, "-m", "spdk.spdk_rpc", "-s", self.path, *words],
            input=text,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert found.returncode == code, found
        return found.stdout

    def json(self, *words: str) -> Any:
        """Run a command line and return the JSON that it printed."""
        return json.loads(self.run(*words))


def serving(settings: TargetSettings, path: str) -> Iterator[Rpc]:
    target = FakeTarget(settings)
    ready, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        await target.start()
        server = ControlServer(Context(target, lambda _: None), path)
        server.claim()
        server.start()
        ready.set()
        await over.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    yield Rpc(target, path)
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


@pytest.fixture
def rpc(tmp_path: Path) -> Iterator[Rpc]:
    yield from serving(fake_settings(), str(tmp_path / "a.sock"))


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Rpc]:
    yield from serving(TargetSettings(), str(tmp_path / "b.sock"))


def test_it_lists_subsystems(rpc: Rpc) -> None:
    found = rpc.json("nvmf_get_subsystems")
    assert [one["nqn"] for one in found] == [DISCOVERY_NQN, NQN]


def test_it_adds_a_file_as_a_namespace_and_removes_it(rpc: Rpc, tmp_path: Path) -> None:
    image = tmp_path / "d.img"
    image.write_bytes(bytes(1 << 20))
    assert rpc.run("bdev_aio_create", str(image), "d", "512") == "d\n"
    rpc.run("nvmf_subsystem_add_ns", NQN, "d", "-n", "5")
    assert rpc.target.subsystems[0].namespaces[5].settings.path == str(image)
    assert rpc.json("bdev_get_bdevs", "-b", "d")[0]["claimed"] is True
    rpc.run("nvmf_subsystem_remove_ns", NQN, "5")
    rpc.run("bdev_aio_delete", "d")
    assert list(rpc.target.subsystems[0].namespaces) == [1]


def test_it_adds_memory_as_a_namespace(rpc: Rpc) -> None:
    assert rpc.run("bdev_malloc_create", "-b", "m", "4", "4096") == "m\n"
    rpc.run("nvmf_subsystem_add_ns", NQN, "m")
    assert rpc.target.subsystems[0].namespaces[2].settings.size == 4 << 20


def test_it_reads_statistics(rpc: Rpc) -> None:
    rpc.target.counters[NQN, 1] = {"reads": 3, "read_bytes": 12288}
    (row,) = rpc.json("bdev_get_iostat")["bdevs"]
    assert (row["num_read_ops"], row["bytes_read"]) == (3, 12288)
    assert rpc.json("bdev_get_iostat", "--names", f"{NQN}/1")["bdevs"] == [row]
    assert rpc.json("nvmf_get_stats")["poll_groups"][0]["completed_nvme_io"] == 7
    assert rpc.json("framework_get_reactors")["tick_rate"] == 1_000_000_000
    assert rpc.json("thread_get_stats")["threads"]
    assert rpc.json("nvmf_get_transports")[0]["trtype"] == "TCP"


def test_it_makes_a_subsystem_with_hosts_and_listeners(rpc: Rpc) -> None:
    rpc.run("nvmf_create_transport", "-t", "TCP")
    rpc.run("nvmf_create_subsystem", OTHER, "-s", "S2", "-d", "M2", "-m", "8")
    rpc.run("nvmf_subsystem_add_host", OTHER, NQN)
    rpc.run("nvmf_subsystem_allow_any_host", OTHER, "--allow-any-host")
    rpc.run("nvmf_subsystem_add_listener", OTHER, "-t", "tcp", "-a", "127.0.0.1", "-s", "4421")
    rpc.run("nvmf_subsystem_add_listener", "discovery", "-t", "tcp", "-a", "::1", "-s", "4420",
            "-f", "ipv6")  # fmt: skip
    found = rpc.json("nvmf_get_subsystems", OTHER)[0]
    assert (found["serial_number"], found["model_number"], found["max_namespaces"]) == (
        "S2",
        "M2",
        8,
    )
    assert found["hosts"] == [{"nqn": NQN}]
    assert found["allow_any_host"] is True
    assert len(found["listen_addresses"]) == 3
    assert rpc.json("nvmf_subsystem_get_controllers", OTHER) == []
    assert rpc.json("nvmf_subsystem_get_qpairs", OTHER) == []
    assert len(rpc.json("nvmf_subsystem_get_listeners", OTHER)) == 3
    rpc.run("nvmf_delete_subsystem", OTHER)


def test_it_shows_our_errors(rpc: Rpc) -> None:
    printed = rpc.run("nvmf_delete_subsystem", "nqn.2026-11.com.example:none", code=1)
    assert '"code": -19' in printed
    assert "there is no subsystem" in printed


def test_a_batch_is_answered(rpc: Rpc) -> None:
    text = "bdev_malloc_create -b m 4 512\nbdev_get_bdevs -b m\n"
    printed = rpc.run("-b", text=text)
    assert '"num_blocks": 8192' in printed


def test_a_saved_configuration_is_loaded_into_another_target(rpc: Rpc, empty: Rpc) -> None:
    saved = rpc.run("save_config")
    empty.run("load_config", text=saved)
    assert empty.json("nvmf_get_subsystems") == rpc.json("nvmf_get_subsystems")
    assert (
        empty.json("bdev_get_bdevs")[0]["driver_specific"]
        == (rpc.json("bdev_get_bdevs")[0]["driver_specific"])
    )


def test_it_manages_the_real_target(tmp_path: Path) -> None:
    image = tmp_path / "d.img"
    image.write_bytes(bytes(4 << 20))
    with testing.spawn_target() as target:
        rpc = Rpc(FakeTarget(TargetSettings()), target.control_socket)
        assert rpc.json("nvmf_get_subsystems")[1]["nqn"] == target.nqn
        assert rpc.run("bdev_uring_create", str(image), "d", "4096") == "d\n"
        rpc.run("nvmf_subsystem_add_ns", target.nqn, "d", "-n", "5")
        namespaces = rpc.json("nvmf_get_subsystems", target.nqn)[0]["namespaces"]
        assert [one["nsid"] for one in namespaces] == [1, 5]
        with Controller((target.address, target.port), target.nqn) as controller:
            controller.enable()
            controller.add_queue().write(0, b"x" * 4096, 4096, nsid=5)
        (row,) = rpc.json("bdev_get_iostat", "--names", "d")["bdevs"]
        assert (row["num_write_ops"], row["bytes_written"]) == (1, 4096)
        assert rpc.json("framework_get_reactors")["reactors"][0]["busy"] > 0
        json.loads(rpc.run("save_config"))
        rpc.run("bdev_uring_delete", "d")
        assert target.terminate() == 0
    assert image.read_bytes()[:4096] == b"x" * 4096
