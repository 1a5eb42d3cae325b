"""sd_notify: tell the service manager how we are doing (systemd's sd_notify(3) protocol)."""

from __future__ import annotations

import os
import socket


def notify(*lines: str) -> bool:
    """Send `lines` ("READY=1", "STATUS=...") to $NOTIFY_SOCKET.

    Returns whether they were sent. Without a service manager, or when it does not listen any
    more, nothing happens: a service does not fail because nobody watches it.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):
        # The manager writes an abstract address with "@" for its leading zero byte.
        address = "\0" + address[1:]
    message = "\n".join(line.replace("\n", " ") for line in lines).encode("utf-8", "replace")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.connect(address)
            sock.sendall(message)
    except (OSError, ValueError):
        return False
    return True
