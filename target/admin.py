"""Admin commands by opcode, and the one place where a fault becomes a status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from prestage.target.controller import ABORT_LIMIT, Controller, final_status
from prestage.target.datapath import CommandNotice, DoneNotice
from prestage.target.errors import PeerFault
from prestage.target.fabrics import fabrics
from prestage.target.identify import identify
from prestage.target.logs import get_log_page
from prestage.target.nvme import AdminOpcode, Answer, Command, FabricsType, Status
from prestage.target.runtime import Connection, Runtime

log = logging.getLogger("prestage.target")


def handle(runtime: Runtime, notice: CommandNotice) -> None:
    """Do a command and answer it, or leave it to be answered later (AER, some Aborts)."""
    connection = runtime.connections.get(notice.connection)
    if connection is None or connection.closing:
        return
    command = Command(notice.entry, notice.data)
    try:
        if notice.digest_error:
            raise PeerFault(Status.TRANSIENT_TRANSPORT, retry=True, why="data digest")
        answer = execute(runtime, connection, notice.slot, command)
    except PeerFault as fault:
        log.info("connection %d opcode %02Xh: %s", connection.id, command.opcode, fault)
        status = final_status(fault.status, retry=fault.retry)
        answer = Answer(status=status, dw0=fault.dw0)
    except Exception:
        # A defect of ours must not leave the host waiting, nor take the other hosts down.
        log.exception("connection %d opcode %02Xh failed", connection.id, command.opcode)
        answer = Answer(status=Status.INTERNAL)
    if answer is None:
        return
    runtime.data_path.answer(
        connection.id, notice.slot, answer.status, answer.dw0, answer.dw1, answer.data
    )
    is_disconnect = (
        command.opcode == AdminOpcode.FABRICS and command.fctype == FabricsType.DISCONNECT
    )
    if is_disconnect and answer.status == Status.SUCCESS:
        runtime.close(connection)


def execute(runtime: Runtime, connection: Connection, slot: int, command: Command) -> Answer | None:
    """Do a command; None when it will be answered later. Raises PeerFault."""
    if connection.controller is not None:
        connection.controller.commands += 1
    if command.opcode == AdminOpcode.FABRICS:
        return fabrics(runtime, connection, command)
    if connection.controller is None:
        raise PeerFault(Status.SEQUENCE_ERROR, why="before Connect")
    command.expect_common()
    return admin(connection.controller, slot, command)


def admin(controller: Controller, slot: int, command: Command) -> Answer | None:
    """Do an admin command of an enabled controller."""
    if command.opcode not in HANDLERS:
        raise PeerFault(Status.INVALID_OPCODE, why=f"opcode {command.opcode:02X}h")
    if not controller.ready:
        raise PeerFault(Status.SEQUENCE_ERROR, why="controller is not enabled")
    if controller.subsystem.is_discovery and command.opcode not in DISCOVERY:
        raise PeerFault(Status.INVALID_OPCODE, why="not of a discovery controller")
    return HANDLERS[command.opcode](controller, slot, command)


def _abort(controller: Controller, slot: int, command: Command) -> Answer | None:
    """Abort (5.1): DW0 bit 0 is clear when the command was ended."""
    sqid, cid = command.cdw(10) & 0xFFFF, command.cdw(10) >> 16
    if sqid == 0:
        return Answer(dw0=0 if controller.events.abort(cid) else 1)
    queue = controller.queues.get(sqid)
    if queue is None:
        return Answer(dw0=1)
    if controller.aborts > ABORT_LIMIT:
        raise PeerFault(Status.ABORT_LIMIT, retry=True)
    controller.aborts += 1
    cookie, future = controller.runtime.cookies.expect(queue.id)

    def ended(done: asyncio.Future[DoneNotice | None]) -> None:
        controller.aborts -= 1
        notice = None if done.cancelled() else done.result()
        controller.answer(slot, Answer(dw0=0 if notice is not None and notice.result == 1 else 1))

    future.add_done_callback(ended)
    controller.runtime.data_path.abort(queue.id, cid, cookie)
    return None


def _async_event_request(controller: Controller, slot: int, command: Command) -> None:
    controller.events.request(slot, command.cid)


def _keep_alive(controller: Controller, slot: int, command: Command) -> Answer:
    """Keep Alive (5.18): success also without a timer, for it asks for nothing that could fail."""
    return Answer()


HANDLERS: dict[int, Callable[[Controller, int, Command], Answer | None]] = {
    AdminOpcode.GET_LOG_PAGE: lambda controller, _, command: get_log_page(controller, command),
    AdminOpcode.IDENTIFY: lambda controller, _, command: identify(controller, command),
    AdminOpcode.ABORT: _abort,
    AdminOpcode.SET_FEATURES: lambda controller, _, command: controller.features.set(command),
    AdminOpcode.GET_FEATURES: lambda controller, _, command: controller.features.get(command),
    AdminOpcode.ASYNC_EVENT_REQUEST: _async_event_request,
    AdminOpcode.KEEP_ALIVE: _keep_alive,
}
DISCOVERY = {
    AdminOpcode.GET_LOG_PAGE,
    AdminOpcode.IDENTIFY,
    AdminOpcode.SET_FEATURES,
    AdminOpcode.GET_FEATURES,
    AdminOpcode.ASYNC_EVENT_REQUEST,
    AdminOpcode.KEEP_ALIVE,
}
