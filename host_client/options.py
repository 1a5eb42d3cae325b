"""What a connection may be told, and what it does when it is told nothing."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path

from prestage.host_client.address import check_nqn
from prestage.host_client.arguments import flag, integer, real, require
from prestage.host_client.engine import DATA_DIGEST, HEADER_DIGEST
from prestage.host_client.errors import InvalidRequest

NQN_FILE = Path("/etc/nvme/hostnqn")
ID_FILE = Path("/etc/nvme/hostid")
"""Where this machine's names are kept for all NVMe-oF hosts on it."""
_PROCESS = uuid.uuid4()


def default_host_nqn() -> str:
    """Return this machine's host NQN; where it has none, one of this process."""
    text = _read(NQN_FILE)
    return text or f"nqn.2014-08.org.nvmexpress:uuid:{_PROCESS}"


def default_host_id() -> bytes:
    """Return this machine's host identifier (16 bytes); where it has none, one of this process."""
    try:
        return uuid.UUID(_read(ID_FILE)).bytes
    except ValueError:
        return _PROCESS.bytes


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to connect. Raises `InvalidRequest` when something is out of range.

    `host_nqn` and `host_id` (16 bytes, or a UUID) say who the host is; sets, intents and residency
    belong to the host NQN. `queues` I/O queues with `queue_depth` requests in flight on each, fewer
    if the controller says so. `keep_alive_s` of 0 means no keep-alive. `timeout_s` is the time that
    one request may take; `loss_timeout_s` how long a controller may be away before requests fail;
    `backoff_s` the first and the longest time between two attempts to reconnect.
    """

    host_nqn: str = field(default_factory=default_host_nqn)
    host_id: bytes | uuid.UUID = field(default_factory=default_host_id)
    queues: int = 1
    queue_depth: int = 128
    header_digest: bool = False
    data_digest: bool = False
    keep_alive_s: float = 10.0
    timeout_s: float = 30.0
    loss_timeout_s: float = 60.0
    backoff_s: tuple[float, float] = (0.05, 5.0)
    sq_flow_control: bool = False
    """True for a target that cannot do without (Base 2.0, 6.3, CATTR)."""

    def __post_init__(self) -> None:
        check_nqn(self.host_nqn, "host_nqn")
        require(self.host_id, (bytes, uuid.UUID), "host_id", "16 bytes, or a UUID")
        if len(self.host_id_bytes) != 16:
            raise InvalidRequest(f"found {len(self.host_id_bytes)} bytes", "host_id", "16 bytes")
        integer(self.queues, "queues", 0, 1024)
        integer(self.queue_depth, "queue_depth", 1, 4095)
        flag(self.header_digest, "header_digest")
        flag(self.data_digest, "data_digest")
        flag(self.sq_flow_control, "sq_flow_control")
        real(self.keep_alive_s, "keep_alive_s", 0, 0xFFFFFFFF / 1000)
        real(self.timeout_s, "timeout_s", 0.001, 1e6)
        real(self.loss_timeout_s, "loss_timeout_s", 0, 1e9)
        require(self.backoff_s, (tuple, list), "backoff_s", "two numbers")
        if len(self.backoff_s) != 2:
            raise InvalidRequest(f"found {len(self.backoff_s)}", "backoff_s", "two numbers")
        first = real(self.backoff_s[0], "backoff_s[0]", 0.001, 3600)
        real(self.backoff_s[1], "backoff_s[1]", first, 3600)

    @property
    def host_id_bytes(self) -> bytes:
        """The host identifier as it goes over the wire."""
        return self.host_id.bytes if isinstance(self.host_id, uuid.UUID) else bytes(self.host_id)

    @property
    def digests(self) -> int:
        """Digests to ask for, as the engine has them."""
        header = HEADER_DIGEST if self.header_digest else 0
        return header | (DATA_DIGEST if self.data_digest else 0)
