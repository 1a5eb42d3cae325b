"""What settings must be before anything is started with them."""

from __future__ import annotations

from itertools import chain

from prestage.target.datapath import MAX_NSID
from prestage.target.errors import Invalid
from prestage.target.hint_checks import check_extension, check_hints
from prestage.target.nvme import NQN_MAX_BYTES
from prestage.target.processors import check_processors
from prestage.target.settings import SubsystemSettings, TargetSettings
from prestage.target.volumes import validate

MIN_QUEUE_DEPTH = 32
"""The Linux host's admin queue has 32 entries; with fewer it could not connect."""
MAX_QUEUE_DEPTH = 4096
MAX_REACTORS = 64
MAX_CONNECTIONS = 65535


def check_limits(settings: TargetSettings) -> None:
    """Raise Invalid when a limit is outside of what the protocol and the data path can do."""
    limits, tier = settings.limits, settings.tier
    pages = limits.max_transfer // 4096
    checks: tuple[tuple[bool, str, object, str], ...] = (
        (1 <= settings.reactors <= MAX_REACTORS, "reactors", settings.reactors, "1 to 64"),
        (
            len(settings.cpus) in (0, settings.reactors),
            "cpus",
            settings.cpus,
            "none, or one for each reactor",
        ),
        (
            MIN_QUEUE_DEPTH <= limits.queue_depth <= MAX_QUEUE_DEPTH,
            "limits.queue_depth",
            limits.queue_depth,
            "32 to 4096",
        ),
        (
            1 <= limits.io_queues <= MAX_CONNECTIONS - 1,
            "limits.io_queues",
            limits.io_queues,
            "1 to 65534",
        ),
        (
            limits.max_transfer == pages * 4096 and pages in [1 << n for n in range(14)],
            "limits.max_transfer",
            limits.max_transfer,
            "a power of two, 4096 to 33554432",
        ),
        (
            0 <= limits.in_capsule <= limits.max_transfer and limits.in_capsule % 16 == 0,
            "limits.in_capsule",
            limits.in_capsule,
            f"a multiple of 16 up to {limits.max_transfer}",
        ),
        (
            1 <= limits.connections <= MAX_CONNECTIONS,
            "limits.connections",
            limits.connections,
            "1 to 65535",
        ),
        (limits.handshake_s > 0, "limits.handshake_s", limits.handshake_s, "more than 0"),
        (limits.stop_s > 0, "limits.stop_s", limits.stop_s, "more than 0"),
        (
            0 < limits.discovery_keep_alive_s < 2**32 / 1000,
            "limits.discovery_keep_alive_s",
            limits.discovery_keep_alive_s,
            "more than 0",
        ),
        (
            16384 <= tier.slot <= 2 << 20 and tier.slot & (tier.slot - 1) == 0,
            "tier.slot",
            tier.slot,
            "a power of two, 16 KiB to 2 MiB",
        ),
        (tier.size >= tier.slot, "tier.size", tier.size, "at least one slot"),
        (1 <= tier.dirty_percent <= 80, "tier.dirty_percent", tier.dirty_percent, "1 to 80"),
    )
    for is_right, where, value, expected in checks:
        if not is_right:
            raise Invalid(f"{value} is not allowed", where, expected)
    cpus = check_processors("cpus", settings.cpus)
    learning_cpus = check_processors("prestager.cpus", settings.prestager.cpus)
    for where, message in chain(cpus, learning_cpus, check_hints(settings)):
        raise Invalid(message, where)


def check_nqn(nqn: str, where: str) -> None:
    """Raise Invalid unless `nqn` is an NQN by its form (Base 2.0, 4.5)."""
    is_short = len(nqn.encode()) <= NQN_MAX_BYTES
    if not (nqn.startswith("nqn.") and is_short and "\0" not in nqn):
        expected = f"an NQN, nqn.yyyy-mm.domain:name, of at most {NQN_MAX_BYTES} bytes"
        raise Invalid(f"{nqn!r} is not an NQN", where, expected)


def check_subsystem(settings: SubsystemSettings) -> None:
    """Raise Invalid when the settings of a subsystem or one of its namespaces are wrong."""
    where = settings.nqn
    check_nqn(settings.nqn, "subsystem nqn")
    for name, most in (("serial", 20), ("model", 40)):
        value = getattr(settings, name)
        if len(value) > most or not value.isascii() or (value and not value.isprintable()):
            raise Invalid(f"{value!r} is not allowed", f"{where} {name}", f"{most} ASCII letters")
    for host in settings.hosts:
        check_nqn(host, f"{where} hosts")
    if not 1 <= settings.max_namespaces <= MAX_NSID:
        value = settings.max_namespaces
        raise Invalid(f"{value} is not allowed", f"{where} max_namespaces", f"1 to {MAX_NSID}")
    for path, message in check_extension(settings, ""):
        raise Invalid(message, f"{where} {path}")
    for namespace in settings.namespaces:
        validate(namespace, f"{where} namespace {namespace.path or namespace.media}")
