"""The subcommands of `prestage` that a host uses: each is a module with `add(subparsers)`.

The modules know the whole initiator. Whoever only names the commands does not import them.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import NamedTuple


class Command(NamedTuple):
    """A subcommand: where it is, and what it is for."""

    module: str
    purpose: str

    def load(self) -> ModuleType:
        """Import its module."""
        return importlib.import_module(self.module)


COMMANDS = {
    "hint": Command("prestage.host_client.commands.hint", "tell a target what will be needed"),
    "residency": Command(
        "prestage.host_client.commands.residency", "show how much of blocks, or of a set, is warm"
    ),
    "outcome": Command("prestage.host_client.commands.outcome", "show what became of intents"),
    "conform": Command(
        "prestage.host_client.commands.conform", "test a target against the contract"
    ),
}
"""In the order of the help."""
