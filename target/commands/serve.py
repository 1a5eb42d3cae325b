"""`prestage serve`: run a target in the foreground."""

from __future__ import annotations

import argparse

from prestage.target.commands.common import Subparsers
from prestage.target.flags import ServeFlags, settings_from_flags
from prestage.target.journal import LEVELS

DESCRIPTION = """Run a target in the foreground until SIGTERM or SIGINT; a second one hurries.
With neither a configuration nor a namespace it serves 4 GiB on a sparse file at 127.0.0.1:4420.
Exit status: 0 after a clean stop, 1 when it could not start, 2 for a wrong flag, 3 when something
was not flushed."""

NAMESPACE_HELP = """a file or block device to serve, e.g. /var/lib/disk.img,size=4G,block=512; also
ram:,size=1G and model:PATH,seed=1; options: size, block, nsid, write=back|through, read_only, uuid,
nguid, fault=WRAPPER, and those of the medium (engine, direct, depth, ...)"""


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("serve", help="run a target", description=DESCRIPTION)
    parser.add_argument("--config", metavar="FILE", help="TOML configuration; flags go over it")
    parser.add_argument(
        "--listen", metavar="ADDR:PORT", action="append", default=[], help="port 0: any free one"
    )
    parser.add_argument("--nqn", help="name of the subsystem")
    parser.add_argument(
        "--namespace", metavar="PATH[,OPT=V]", action="append", default=[], help=NAMESPACE_HELP
    )
    parser.add_argument("--extension", action="store_true", help="with a namespace to say hints by")
    parser.add_argument(
        "--no-prestager",
        dest="prestager",
        action="store_false",
        help="learn nothing of what is read, and bring in only what hosts ask for",
    )
    parser.add_argument("--dram", metavar="SIZE", help="size of the DRAM tier, e.g. 512M")
    parser.add_argument("--reactors", metavar="N", type=int, help="threads of the data path")
    parser.add_argument("--control-socket", metavar="PATH", help="else in the state directory")
    parser.add_argument("--state-directory", metavar="DIR", help="identities and default files")
    parser.add_argument("--ready-file", metavar="PATH", help="written, as JSON, when ready")
    parser.add_argument("--ready-fd", metavar="N", type=int, help="a line of JSON when ready")
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="(info)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the target; returns its exit code."""
    from prestage.target import service
    from prestage.target.journal import set_up_logging

    settings = settings_from_flags(
        ServeFlags(
            config=args.config,
            listen=args.listen,
            nqn=args.nqn,
            namespace=args.namespace,
            dram=args.dram,
            reactors=args.reactors,
            extension=args.extension,
            prestager=args.prestager,
            control_socket=args.control_socket,
            state_directory=args.state_directory,
        )
    )
    set_up_logging(args.log_level)
    return service.run(
        service.Service(
            settings,
            ready_file=args.ready_file,
            ready_fd=args.ready_fd,
            json=args.json,
            make=service.make_target,
        )
    )
