"""Hints to whatever there is: a controller, or a device node of either kind."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

from prestage.host_client.controller import Controller
from prestage.host_client.extension_node import ExtensionNodeCarrier
from prestage.host_client.hint_batches import hint_errors
from prestage.host_client.hint_carrier import HintCarrier
from prestage.host_client.hints import Hints
from prestage.host_client.passthrough import PassthroughCarrier


def carrier_of(node: str | os.PathLike[str]) -> HintCarrier:
    """Return the carrier that a device node is good for: the extension namespace's, or an ioctl.

    Raises `HintError` when there is no such node.
    """
    path = Path(node)
    with hint_errors(str(path)):
        status = path.stat()
    if stat.S_ISCHR(status.st_mode):
        return PassthroughCarrier(path)
    return ExtensionNodeCarrier(path)


def open_hints(
    target: Controller | str | os.PathLike[str],
    *,
    when_missing: Literal["skip", "raise"] = "skip",
) -> Hints:
    """Return hints to a controller, or by a device node, for `async with`.

    A character device (`/dev/ng0n1`) is used by ioctl, anything else as the extension namespace's
    block device. Raises `HintError` when there is no such node.
    """
    carrier = target if isinstance(target, Controller) else carrier_of(target)
    return Hints(carrier, when_missing=when_missing)
