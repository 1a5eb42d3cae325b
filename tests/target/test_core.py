"""The stub against the headers, and the wrapper against the C module where that is built."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_data_path import NQN, settings_in, subsystem, until
from nvme_tcp import commands as nvme
from nvme_tcp.host import connected_queue_pair

from prestage.target.errors import Exhausted, MediumError, TargetError
from prestage.target.settings import (
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    TargetSettings,
    TierSettings,
)
from prestage.target.target import Target

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r"/\* cffi: begin \*/(.*?)/\* cffi: end \*/", re.DOTALL)
needs_core = pytest.mark.skipif(
    importlib.util.find_spec("prestage._core") is None, reason="the C module is not built"
)


def core_headers() -> list[str]:
    """The headers that the build script gives to the module."""
    script = (ROOT / "csrc" / "build_ffi.py").read_text("utf-8")
    found = re.search(r'"prestage\._core",\s*\[(.*?)\]', script, re.DOTALL)
    assert found is not None
    return re.findall(r'"([^"]+)"', found.group(1))


def test_the_stub_names_every_function_of_the_headers_and_no_other() -> None:
    headers = [name for name in core_headers() if (ROOT / "csrc" / name).exists()]
    assert "core.h" in headers
    texts = [(ROOT / "csrc" / name).read_text("utf-8") for name in headers]
    marked = "\n".join(part for text in texts for part in MARKED.findall(text))
    declared = re.sub(r"/\*.*?\*/", "", marked, flags=re.DOTALL)
    in_headers = set(re.findall(r"\b(ps_\w+)\(", declared))
    stub = (ROOT / "src" / "prestage" / "_core.pyi").read_text("utf-8")
    in_stub = set(re.findall(r"def (ps_\w+)\(", stub))
    assert in_stub == in_headers


def threads() -> set[int]:
    """The numbers of the threads of this process."""
    return {int(one.name) for one in Path("/proc/self/task").iterdir()}


@needs_core
def test_a_reactor_that_is_pinned_says_where_it_is_as_long_as_it_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        cpu = min(os.sched_getaffinity(0))
        settings = settings_in(tmp_path, reactors=1, cpus=[cpu])
        before = threads()
        async with Target(settings) as target:
            assert target.stats()["placement"]["reactors"][0]["cpu"] == cpu
            (thread,) = [n for n in threads() - before if os.sched_getaffinity(n) == {cpu}]
            os.sched_setaffinity(thread, os.sched_getaffinity(0))
            assert target.stats()["placement"]["reactors"][0]["cpu"] == -1
        async with Target(msgspec.structs.replace(settings, cpus=[])) as target:
            assert target.stats()["placement"]["reactors"][0]["cpu"] == -1

    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("there is one processor")
    asyncio.run(main())


@needs_core
def test_a_real_data_path_that_cannot_pin_a_reactor_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4000})

    async def main() -> None:
        with pytest.raises(TargetError, match="threads to start, each on its processor"):
            await Target(settings_in(tmp_path, cpus=[4000])).start()

    asyncio.run(main())


@needs_core
def test_a_real_data_path_starts_accepts_and_stops(tmp_path: Path) -> None:
    async def main() -> None:
        settings = settings_in(
            tmp_path,
            subsystem(NQN, 1),
            listeners=[ListenerSettings(port=0)],
            tier=TierSettings(size=16 << 20, huge_pages=False),
            limits=LimitSettings(connections=2),
        )
        target = Target(settings)
        await target.start()
        clients = [socket.create_connection(target.listeners[0]) for _ in range(3)]
        await until(lambda: target.stats()["connections_refused"] == 1)
        stats = target.stats()
        assert stats["connections"] == 2
        assert stats["core"]["connections_opened"] == 2
        (one,) = [s for s in stats["subsystems"] if s["nqn"] == NQN]
        assert one["namespaces"][0]["counters"]["size"] == 1 << 20
        report = await target.stop(10.0)
        assert report.clean
        for client in clients:
            client.close()

    asyncio.run(main())


@needs_core
def test_what_the_data_path_refuses_is_an_error_of_ours(tmp_path: Path) -> None:
    from prestage.target.core import CoreDataPath
    from prestage.target.datapath import VolumeConfig

    async def main() -> None:
        settings = settings_in(tmp_path, tier=TierSettings(size=16 << 20, huge_pages=False))
        core = CoreDataPath(settings)
        core.start(lambda _: None)
        with pytest.raises(MediumError, match="nonsense"):
            await core.volume_open(VolumeConfig("nonsense:", 4096, False, False, 0))
        long = "/" + "/".join(["x" * 200] * 15)
        with pytest.raises(MediumError) as caught:
            await core.volume_open(VolumeConfig(f"file:{long}", 4096, False, False, 0))
        assert caught.value.what.startswith(f"{long} does not exist; expected a file")
        core.close(12345 << 16 | 1, True)
        assert core.connection_stats(12345 << 16 | 1) == {}
        core.stop()
        core.stop()

    asyncio.run(main())


@needs_core
def test_too_many_connections_leave_the_descriptor_with_the_caller(tmp_path: Path) -> None:
    from prestage.target.core import CoreDataPath

    async def main() -> None:
        settings = settings_in(
            tmp_path,
            tier=TierSettings(size=16 << 20, huge_pages=False),
            limits=LimitSettings(connections=1),
        )
        core = CoreDataPath(settings)
        core.start(lambda _: None)
        pairs = [socket.socketpair() for _ in range(2)]
        for pair in pairs:
            pair[0].setblocking(False)
        core.adopt(pairs[0][0].detach(), 0)
        with pytest.raises(Exhausted):
            core.adopt(pairs[1][0].fileno(), 0)
        core.stop()
        for pair in pairs:
            pair[0].close()
            pair[1].close()

    asyncio.run(main())


class SlowLibrary:
    """The C module, whose calls of one name wait until they are let go."""

    def __init__(self, library: Any, name: str) -> None:
        self.library, self.name = library, name
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.at_once = self.most_at_once = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.library, name)
        return partial(self._wait, call) if name == self.name else call

    def _wait(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.entered.set()
        assert self.let_go.wait(20)
        result = call(*arguments)
        self.at_once -= 1
        return result


def small(tmp_path: Path) -> TargetSettings:
    tier = TierSettings(size=16 << 20, huge_pages=False)
    return settings_in(tmp_path, subsystem(NQN, 1), listeners=[ListenerSettings(port=0)], tier=tier)


@needs_core
def test_a_medium_that_opens_slowly_holds_nobody_else_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prestage.target import core

    async def main() -> None:
        async with Target(small(tmp_path)) as target:
            slow = SlowLibrary(vars(core)["lib"], "ps_core_volume_open")
            monkeypatch.setattr(core, "lib", slow)
            wanted = NamespaceSettings(path=str(tmp_path / "new"), size=1 << 20)
            adding = asyncio.create_task(target.add_namespace(NQN, wanted))
            await until(slow.entered.is_set)
            address = target.listeners[0]

            def hello() -> None:
                with connected_queue_pair((address.address, address.port), NQN) as controller:
                    assert controller.admin.execute(nvme.sqe(nvme.KEEP_ALIVE)).is_ok
                    controller.io[0].read(0, 1, 4096)

            await asyncio.wait_for(asyncio.to_thread(hello), 20)
            assert target.stats()["core"]["commands"] and not adding.done()
            slow.let_go.set()
            assert await adding == 2

    asyncio.run(main())


@needs_core
@pytest.mark.parametrize("ending", ["cancel", "stop"])
def test_an_opening_that_is_called_off_ends_first_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    from prestage.target import core

    async def main() -> None:
        target = Target(small(tmp_path))
        await target.start()
        slow = SlowLibrary(vars(core)["lib"], "ps_core_volume_open")
        monkeypatch.setattr(core, "lib", slow)
        wanted = NamespaceSettings(path=str(tmp_path / "new"), size=1 << 20)
        adding = asyncio.create_task(target.add_namespace(NQN, wanted))
        await until(slow.entered.is_set)
        if ending == "cancel":
            for _ in range(2):
                adding.cancel()
                await asyncio.sleep(0)
            assert not adding.done(), "the call is still under way"
            slow.let_go.set()
            with pytest.raises(asyncio.CancelledError):
                await adding
            # Its lock is gone once it is closed: the same file opens again.
            async with asyncio.timeout(20):
                while True:
                    with contextlib.suppress(MediumError):
                        assert await target.add_namespace(NQN, wanted) == 2
                        break
            assert (await target.stop(10)).clean
        else:
            stopping = asyncio.create_task(target.stop(10))
            await asyncio.sleep(0)
            slow.let_go.set()
            assert (await stopping).clean
            assert await adding == 2

    asyncio.run(main())


@needs_core
def test_media_are_opened_and_resized_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prestage.target import core
    from prestage.target.datapath import VolumeConfig

    async def main() -> None:
        path = core.CoreDataPath(settings_in(tmp_path, tier=TierSettings(huge_pages=False)))
        path.start(lambda _: None)
        slow = SlowLibrary(vars(core)["lib"], "ps_core_volume_open")
        slow.let_go.set()
        monkeypatch.setattr(core, "lib", slow)
        config = VolumeConfig("ram:size=1048576", 4096, False, False, 0)
        found = await asyncio.gather(*(path.volume_open(config) for _ in range(20)))
        assert len(set(found)) == 20 and slow.most_at_once == 1
        await path.volume_resize(found[0], 2 << 20)
        assert path.volume_limits(found[0]).size == 2 << 20
        path.stop()

    asyncio.run(main())
