"""What a host uses: the initiator, files over a namespace, and the hint interface.

Each name is imported when it is used first: an error class does not bring the initiator along.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

_NAMES = {
    "controller": ("Controller", "connect"),
    "discovery": ("DiscoveryEntry", "discover"),
    "errors": (
        "AnswerLost",
        "BatchRefused",
        "ConnectFailed",
        "ConnectionLost",
        "DigestError",
        "HintError",
        "HostError",
        "InvalidHint",
        "InvalidRequest",
        "NotSupported",
        "NvmeError",
        "ProtocolError",
        "RequestTimeout",
    ),
    "extension_node": ("ExtensionNodeCarrier",),
    "files": ("NamespaceFile", "open_namespace"),
    "hint_batches": ("Report",),
    "hint_open": ("open_hints",),
    "hints": ("Hints",),
    "initiator_carrier": ("InitiatorCarrier",),
    "nvme": ("Access", "Completion", "Namespace"),
    "options": ("Options",),
    "passthrough": ("PassthroughCarrier",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import what is public when it is asked for."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
