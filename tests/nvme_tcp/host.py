"""A host: an association with one controller, its admin queue and its I/O queues."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Self

from . import commands as nvme
from .connection import Address, ProtocolError, RawConnection
from .queue import Queue

READY_TIMEOUT_S = 15.0


def open_queue(
    address: Address,
    *,
    qid: int = 0,
    sqsize: int = 31,
    digests: int = 0,
    hpda: int = 0,
    maxr2t: int = 0,
    timeout_s: float = 10.0,
    receive_buffer: int | None = None,
    **options: Any,
) -> Queue:
    """A TCP connection with ICReq and ICResp done, as a queue that has not sent Connect yet."""
    connection = RawConnection(address, timeout_s=timeout_s, receive_buffer=receive_buffer)
    try:
        connection.initialize(digests=digests, hpda=hpda, maxr2t=maxr2t)
    except BaseException:
        connection.close()
        raise
    return Queue(connection, qid=qid, sqsize=sqsize, hpda=hpda, maxr2t=maxr2t, **options)


class Controller:
    """An association: connect it, enable it, add I/O queues, close it."""

    def __init__(
        self,
        address: Address,
        subnqn: str,
        *,
        hostnqn: str = nvme.HOST_NQN,
        hostid: bytes = nvme.HOST_ID,
        kato: int = 0,
        **queue_options: Any,
    ) -> None:
        self.address, self.subnqn = address, subnqn
        self.hostnqn, self.hostid = hostnqn, hostid
        self.queue_options = queue_options
        self.io: list[Queue] = []
        self.admin = open_queue(address, **queue_options)
        try:
            answer = self.admin.connect(subnqn, hostnqn=hostnqn, hostid=hostid, kato=kato)
            if not answer.is_ok:
                raise ProtocolError(f"Connect: {answer.text()}")
        except BaseException:
            self.admin.connection.close()
            raise
        self.cntlid = self.admin.cntlid
        self.in_capsule = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enable(self) -> None:
        """CC.EN = 1 and wait for CSTS.RDY; then learn the in-capsule size of I/O queues."""
        self.set_cc(nvme.CC_BASE | 1)
        self.wait_csts(1, 1)
        identity = self.identify(1)
        self.in_capsule = int.from_bytes(identity[1792:1796], "little") * 16 - 64

    def set_cc(self, value: int) -> None:
        """Write CC."""
        answer = self.admin.execute(nvme.property_set(nvme.CC, value))
        if not answer.is_ok:
            raise ProtocolError(f"Property Set CC {value:#x}: {answer.text()}")

    def wait_csts(self, mask: int, value: int, timeout_s: float = READY_TIMEOUT_S) -> int:
        """Poll CSTS until its bits under `mask` are `value`, as hosts do."""
        limit = time.monotonic() + timeout_s
        while True:
            csts = self.admin.property_get(nvme.CSTS)
            if csts & mask == value:
                return csts
            if time.monotonic() > limit:
                raise ProtocolError(f"CSTS stays {csts:#x}, {value:#x} under {mask:#x} expected")
            time.sleep(0.01)

    def identify(self, cns: int, nsid: int = 0, csi: int = 0) -> bytes:
        """The 4096 bytes of an Identify data structure."""
        answer = self.admin.execute(nvme.identify(cns, nsid, csi), expected=4096)
        if not answer.is_ok or len(answer.data) != 4096:
            raise ProtocolError(f"Identify {cns:#x}: {answer.text()}, {len(answer.data)} bytes")
        return answer.data

    def get_log(self, lid: int, size: int, **options: Any) -> bytes:
        """`size` bytes of a log page."""
        answer = self.admin.execute(nvme.get_log(lid, size, **options), expected=size)
        if not answer.is_ok or len(answer.data) != size:
            raise ProtocolError(f"Get Log {lid:#x}: {answer.text()}, {len(answer.data)} bytes")
        return answer.data

    def add_queue(self, qid: int | None = None, *, sqsize: int = 31, **options: Any) -> Queue:
        """A further, connected I/O queue."""
        queue = self.open_io_queue(qid, sqsize=sqsize, **options)
        answer = self.connect_io_queue(queue)
        if not answer.is_ok:
            queue.connection.close()
            raise ProtocolError(f"Connect of I/O queue {queue.qid}: {answer.text()}")
        self.io.append(queue)
        return queue

    def open_io_queue(self, qid: int | None = None, *, sqsize: int = 31, **options: Any) -> Queue:
        """As add_queue, without the Connect command; the caller closes it."""
        number = len(self.io) + 1 if qid is None else qid
        merged = {"in_capsule": self.in_capsule, **self.queue_options, **options}
        return open_queue(self.address, qid=number, sqsize=sqsize, **merged)

    def connect_io_queue(self, queue: Queue) -> nvme.Completion:
        """The Connect command of an I/O queue of this association."""
        return queue.connect(
            self.subnqn, hostnqn=self.hostnqn, hostid=self.hostid, cntlid=self.cntlid
        )

    def block_size(self, nsid: int = 1) -> int:
        """Logical block size in bytes."""
        data = self.identify(0, nsid)
        return 1 << data[128 + 4 * (data[26] & 15) + 2]

    def block_count(self, nsid: int = 1) -> int:
        """NSZE."""
        return int.from_bytes(self.identify(0, nsid)[:8], "little")

    def queues(self) -> list[Queue]:
        """Admin queue first."""
        return [self.admin, *self.io]

    def close(self) -> None:
        """Close every connection in the orderly way."""
        for queue in reversed(self.queues()):
            queue.connection.close()

    def vanish(self) -> None:
        """Close every connection by RST."""
        for queue in reversed(self.queues()):
            queue.connection.reset()


@contextlib.contextmanager
def connected_queue_pair(
    address: Address,
    subnqn: str,
    io_queues: int = 1,
    *,
    sqsize: int = 31,
    io: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[Controller]:
    """An enabled controller with `io_queues` I/O queues; `io` is for those queues only."""
    with Controller(address, subnqn, **options) as controller:
        controller.enable()
        for _ in range(io_queues):
            controller.add_queue(sqsize=sqsize, **(io or {}))
        yield controller
