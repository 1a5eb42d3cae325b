"""Where a target is: `nvme+tcp://HOST:PORT/NQN`, with IPv6 addresses in brackets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from prestage.host_client.arguments import require
from prestage.host_client.errors import InvalidRequest

SCHEME = "nvme+tcp"
DEFAULT_PORT = 4420
DISCOVERY_PORT = 8009
DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
NQN_MAX_BYTES = 223
"""Longest NQN without its terminator (Base 2.0, 4.5)."""
EXPECTED = f"{SCHEME}://HOST:PORT/NQN, for example {SCHEME}://127.0.0.1:4420/nqn.2026-11.org:disk"
NQN = re.compile(r"nqn\.\d{4}-\d{2}\..+")


@dataclass(frozen=True, slots=True)
class Address:
    """A subsystem at a network address."""

    host: str
    port: int
    nqn: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{host}:{self.port}/{self.nqn}"


def parse_url(url: str, *, nqn: str | None = None) -> Address:
    """Return the address that a URL names.

    The part behind the port may be left out when `nqn` is given. Raises `InvalidRequest`.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"found {url!r}: {error}", "url", EXPECTED) from None
    if parts.scheme != SCHEME or not host or port == 0 or parts.query or parts.fragment:
        raise InvalidRequest(f"found {url!r}", "url", EXPECTED)
    name = unquote(parts.path.removeprefix("/")) or nqn
    if not name:
        raise InvalidRequest(f"found {url!r}, which names no subsystem", "url", EXPECTED)
    default = DISCOVERY_PORT if name == DISCOVERY_NQN else DEFAULT_PORT
    return Address(host, default if port is None else port, check_nqn(name, "url"))


def parse_target(text: str, *, nqn: str | None = None) -> Address:
    """Return the address that a URL or a short `HOST:PORT` names. Raises `InvalidRequest`."""
    require(text, str, "url", EXPECTED)
    return parse_url(text if "://" in text else f"{SCHEME}://{text}", nqn=nqn)


def check_nqn(nqn: str, where: str) -> str:
    """Return the NQN if it is a legal one (Base 2.0, 4.5). Raises `InvalidRequest`."""
    expected = f"an NQN: nqn.YYYY-MM.DOMAIN:NAME of at most {NQN_MAX_BYTES} bytes"
    require(nqn, str, where, expected)
    if not NQN.fullmatch(nqn) or len(nqn.encode()) > NQN_MAX_BYTES or "\0" in nqn:
        raise InvalidRequest(f"found {nqn!r}", where, expected)
    return nqn
