"""Mutants of any target: a host that changes what goes to it, or what comes from it, on the way.

So the kit can be tried on real targets, each broken in one clause.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from prestage.ext import layout
from prestage.ext.codec import seal
from prestage.ext.conform import nvme
from prestage.ext.conform.host import Command, Completion, Host
from prestage.ext.pages import IDENTIFY_OFFSET

Said = Callable[[Command], Command]
Heard = Callable[[Command, Completion], Completion]
PAGE: Final = layout.PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Alteration:
    """What is changed of admin or I/O commands (None: of both), and the clause that breaks so."""

    clause: str
    name: str
    is_admin: bool | None = False
    said: Said = lambda command: command
    heard: Heard = lambda command, done: done


class AlteredHost:
    """A `Host` between the kit and another one."""

    def __init__(self, inner: Host, alteration: Alteration) -> None:
        self._inner = inner
        self._alteration = alteration

    async def admin(self, command: Command) -> Completion:
        if self._alteration.is_admin is False:
            return await self._inner.admin(command)
        changed = self._alteration.said(command)
        return self._alteration.heard(command, await self._inner.admin(changed))

    async def io(self, command: Command) -> Completion:
        if self._alteration.is_admin:
            return await self._inner.io(command)
        changed = self._alteration.said(command)
        return self._alteration.heard(command, await self._inner.io(changed))

    async def reconnect(self) -> None:
        await self._inner.reconnect()

    async def close(self) -> None:
        await self._inner.close()


ALTERATIONS: Final[list[Alteration]] = []


def put(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :] if len(data) >= at + len(value) else data


def admin(
    clause: str, opcode: int, selector: int, at: int, value: bytes
) -> Callable[[Callable[[], None]], None]:
    """Put bytes into what an admin command with CDW10 bits 7:0 `selector` returns."""

    def heard(command: Command, done: Completion) -> Completion:
        is_it = command.opcode == opcode and command.cdw10 & 0xFF == selector
        return replace(done, data=put(done.data, at, value)) if is_it else done

    def register(function: Callable[[], None]) -> None:
        ALTERATIONS.append(Alteration(clause, function.__name__, is_admin=True, heard=heard))

    return register


def said(clause: str, *, is_admin: bool = False) -> Callable[[Said], None]:
    def register(function: Said) -> None:
        name = str(getattr(function, "__name__", clause))
        ALTERATIONS.append(Alteration(clause, name, is_admin, said=function))

    return register


def heard(clause: str, *, is_admin: bool | None = False) -> Callable[[Heard], None]:
    def register(function: Heard) -> None:
        name = str(getattr(function, "__name__", clause))
        ALTERATIONS.append(Alteration(clause, name, is_admin, heard=function))

    return register


def pages_of(command: Command, done: Completion, magic: bytes) -> list[tuple[int, bytes]]:
    """Return the pages with this magic in what came, and where they begin."""
    starts = range(0, len(done.data), PAGE)
    found = [(at, done.data[at : at + PAGE]) for at in starts]
    return [(at, page) for at, page in found if page.startswith(magic) and len(page) >= 64]


def change_answers(done: Completion, command: Command, new: Callable[[bytes], bytes]) -> Completion:
    """Change every whole answer page (without its padding), and seal it again."""
    data = done.data
    for at, page in pages_of(command, done, b"PAXA"):
        size = int.from_bytes(page[8:12], "little")
        if size <= len(page):
            data = put(data, at, seal(new(page[:size])))
    return replace(done, data=data)


def change_each(page: bytes, kind: int, at: int, value: bytes) -> bytes:
    """Put bytes into every answer of a type."""
    start = layout.ANSWER.size
    while start + 8 <= len(page):
        found, size = struct.unpack_from("<HH", page, start)
        if found == kind:
            page = put(page, start + at, value)
        start += max(size, 8)
    return page


# ---- what admin commands return ----


@admin("3.1.3", nvme.Admin.IDENTIFY, 0x01, IDENTIFY_OFFSET + 28, (3 << 12).to_bytes(4, "little"))
def granularity_of_3_pages() -> None: ...


@admin("3.2.1", nvme.Admin.IDENTIFY, 0x17, 50, b"\0\0")
def another_uuid() -> None: ...


@admin("3.3.1", nvme.Admin.GET_LOG_PAGE, nvme.EFFECTS_LOG, 1024 + 4 * 0x82, b"\0")
def query_is_not_supported() -> None: ...


@admin("3.3.2", nvme.Admin.GET_LOG_PAGE, nvme.EFFECTS_LOG, 1024 + 4 * 0x81 + 2, b"\2")
def submit_stops_all_io() -> None: ...


@admin("3.4.1", nvme.Admin.IDENTIFY, 0x03, 4, b"\xee")
def uuid_without_its_prefix() -> None: ...


@heard("3.4.2", is_admin=True)
def extension_of_512_pages(command: Command, done: Completion) -> Completion:
    is_it = done.data[384:388] == b"PAXC" and command.opcode == nvme.Admin.IDENTIFY
    return replace(done, data=put(done.data, 0, b"\0\2")) if is_it else done


@admin("4.7.1", nvme.Admin.GET_LOG_PAGE, 0xD0, 240, b"\xff" * 8)
def the_status_log_counts_other_batches() -> None: ...


@said("4.7.2", is_admin=True)
def reading_always_forgets(command: Command) -> Command:
    is_it = command.opcode == nvme.Admin.GET_LOG_PAGE and command.cdw10 & 0xFF == 0xD1
    return replace(command, cdw10=command.cdw10 & ~nvme.RETAIN_EVENT) if is_it else command


# ---- Reads and Dataset Management ----


@heard("4.1.2")
def speculative_reads_return_zeros(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == nvme.Io.READ and command.cdw13 == 7
    return replace(done, data=bytes(len(done.data)), status=done.status ^ 1) if is_it else done


@said("4.1.6")
def latency_is_not_counted(command: Command) -> Command:
    is_it = command.opcode == nvme.Io.READ and command.cdw13 == 3 << 4
    return replace(command, cdw13=0) if is_it else command


@said("4.2.4")
def datasets_are_not_sets(command: Command) -> Command:
    is_it = command.opcode == nvme.Io.DATASET_MANAGEMENT
    return replace(command, cdw11=command.cdw11 & ~1) if is_it else command


@heard("4.6.2")
def dated_reads_fail_now_and_then(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == layout.OPCODE_DATED_READ and command.cdw14 == 1000
    return replace(done, status=0x281) if is_it else done


@said("4.6.4")
def dated_reads_are_reads(command: Command) -> Command:
    is_it = command.opcode == layout.OPCODE_DATED_READ
    return replace(command, opcode=nvme.Io.READ, cdw2=0, cdw14=0, cdw15=0) if is_it else command


# ---- extension namespace ----


@heard("4.3.1")
def the_last_page_is_not_zeros(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == nvme.Io.READ and command.cdw10 == 255 and len(done.data) == PAGE
    return replace(done, data=put(done.data, 9, b"\1")) if is_it and not any(done.data) else done


@heard("4.3.4")
def writes_of_zeros_fail(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == nvme.Io.WRITE and command.data_out == bytes(PAGE)
    return replace(done, status=0x280) if is_it and not done.status else done


@heard("4.3.8")
def compare_succeeds(command: Command, done: Completion) -> Completion:
    return Completion() if command.opcode == nvme.Io.COMPARE else done


@heard("4.3.9")
def writes_beyond_the_end_succeed(command: Command, done: Completion) -> Completion:
    return Completion() if command.opcode == nvme.Io.WRITE and command.cdw10 == 256 else done


# ---- vendor opcodes ----


@heard("4.4.2")
def submit_does_not_count(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == layout.OPCODE_SUBMIT and not done.status
    return replace(done, dw0=0, dw1=0) if is_it else done


@heard("4.4.3")
def submit_swaps_fault_and_offset(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == layout.OPCODE_SUBMIT and done.status
    return replace(done, dw0=done.dw1, dw1=done.dw0) if is_it else done


@said("4.4.4")
def submit_takes_any_mailbox(command: Command) -> Command:
    is_it = command.opcode == layout.OPCODE_SUBMIT
    return replace(command, cdw10=command.cdw10 % 64) if is_it else command


@heard("4.4.5")
def submit_takes_any_length(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == layout.OPCODE_SUBMIT and nvme.code(done.status) == nvme.SGL_LENGTH
    return Completion() if is_it else done


@heard("4.5.3")
def any_question_is_answered(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == layout.OPCODE_QUERY and nvme.code(done.status) == nvme.INVALID_FIELD
    return Completion(data=bytes(command.data_in_bytes)) if is_it else done


@heard("4.5.4")
def queries_may_have_any_length(command: Command, done: Completion) -> Completion:
    is_it = command.opcode == layout.OPCODE_QUERY and nvme.code(done.status) == nvme.SGL_LENGTH
    return Completion(data=bytes(command.data_in_bytes)) if is_it else done


# ---- answer and status pages ----


@heard("5.1.5")
def the_sequence_does_not_come_back(command: Command, done: Completion) -> Completion:
    return change_answers(done, command, lambda page: put(page, 24, bytes(4)))


@heard("5.4.1")
def truncated_pages_do_not_say_so(command: Command, done: Completion) -> Completion:
    return change_answers(done, command, lambda page: put(page, 29, b"\0"))


@heard("5.4.2")
def checksums_are_wrong(command: Command, done: Completion) -> Completion:
    data = done.data
    for at, page in pages_of(command, done, b"PAXA"):
        data = put(data, at + 12, bytes(each ^ 1 for each in page[12:16]))
    return replace(done, data=data)


@heard("5.6.3", is_admin=None)
def one_more_arrived(command: Command, done: Completion) -> Completion:
    data = done.data
    for at, page in pages_of(command, done, b"PAXC"):
        more = int.from_bytes(page[400:408], "little") + 1
        data = put(data, at + 400, more.to_bytes(8, "little"))
    return replace(done, data=data)


@heard("7.4.4")
def warm_intents_are_not_flagged(command: Command, done: Completion) -> Completion:
    return change_answers(done, command, lambda page: change_each(page, 0x8102, 51, b"\0"))


@heard("7.8.2")
def what_is_not_coming_is_ready(command: Command, done: Completion) -> Completion:
    return change_answers(done, command, lambda page: change_each(page, 0x8101, 32, bytes(4)))
