"""What a host uses: the initiator, files over a namespace, and the hint interface."""

from prestage.host_client.controller import Controller, connect
from prestage.host_client.discovery import DiscoveryEntry, discover
from prestage.host_client.errors import (
    AnswerLost,
    BatchRefused,
    ConnectFailed,
    ConnectionLost,
    DigestError,
    HintError,
    HostError,
    InvalidHint,
    InvalidRequest,
    NotSupported,
    NvmeError,
    ProtocolError,
    RequestTimeout,
)
from prestage.host_client.extension_node import ExtensionNodeCarrier
from prestage.host_client.files import NamespaceFile, open_namespace
from prestage.host_client.hint_batches import Report
from prestage.host_client.hint_open import open_hints
from prestage.host_client.hints import Hints
from prestage.host_client.initiator_carrier import InitiatorCarrier
from prestage.host_client.nvme import Access, Completion, Namespace
from prestage.host_client.options import Options
from prestage.host_client.passthrough import PassthroughCarrier

__all__ = [
    "Access",
    "AnswerLost",
    "BatchRefused",
    "Completion",
    "ConnectFailed",
    "ConnectionLost",
    "Controller",
    "DigestError",
    "DiscoveryEntry",
    "ExtensionNodeCarrier",
    "HintError",
    "Hints",
    "HostError",
    "InitiatorCarrier",
    "InvalidHint",
    "InvalidRequest",
    "Namespace",
    "NamespaceFile",
    "NotSupported",
    "NvmeError",
    "Options",
    "PassthroughCarrier",
    "ProtocolError",
    "Report",
    "RequestTimeout",
    "connect",
    "discover",
    "open_hints",
    "open_namespace",
]
