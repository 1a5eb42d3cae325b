"""The discovery log of a target: `await discover("nvme+tcp://HOST:PORT")` (Base 2.0, 5.16.1.23)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from prestage.host_client import nvme
from prestage.host_client.address import DISCOVERY_NQN, Address, parse_target
from prestage.host_client.association import Association, open_association
from prestage.host_client.errors import ConnectionLost, HostError, ProtocolError
from prestage.host_client.options import Options

ENTRY_BYTES = 1024
HEADER_BYTES = 1024
MOST_ENTRIES = 1 << 16
MOST_TRIES = 10
"""The log may change while it is read; then it is read again."""
TRTYPE_TCP = 3
FAMILIES = {1: "ipv4", 2: "ipv6"}


@dataclass(frozen=True, slots=True)
class DiscoveryEntry:
    """A subsystem port: `transport` is "tcp" or a number, `is_discovery` a referral or itself."""

    nqn: str
    transport: str
    family: str
    host: str
    service: str
    port_id: int
    cntlid: int
    is_discovery: bool

    @property
    def url(self) -> str:
        """What `connect` takes."""
        return str(Address(self.host, int(self.service), self.nqn))


async def discover(url: str, **options: Any) -> list[DiscoveryEntry]:
    """Return the discovery log that the target at `url` shows to this host.

    `url` is `nvme+tcp://HOST:PORT` or `HOST:PORT`; port 8009 when left out. Options as for
    `connect`. Raises `ConnectFailed`, `NvmeError`, `ConnectionLost`, `ProtocolError`,
    `RequestTimeout`.
    """
    address = parse_target(url, nqn=DISCOVERY_NQN)
    settings = Options(**{"keep_alive_s": 0.0, **options, "queues": 0})
    association = await open_association(address, settings)
    try:
        return await _read(association)
    finally:
        await association.shut_down()
        association.close(ConnectionLost("the controller was closed", str(address)))


async def subsystems_at(url: str, host_nqn: str) -> list[str]:
    """Return the NQNs of the subsystems that the target at `url` shows to a host, in order.

    Raises what `discover` does, and `HostError` where there is none: the host may not be allowed.
    """
    found = await discover(url, host_nqn=host_nqn)
    names = sorted({one.nqn for one in found if not one.is_discovery})
    if not names:
        expected = f"one, to which `prestage host allow {host_nqn}` would let it"
        raise HostError(f"the target shows no subsystem to the host {host_nqn}", url, expected)
    return names


async def _read(association: Association) -> list[DiscoveryEntry]:
    for _ in range(MOST_TRIES):
        generation, count = await _header(association)
        if count > MOST_ENTRIES:
            raise ProtocolError(
                f"a log of {count} entries", "discovery log", f"at most {MOST_ENTRIES}"
            )
        entries = [await _entry(association, index) for index in range(count)]
        if (await _header(association))[0] == generation:
            return entries
    raise ProtocolError(f"it changed {MOST_TRIES} times while it was read", "discovery log")


async def _header(association: Association) -> tuple[int, int]:
    entry = nvme.get_log_entry(nvme.Lid.DISCOVERY, HEADER_BYTES)
    page = await association.admin_read(entry, HEADER_BYTES)
    generation, count = struct.unpack_from("<QQ", page)
    return generation, count


async def _entry(association: Association, index: int) -> DiscoveryEntry:
    offset = HEADER_BYTES + index * ENTRY_BYTES
    entry = nvme.get_log_entry(nvme.Lid.DISCOVERY, ENTRY_BYTES, offset=offset, rae=True)
    page = await association.admin_read(entry, ENTRY_BYTES)
    kind, family, subtype, _treq, port_id, cntlid = struct.unpack_from("<BBBBHH", page)
    return DiscoveryEntry(
        nqn=nvme.text_of(page[256:512]),
        transport="tcp" if kind == TRTYPE_TCP else str(kind),
        family=FAMILIES.get(family, str(family)),
        host=nvme.text_of(page[512:768]),
        service=nvme.text_of(page[32:64]),
        port_id=port_id,
        cntlid=cntlid,
        is_discovery=subtype != 2,
    )
