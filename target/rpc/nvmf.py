"""nvmf_*: subsystems, their namespaces, hosts and listeners.

Every listener of this target serves every subsystem: one added "to a subsystem" serves them all.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Annotated

import msgspec
import structlog

from prestage.target.config_checks import check_subsystem
from prestage.target.rpc import view
from prestage.target.rpc.context import Context
from prestage.target.rpc.dispatch import Params, RelaxedParams, method
from prestage.target.rpc.errors import from_errno, invalid_parameters
from prestage.target.settings import DISCOVERY_NQN, SubsystemSettings
from prestage.target.sizes import quote

Count = Annotated[int, msgspec.Meta(ge=0)]
MAX_CNTLID = 0xFFEF

log = structlog.get_logger("prestage.rpc")


def subsystem_of(context: Context, nqn: str) -> view.SubsystemView:
    """Return an NVM subsystem, or raise the error that its caller gets."""
    for found in view.subsystems(context.target):
        if found.nqn == nqn:
            return found
    raise from_errno(errno.ENODEV, f"nqn: there is no subsystem {quote(nqn, 240)}")


def refuse(**unsupported: object) -> None:
    """Raise for every parameter given that asks for what is not there."""
    for name, value in unsupported.items():
        if value:
            raise from_errno(errno.ENOTSUP, f"{name}: found {quote(value)}, expected none")


# ---- transports ----


class CreateTransport(RelaxedParams):
    """The transport is there from the start: its options are accepted and change nothing."""

    trtype: str


@method(CreateTransport)
async def nvmf_create_transport(context: Context, params: CreateTransport) -> bool:
    """Accept the creation of the TCP transport."""
    if params.trtype.upper() != "TCP":
        raise from_errno(errno.EINVAL, f"trtype: found {quote(params.trtype)}, expected TCP")
    log.info("nvmf_create_transport changes nothing: the TCP transport is there already")
    return True


class GetTransports(Params):
    """`trtype`: only this one."""

    tgt_name: str = ""
    trtype: str | None = None


@method(GetTransports)
async def nvmf_get_transports(context: Context, params: GetTransports) -> list[dict[str, object]]:
    """Describe the TCP transport."""
    if params.trtype is not None and params.trtype.upper() != "TCP":
        raise from_errno(errno.ENODEV, f"trtype: found {quote(params.trtype)}, expected TCP")
    return [transport(context)]


def transport(context: Context) -> dict[str, object]:
    """Return the options of the TCP transport by SPDK's names."""
    limits = context.target.settings.limits
    return {
        "trtype": "TCP",
        "max_queue_depth": limits.queue_depth,
        "max_io_qpairs_per_ctrlr": limits.io_queues,
        "in_capsule_data_size": limits.in_capsule,
        "max_io_size": limits.max_transfer,
        "max_aq_depth": limits.queue_depth,
        "dif_insert_or_strip": False,
        "zcopy": False,
        "c2h_success": True,
    }


# ---- subsystems ----


class OfSubsystem(Params):
    """A subsystem by its NQN."""

    nqn: str
    tgt_name: str = ""


class GetSubsystems(Params):
    """`nqn`: only this one."""

    nqn: str | None = None
    tgt_name: str = ""


@method(GetSubsystems)
async def nvmf_get_subsystems(context: Context, params: GetSubsystems) -> list[dict[str, object]]:
    """Describe the discovery subsystem and all others, or one."""
    addresses = [address(bound) for bound in view.listeners(context.target)]
    discovery: dict[str, object] = {
        "nqn": DISCOVERY_NQN,
        "subtype": "Discovery",
        "listen_addresses": addresses,
        "allow_any_host": True,
        "hosts": [],
    }
    names = {
        (bdev.namespace.nqn, bdev.namespace.nsid): bdev.name
        for bdev in context.bdevs.every()
        if bdev.namespace is not None
    }
    every = [discovery] + [
        describe(found, addresses, names) for found in view.subsystems(context.target)
    ]
    if params.nqn is None:
        return every
    if params.nqn == DISCOVERY_NQN:
        return [discovery]
    subsystem_of(context, params.nqn)
    return [found for found in every if found["nqn"] == params.nqn]


def describe(
    found: view.SubsystemView,
    addresses: list[dict[str, str]],
    names: dict[tuple[str, int], str],
) -> dict[str, object]:
    """Return what nvmf_get_subsystems says about one NVM subsystem."""
    return {
        "nqn": found.nqn,
        "subtype": "NVMe",
        "listen_addresses": addresses,
        "allow_any_host": found.allow_any_host,
        "hosts": [{"nqn": host} for host in found.hosts],
        "serial_number": found.serial,
        "model_number": found.model,
        "max_namespaces": found.max_namespaces,
        "passthrough": False,
        "min_cntlid": 1,
        "max_cntlid": MAX_CNTLID,
        "namespaces": [
            {
                "nsid": one.nsid,
                "bdev_name": names[one.nqn, one.nsid],
                "name": names[one.nqn, one.nsid],
                "nguid": one.nguid.upper(),
                "uuid": one.uuid,
                "anagrpid": 1,
            }
            for one in found.namespaces
        ],
    }


def address(bound: view.ListenerView) -> dict[str, str]:
    """Return an address by SPDK's names."""
    return {
        "trtype": "TCP",
        "adrfam": bound.family,
        "traddr": bound.address,
        "trsvcid": str(bound.port),
    }


class CreateSubsystem(Params):
    """ANA is reported in any case. Controller identifiers cannot be restricted.

    `extension` and `extension_nsid` are ours: they are those of the configuration file.
    """

    nqn: str
    tgt_name: str = ""
    serial_number: str = ""
    model_number: str = "prestage"
    admin_label: str = ""
    max_namespaces: Count = 32
    allow_any_host: bool = False
    ana_reporting: bool = False
    min_cntlid: int = 1
    max_cntlid: int = MAX_CNTLID
    dmrsl: Count = 0
    wzsl: Count = 0
    passthrough: bool = False
    enable_nssr: bool = False
    extension: bool = False
    extension_nsid: Count = 0


@method(CreateSubsystem)
async def nvmf_create_subsystem(context: Context, params: CreateSubsystem) -> bool:
    """Create a subsystem without namespaces."""
    refuse(
        admin_label=params.admin_label,
        dmrsl=params.dmrsl,
        wzsl=params.wzsl,
        passthrough=params.passthrough,
        enable_nssr=params.enable_nssr,
    )
    if (params.min_cntlid, params.max_cntlid) != (1, MAX_CNTLID):
        expected = f"min_cntlid: expected 1, and max_cntlid {MAX_CNTLID}"
        raise from_errno(errno.ENOTSUP, expected)
    settings = SubsystemSettings(
        nqn=params.nqn,
        serial=params.serial_number,
        model=params.model_number,
        allow_any_host=params.allow_any_host,
        max_namespaces=params.max_namespaces or 32,
        extension=params.extension,
        extension_nsid=params.extension_nsid,
    )
    names = {"serial": "serial_number", "model": "model_number"}
    for path, message in check_subsystem(settings, ""):
        raise invalid_parameters(f"{names.get(path, path)}: {message}")
    await context.target.add_subsystem(settings)
    return True


class DeleteSubsystem(Params):
    """A subsystem by its NQN."""

    nqn: str
    tgt_name: str = ""


@method(DeleteSubsystem)
async def nvmf_delete_subsystem(context: Context, params: DeleteSubsystem) -> bool:
    """Delete a subsystem and its namespaces; its hosts are disconnected."""
    subsystem_of(context, params.nqn)
    await context.target.remove_subsystem(params.nqn)
    return True


# ---- namespaces ----


class NamespaceParams(RelaxedParams):
    """Which bdev becomes which namespace."""

    bdev_name: str
    nsid: Count = 0
    nguid: str = ""
    eui64: str = ""
    uuid: str = ""
    ptpl_file: str = ""
    anagrpid: int = 1
    no_auto_visible: bool = False


class AddNamespace(RelaxedParams):
    """A namespace and its subsystem."""

    nqn: str
    namespace: NamespaceParams
    tgt_name: str = ""


@method(AddNamespace)
async def nvmf_subsystem_add_ns(context: Context, params: AddNamespace) -> int:
    """Make a bdev a namespace and return its NSID; connected hosts are told."""
    wanted = params.namespace
    refuse(
        eui64=wanted.eui64,
        ptpl_file=wanted.ptpl_file,
        no_auto_visible=wanted.no_auto_visible,
    )
    if wanted.anagrpid not in (0, 1):
        raise from_errno(errno.ENOTSUP, f"anagrpid: found {wanted.anagrpid}, expected 1")
    subsystem_of(context, params.nqn)
    bdev = context.bdevs.get(wanted.bdev_name)
    return await context.bdevs.attach(params.nqn, bdev, wanted.nsid, wanted.uuid, wanted.nguid)


class RemoveNamespace(Params):
    """A namespace by its number."""

    nqn: str
    nsid: int
    tgt_name: str = ""


@method(RemoveNamespace)
async def nvmf_subsystem_remove_ns(context: Context, params: RemoveNamespace) -> bool:
    """Remove a namespace; connected hosts are told."""
    found = subsystem_of(context, params.nqn)
    for place in found.namespaces:
        if place.nsid == params.nsid:
            await context.bdevs.detach(place)
            return True
    raise from_errno(errno.ENODEV, f"nsid: {params.nqn} has no namespace {params.nsid}")


# ---- configuration ----


def nvmf_config(context: Context) -> list[dict[str, object]]:
    """Return the calls that make subsystems, hosts, namespaces and listeners again."""
    found = view.subsystems(context.target)
    bound = [address(one) for one in view.listeners(context.target)]
    spaces = [space for one in found for space in one.namespaces]
    return [
        call("nvmf_create_transport", transport(context)),
        *(call("nvmf_create_subsystem", creation(one)) for one in found),
        *(
            call("nvmf_subsystem_add_host", {"nqn": one.nqn, "host": host})
            for one in found
            for host in one.hosts
        ),
        *(call("nvmf_subsystem_add_ns", addition(context, space)) for space in spaces),
        *(
            call("nvmf_subsystem_add_listener", {"nqn": one.nqn, "listen_address": where})
            for one in found
            for where in bound
        ),
    ]


def call(name: str, params: Mapping[str, object]) -> dict[str, object]:
    """Return one call of a saved configuration."""
    return {"method": name, "params": params}


def creation(found: view.SubsystemView) -> dict[str, object]:
    """Return the parameters that create a subsystem."""
    own = {"extension": True, "extension_nsid": found.extension_nsid}
    return {
        "nqn": found.nqn,
        "allow_any_host": found.allow_any_host,
        **(own if found.extension_nsid else {}),
        "serial_number": found.serial,
        "model_number": found.model,
        "max_namespaces": found.max_namespaces,
    }


def addition(context: Context, space: view.NamespaceView) -> dict[str, object]:
    """Return the parameters that add a namespace."""
    bdev = context.bdevs.of_namespace(space.nqn, space.nsid)
    assert bdev is not None
    identity = {"nsid": space.nsid, "nguid": space.nguid.upper(), "uuid": space.uuid}
    return {"nqn": space.nqn, "namespace": {"bdev_name": bdev.name, **identity}}
