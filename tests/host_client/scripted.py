"""A target that does what a test says: the engine in target role behind an asyncio server.

It knows just enough of fabrics and admin commands for a host to connect. A test replaces the answer
to an opcode by a function of its own, which may also keep silent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from engine_support import CONNECTED, EV_COMMAND, EV_DATA, Engine, Event

NQN = "nqn.2026-11.org.example:scripted"
BLOCK = 4096
BLOCKS = 256
FABRICS, IDENTIFY, AER, SET_FEATURES = 0x7F, 0x06, 0x0C, 0x09
FLUSH, WRITE, READ = 0x00, 0x01, 0x02
SILENCE = object()
"""What a handler returns that wants no answer to be sent, or not now."""


@dataclass(frozen=True)
class Answer:
    """How a command ends."""

    status: int = 0
    dw0: int = 0
    dw1: int = 0
    data: bytes = b""


@dataclass
class Command:
    """A command that has arrived, with its data."""

    link: Link
    slot: int
    entry: bytes
    data: bytes = b""

    def cdw(self, index: int) -> int:
        return int.from_bytes(self.entry[index * 4 : index * 4 + 4], "little")

    @property
    def opcode(self) -> int:
        return self.entry[0]

    @property
    def cid(self) -> int:
        return int.from_bytes(self.entry[2:4], "little")

    @property
    def length(self) -> int:
        """Of the transfer, as the SGL says."""
        return int.from_bytes(self.entry[32:36], "little")

    def end(self, answer: Answer) -> None:
        """Send the answer, now or later."""
        self.link.engine.respond(self.slot, answer.status, answer.dw0, answer.data, dw1=answer.dw1)
        self.link.flush()


@dataclass
class Link:
    """A connection: its engine, and the queue that its Connect has named."""

    engine: Engine
    writer: asyncio.StreamWriter
    qid: int = -1
    cc: int = 0
    pending: dict[int, tuple[Command, Callable[[], bytes]]] = field(default_factory=dict)

    def flush(self) -> None:
        if not self.writer.is_closing():
            self.writer.write(self.engine.output())


Handler = Callable[[Command], Any]


@dataclass
class ScriptedTarget:
    """`handlers` by (is_admin, opcode); `commands` are all that came, in order."""

    handlers: dict[tuple[bool, int], Handler] = field(default_factory=dict)
    mdts: int = 0
    oaes: int = 0
    mqes: int = 127
    in_capsule: int = 8192
    capability: bytes = b""
    host: str = "127.0.0.1"
    digests: int = 3
    max_h2c_data: int = 65536
    commands: list[Command] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    memory: bytearray = field(default_factory=lambda: bytearray(BLOCK * BLOCKS))
    port: int = 0
    withheld: list[Callable[[], None]] | None = None
    """When a list: instead of asking for the data of a command, how to ask for it is put here."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever a command has arrived."""
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"nvme+tcp://{host}:{self.port}/{NQN}"

    def io(self, opcode: int) -> list[Command]:
        """The I/O commands of an opcode so far."""
        return [one for one in self.commands if one.link.qid > 0 and one.opcode == opcode]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until commands have arrived that fulfil a condition."""
        while not condition():
            self.arrived.clear()
            await self.arrived.wait()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close every connection and the port."""
        if self._server is not None:
            self._server.close()
        self.drop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop(self) -> None:
        """Close every connection at once."""
        for link in self.links:
            link.writer.transport.abort()
        self.links.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        engine = Engine(
            role=0,
            slot_count=256,
            digests=self.digests,
            in_capsule_size=self.in_capsule,
            max_h2c_data=self.max_h2c_data,
        )
        link = Link(engine, writer)
        self.links.append(link)
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    engine.feed([data], lambda event: self._event(link, event))
                    link.flush()
                    await writer.drain()
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _event(self, link: Link, event: Event) -> None:
        if event.kind == EV_COMMAND:
            command = Command(link, event.slot, event.entry)
            to_controller = event.entry[0] & 3 == 1 or _is_connect(event.entry)
            if to_controller and command.length:
                if self.withheld is None or event.data_length:
                    self._ask(command)
                else:
                    self.withheld.append(lambda: self._ask(command))
                    self.arrived.set()
            else:
                self._execute(command)
        elif event.kind == EV_DATA:
            command, read = link.pending.pop(event.slot)
            command.data = read()
            self._execute(command)
        else:
            assert event.kind != CONNECTED or link.qid < 0

    def _ask(self, command: Command) -> None:
        """Take the data of a command, by R2T unless it is in the capsule."""
        read = command.link.engine.take(command.slot, [command.length])
        command.link.pending[command.slot] = (command, read)
        command.link.flush()

    def ask(self) -> None:
        """Ask for what was withheld, and withhold no more."""
        withheld, self.withheld = self.withheld or [], None
        for ask in withheld:
            ask()

    def _execute(self, command: Command) -> None:
        if _is_connect(command.entry):
            command.link.qid = int.from_bytes(command.entry[42:44], "little")
        self.commands.append(command)
        self.arrived.set()
        handler = self.handlers.get((command.link.qid <= 0, command.opcode))
        answer = handler(command) if handler is not None else None
        if answer is None:
            answer = self.default(command)
        if answer is not SILENCE:
            command.link.engine.respond(
                command.slot, answer.status, answer.dw0, answer.data, dw1=answer.dw1
            )

    # ---- what a plain target says ----

    def default(self, command: Command) -> Any:
        if command.opcode == FABRICS:
            return self._fabrics(command)
        return self._admin(command) if command.link.qid == 0 else self._io_command(command)

    def _fabrics(self, command: Command) -> Answer:
        kind = command.entry[4]
        if kind == 1:
            return Answer(dw0=1)
        offset = command.cdw(11)
        if kind == 0:
            if offset == 0x14:
                command.link.cc = command.cdw(12)
            return Answer()
        if offset == 0:
            return Answer(dw0=self.mqes | 1 << 16 | 10 << 24, dw1=1 << 5)
        shut_down = 0b1000 if command.link.cc >> 14 & 3 else 0
        return Answer(dw0=(command.link.cc & 1) | shut_down)

    def _admin(self, command: Command) -> Any:
        if command.opcode == AER:
            return SILENCE
        if command.opcode == SET_FEATURES:
            return Answer(dw0=command.cdw(11))  # as many queues as are asked for
        if command.opcode != IDENTIFY:
            return Answer()
        page = bytearray(4096)
        if command.cdw(10) & 0xFF == 1:
            page[77] = self.mdts
            page[92:96] = self.oaes.to_bytes(4, "little")
            page[258] = 3
            page[320:322] = (1).to_bytes(2, "little")
            page[1792:1796] = ((self.in_capsule + 64) // 16).to_bytes(4, "little")
            page[3072 : 3072 + len(self.capability)] = self.capability
        elif command.cdw(10) & 0xFF == 2:
            page[0:4] = (1).to_bytes(4, "little")
        elif command.cdw(1) == 1:
            page[0:8] = page[8:16] = BLOCKS.to_bytes(8, "little")
            page[130] = 12
        return Answer(data=bytes(page))

    def _io_command(self, command: Command) -> Answer:
        slba = command.cdw(10) | command.cdw(11) << 32
        place = slice(slba * BLOCK, slba * BLOCK + command.length)
        if command.opcode == READ:
            return Answer(data=bytes(self.memory[place]))
        if command.opcode == WRITE:
            self.memory[place] = command.data
        return Answer() if command.opcode in (FLUSH, WRITE) else Answer(status=1 << 14 | 1)


def _is_connect(entry: bytes) -> bool:
    return entry[0] == FABRICS and entry[4] == 1


@contextlib.asynccontextmanager
async def scripted(**arguments: Any) -> AsyncIterator[ScriptedTarget]:
    """Run a scripted target."""
    target = ScriptedTarget(**arguments)
    await target.start()
    try:
        yield target
    finally:
        await target.stop()
