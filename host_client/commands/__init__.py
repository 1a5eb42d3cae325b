"""The subcommands of `prestage` that a host uses: `add(subparsers)` and what runs."""

from prestage.host_client.commands import conform, hint, outcome, residency

COMMANDS = (hint, residency, outcome, conform)
"""In the order of the help."""
