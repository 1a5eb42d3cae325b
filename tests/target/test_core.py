"""The stub against the headers, and the wrapper against the C module where that is built."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import socket
from pathlib import Path

import pytest
from fake_data_path import NQN, settings_in, subsystem, until

from prestage.target.errors import Exhausted, MediumError
from prestage.target.settings import LimitSettings, ListenerSettings, TierSettings
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
            core.volume_open(VolumeConfig("nonsense:", 4096, False, False, 0))
        long = "/" + "/".join(["x" * 200] * 15)
        with pytest.raises(MediumError) as caught:
            core.volume_open(VolumeConfig(f"file:{long}", 4096, False, False, 0))
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
