"""The subcommands of `prestage` for a target, one file each: `add(subparsers)` and what runs."""

from prestage.target.commands import (
    check_config,
    host,
    listener,
    namespace,
    serve,
    stats,
    top,
)

COMMANDS = (serve, stats, top, check_config, namespace, host, listener)
