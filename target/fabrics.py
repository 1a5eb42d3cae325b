"""Fabrics commands: Connect, Property Get and Set, Disconnect (Base 2.0, 6)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from prestage.target.controller import Controller
from prestage.target.datapath import QueueConfig
from prestage.target.errors import PeerFault
from prestage.target.nvme import (
    DYNAMIC_CONTROLLER,
    Answer,
    Command,
    FabricsType,
    Status,
    read_nqn,
)
from prestage.target.runtime import Connection, Runtime
from prestage.target.subsystem import Subsystem

CONNECT_DATA_BYTES = 1024
IATTR_DATA = 1 << 16
"""The offset in DW0 is one of the data, not of the SQE (figure 494)."""
# Offsets of Connect's fields, in the SQE and (with IATTR) in its data (figures 492, 493).
QID, SQSIZE = 0x2A, 0x2C
CNTLID, SUBNQN, HOSTNQN = IATTR_DATA | 0x10, IATTR_DATA | 0x100, IATTR_DATA | 0x200
FLOW_CONTROL_DISABLED = 1 << 2
"""CATTR."""


def invalid(offset: int, why: str) -> PeerFault:
    """Return Connect Invalid Parameters with the offset of the field (figure 494)."""
    return PeerFault(Status.CONNECT_INVALID, offset, why=why)


def fabrics(runtime: Runtime, connection: Connection, command: Command) -> Answer:
    """Do a fabrics command. Everything but Connect needs a connected queue."""
    command.expect_common()
    if command.fctype == FabricsType.CONNECT:
        return connect(runtime, connection, command)
    if connection.controller is None:
        raise PeerFault(Status.SEQUENCE_ERROR, why="before Connect")
    handlers: dict[int, Callable[[Runtime, Connection, Controller, Command], Answer]] = {
        FabricsType.PROPERTY_SET: property_set,
        FabricsType.PROPERTY_GET: property_get,
        FabricsType.DISCONNECT: disconnect,
    }
    handler = handlers.get(command.fctype)
    if handler is None:
        raise PeerFault(Status.INVALID_OPCODE, why=f"FCTYPE {command.fctype:02X}h")
    return handler(runtime, connection, connection.controller, command)


def property_get(
    runtime: Runtime, connection: Connection, controller: Controller, command: Command
) -> Answer:
    """Property Get (6.5): the value stands in DW0 and DW1."""
    _expect_admin(connection)
    value = controller.property_get(command.number(44, 4), _property_bytes(command))
    return Answer(dw0=value & 0xFFFFFFFF, dw1=value >> 32)


def property_set(
    runtime: Runtime, connection: Connection, controller: Controller, command: Command
) -> Answer:
    """Property Set (6.6)."""
    _expect_admin(connection)
    size = _property_bytes(command)
    controller.property_set(command.number(44, 4), size, command.number(48, size))
    return Answer()


def disconnect(
    runtime: Runtime, connection: Connection, controller: Controller, command: Command
) -> Answer:
    """Disconnect (6.4): deletes the I/O queue it came on; its answer is the last on it."""
    if connection.qid == 0:
        raise PeerFault(Status.QUEUE_TYPE, why="Disconnect on the admin queue")
    if command.number(40, 2):
        raise PeerFault(Status.CONNECT_FORMAT, why="RECFMT")
    return Answer()


def _expect_admin(connection: Connection) -> None:
    if connection.qid:
        raise PeerFault(Status.INVALID_OPCODE, why="property command on an I/O queue")


def _property_bytes(command: Command) -> int:
    size = command.number(40, 1) & 7
    if size > 1:
        raise PeerFault(Status.INVALID_FIELD, why="ATTRIB size")
    return 8 if size else 4


def connect(runtime: Runtime, connection: Connection, command: Command) -> Answer:
    """Connect (6.3): make a controller (queue 0) or add an I/O queue to one."""
    if connection.controller is not None or connection.sq_size:
        raise PeerFault(Status.SEQUENCE_ERROR, why="second Connect")
    if command.number(40, 2):
        raise PeerFault(Status.CONNECT_FORMAT, why="RECFMT")
    command.expect_transfer(CONNECT_DATA_BYTES, to_host=False)
    limits = runtime.settings.limits
    qid, sq_size = command.number(42, 2), command.number(44, 2) + 1
    if not 2 <= sq_size <= limits.queue_depth:
        raise invalid(SQSIZE, f"SQSIZE {sq_size - 1}")
    subsystem, host_nqn = _names(runtime, command.data)
    if qid > (0 if subsystem.is_discovery else limits.io_queues):
        raise invalid(QID, f"QID {qid}")
    join = _connect_io if qid else _connect_admin
    controller = join(runtime, connection, command, subsystem, host_nqn)
    connection.controller, connection.qid, connection.sq_size = controller, qid, sq_size
    runtime.data_path.bind(
        connection.id,
        QueueConfig(
            qid=qid,
            sq_size=sq_size,
            flow_control_disabled=bool(command.number(46, 1) & FLOW_CONTROL_DISABLED),
            controller=controller.cntlid,
            subsystem=subsystem.index,
            tenant=runtime.tenants.number(host_nqn),
            enabled=controller.accepts_io and qid != 0,
        ),
    )
    if qid == 0:
        kato_ms = command.number(48, 4)
        if subsystem.is_discovery and kato_ms == 0:
            kato_ms = round(limits.discovery_keep_alive_s * 1000)
        if subsystem.is_discovery and runtime.discovery is not None:
            controller.discovery_generation = runtime.discovery.generation_for(controller)
        controller.keep_alive.set(kato_ms)
    return Answer(dw0=controller.cntlid)


def _names(runtime: Runtime, data: bytes) -> tuple[Subsystem, str]:
    """Return the subsystem and host that Connect's data names, checked."""
    host_nqn = _host(data)
    subsystem = runtime.subsystems.get(read_nqn(data[256:512]) or "")
    if subsystem is None:
        raise invalid(SUBNQN, "no such subsystem")
    if host_nqn is None:
        raise invalid(HOSTNQN, "not an NQN")
    if not subsystem.allows(host_nqn):
        raise PeerFault(Status.CONNECT_HOST, HOSTNQN, why=f"{host_nqn} may not connect")
    return subsystem, host_nqn


def _host(data: bytes) -> str | None:
    """Return the NQN of the host, or None when it is not a legal one.

    Some hosts give none (spdk_nvme_perf), and other targets take them. Such a host goes by the NQN
    of its Host Identifier, so that it is a tenant of its own and can be on a list.
    """
    if data[512]:
        return read_nqn(data[512:768])
    return f"nqn.2014-08.org.nvmexpress:uuid:{UUID(bytes=data[:16])}"


def _connect_admin(
    runtime: Runtime, connection: Connection, command: Command, subsystem: Subsystem, host: str
) -> Controller:
    if int.from_bytes(command.data[16:18], "little") != DYNAMIC_CONTROLLER:
        raise invalid(CNTLID, "only dynamic controllers")
    cntlid = subsystem.free_cntlid()
    if cntlid is None:
        raise PeerFault(Status.CONNECT_BUSY, retry=True, why="no controller identifier is free")
    identity = (host, command.data[:16])
    controller = Controller(runtime, subsystem, cntlid, identity, connection)
    subsystem.controllers[cntlid] = controller
    return controller


def _connect_io(
    runtime: Runtime, connection: Connection, command: Command, subsystem: Subsystem, host: str
) -> Controller:
    cntlid = int.from_bytes(command.data[16:18], "little")
    controller = subsystem.controllers.get(cntlid)
    if controller is None or (controller.host_nqn, controller.host_id) != (
        host,
        command.data[:16],
    ):
        raise invalid(CNTLID, f"controller {cntlid} is not this host's")
    if not controller.accepts_io:
        raise PeerFault(Status.SEQUENCE_ERROR, why="controller is not enabled")
    qid = command.number(42, 2)
    old = controller.queues.get(qid)
    if old is not None and not old.closing:
        raise PeerFault(Status.SEQUENCE_ERROR, why=f"QID {qid} exists")
    controller.queues[qid] = connection
    return controller
