"""The command line against a fake target behind a real control socket."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_target import FakeTarget
from rpc_tools import fake_settings

from prestage.cli import main
from prestage.target.rpc.context import Context
from prestage.target.rpc.server import ControlServer


class Cli:
    """Runs commands against a fake target behind a real control socket."""

    def __init__(self, target: FakeTarget, path: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.target = target
        self.path = path
        self.capsys = capsys

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command that is to end with `code`; return what it printed."""
        found = main([*words, "--control-socket", self.path])
        printed = self.capsys.readouterr()
        assert found == code, printed
        assert (printed.err == "") == (code == 0)
        return printed.out if code == 0 else printed.err

    def json(self, *words: str) -> Any:
        """Run a command with --json and return what it printed."""
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    target = FakeTarget(fake_settings())
    path = str(tmp_path / "c.sock")
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
    yield Cli(target, path, capsys)
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()
