"""A data path without sockets and media, and a host that speaks to the control plane through it.

The host builds its commands, and reads structures, by offsets of its own: a wrong offset in the
target is not repeated here.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import looptime  # type: ignore[import-untyped, unused-ignore]
import numpy as np
from fake_hints import FakeHints
from fake_network import FakeNetwork

from prestage.target.datapath import (
    ClosedNotice,
    CommandNotice,
    DoneNotice,
    Notice,
    Numbers,
    QueueConfig,
    VolumeConfig,
    VolumeLimits,
)
from prestage.target.errors import DataPathError, Exhausted, MediumError
from prestage.target.latency import Counts
from prestage.target.runtime import Connection, Runtime
from prestage.target.settings import (
    NamespaceSettings,
    SubsystemSettings,
    TargetSettings,
)
from prestage.target.target import Target

NQN = "nqn.2026-11.io.prestage:test"
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
HOST_ID = bytes(range(16))
DNR = 0x4000
GIB = 1 << 30
CC_ENABLED = 0x460061
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test on a loop whose time passes only when everything waits for it."""
    loop = looptime.new_event_loop(start=0)
    try:
        return loop.run_until_complete(asyncio.wait_for(main, 100_000))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@dataclass
class Answered:
    status: int
    dw0: int
    dw1: int
    data: bytes

    @property
    def code(self) -> str:
        """SCT/SC, and whether DNR is set."""
        text = f"{self.status >> 8 & 7:X}/{self.status & 0xFF:02X}"
        return text + (" DNR" if self.status & DNR else "")

    def number(self, offset: int, size: int) -> int:
        return int.from_bytes(self.data[offset : offset + size], "little")


@dataclass
class Volume:
    config: VolumeConfig
    size: int
    stats: dict[str, int] = field(default_factory=dict)
    open: bool = True


class FakeDataPath(FakeHints):
    """Records orders, and answers them at once unless told to hold them."""

    def __init__(self) -> None:
        super().__init__()
        self.started = self.stopped = False
        self.bound: dict[int, QueueConfig] = {}
        self.enabled: dict[int, bool] = {}
        self.answers: dict[tuple[int, int], Answered] = {}
        self.closes: list[tuple[int, bool]] = []
        self.volumes: dict[int, Volume] = {}
        self.maps: dict[tuple[int, int], int] = {}
        self.last_command: dict[int, int] = {}
        self.held: dict[str, list[tuple[int, int]]] = {}
        """Orders of the kinds named here are not answered but listed: (subject, cookie)."""
        self.results: dict[str, int] = {}
        """What orders of a kind end with; 0 else."""
        self.lost_bytes = 0
        self.aborted: list[tuple[int, int]] = []
        self.refuses_open: str = ""
        self.hold_open: asyncio.Event | None = None
        """Media open once it is set, but for the first `hold_from`."""
        self.hold_from = 0
        self.resize_fails = False
        self.busy_resizes = 0
        """So many times a smaller size must wait for the medium."""
        self.capacity = 1 << 16
        self.live = 0
        self.adopted: list[tuple[int, int]] = []
        self.warnings = 0
        self.extensions: dict[int, int] = {}
        """NSID of the extension namespace by subsystem."""

    def _later(self, notice: Notice) -> None:
        asyncio.get_running_loop().call_soon(lambda: self.receive(notice))

    def _order(self, kind: str, subject: int, cookie: int) -> None:
        if kind in self.held:
            self.held[kind].append((subject, cookie))
        else:
            result = self.results.get(kind, 0)
            lost = self.lost_bytes if kind == "close" else 0
            self._later(DoneNotice(cookie, result, lost))

    def release(self, kind: str, result: int = 0) -> None:
        """Answer what was held of a kind."""
        for _, cookie in self.held.pop(kind):
            self.receive(DoneNotice(cookie, result))

    def start(self, receive: Callable[[Notice], None]) -> None:
        self.receive, self.started = receive, True

    def stop(self) -> None:
        self.stopped = True

    def adopt(self, fd: int, reactor: int) -> int:
        if self.live >= self.capacity:
            raise Exhausted("no more connections")
        self.live += 1
        self.adopted.append((fd, reactor))
        return 1000 + len(self.adopted)

    def bind(self, connection: int, queue: QueueConfig) -> None:
        self.bound[connection] = queue
        self.enabled[connection] = queue.enabled

    def enable(self, connection: int, enabled: bool) -> None:
        self.enabled[connection] = enabled

    def answer(
        self, connection: int, slot: int, status: int, dw0: int, dw1: int, data: bytes
    ) -> None:
        assert (connection, slot) not in self.answers, "answered twice"
        assert not status or not data, "data with an error"
        self.answers[connection, slot] = Answered(status, dw0, dw1, data)

    def quiesce(self, connection: int, cookie: int) -> None:
        self._order("quiesce", connection, cookie)

    def abort(self, connection: int, cid: int, cookie: int) -> None:
        self.aborted.append((connection, cid))
        self._order("abort", connection, cookie)

    def close(self, connection: int, after_output: bool) -> None:
        self.closes.append((connection, after_output))
        if "closed" in self.held and after_output:
            self.held["closed"].append((connection, 0))
        else:
            self._later(ClosedNotice(connection))

    def last_command_ns(self, connection: int) -> int:
        return self.last_command.get(connection, 0)

    def connection_stats(self, connection: int) -> dict[str, int]:
        return {"commands": 1}

    async def volume_open(self, config: VolumeConfig) -> int:
        if self.hold_open is not None and len(self.volumes) >= self.hold_from:
            await self.hold_open.wait()
        if self.refuses_open and self.refuses_open in config.spec:
            raise MediumError("is in use by another target", config.spec)
        size = GIB
        for option in config.spec.replace(":", ",").split(","):
            if option.startswith("size="):
                size = int(option[5:])
        number = len(self.volumes)
        self.volumes[number] = Volume(config, size)
        return number

    def volume_limits(self, volume: int) -> VolumeLimits:
        return VolumeLimits(self.volumes[volume].size, 512, self.warnings)

    async def volume_resize(self, volume: int, size_bytes: int) -> bool:
        if self.resize_fails:
            raise MediumError("No space left on device", f"volume {volume}")
        if self.busy_resizes and size_bytes < self.volumes[volume].size:
            self.busy_resizes -= 1
            return False
        self.volumes[volume].size = size_bytes
        return True

    def volume_flush(self, volume: int, cookie: int) -> None:
        self._order("flush", volume, cookie)

    def volume_close(self, volume: int, abandon: bool, cookie: int) -> None:
        self._check_open(volume)
        if abandon:
            self.volumes[volume].open = False
            self._later(DoneNotice(cookie, 0, self.lost_bytes))
            return
        self.volumes[volume].open = self.results.get("close", 0) != 0
        self._order("close", volume, cookie)

    def volume_control(self, volume: int, kind: str, verb: str) -> None:
        raise MediumError("no such wrapper", kind)

    def _check_open(self, volume: int) -> None:
        if not self.volumes[volume].open:
            raise DataPathError("No such file or directory", f"volume {volume}")

    def volume_stats(self, volume: int) -> dict[str, int]:
        self._check_open(volume)
        return dict(self.volumes[volume].stats)

    def volume_latency(self, volume: int, *, writes: bool) -> Counts:
        self._check_open(volume)
        return np.zeros(192, np.uint64)

    def volume_sched(self, volume: int) -> Numbers:
        self._check_open(volume)
        return {"waiting": [1, 0, 2, 0], "in_flight": [3, 0, 0, 0], "window": 8, "dated_met": 5}

    def map(self, subsystem: int, nsid: int, volume: int) -> None:
        assert (subsystem, nsid) not in self.maps
        self.maps[subsystem, nsid] = volume

    def map_extension(self, subsystem: int, nsid: int) -> None:
        assert (subsystem, nsid) not in self.maps
        assert subsystem not in self.extensions
        self.extensions[subsystem] = nsid

    def unmap(self, subsystem: int, nsid: int, cookie: int) -> None:
        if self.extensions.get(subsystem) == nsid:
            del self.extensions[subsystem]
        elif self.maps.pop((subsystem, nsid), None) is None:
            raise DataPathError("No such file or directory", "unmap")
        self._order("unmap", nsid, cookie)

    def stats(self) -> dict[str, int]:
        return {"commands": 0}

    def reactor_stats(self, reactor: int) -> dict[str, int]:
        return {"commands": 0}

    def reactor_cpu(self, reactor: int) -> int:
        return -1

    def tier_stats(self) -> dict[str, int]:
        return {"read_hits": 0}


def put(entry: bytearray, offset: int, size: int, value: int) -> None:
    entry[offset : offset + size] = value.to_bytes(size, "little")


def sqe(
    opcode: int,
    *,
    nsid: int = 0,
    cid: int = 0,
    flags: int = 0x40,
    length: int = 0,
    sgl: int = 0x5A,
    **dwords: int,
) -> bytes:
    """A submission queue entry; `cdw10` to `cdw15` by name."""
    entry = bytearray(64)
    entry[0], entry[1] = opcode, flags
    put(entry, 2, 2, cid)
    put(entry, 4, 4, nsid)
    put(entry, 32, 4, length)
    entry[39] = sgl
    for name, value in dwords.items():
        put(entry, int(name.removeprefix("cdw")) * 4, 4, value)
    return bytes(entry)


def connect_sqe(
    qid: int = 0, *, sqsize: int = 31, kato: int = 0, recfmt: int = 0, cattr: int = 0
) -> bytes:
    entry = bytearray(sqe(0x7F, nsid=1, length=1024, sgl=0x01))
    put(entry, 40, 2, recfmt)
    put(entry, 42, 2, qid)
    put(entry, 44, 2, sqsize)
    put(entry, 46, 1, cattr)
    put(entry, 48, 4, kato)
    return bytes(entry)


def connect_data(
    *,
    subnqn: str | bytes = NQN,
    hostnqn: str | bytes = HOST,
    cntlid: int = 0xFFFF,
    host_id: bytes = HOST_ID,
) -> bytes:
    data = bytearray(1024)
    data[0:16] = host_id
    put(data, 16, 2, cntlid)
    data[18:256] = b"\xa5" * 238  # Reserved: of no meaning to a target.
    for offset, name in ((256, subnqn), (512, hostnqn)):
        raw = name.encode() if isinstance(name, str) else name
        data[offset : offset + len(raw)] = raw
    return bytes(data)


class Host:
    """A host with one admin queue and any number of I/O queues."""

    next_id = 1

    def __init__(self, rig: Rig, nqn: str = NQN, host: str = HOST) -> None:
        self.rig, self.nqn, self.host = rig, nqn, host
        self.admin = rig.open()
        self.queues: dict[int, int] = {}
        self.cntlid = 0
        self._slot = 0

    def send(self, entry: bytes, data: bytes = b"", connection: int | None = None) -> int:
        """Send a command; return its slot."""
        self._slot += 1
        where = self.admin if connection is None else connection
        fake = self.rig.fake
        fake.receive(CommandNotice(where, self._slot, self.queues.get(where, 0), entry, data))
        return self._slot

    def answer(self, slot: int, connection: int | None = None) -> Answered | None:
        where = self.admin if connection is None else connection
        return self.rig.fake.answers.get((where, slot))

    def do(self, entry: bytes, data: bytes = b"", connection: int | None = None) -> Answered:
        """Send a command that is answered at once."""
        answered = self.answer(self.send(entry, data, connection), connection)
        assert answered is not None, "not answered"
        return answered

    def connect(self, *, kato: int = 0) -> Host:
        data = connect_data(subnqn=self.nqn, hostnqn=self.host)
        answered = self.do(connect_sqe(kato=kato), data)
        assert answered.code == "0/00", answered.code
        self.cntlid = answered.dw0 & 0xFFFF
        return self

    def enable(self) -> Host:
        self.set_property(0x14, CC_ENABLED)
        assert self.get_property(0x1C) & 1
        return self

    def connect_io(self, qid: int, *, sqsize: int = 31) -> Answered:
        """Open an I/O queue; its connection is `self.queues[qid]` when it succeeded."""
        connection = self.rig.open()
        data = connect_data(subnqn=self.nqn, hostnqn=self.host, cntlid=self.cntlid)
        answered = self.do(connect_sqe(qid, sqsize=sqsize), data, connection)
        if answered.status == 0:
            self.queues[qid] = connection
        return answered

    def property_sqe(self, fctype: int, offset: int, size: int, value: int = 0) -> bytes:
        entry = bytearray(sqe(0x7F, nsid=fctype))
        entry[40] = 1 if size == 8 else 0
        put(entry, 44, 4, offset)
        put(entry, 48, 8, value)
        return bytes(entry)

    def get(self, offset: int, size: int = 4) -> Answered:
        return self.do(self.property_sqe(4, offset, size))

    def get_property(self, offset: int, size: int = 4) -> int:
        answered = self.get(offset, size)
        assert answered.code == "0/00", answered.code
        return answered.dw0 | answered.dw1 << 32

    def set_property(self, offset: int, value: int, size: int = 4) -> Answered:
        return self.do(self.property_sqe(0, offset, size, value))

    def identify(self, cns: int, nsid: int = 0, **more: int) -> Answered:
        arguments = {"length": 4096, "cdw10": cns, **more}
        return self.do(sqe(6, nsid=nsid, **arguments))

    def log(
        self,
        lid: int,
        size: int,
        *,
        offset: int = 0,
        rae: int = 0,
        nsid: int = 0xFFFFFFFF,
        lsp: int = 0,
        uuid_index: int = 0,
    ) -> Answered:
        dwords = size // 4 - 1
        return self.do(
            sqe(
                2,
                nsid=nsid,
                length=size,
                cdw10=lid | lsp << 8 | rae << 15 | (dwords & 0xFFFF) << 16,
                cdw11=dwords >> 16,
                cdw12=offset & 0xFFFFFFFF,
                cdw13=offset >> 32,
                cdw14=uuid_index,
            )
        )

    def get_feature(self, fid: int, *, select: int = 0, **more: int) -> Answered:
        return self.do(sqe(0x0A, cdw10=fid | select << 8, **more))

    def set_feature(self, fid: int, value: int = 0, *, data: bytes = b"", **more: int) -> Answered:
        entry = sqe(9, cdw10=fid, cdw11=value, length=len(data), **more)
        return self.do(entry, data)

    def request_event(self, cid: int = 0) -> int:
        """Send an Asynchronous Event Request; return its slot."""
        return self.send(sqe(0x0C, cid=cid))


class Rig:
    """A running target on a fake data path: `async with Rig() as rig`."""

    def __init__(self, settings: TargetSettings | None = None) -> None:
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.fake = FakeDataPath()
        default = TargetSettings(
            listeners=[], subsystems=[subsystem(NQN, 1)], state_directory=self.folder.name
        )
        self.settings = default if settings is None else settings
        self.network = FakeNetwork(("lo", "127.0.0.1"), ("lo", "::1"))
        self.target = Target(self.settings, self.fake, self.network)
        self._next = 1

    async def __aenter__(self) -> Self:
        await self.target.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.fake.held.clear()
        await self.target.stop(5.0)
        self.folder.cleanup()

    @property
    def runtime(self) -> Runtime:
        assert self.target._runtime is not None
        return self.target._runtime

    def open(self, local: tuple[str, int] = ("127.0.0.1", 4420)) -> int:
        """A connection on which nothing was said yet; returns its id."""
        number = self._next
        self._next += 1
        self.runtime.connections[number] = Connection(number, 0, local, ("127.0.0.1", 50000))
        self.runtime.all_closed.clear()
        return number

    def host(self, nqn: str = NQN, host: str = HOST, *, kato: int = 0) -> Host:
        """A connected, enabled host."""
        return Host(self, nqn, host).connect(kato=kato).enable()


def ram(size: int = 1 << 20, **more: Any) -> NamespaceSettings:
    return NamespaceSettings(media="ram", size=size, **more)


def subsystem(nqn: str, namespaces: int = 0, **more: Any) -> SubsystemSettings:
    return SubsystemSettings(nqn=nqn, namespaces=[ram() for _ in range(namespaces)], **more)


def settings_in(folder: Path, *subsystems: SubsystemSettings, **more: Any) -> TargetSettings:
    return TargetSettings(
        listeners=more.pop("listeners", []),
        subsystems=list(subsystems),
        state_directory=str(folder),
        **more,
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what sockets bring, on a real loop."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - sockets set no event of ours
            await asyncio.sleep(0.001)


async def settle(turns: int = 10) -> None:
    """Let what was started go as far as it can without time passing."""
    for _ in range(turns):
        await asyncio.sleep(0)
