"""The table of probes. Importing this package fills `tests.wire.probing.PROBES`."""

from . import admin, capsule, connect, features, handshake, host_data, io, sgl

__all__ = ["admin", "capsule", "connect", "features", "handshake", "host_data", "io", "sgl"]
