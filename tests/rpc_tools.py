"""A control socket over a fake target, for the tests of the control socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from fake_target import FakeTarget

from prestage.target.rpc.context import Context
from prestage.target.rpc.dispatch import handle
from prestage.target.rpc.server import ControlServer
from prestage.target.settings import NamespaceSettings, SubsystemSettings, TargetSettings

NQN = "nqn.2026-11.com.example:a"
HOST = "nqn.2026-11.com.example:host"
T = TypeVar("T")


def fake_settings(**changes: Any) -> TargetSettings:
    """Return settings with one subsystem and one namespace in memory."""
    namespace = NamespaceSettings(media="ram", size=1 << 20)
    subsystem = SubsystemSettings(nqn=NQN, serial="S1", namespaces=[namespace])
    return TargetSettings(**{"subsystems": [subsystem], **changes})


class Rig:
    """A started fake target and its context."""

    def __init__(self, settings: TargetSettings | None = None) -> None:
        self.target = FakeTarget(settings or fake_settings())
        asyncio.run(self.target.start())
        self.signals: list[int] = []
        self.context = Context(self.target, self.signals.append)

    def raw(self, text: str | bytes) -> Any:
        """Return the decoded answer to a JSON text, or None when there is none."""
        data = text.encode() if isinstance(text, str) else text
        answer, _ = asyncio.run(handle(self.context, data))
        return None if answer is None else json.loads(answer)

    def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Return the whole answer to a request."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer: dict[str, Any] = self.raw(json.dumps(request))
        assert answer["jsonrpc"] == "2.0"
        assert answer["id"] == 1
        return answer

    def call(self, method: str, /, **params: Any) -> Any:
        """Return the result of a method that is to succeed."""
        answer = self.ask(method, **params)
        assert "error" not in answer, answer
        return answer["result"]

    def fail(self, method: str, /, **params: Any) -> tuple[int, str]:
        """Return code and message of a method that is to fail."""
        answer = self.ask(method, **params)
        assert "error" in answer, answer
        return answer["error"]["code"], answer["error"]["message"]


def with_server(
    directory: Path, body: Callable[[ControlServer], Awaitable[T]], rig: Rig | None = None
) -> T:
    """Run `body` beside a control server in `directory`."""

    async def main() -> T:
        server = ControlServer((rig or Rig_in_loop()).context, directory / "c.sock")
        server.claim()
        server.start()
        try:
            return await body(server)
        finally:
            await server.stop()

    return asyncio.run(main())


class Rig_in_loop:  # noqa: N801 - stands for a Rig where a loop runs already
    """A fake target that is used, but not started, in a running loop."""

    def __init__(self) -> None:
        self.target = FakeTarget(fake_settings())
        self.context = Context(self.target, lambda _: None)
