"""The subcommands of `prestage`, one file each: `add(subparsers)` and what runs."""
