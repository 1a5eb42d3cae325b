"""What a host uses: the initiator, files over a namespace, and the hint interface."""

from prestage.host_client.controller import Controller, connect
from prestage.host_client.discovery import DiscoveryEntry, discover
from prestage.host_client.errors import (
    BatchRefused,
    ConnectFailed,
    ConnectionLost,
    DigestError,
    HintError,
    HostError,
    InvalidRequest,
    NotSupported,
    NvmeError,
    ProtocolError,
    RequestTimeout,
)
from prestage.host_client.nvme import Access, Completion, Namespace
from prestage.host_client.options import Options

__all__ = [
    "Access",
    "BatchRefused",
    "Completion",
    "ConnectFailed",
    "ConnectionLost",
    "Controller",
    "DigestError",
    "DiscoveryEntry",
    "HintError",
    "HostError",
    "InvalidRequest",
    "Namespace",
    "NotSupported",
    "NvmeError",
    "Options",
    "ProtocolError",
    "RequestTimeout",
    "connect",
    "discover",
]
