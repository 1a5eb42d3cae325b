"""The servers that `scripts/bench` measures: bare ones, and our target in several settings.

Each is started, and what is read of it written once, when a load first asks for it. An idle one
costs the others nothing: bare servers and targets sleep between loads, those that poll too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_processes import ROOT
from bench_run import (
    GENERATOR_CORE,
    NQN,
    SERVER_CORE,
    SPAN_BYTES,
    Case,
    Options,
    Run,
    Server,
    bare_server,
    fill,
    load,
    own_target,
)
from bench_tenants import MODEL

DIGESTS: Options = {"header_digest": 1, "data_digest": 1}
POLLED: Options = {"poll": 1}
HINTS: Options = {"flood": "mix", "flood_rate": 100_000, "flood_nsid": 2, "flood_span": 64 << 30}
POLLING = "[transport]\npoll_us = 1000\n"
"""How our target is told to poll: longer than a round trip takes, not until the next run."""
NO_WRITE_BACK = "dirty_percent = 80\nwriteback_s = 3600\n"
"""Of the tier, as long as no more than two fifths of it are dirty."""
COLD_BYTES = 1 << 30
"""Of a medium that is read in misses: 16 times its tier."""
WARM_UP_S = 0.2
"""Of each load before its first run."""
SPARE_CORE = 2 if (os.cpu_count() or 1) > 2 else GENERATOR_CORE
"""For the generator beside two reactors: where there are only two cores, it shares one of them."""
RAM = '[[subsystems.namespaces]]\nmedia = "ram"\nsize = "256M"\n'


@dataclasses.dataclass(frozen=True)
class Setting:
    """A configuration of our target; `{disk}` in it is a folder for its files."""

    namespaces: str = RAM
    tier: str = "512M"
    more: str = ""
    top: str = ""
    cores: int | str = SERVER_CORE
    is_warm: bool = True
    file_bytes: int = 0
    """Of `{disk}/file`, which is written before the target starts."""

    def config(self, disk: Path) -> str:
        """As TOML."""
        text = f"""{self.top}[[listeners]]
address = "127.0.0.1"
port = 0
[tier]
size = "{self.tier}"
{self.more}[[subsystems]]
nqn = "{NQN}"
{self.namespaces}"""
        return text.replace("{disk}", str(disk))


@dataclasses.dataclass(frozen=True)
class Bare:
    """The bare server, and how it is started (csrc/bench/bare.c)."""

    options: Sequence[str] = ()
    cores: int | str = SERVER_CORE


PLACES = '[[subsystems.namespaces]]\npath = "{disk}/places"\nsize = "64G"\n'
"""What hints speak of, beside the namespace that is read."""
SETTINGS: Mapping[str, Setting | Bare] = {
    "bare": Bare(),
    "bare, polling": Bare(("poll",)),
    "bare, wide": Bare((f"memory={SPAN_BYTES}",)),
    "target": Setting(),
    "blocks of 512": Setting(RAM + "block = 512\n"),
    "polling": Setting(more=POLLING),
    "deep queues": Setting(more="[limits]\nqueue_depth = 512\n"),
    "many connections": Setting(more="[limits]\nconnections = 2048\n"),
    "anticipating": Setting(RAM + PLACES),
    "plain": Setting(RAM + PLACES, more="[prestager]\nenabled = false\n[hints]\nenabled = false\n"),
    "one reactor": Setting(top="reactors = 1\ncpus = [0]\n"),
    "bare, two threads": Bare(("threads=2",), cores="0,1"),
    "two reactors": Setting(top="reactors = 2\ncpus = [0, 1]\n", cores="0,1"),
    "cold model": Setting(
        f'[[subsystems.namespaces]]\npath = "{{disk}}/model"\nsize = {COLD_BYTES}\n{MODEL}',
        tier="64M",
        is_warm=False,
    ),
    "cold file": Setting(
        '[[subsystems.namespaces]]\npath = "{disk}/file"\n',
        tier="64M",
        is_warm=False,
        file_bytes=COLD_BYTES,
    ),
}


class Pool:
    """Servers by name: bare ones, and SETTINGS of the target of a checkout."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        *,
        serve: Sequence[str] = (),
        checkout: Path = ROOT,
        given: Mapping[str, Server] | None = None,
        settings: Mapping[str, Setting | Bare] = SETTINGS,
    ) -> None:
        """`given` are running already; others end with `stack`."""
        self._settings = settings
        self._stack = stack
        self._serve = serve
        self._checkout = checkout
        self._running = dict(given or {})
        self._seen: set[str] = set()
        # Files are on the disk that the checkout is on; the path of a socket has to be short.
        places = (None, ROOT / "build")
        self._folder, self._disk = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="prestage-bench-", dir=at)))
            for at in places
        )
        for server in self._running.values():
            fill(server)

    def __getitem__(self, name: str) -> Server:
        """Return the server of that name, started if it has to be."""
        self.start(name)
        return self._running[name]

    def start(self, name: str) -> None:
        """Start the server of that name, if it has to be."""
        if name not in self._running:
            self._running[name] = self._started(name)

    def is_first(self, load_name: str) -> bool:
        """Return whether a load has not been asked about before."""
        is_new = load_name not in self._seen
        self._seen.add(load_name)
        return is_new

    def _started(self, name: str) -> Server:
        setting = self._settings[name]
        folder = name.replace(" ", "-")
        if isinstance(setting, Bare):
            port_file = self._folder / f"{folder}.port"
            bare = bare_server(port_file, setting.options, setting.cores)
            return self._stack.enter_context(bare)
        disk = self._disk / folder
        disk.mkdir()
        if setting.file_bytes:
            write_file(disk / "file", setting.file_bytes)
        target = own_target(
            self._folder / folder,
            self._serve,
            config=setting.config(disk),
            checkout=self._checkout,
            cores=setting.cores,
        )
        server = self._stack.enter_context(target)
        if setting.is_warm:
            fill(server)
        return server


def write_file(path: Path, size_bytes: int) -> None:
    """Write a file of random bytes that is on the disk, not only in memory."""
    piece = os.urandom(1 << 20)
    with path.open("wb") as file:
        for _ in range(size_bytes // len(piece)):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def pool(**options: Any) -> Iterator[Pool]:
    """Yield a pool whose servers end with the block."""
    with contextlib.ExitStack() as stack:
        yield Pool(stack, **options)


@dataclasses.dataclass(frozen=True)
class Side:
    """A load on a server: what a figure is of, or what it is compared with."""

    server: str
    case: Case
    options: Options = dataclasses.field(default_factory=dict)
    span_bytes: int = SPAN_BYTES
    core: int = GENERATOR_CORE

    def run(self, servers: Pool, seconds: float) -> Run:
        """Run it once; the first time once more before, thrown away.

        Memory is touched for the first time then, and what hints fill is made. Not where nothing
        is asked for: what connections take is not to be there already.
        """
        server = servers[self.server]
        if self.case.operation != "none" and servers.is_first(f"{self.server}: {self.case.name}"):
            self._load(server, WARM_UP_S)
        return self._load(server, seconds)

    def _load(self, server: Server, seconds: float) -> Run:
        return load(server, self.case, seconds, self.options, self.span_bytes, self.core)
