"""From the settings of a namespace to an open volume of the data path."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from pathlib import Path

from prestage.target.backing_checks import identity_of
from prestage.target.datapath import (
    MAX_NSID,
    MEDIA_BUFFERED,
    MEDIA_NO_PUNCH,
    MEDIA_THREADS,
    VolumeConfig,
)
from prestage.target.errors import AlreadyExists, Invalid, MediumError
from prestage.target.identity import Identity
from prestage.target.runtime import Runtime
from prestage.target.settings import NamespaceSettings
from prestage.target.subsystem import Namespace, Subsystem

BLOCK_SIZES = (512, 4096)
MEDIA = ("file", "ram", "model")
POLICIES = ("back", "through")
RESIZE_PAUSE_S = 0.01
"""Between two looks at whether a medium still works beyond a smaller size."""
WARNINGS = {
    MEDIA_BUFFERED: "direct I/O is refused by its file system: the page cache is used, and reads"
    " that miss the DRAM tier may be counted twice in memory",
    MEDIA_THREADS: "io_uring is forbidden here: a pool of threads does its I/O, slower",
    MEDIA_NO_PUNCH: "holes cannot be punched: deallocated blocks keep their space",
}


def escape(text: str) -> str:
    """Return `text` as it must stand in a medium's specification (csrc/media.h)."""
    return text.replace("%", "%25").replace(",", "%2C").replace("|", "%7C")


def backing_path(settings: NamespaceSettings) -> str:
    """Return the absolute path, links unresolved: /dev/disk/by-id names outlive device names.

    But ".." is resolved, so that a file has one name and with it one identity.
    """
    path = Path.cwd() / settings.path
    return str(path.parent.resolve() / path.name if ".." in path.parts else path)


def medium_spec(settings: NamespaceSettings) -> str:
    """Return what ps_media_open understands. A missing file is created when a size is given."""
    options = [f"{key}={value}" for key, value in settings.media_options.items()]
    if settings.size:
        options.insert(0, f"size={settings.size}")
        if settings.media != "ram":
            options.insert(1, "create=1")
    head = [] if settings.media == "ram" else [escape(backing_path(settings))]
    return "|".join([*settings.faults, f"{settings.media}:" + ",".join(head + options)])


def validate(settings: NamespaceSettings, where: str) -> None:
    """Raise Invalid if the settings contradict themselves."""
    nguid_is_hex = len(settings.nguid) == 32 and all(
        digit in "0123456789abcdefABCDEF" for digit in settings.nguid
    )
    checks = (
        (settings.block in BLOCK_SIZES, "block", "512 or 4096"),
        (settings.media in MEDIA, "media", ", ".join(MEDIA)),
        (settings.write_policy in POLICIES, "write_policy", "back or through"),
        (0 <= settings.nsid <= MAX_NSID, "nsid", f"1 to {MAX_NSID}, or 0 for the lowest free"),
        (settings.size >= 0, "size", "a size in bytes, or 0"),
        (settings.size % settings.block == 0, "size", f"a multiple of {settings.block}"),
        (settings.media != "ram" or settings.size > 0, "size", "a size, for a RAM medium"),
        (settings.media == "ram" or settings.path, "path", "a file or block device"),
        (not settings.nguid or nguid_is_hex, "nguid", "32 hexadecimal digits"),
        (all("|" not in fault for fault in settings.faults), "faults", "no | in them"),
    )
    for is_right, name, expected in checks:
        if not is_right:
            value = getattr(settings, name)
            raise Invalid(f"{value!r} is not allowed", f"{where} {name}", expected)
    if settings.uuid:
        try:
            uuid.UUID(settings.uuid)
        except ValueError:
            raise Invalid(f"{settings.uuid!r} is not allowed", f"{where} uuid", "a UUID") from None


def identifiers(
    identity: Identity, settings: NamespaceSettings, nqn: str, nsid: int
) -> tuple[uuid.UUID, bytes]:
    """Return UUID and NGUID: as given, else kept ones. An NGUID not given is the UUID's bytes."""
    if settings.uuid:
        number = uuid.UUID(settings.uuid)
    elif settings.media == "ram":
        number = identity.namespace_uuid(f"ram:{nqn}:{nsid}")
    else:
        number = identity.namespace_uuid(backing_path(settings))
    return number, bytes.fromhex(settings.nguid) if settings.nguid else number.bytes


async def open_namespace(
    runtime: Runtime, identity: Identity, subsystem: Subsystem, settings: NamespaceSettings
) -> Namespace:
    """Open the medium and make a namespace of it, not yet part of the subsystem.

    Raises Invalid, AlreadyExists, Exhausted or MediumError, with nothing left open.
    """
    where = f"{subsystem.nqn} namespace {settings.path or settings.media}"
    validate(settings, where)
    nsid = subsystem.free_nsid(settings.nsid)
    number, nguid = identifiers(identity, settings, subsystem.nqn, nsid)
    for other in (subsystem, *runtime.subsystems.values()):
        for namespace in other.namespaces.values():
            taken = f"{other.nqn} namespace {namespace.nsid}"
            if settings.path and backing_path(settings) == backing_path(namespace.settings):
                raise AlreadyExists(f"it is {taken} already", where, "a file that is not served")
            if number == namespace.uuid or nguid == namespace.nguid:
                raise AlreadyExists(f"its uuid or nguid is that of {taken}", where, "a unique one")
    owned = sum(len(other.namespaces) for other in runtime.subsystems.values())
    config = VolumeConfig(
        spec=medium_spec(settings),
        block_size=settings.block,
        write_through=settings.write_policy == "through",
        read_only=settings.read_only,
        reactor=(owned + len(subsystem.namespaces)) % runtime.settings.reactors,
    )
    try:
        volume = await runtime.data_path.volume_open(config)
    except MediumError as error:
        served = await asyncio.to_thread(_served_as, runtime, subsystem, settings)
        if served:
            what = f"it is {served} already, by another path"
            raise AlreadyExists(what, where, "a file that is not served") from None
        # Whoever gave the path has not seen the specification that was made of it.
        raise MediumError(error.what, where, error.expected, error.number) from None
    limits = runtime.data_path.volume_limits(volume)
    size = limits.size - limits.size % settings.block
    if size == 0:
        cookie, _ = runtime.cookies.expect()
        runtime.data_path.volume_close(volume, True, cookie)
        raise Invalid(f"its medium has {limits.size} bytes", where, "at least one block, or a size")
    warnings = [f"{where}: {text}" for bit, text in WARNINGS.items() if limits.warnings & bit]
    return Namespace(nsid, settings, volume, size, number, nguid, warnings=warnings)


def _served_as(runtime: Runtime, subsystem: Subsystem, settings: NamespaceSettings) -> str:
    """Return which namespace the file or device of `settings` is, whatever its path; "": none."""
    for other in (subsystem, *runtime.subsystems.values()):
        for namespace in other.namespaces.values():
            with contextlib.suppress(OSError, ValueError):
                mine, its = backing_path(settings), backing_path(namespace.settings)
                if namespace.settings.path and identity_of(mine) == identity_of(its):
                    return f"{other.nqn} namespace {namespace.nsid}"
    return ""


async def resize_volume(
    runtime: Runtime, namespace: Namespace, size_bytes: int, timeout_s: float, where: str
) -> None:
    """Change the size of an open namespace's volume.

    A smaller size waits for what the medium does beyond it; that has begun already, so it ends
    soon, or the medium stalls. Raises Invalid or MediumError with the size unchanged.
    """
    if size_bytes <= 0 or size_bytes % namespace.block_bytes:
        raise Invalid(
            f"size {size_bytes}", where, f"a positive multiple of {namespace.block_bytes}"
        )
    loop = asyncio.get_running_loop()
    data_path, limit = runtime.data_path, loop.time() + timeout_s
    while not await data_path.volume_resize(namespace.volume, size_bytes):
        if loop.time() >= limit:
            await data_path.volume_resize(namespace.volume, namespace.size_bytes)
            what = "its medium is busy beyond the new end for too long; the size stays"
            raise MediumError(f"{what}, but what was not written there yet is lost", where)
        await asyncio.sleep(RESIZE_PAUSE_S)
