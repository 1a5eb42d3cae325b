"""Connect and what it may not say (Base 2.0, 6.3; Connect response parameters, figure 388)."""

from __future__ import annotations

import contextlib
from typing import Any

from nvme_tcp import commands as nvme
from nvme_tcp.connection import ConnectionClosed

from ..probing import Site, probe, variants


@probe("ref", right="ok sqhd=1")
def connect_admin_queue(site: Site) -> str:
    """DW0 is the CNTLID, SQHD 1 after the first command."""
    with site.queue() as queue:
        answer = queue.connect(site.nqn)
        assert 0 < answer.dw0 < 0xFFF0, answer
        return f"{answer.code} sqhd={answer.sqhd}"


def connect_with(site: Site, entry: dict[str, Any], data: dict[str, Any]) -> nvme.Completion:
    """A Connect on a fresh connection with these fields in its SQE and data."""
    with site.queue() as queue:
        sqe = nvme.connect(**{"qid": 0, "sqsize": 31, **entry})
        payload = nvme.connect_data(**{"subnqn": site.nqn, **data})
        return queue.execute(sqe, site.silence_s, data=payload, in_capsule=True)


@variants(
    "ref",
    [
        ("SQSIZE 0", {"sqsize": 0}, "1/82 dnr dw0=2c", ""),
        ("SQSIZE 2000", {"sqsize": 2000}, "1/82 dnr dw0=2c | ok", ""),
        ("RECFMT 1", {"recfmt": 1}, "1/80 dnr", ""),
    ],
)
def connect_entry(site: Site, fields: dict[str, int]) -> str:
    """A wrong field in the Connect command's SQE."""
    return connect_with(site, fields, {}).text()


@variants(
    "ref",
    [
        ("unknown", {"subnqn": "nqn.2026-11.io.prestage:none"}, "1/82 dnr dw0=10100", ""),
        ("empty", {"subnqn": ""}, "1/82 dnr dw0=10100", ""),
        ("CNTLID 1 on admin", {"cntlid": 1}, "1/82 dnr dw0=10010", ""),
        ("CNTLID FFFE on admin", {"cntlid": 0xFFFE}, "1/82 dnr dw0=10010", ""),
    ],
)
def connect_names(site: Site, fields: dict[str, Any]) -> str:
    """A wrong field in the Connect data."""
    return connect_with(site, {}, fields).text()


@variants(
    "A10",
    [
        ("SUBNQN", {"subnqn": b"a" * 256}, "1/82 dnr dw0=10100", ""),
        ("HOSTNQN", {"hostnqn": b"b" * 256}, "1/82 dnr dw0=10200", "ok | 1/82"),
        ("both", {"subnqn": b"a" * 256, "hostnqn": b"b" * 256}, "1/82 dnr", ""),
    ],
)
def names_without_end(site: Site, fields: dict[str, Any]) -> str:
    """Names that fill their fields with no NUL."""
    return connect_with(site, {}, fields).text()


@variants(
    "A11",
    [
        ("223 characters", 223, "ok", "ok"),
        ("224 characters", 224, "1/82 dnr dw0=10200", "ok | 1/82"),
        ("255 characters", 255, "1/82 dnr dw0=10200", "ok | 1/82"),
        ("none", 0, "ok", "ok | 1/82"),
    ],
)
def host_name_of_length(site: Site, length: int) -> str:
    """NQNs are at most 223 bytes (Base 2.0, 4.5); hosts that give none are taken everywhere."""
    name = ("nqn.2026-11.io.prestage:" + "h" * 256)[:length]
    return connect_with(site, {}, {"hostnqn": name}).text()


@variants(
    "ref",
    [
        ("length 0", (nvme.NO_DATA, b""), "0/0f | 0/02", "0/0f | 0/02 | 1/82"),
        ("in-capsule length 0", (nvme.sgl(1, 0), b""), "0/0f | 0/02", "0/0f | 0/02 | 1/82"),
        ("512 bytes", (nvme.sgl(1, 512), bytes(512)), "0/0f | 0/02", "0/0f | 0/02"),
        ("1023 bytes", (nvme.sgl(1, 1023), bytes(1023)), "0/0f | 0/02", "0/0f | 0/02"),
        ("2048 bytes", (nvme.sgl(1, 2048), bytes(2048)), "0/0f | 0/02 | 1/82", ""),
    ],
)
def connect_of_other_length(site: Site, sent: tuple[bytes, bytes]) -> str:
    """A Connect before any login whose data is not 1024 bytes."""
    descriptor, data = sent
    with site.queue() as queue:
        entry = nvme.connect(qid=0, sqsize=31, data=descriptor)
        answer = queue.execute(entry, site.silence_s, data=data, in_capsule=True, keep_sgl=True)
        return answer.text()


@probe("A20", right="1/84 dnr dw0=10200")
def host_that_is_not_allowed(site: Site) -> str:
    """A subsystem with an allow-list refuses other hosts, and takes the one on the list."""
    answer = connect_with(site, {}, {"subnqn": site.restricted_nqn})
    with site.queue() as queue:
        allowed = queue.connect(site.restricted_nqn, hostnqn=site.allowed_host)
        assert allowed.is_ok, allowed.text()
    return answer.text()


@variants(
    "ref",
    [
        ("unknown CNTLID", {"cntlid": 0xFFEF}, "1/82 dnr dw0=10010", ""),
        (
            "other host",
            {"hostnqn": "nqn.2026-11.io.prestage:x"},
            "1/82 dnr dw0=10010 | 1/82 dnr dw0=10200",
            "1/82 dnr dw0=10010",
        ),
        (
            "other subsystem",
            {"subnqn": "nqn.2026-11.io.prestage:none"},
            "1/82 dnr dw0=10100 | 1/82 dnr dw0=10010",
            "",
        ),
    ],
)
def io_connect(site: Site, fields: dict[str, Any]) -> str:
    """An I/O queue that names another controller, host or subsystem than its association's."""
    with site.pair(0) as controller:
        queue = controller.open_io_queue(1)
        try:
            arguments = {"subnqn": site.nqn, "cntlid": controller.cntlid, **fields}
            return queue.connect(**arguments).text()
        finally:
            queue.connection.close()


@variants(
    "ref",
    [
        ("QID beyond the maximum", 200, "1/82 dnr dw0=2a", ""),
        ("QID FFFF", 0xFFFF, "1/82 dnr dw0=2a", ""),
    ],
)
def io_connect_with_qid(site: Site, qid: int) -> str:
    """More queues than a controller has."""
    with site.pair(0) as controller:
        queue = controller.open_io_queue(qid)
        try:
            return controller.connect_io_queue(queue).text()
        finally:
            queue.connection.close()


@probe("ref", right="1/82 dnr dw0=2a")
def io_queue_on_discovery(site: Site) -> str:
    """A discovery controller has no I/O queues."""
    with site.pair(0, nqn=nvme.DISCOVERY_NQN) as controller:
        queue = controller.open_io_queue(1)
        try:
            return controller.connect_io_queue(queue).text()
        finally:
            queue.connection.close()


@probe("A13", right="0/0c dnr | 1/82 dnr", nvmet="0/0c")
def duplicate_qid(site: Site) -> str:
    """A second connection for a live queue is refused and the first one lives on."""
    with site.pair(1) as controller:
        queue = controller.open_io_queue(1)
        try:
            answer = controller.connect_io_queue(queue)
        finally:
            queue.connection.close()
        controller.io[0].read(0, 1, controller.block_size())
        return answer.text()


@probe("ref", right="0/0c", nvmet="ok")
def io_connect_before_enable(site: Site) -> str:
    """I/O queues come after CC.EN."""
    with site.admin() as controller:
        queue = controller.open_io_queue(1)
        try:
            return controller.connect_io_queue(queue).code
        finally:
            queue.connection.close()


@probe("A14", right="1/82 dnr dw0=10010", nvmet="1/82 dnr dw0=10010 | silence")
def io_connect_after_admin_is_gone(site: Site) -> str:
    """The controller died with its admin connection."""
    with site.pair(0) as controller:
        # Opened first: the target still accepts, it must refuse at Connect.
        queue = controller.open_io_queue(1)
        try:
            controller.admin.connection.close()
            # The end of the admin connection and this command come by different sockets, so a
            # target may see them in either order; only a bounded number of tries may succeed.
            for _ in range(100):
                # One that was seen in time is taken, and ends with the association at once.
                with contextlib.suppress(ConnectionClosed):
                    answer = controller.connect_io_queue(queue)
                    if not answer.is_ok:
                        return answer.text()
                    queue.connection.expect_closed(5.0)
                queue.connection.close()
                queue = controller.open_io_queue(1)
            return "taken again and again"
        finally:
            queue.connection.close()


@probe("ref", right="0/0c", nvmet="0/01")
def property_get_before_connect(site: Site) -> str:
    """Nothing but Connect is taken on a queue that is not connected."""
    with site.queue() as queue:
        return queue.execute(nvme.property_get(nvme.CAP, 8)).code


@probe("ref", right="0/0c", nvmet="0/01")
def connect_again(site: Site) -> str:
    """Connect on a connected queue."""
    with site.admin() as controller:
        return controller.admin.connect(site.nqn).code


@probe("ref", right="0/0c dnr", nvmet="0/0c")
def identify_before_enable(site: Site) -> str:
    """Admin commands wait for CC.EN, and no data comes."""
    with site.admin() as controller:
        answer = controller.admin.execute(nvme.identify(1), expected=4096)
        assert not answer.data
        return answer.text()


@probe("C59", right="ok sqhd=ffff")
def connect_without_flow_control(site: Site) -> str:
    """CATTR bit 2: SQHD is FFFFh (Base 2.0, 6.3)."""
    with site.queue(cattr=4) as queue:
        answer = queue.connect(site.nqn)
        return f"{answer.code} sqhd={answer.sqhd:x}"
