"""nvmf_*: who may connect, and where: hosts and listeners.

Every listener of this target serves every subsystem: one added "to a subsystem" serves them all.
"""

from __future__ import annotations

import errno
import ipaddress

from prestage.target.config_checks import address_fault, nqn_fault
from prestage.target.rpc import view
from prestage.target.rpc.context import Context
from prestage.target.rpc.dispatch import Params, RelaxedParams, method
from prestage.target.rpc.errors import from_errno, invalid_parameters
from prestage.target.rpc.nvmf import Count, OfSubsystem, address, refuse, subsystem_of
from prestage.target.settings import DISCOVERY_NQN, ListenerSettings
from prestage.target.sizes import quote

# ---- listeners ----


class ListenAddress(RelaxedParams):
    """An address by SPDK's names; `trsvcid` is the port."""

    trtype: str
    traddr: str
    adrfam: str = ""
    trsvcid: str | int = "4420"


class AddListener(RelaxedParams):
    """An address to listen on. `nqn` must exist, and may be the discovery NQN."""

    nqn: str
    listen_address: ListenAddress
    tgt_name: str = ""
    secure_channel: bool = False
    ana_state: str = "optimized"
    sock_impl: str = ""


def listener_settings(wanted: ListenAddress) -> ListenerSettings:
    """Return the settings of a listener, or raise the error that its caller gets."""
    if wanted.trtype.upper() != "TCP":
        raise invalid_parameters(
            f"listen_address.trtype: found {quote(wanted.trtype)}, expected TCP"
        )
    fault = address_fault(wanted.traddr)
    if fault:
        raise invalid_parameters(f"listen_address.traddr: {fault}")
    port = str(wanted.trsvcid)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535):
        raise invalid_parameters(
            f"listen_address.trsvcid: found {quote(port)}, expected a port, 1 to 65535"
        )
    family = view.ListenerView(wanted.traddr, int(port)).family
    if wanted.adrfam and wanted.adrfam.upper() != family.upper():
        raise invalid_parameters(
            f"listen_address.adrfam: found {quote(wanted.adrfam)}, expected {family}"
        )
    # One address has many spellings; the target knows its listeners by the usual one.
    return ListenerSettings(address=str(ipaddress.ip_address(wanted.traddr)), port=int(port))


@method(AddListener)
async def nvmf_subsystem_add_listener(context: Context, params: AddListener) -> bool:
    """Listen on an address, for all subsystems. One that is there already is no error."""
    refuse(secure_channel=params.secure_channel)
    if params.ana_state != "optimized":
        raise from_errno(
            errno.ENOTSUP, f"ana_state: found {quote(params.ana_state)}, expected optimized"
        )
    if params.nqn != DISCOVERY_NQN:
        subsystem_of(context, params.nqn)
    settings = listener_settings(params.listen_address)
    bound = [(one.address, one.port) for one in view.listeners(context.target)]
    if (settings.address, settings.port) not in bound:
        await context.target.add_listener(settings)
    return True


class RemoveListener(Params):
    """An address that is listened on."""

    nqn: str
    listen_address: ListenAddress
    tgt_name: str = ""


@method(RemoveListener)
async def nvmf_subsystem_remove_listener(context: Context, params: RemoveListener) -> bool:
    """Stop listening on an address, for all subsystems; what is connected stays so."""
    if params.nqn != DISCOVERY_NQN:
        subsystem_of(context, params.nqn)
    settings = listener_settings(params.listen_address)
    await context.target.remove_listener(settings.address, settings.port)
    return True


@method(OfSubsystem)
async def nvmf_subsystem_get_listeners(
    context: Context, params: OfSubsystem
) -> list[dict[str, object]]:
    """List the listeners that serve a subsystem."""
    if params.nqn != DISCOVERY_NQN:
        subsystem_of(context, params.nqn)
    states = [{"ana_group": 1, "ana_state": "optimized"}]
    found = view.listeners(context.target)
    return [
        {
            "address": address(bound),
            "ana_states": states,
            # Ours: what hosts can connect to where the address is a wildcard.
            "reached_by": [one.address for one in view.reached_by(context.target, bound)],
        }
        for bound in found
    ]


# ---- hosts ----


class AddHost(RelaxedParams):
    """A host by its NQN. Keys are refused: there is no authentication yet."""

    nqn: str
    host: str
    tgt_name: str = ""
    psk: str = ""
    dhchap_key: str = ""
    dhchap_ctrlr_key: str = ""


@method(AddHost)
async def nvmf_subsystem_add_host(context: Context, params: AddHost) -> bool:
    """Let a host connect."""
    refuse(
        psk=params.psk,
        dhchap_key=params.dhchap_key,
        dhchap_ctrlr_key=params.dhchap_ctrlr_key,
    )
    subsystem_of(context, params.nqn)
    fault = nqn_fault(params.host)
    if fault:
        raise invalid_parameters(f"host: {fault}")
    await context.target.allow_host(params.nqn, params.host)
    return True


class RemoveHost(Params):
    """`timeout_ms` changes nothing: the host's connections are closed at once."""

    nqn: str
    host: str
    tgt_name: str = ""
    timeout_ms: Count = 0


@method(RemoveHost)
async def nvmf_subsystem_remove_host(context: Context, params: RemoveHost) -> bool:
    """Let a host connect no more, and disconnect it."""
    found = subsystem_of(context, params.nqn)
    if params.host not in found.hosts:
        raise from_errno(errno.ENODEV, f"host: {quote(params.host, 240)} is not on the list")
    await context.target.deny_host(params.nqn, params.host)
    return True


class AllowAnyHost(Params):
    """Whether the list of hosts counts."""

    nqn: str
    allow_any_host: bool
    tgt_name: str = ""


@method(AllowAnyHost)
async def nvmf_subsystem_allow_any_host(context: Context, params: AllowAnyHost) -> bool:
    """Let every host connect, or only those of the list."""
    subsystem_of(context, params.nqn)
    await context.target.set_allow_any_host(params.nqn, params.allow_any_host)
    return True
