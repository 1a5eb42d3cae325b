"""Bdevs: media that have a name, and wait for, or are in, a namespace.

A bdev is opened when it becomes a namespace and closed when it stops being one. Namespaces that
came with the configuration have a bdev too, named NQN/NSID, which comes and goes with them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from prestage.target.config_checks import UUID, check_namespace, listed
from prestage.target.errors import AlreadyExists, Invalid
from prestage.target.rpc.errors import RpcError, from_errno
from prestage.target.rpc.view import NamespaceView, TargetLike, namespaces
from prestage.target.settings import NamespaceSettings
from prestage.target.sizes import quote

DRIVERS = ("uring", "aio", "malloc", "prestage")
PRODUCTS = {
    "uring": "URING bdev",
    "aio": "AIO disk",
    "malloc": "Malloc disk",
    "prestage": "prestage medium",
}
MAX_BDEVS = 4096
MAX_NAME_BYTES = 255


@dataclass
class Bdev:
    """A medium by name."""

    name: str
    driver: str
    settings: NamespaceSettings
    size_bytes: int
    uuid: str = ""
    namespace: NamespaceView | None = None
    """The namespace it is in now."""


class BdevRegistry:
    """The bdevs of a target."""

    def __init__(self, target: TargetLike) -> None:
        self._target = target
        self._bdevs: dict[str, Bdev] = {}
        self._claims: dict[str, NamespaceSettings] = {}
        """The settings that a bdev became a namespace with: that one has them, and no other that
        may have its number later."""
        self._changing: set[str] = set()
        """Names of those that become a namespace, or are deleted."""
        self._next_malloc = 0

    def every(self) -> Iterator[Bdev]:
        """Yield all bdevs, those of the configured namespaces first."""
        names = {id(settings): name for name, settings in self._claims.items()}
        used: dict[str, NamespaceView] = {}
        for namespace in namespaces(self._target):
            if id(namespace.settings) in names:
                used[names[id(namespace.settings)]] = namespace
            else:
                name = f"{namespace.nqn}/{namespace.nsid}"
                yield self._of_namespace(name, driver_of(namespace.settings), namespace)
        for name, bdev in self._bdevs.items():
            taken = used.get(name)
            yield bdev if taken is None else self._of_namespace(name, bdev.driver, taken)

    def _of_namespace(self, name: str, driver: str, namespace: NamespaceView) -> Bdev:
        return Bdev(
            name, driver, namespace.settings, namespace.size_bytes, namespace.uuid, namespace
        )

    def get(self, name: str) -> Bdev:
        """Return the bdev called `name`, or raise the error that its caller gets."""
        for bdev in self.every():
            if bdev.name == name:
                return bdev
        raise from_errno(errno.ENODEV, f"there is no bdev {quote(name)}")

    def of_namespace(self, nqn: str, nsid: int) -> Bdev | None:
        """Return the bdev that is in a namespace."""
        for bdev in self.every():
            if bdev.namespace and (bdev.namespace.nqn, bdev.namespace.nsid) == (nqn, nsid):
                return bdev
        return None

    async def create(
        self, name: str | None, driver: str, settings: NamespaceSettings, uuid: str
    ) -> Bdev:
        """Register a medium that exists, or is made by the size given. Opens nothing for long.

        Raises `AlreadyExists`, `Invalid` and OSError.
        """
        if uuid and UUID.fullmatch(uuid) is None:
            raise Invalid(f"uuid: found {quote(uuid)}, expected a UUID")
        # A path may be on a file system that does not answer; only this request waits for it.
        size = await asyncio.to_thread(examined_size, settings)
        name = name if name is not None else self._free_malloc_name()
        if not name or len(name.encode()) > MAX_NAME_BYTES or not name.isprintable():
            raise Invalid(f"name: found {quote(name)}, expected 1 to {MAX_NAME_BYTES} bytes")
        if any(bdev.name == name for bdev in self.every()):
            raise AlreadyExists(f"there is a bdev {quote(name)} already")
        if len(self._bdevs) >= MAX_BDEVS:
            raise RpcError(-errno.ENOSPC, f"there are {MAX_BDEVS} bdevs already")
        bdev = Bdev(name, driver, settings, size, uuid.lower())
        self._bdevs[name] = bdev
        return bdev

    def _free_malloc_name(self) -> str:
        while f"Malloc{self._next_malloc}" in self._bdevs:
            self._next_malloc += 1
        return f"Malloc{self._next_malloc}"

    async def attach(self, nqn: str, bdev: Bdev, nsid: int, uuid: str, nguid: str) -> int:
        """Make the bdev a namespace and return its NSID. Raises what the target raises."""
        if bdev.namespace is not None or bdev.name in self._changing:
            raise in_use(bdev)
        settings = msgspec.structs.replace(
            bdev.settings, nsid=nsid, uuid=uuid or bdev.uuid, nguid=nguid
        )
        self._changing.add(bdev.name)
        try:
            for path, message in await asyncio.to_thread(listed, settings):
                raise Invalid(f"namespace.{path}: {message}")
            found = await self._target.add_namespace(nqn, settings)
        finally:
            self._changing.discard(bdev.name)
        self._claims[bdev.name] = settings
        return found

    async def detach(self, place: NamespaceView) -> None:
        """Remove a namespace; its bdev stays when it was made by name."""
        await self._target.remove_namespace(place.nqn, place.nsid, settings=place.settings)

    async def delete(self, name: str, driver: str) -> None:
        """Remove the bdev, and first the namespace that it is in."""
        bdev = self.get(name)
        if bdev.driver != driver:
            raise from_errno(errno.ENODEV, f"{quote(name)} is a {bdev.driver} bdev, not {driver}")
        if name in self._changing:
            raise in_use(bdev)
        self._changing.add(name)
        try:
            if bdev.namespace is not None:
                await self.detach(bdev.namespace)
            self._bdevs.pop(name, None)
            self._claims.pop(name, None)
        finally:
            self._changing.discard(name)

    async def rescan(self, name: str, driver: str) -> None:
        """Take over the size that the backing file or device has now."""
        bdev = self.get(name)
        if bdev.driver != driver:
            raise from_errno(errno.ENODEV, f"{quote(name)} is a {bdev.driver} bdev, not {driver}")
        known = self._bdevs.get(name)
        size = await asyncio.to_thread(backing_size, bdev.settings.path)
        if self._bdevs.get(name) is not known:
            raise from_errno(errno.ENODEV, f"the bdev {quote(name)} was deleted meanwhile")
        if known is not None:
            bdev = self.get(name)  # It may have become a namespace, or be in none any more.
        if bdev.namespace is None or size != bdev.namespace.size_bytes:
            await self.resize(bdev, size)

    async def resize(self, bdev: Bdev, size_bytes: int) -> None:
        """Change the size of the namespace that a bdev is in, if any, and note it."""
        known, place = self._bdevs.get(bdev.name), bdev.namespace
        if place is not None:
            await self._target.resize_namespace(
                place.nqn, place.nsid, size_bytes, settings=place.settings
            )
        if known is not None:
            known.size_bytes = size_bytes
            if known.settings.size:
                known.settings = msgspec.structs.replace(known.settings, size=size_bytes)


def in_use(bdev: Bdev) -> RpcError:
    """Return the error of a request that another one, or a namespace, keeps from its bdev."""
    place = bdev.namespace
    where = f"{place.nqn}, nsid {place.nsid}" if place else "another request"
    return from_errno(errno.EBUSY, f"the bdev {quote(bdev.name)} is in use by {where}")


def driver_of(settings: NamespaceSettings) -> str:
    """Return which kind of bdev would give this namespace: uring, aio, malloc or prestage."""
    plain = (
        not settings.faults
        and settings.write_policy == "back"
        and set(settings.media_options) <= {"engine"}
    )
    if settings.media == "ram" and plain and not settings.read_only:
        return "malloc"
    engine = settings.media_options.get("engine", "auto")
    if settings.media == "file" and plain and not settings.size:
        if engine == "threads" or settings.read_only:
            return "aio"
        return "uring"
    return "prestage"


def examined_size(settings: NamespaceSettings) -> int:
    """Return the size that a medium has or will have. Raises `Invalid` and OSError."""
    for path, message in check_namespace(settings, ""):
        raise Invalid(f"{path}: {message}")
    size = settings.size or backing_size(settings.path)
    if size == 0 or size % settings.block:
        expected = f"expected a multiple of the block size, {settings.block}, that is not 0"
        raise Invalid(f"size: found {size} bytes, {expected}")
    return size


def backing_size(path: str) -> int:
    """Return the size of a file or block device in bytes. Raises OSError, naming the path."""
    try:
        # Not to wait when the path is a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {path}") from error
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
            raise Invalid(f"{path}: expected a regular file or a block device")
        return os.lseek(fd, 0, os.SEEK_END)
    except OSError as error:
        expected = "a regular file or a block device whose size can be told"
        raise Invalid(f"{error.strerror}", path, expected) from error
    finally:
        os.close(fd)


async def block_of(path: str, block: int | None) -> int:
    """Return the block size to use for a file: what was asked for, or what its size allows."""
    if block:
        return block
    size = await asyncio.to_thread(backing_size, path)
    return 4096 if size % 4096 == 0 else 512
