"""bdev_*: media by name, their sizes and their statistics."""

from __future__ import annotations

import errno
import uuid as uuids
from typing import Annotated, Any, Literal

import msgspec

from prestage.target.rpc.context import TICK_RATE, Context, ticks
from prestage.target.rpc.dispatch import NoParams, Params, method
from prestage.target.rpc.errors import from_errno, invalid_parameters
from prestage.target.rpc.registry import PRODUCTS, Bdev, block_of
from prestage.target.rpc.view import VolumeView, volume_stats
from prestage.target.settings import NamespaceSettings

Count = Annotated[int, msgspec.Meta(ge=0)]
MAX_IOSTAT_NAMES = 1024


class AioCreate(Params):
    """A file or block device. `fallocate` and `nowait` change nothing here."""

    name: str
    filename: str
    block_size: Count | None = None
    readonly: bool = False
    fallocate: bool = False
    uuid: str = ""
    nowait: bool = False


@method(AioCreate)
async def bdev_aio_create(context: Context, params: AioCreate) -> str:
    """Register a file that is read and written by a thread pool."""
    settings = NamespaceSettings(
        path=params.filename,
        block=await block_of(params.filename, params.block_size),
        read_only=params.readonly,
        media_options={"engine": "threads"},
    )
    return (await context.bdevs.create(params.name, "aio", settings, params.uuid)).name


class UringCreate(Params):
    """A file or block device."""

    name: str
    filename: str
    block_size: Count | None = None
    uuid: str = ""


@method(UringCreate)
async def bdev_uring_create(context: Context, params: UringCreate) -> str:
    """Register a file that is read and written through io_uring where that is allowed."""
    block = await block_of(params.filename, params.block_size)
    settings = NamespaceSettings(path=params.filename, block=block)
    return (await context.bdevs.create(params.name, "uring", settings, params.uuid)).name


class MallocCreate(Params):
    """Memory. Metadata and protection information are not supported, so they must be 0."""

    block_size: Count
    num_blocks: Count
    name: str | None = None
    uuid: str = ""
    optimal_io_boundary: Count = 0
    md_size: Count = 0
    md_interleave: bool = False
    dif_type: Count = 0
    dif_is_head_of_md: bool = False
    physical_block_size: Count | None = None
    dif_pi_format: Count = 0
    numa_id: int = -1


@method(MallocCreate)
async def bdev_malloc_create(context: Context, params: MallocCreate) -> str:
    """Register memory; it is allocated, and zero, when it becomes a namespace."""
    for name in ("md_size", "dif_type"):
        if getattr(params, name):
            raise from_errno(errno.ENOTSUP, f"{name}: expected 0, there is no metadata here")
    if not params.num_blocks:
        raise invalid_parameters("num_blocks: found 0, expected 1 or more")
    size = params.block_size * params.num_blocks
    if size >= 1 << 63:
        raise invalid_parameters("num_blocks: expected a size below 8 EiB")
    settings = NamespaceSettings(media="ram", size=size, block=params.block_size)
    return (await context.bdevs.create(params.name, "malloc", settings, params.uuid)).name


class Name(Params):
    """A bdev by name."""

    name: str


async def _delete(context: Context, params: Name, driver: str) -> bool:
    await context.bdevs.delete(params.name, driver)
    return True


@method(Name)
async def bdev_aio_delete(context: Context, params: Name) -> bool:
    """Remove the bdev, and the namespace that it is in."""
    return await _delete(context, params, "aio")


@method(Name)
async def bdev_uring_delete(context: Context, params: Name) -> bool:
    """Remove the bdev, and the namespace that it is in."""
    return await _delete(context, params, "uring")


@method(Name)
async def bdev_malloc_delete(context: Context, params: Name) -> bool:
    """Remove the bdev, and the namespace that it is in."""
    return await _delete(context, params, "malloc")


@method(Name)
async def bdev_aio_rescan(context: Context, params: Name) -> bool:
    """Take over the size that the file has now; hosts are told."""
    await context.bdevs.rescan(params.name, "aio")
    return True


@method(Name)
async def bdev_uring_rescan(context: Context, params: Name) -> bool:
    """Take over the size that the file has now; hosts are told."""
    await context.bdevs.rescan(params.name, "uring")
    return True


@method(NoParams)
async def bdev_wait_for_examine(context: Context, params: NoParams) -> bool:
    """Nothing is ever examined here, so there is nothing to wait for."""
    return True


@method(Name)
async def bdev_examine(context: Context, params: Name) -> bool:
    """Nothing is ever examined here; only the name is looked at."""
    return True


class GetBdevs(Params):
    """`timeout` (ms to wait for the bdev) changes nothing: bdevs do not appear by themselves."""

    name: str | None = None
    timeout: Count = 0


@method(GetBdevs)
async def bdev_get_bdevs(context: Context, params: GetBdevs) -> list[dict[str, object]]:
    """Describe one bdev or all."""
    if params.name is not None:
        return [describe(context.bdevs.get(params.name))]
    return [describe(bdev) for bdev in context.bdevs.every()]


def describe(bdev: Bdev) -> dict[str, object]:
    """Return what bdev_get_bdevs says about one bdev."""
    settings = bdev.settings
    limits = ("rw_ios_per_sec", "rw_mbytes_per_sec", "r_mbytes_per_sec", "w_mbytes_per_sec")
    identity = bdev.uuid or str(uuids.uuid5(uuids.NAMESPACE_OID, f"prestage bdev {bdev.name}"))
    found: dict[str, object] = {
        "name": bdev.name,
        "aliases": [identity],
        "product_name": PRODUCTS[bdev.driver],
        "block_size": settings.block,
        "num_blocks": bdev.size_bytes // settings.block,
        "uuid": identity,
        "assigned_rate_limits": dict.fromkeys(limits, 0),
        "claimed": bdev.namespace is not None,
        "zoned": False,
        "supported_io_types": io_types(not settings.read_only),
        "driver_specific": {bdev.driver: driver_specific(settings)},
    }
    if bdev.namespace is not None:
        found["claim_type"] = "exclusive_write"
    return found


def io_types(writable: bool) -> dict[str, bool]:
    """Return which kinds of I/O a bdev takes, by SPDK's names."""
    writes = ("write", "unmap", "write_zeroes", "compare_and_write", "copy")
    never = ("reset", "nvme_admin", "nvme_io", "nvme_io_md", "zcopy", "abort", "seek_hole")
    types = {"read": True, "flush": True, "compare": True}
    return types | dict.fromkeys(writes, writable) | dict.fromkeys(never, False)


def driver_specific(settings: NamespaceSettings) -> dict[str, object]:
    """Return what only this kind of medium has."""
    found: dict[str, object] = {"media": settings.media, "write_policy": settings.write_policy}
    if settings.path:
        found["filename"] = settings.path
    if settings.read_only:
        found["readonly"] = True
    if settings.media_options:
        found["media_options"] = dict(settings.media_options)
    if settings.faults:
        found["faults"] = list(settings.faults)
    return found


class GetIostat(Params):
    """`names`, or `name` as older clients send it; neither: all bdevs."""

    names: Annotated[list[str], msgspec.Meta(max_length=MAX_IOSTAT_NAMES)] | None = None
    name: str | None = None
    per_channel: bool = False
    reset_mode: Literal["all", "maxmin", "error", "none"] = "none"


@method(GetIostat)
async def bdev_get_iostat(context: Context, params: GetIostat) -> dict[str, object]:
    """Return the counters of bdevs; times are in ticks of the tick rate, 1 ns."""
    if params.per_channel:
        raise from_errno(errno.ENOTSUP, "per_channel: expected false, there are no channels here")
    if params.reset_mode != "none":
        raise from_errno(errno.ENOTSUP, 'reset_mode: expected "none", counters only grow here')
    if params.names is not None and params.name is not None:
        raise invalid_parameters("name: expected either name or names")
    names = [params.name] if params.name is not None else params.names
    bdevs = (
        list(context.bdevs.every())
        if names is None
        else [context.bdevs.get(name) for name in names]
    )
    stats = volume_stats(context.target)
    rows = []
    for bdev in bdevs:
        place = bdev.namespace
        counters = stats.get((place.nqn, place.nsid)) if place else None
        rows.append({"name": bdev.name} | iostat(counters or VolumeView()))
    return {"tick_rate": TICK_RATE, "ticks": ticks(), "bdevs": rows}


def iostat(volume: VolumeView) -> dict[str, Any]:
    """Return the counters of one bdev by SPDK's names."""
    latencies = ("read", "write", "unmap", "copy")
    extremes = {
        f"{extreme}_{name}_latency_ticks": 0 for extreme in ("max", "min") for name in latencies
    }
    return {
        "bytes_read": volume.read_bytes,
        "num_read_ops": volume.reads,
        "bytes_written": volume.write_bytes,
        "num_write_ops": volume.writes,
        "bytes_unmapped": 0,
        "num_unmap_ops": volume.discards,
        "bytes_copied": 0,
        "num_copy_ops": volume.copies,
        "read_latency_ticks": volume.read_ns,
        "write_latency_ticks": volume.write_ns,
        "unmap_latency_ticks": 0,
        "copy_latency_ticks": 0,
        **extremes,
        "io_error": {"failed": volume.errors} if volume.errors else {},
    }


def bdev_config(context: Context) -> list[dict[str, object]]:
    """Return the calls that make the bdevs of now again."""
    calls = [create_call(bdev) for bdev in context.bdevs.every()]
    return [*calls, {"method": "bdev_wait_for_examine"}]


def create_call(bdev: Bdev) -> dict[str, object]:
    """Return the call that makes one bdev."""
    settings = bdev.settings
    params: dict[str, object] = {"name": bdev.name}
    if bdev.uuid:
        params["uuid"] = bdev.uuid
    if bdev.driver == "malloc":
        params |= {
            "block_size": settings.block,
            "num_blocks": bdev.size_bytes // settings.block,
        }
    elif bdev.driver in ("aio", "uring"):
        params |= {"filename": settings.path, "block_size": settings.block}
        if bdev.driver == "aio":
            params["readonly"] = settings.read_only
    else:
        params |= medium_params(settings)
        if settings.size:
            # It may have been resized since it was made.
            params["size"] = bdev.size_bytes
        return {"method": "prestage_bdev_create", "params": params}
    return {"method": f"bdev_{bdev.driver}_create", "params": params}


def medium_params(settings: NamespaceSettings) -> dict[str, object]:
    """Return the settings of a medium that are not the defaults."""
    defaults = NamespaceSettings()
    names = [name for name in NamespaceSettings.__struct_fields__ if name not in IDENTITY]
    return {
        name: getattr(settings, name)
        for name in names
        if getattr(settings, name) != getattr(defaults, name)
    }


IDENTITY = frozenset(("nsid", "uuid", "nguid"))
