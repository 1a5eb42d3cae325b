"""prestage_*: what is ours alone."""

from __future__ import annotations

import errno
from typing import Any

import msgspec

from prestage.target.config import InvalidConfig, convert
from prestage.target.rpc.context import Context
from prestage.target.rpc.dispatch import NoParams, Params, method
from prestage.target.rpc.errors import from_errno, invalid_parameters
from prestage.target.settings import NamespaceSettings
from prestage.target.sizes import parse_size


@method(NoParams)
async def prestage_get_stats(context: Context, params: NoParams) -> dict[str, Any]:
    """Return every counter of the target."""
    return context.target.stats()


class GetHints(Params):
    """`host`: the NQN of one host; without it all are told of."""

    host: str | None = None


@method(GetHints)
async def prestage_get_hints(context: Context, params: GetHints) -> dict[str, Any]:
    """Return what hints came to: totals, and for each host its budgets, counters and outcomes."""
    return context.target.hints(params.host)


@method(NoParams)
async def prestage_get_prestager(context: Context, params: NoParams) -> dict[str, Any]:
    """Return how the prestager is: its process, its orders, and what it learned and is worth."""
    found: dict[str, Any] = context.target.stats()["prestager"]
    return found


class BdevCreate(Params):
    """A medium with every option that the configuration file knows (docs/configuration.md)."""

    name: str
    path: str = ""
    size: int | str = 0
    block: int | str = 4096
    media: str = "file"
    media_options: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    faults: list[str] = msgspec.field(default_factory=list)
    write_policy: str = "back"
    read_only: bool = False
    uuid: str = ""


@method(BdevCreate)
async def prestage_bdev_create(context: Context, params: BdevCreate) -> str:
    """Register a medium of any kind, with its fault wrappers; returns its name."""
    names = [name for name in params.__struct_fields__ if name not in ("name", "uuid")]
    data = {name: getattr(params, name) for name in names}
    try:
        settings = convert(NamespaceSettings, data, "")
    except InvalidConfig as error:
        raise invalid_parameters(": ".join(error.problems[0])) from None
    return (await context.bdevs.create(params.name, "prestage", settings, params.uuid)).name


class BdevDelete(Params):
    """A bdev by name."""

    name: str


@method(BdevDelete)
async def prestage_bdev_delete(context: Context, params: BdevDelete) -> bool:
    """Remove a bdev of any kind, and the namespace that it is in."""
    await context.bdevs.delete(params.name, context.bdevs.get(params.name).driver)
    return True


class NamespaceResize(Params):
    """`size`: bytes, or a text such as "8G"."""

    nqn: str
    nsid: int
    size: int | str


@method(NamespaceResize)
async def prestage_namespace_resize(context: Context, params: NamespaceResize) -> bool:
    """Change the size of a namespace and of its backing file; hosts are told."""
    try:
        size = parse_size(params.size)
    except ValueError as error:
        raise invalid_parameters(f"size: {error}") from None
    bdev = context.bdevs.of_namespace(params.nqn, params.nsid)
    if bdev is None:
        raise from_errno(errno.ENODEV, f"{params.nqn} has no namespace {params.nsid}")
    if size == 0 or size % bdev.settings.block:
        expected = f"expected a multiple of the block size, {bdev.settings.block}, that is not 0"
        raise invalid_parameters(f"size: found {size}, {expected}")
    await context.bdevs.resize(bdev, size)
    return True


class MediaControl(Params):
    """`kind`: delay, error, stall or powercut; `verb`: release, arm, cut or set KEY=VALUE."""

    nqn: str
    nsid: int
    kind: str
    verb: str


@method(MediaControl)
async def prestage_media_control(context: Context, params: MediaControl) -> bool:
    """Tell a fault wrapper of a namespace's medium what to do now."""
    for name in ("kind", "verb"):
        value = getattr(params, name)
        if not value or len(value) > 256 or not value.isprintable():
            raise invalid_parameters(f"{name}: expected 1 to 256 printable characters")
    if context.bdevs.of_namespace(params.nqn, params.nsid) is None:
        raise from_errno(errno.ENODEV, f"{params.nqn} has no namespace {params.nsid}")
    context.target.media_control(params.nqn, params.nsid, params.kind, params.verb)
    return True
