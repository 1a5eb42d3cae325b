"""What a configuration must satisfy beyond its types: ranges, formats, and no duplicates."""

from __future__ import annotations

import ipaddress
import os
import re
import string
from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any

from prestage.target.backing_checks import MAX_BYTES, MAX_FILE_BYTES, check_backing, shared_key
from prestage.target.hint_checks import check_extension, check_hints
from prestage.target.media_options import check_faults, check_media
from prestage.target.places import check_places, made_folders
from prestage.target.prestager_checks import check_prestager
from prestage.target.processors import check_processors
from prestage.target.settings import (
    DISCOVERY_NQN,
    MAX_NSID,
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    SubsystemSettings,
    TargetSettings,
    TierSettings,
)
from prestage.target.sizes import format_size, quote, size_text

MAX_SUBSYSTEMS = 512
MAX_REACTORS = 64
MAX_VOLUMES = 1024
MAX_NQN_BYTES = 223
MIN_TIER_SLOTS = 16

NQN = re.compile(
    r"nqn\.[0-9]{4}-(0[1-9]|1[0-2])\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*(:[^\x00-\x20\x7f]+)?"
)
"""NVM Express Base 2.0, clause 4.5: nqn.yyyy-mm.reverse.domain:name."""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NGUID = re.compile(r"[0-9a-f]{32}", re.IGNORECASE)
PRINTABLE = frozenset(string.ascii_letters + string.digits + string.punctuation + " ")

Found = tuple[str, str]
"""A field's path, and what was found and expected."""


def nqn_fault(nqn: str) -> str | None:
    """Say what is wrong with an NVMe Qualified Name, or return None."""
    length = len(nqn.encode("utf-8", "surrogatepass"))
    if length > MAX_NQN_BYTES:
        return f"found {length} bytes, expected an NQN of at most {MAX_NQN_BYTES}"
    if NQN.fullmatch(nqn) is None:
        return f"found {quote(nqn)}, expected an NQN such as nqn.2026-11.com.example:name"
    return None


def address_fault(address: str) -> str | None:
    """Say what is wrong with the address of a listener, or return None."""
    try:
        found = ipaddress.ip_address(address)
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            # IPv6 listeners take no IPv4 connections.
            return f"found {quote(address)}, expected the IPv4 address {found.ipv4_mapped}"
    except ValueError:
        return f"found {quote(address)}, expected an IPv4 or IPv6 address such as 127.0.0.1 or ::1"
    return None


def check(settings: TargetSettings) -> Iterator[Found]:
    """Yield every fault of `settings` that their types do not exclude already."""
    yield from _check_top(settings)
    yield from _check_listeners(settings.listeners)
    yield from _check_tier(settings.tier, settings.limits)
    yield from _check_limits(settings.limits)
    yield from _range("transport.poll_us", settings.transport.poll_us, 0, 1_000_000)
    yield from check_hints(settings)
    yield from _check_tenant_hosts(settings)
    yield from check_prestager(settings.prestager)
    subsystems = settings.subsystems
    if len(subsystems) > MAX_SUBSYSTEMS:
        yield "subsystems", f"found {len(subsystems)}, expected at most {MAX_SUBSYSTEMS}"
    made = made_folders(settings)
    for index, subsystem in enumerate(subsystems):
        yield from check_subsystem(subsystem, f"subsystems[{index}].", made)
    yield from _duplicates(
        (f"subsystems[{i}].nqn", s.nqn, quote(s.nqn)) for i, s in enumerate(subsystems)
    )
    yield from _check_namespaces_across(subsystems)


def _check_top(settings: TargetSettings) -> Iterator[Found]:
    yield from _range("reactors", settings.reactors, 1, MAX_REACTORS)
    if settings.cpus and len(settings.cpus) != settings.reactors:
        count = settings.reactors
        yield "cpus", f"found {len(settings.cpus)}, expected one for each of {count} reactors"
    yield from check_processors("cpus", settings.cpus)
    yield from _duplicates((f"cpus[{i}]", cpu, str(cpu)) for i, cpu in enumerate(settings.cpus))
    yield from check_places(settings)


def _check_listeners(listeners: list[ListenerSettings]) -> Iterator[Found]:
    for index, listener in enumerate(listeners):
        yield from check_listener(listener, f"listeners[{index}].")
    # Several listeners on port 0 take different ports, so they are no duplicates.
    fixed = [(i, one) for i, one in enumerate(listeners) if one.port != 0]
    yield from _duplicates(
        (f"listeners[{i}]", (_canonical(one.address), one.port), _shown(one)) for i, one in fixed
    )
    wildcards = {
        (ipaddress.ip_address(one.address).version, one.port): (i, one)
        for i, one in fixed
        if _is_wildcard(one.address)
    }
    for index, one in fixed:
        if address_fault(one.address) or _is_wildcard(one.address):
            continue
        number, other = wildcards.get(
            (ipaddress.ip_address(one.address).version, one.port), (index, one)
        )
        if number != index:
            found = f"found {_shown(one)}, which {_shown(other)} takes as well"
            yield (
                f"listeners[{index}]",
                f"{found}, expected another port than in listeners[{number}]",
            )


def _shown(listener: ListenerSettings) -> str:
    return f"{listener.address}:{listener.port}"


def _is_wildcard(address: str) -> bool:
    return not address_fault(address) and ipaddress.ip_address(address).is_unspecified


def _canonical(address: str) -> str:
    return address if address_fault(address) else str(ipaddress.ip_address(address))


def check_listener(listener: ListenerSettings, prefix: str) -> Iterator[Found]:
    """Yield the faults of one listener; `prefix` is the path to it, with its dot."""
    fault = address_fault(listener.address)
    if fault:
        yield f"{prefix}address", fault
    yield from _range(f"{prefix}port", listener.port, 0, 65535)


def _check_tier(tier: TierSettings, limits: LimitSettings) -> Iterator[Found]:
    if not _is_power(tier.slot) or not 16 << 10 <= tier.slot <= 2 << 20:
        yield "tier.slot", f"found {size_text(tier.slot)}, expected a power of two, 16K to 2M"
        return
    least = max(MIN_TIER_SLOTS * tier.slot, 4 * limits.max_transfer)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if tier.size < least:
        yield (
            "tier.size",
            (
                f"found {size_text(tier.size)}, expected at least {size_text(least)} "
                f"({MIN_TIER_SLOTS} slots, and 4 transfers of limits.max_transfer)"
            ),
        )
    elif tier.size > memory:
        expected = f"expected at most the memory of this machine, {format_size(memory)}"
        yield "tier.size", f"found {size_text(tier.size)}, {expected}"
    yield from _range("tier.dirty_percent", tier.dirty_percent, 1, 80)
    yield from _seconds("tier.writeback_s", tier.writeback_s, 0.001, 3600)


def _check_tenant_hosts(settings: TargetSettings) -> Iterator[Found]:
    for index, tenant in enumerate(settings.hints.tenants):
        fault = nqn_fault(tenant.host)
        if fault:
            yield f"hints.tenants[{index}].host", fault


def _check_limits(limits: LimitSettings) -> Iterator[Found]:
    yield from _range("limits.connections", limits.connections, 1, 16384)
    yield from _range("limits.io_queues", limits.io_queues, 1, 128)
    yield from _range("limits.queue_depth", limits.queue_depth, 32, 4096)
    transfer = limits.max_transfer
    if not _is_power(transfer) or not 4096 <= transfer <= 16 << 20:
        expected = "expected a power of two, 4K to 16M"
        yield "limits.max_transfer", f"found {size_text(transfer)}, {expected}"
    if limits.in_capsule % 512 or limits.in_capsule > 64 << 10:
        expected = "expected a multiple of 512, 0 to 64K"
        yield "limits.in_capsule", f"found {size_text(limits.in_capsule)}, {expected}"
    elif limits.in_capsule > transfer:
        expected = f"expected at most limits.max_transfer, {size_text(transfer)}"
        yield "limits.in_capsule", f"found {size_text(limits.in_capsule)}, {expected}"
    yield from _seconds("limits.handshake_s", limits.handshake_s, 0.01, 3600)
    yield from _seconds("limits.stop_s", limits.stop_s, 0.1, 86400)
    yield from _seconds("limits.discovery_keep_alive_s", limits.discovery_keep_alive_s, 1, 86400)


def check_subsystem(
    subsystem: SubsystemSettings, prefix: str, made: Collection[str] | None = None
) -> Iterator[Found]:
    """Yield the faults of one subsystem; `prefix` is the path to it, with its dot.

    `made`: see check_backing.
    """
    fault = nqn_fault(subsystem.nqn)
    if fault:
        yield f"{prefix}nqn", fault
    elif subsystem.nqn == DISCOVERY_NQN:
        yield f"{prefix}nqn", "found the discovery NQN, expected the NQN of an NVM subsystem"
    yield from _printable(f"{prefix}serial", subsystem.serial, 0, 20)
    yield from _printable(f"{prefix}model", subsystem.model, 1, 40)
    for index, host in enumerate(subsystem.hosts):
        fault = nqn_fault(host)
        if fault:
            yield f"{prefix}hosts[{index}]", fault
    yield from _duplicates(
        (f"{prefix}hosts[{i}]", host, quote(host)) for i, host in enumerate(subsystem.hosts)
    )
    most = subsystem.max_namespaces
    yield from _range(f"{prefix}max_namespaces", most, 1, MAX_NSID)
    if len(subsystem.namespaces) > most > 0:
        found = f"found {len(subsystem.namespaces)}, expected at most max_namespaces, {most}"
        yield f"{prefix}namespaces", found
    for index, namespace in enumerate(subsystem.namespaces):
        where = f"{prefix}namespaces[{index}]."
        yield from check_namespace(namespace, where, min(most, MAX_NSID), made)
    yield from _check_numbers(subsystem, prefix)
    yield from check_extension(subsystem, prefix)


def _check_numbers(subsystem: SubsystemSettings, prefix: str) -> Iterator[Found]:
    """Yield the NSIDs that are taken already, also as the lowest that was free."""
    taken: dict[int, str] = {}
    extension = (subsystem.extension_nsid or MAX_NSID) if subsystem.extension else 0
    for index, namespace in enumerate(subsystem.namespaces):
        where, nsid = f"{prefix}namespaces[{index}].nsid", namespace.nsid
        if nsid in taken:
            other = taken[nsid]
            yield where, f"found {nsid} again, expected something else than in {other}"
        free = (n for n in range(1, MAX_NSID + 1) if n not in taken and n != extension)
        taken.setdefault(nsid or next(free, 0), where)


def check_namespace(
    namespace: NamespaceSettings,
    prefix: str,
    most: int = MAX_NSID,
    made: Collection[str] | None = None,
) -> Iterator[Found]:
    """Yield the faults of one namespace; `prefix` is the path to it, with its dot.

    `made`: see check_backing.
    """
    yield from _range(f"{prefix}nsid", namespace.nsid, 0, max(most, 1))
    block = namespace.block
    if block not in (512, 4096):
        yield f"{prefix}block", f"found {block}, expected 512 or 4096"
    elif namespace.size % block:
        yield f"{prefix}size", f"found {namespace.size}, expected a multiple of block, {block}"
    largest = MAX_BYTES.get(namespace.media, MAX_FILE_BYTES)
    if namespace.size > largest:
        yield f"{prefix}size", f"found {size_text(namespace.size)}, expected at most {largest}"
    if namespace.write_policy not in ("back", "through"):
        found = quote(namespace.write_policy)
        yield f"{prefix}write_policy", f'found {found}, expected "back" or "through"'
    yield from check_backing(namespace, prefix, made)
    yield from check_media(namespace.media, namespace.media_options, prefix)
    yield from check_faults(namespace.faults, prefix)
    if namespace.uuid and (UUID.fullmatch(namespace.uuid) is None or _is_zero(namespace.uuid)):
        expected = "a UUID such as 6ba7b810-9dad-11d1-80b4-00c04fd430c8, not zero"
        yield f"{prefix}uuid", f"found {quote(namespace.uuid)}, expected {expected}"
    if namespace.nguid and (NGUID.fullmatch(namespace.nguid) is None or _is_zero(namespace.nguid)):
        expected = "32 hexadecimal digits, not all zero"
        yield f"{prefix}nguid", f"found {quote(namespace.nguid)}, expected {expected}"


def _check_namespaces_across(subsystems: list[SubsystemSettings]) -> Iterator[Found]:
    """Yield what two namespaces must not share, in whatever subsystems they are."""
    every = [
        (f"subsystems[{i}].namespaces[{j}]", namespace)
        for i, subsystem in enumerate(subsystems)
        for j, namespace in enumerate(subsystem.namespaces)
    ]
    if len(every) > MAX_VOLUMES:
        yield "subsystems", f"found {len(every)} namespaces, expected at most {MAX_VOLUMES} in all"
    yield from _duplicates(
        (f"{where}.path", shared_key(one.path), quote(one.path))
        for where, one in every
        if one.path and "\0" not in one.path
    )
    keys: tuple[tuple[str, Callable[[NamespaceSettings], str]], ...] = (
        ("uuid", lambda one: one.uuid.lower()),
        ("nguid", lambda one: one.nguid.lower()),
    )
    for name, key in keys:
        yield from _duplicates((f"{w}.{name}", key(one), key(one)) for w, one in every if key(one))
    yield from _check_derived(every)


def _check_derived(every: list[tuple[str, NamespaceSettings]]) -> Iterator[Found]:
    """Yield UUIDs whose bytes, which are the NGUID where none is given, are another's NGUID."""
    given = {one.nguid.lower(): where for where, one in every if one.nguid}
    for where, one in every:
        other = given.get(one.uuid.replace("-", "").lower(), where)
        if one.uuid and not one.nguid and other != where:
            expected = f"other bytes than in {other}.nguid"
            yield f"{where}.uuid", f"found {one.uuid}, expected {expected}"


def _duplicates(items: Iterator[tuple[str, Hashable, str]]) -> Iterator[Found]:
    seen: dict[Hashable, str] = {}
    for path, key, shown in items:
        if key in seen:
            yield path, f"found {shown} again, expected something else than in {seen[key]}"
        seen.setdefault(key, path)


def _range(path: str, value: int, least: int, most: int) -> Iterator[Found]:
    if not least <= value <= most:
        yield path, f"found {value}, expected {least} to {most}"


def _seconds(path: str, value: float, least: float, most: float) -> Iterator[Found]:
    if not least <= value <= most:
        yield path, f"found {value:g}s, expected {least:g}s to {most:g}s"


def _printable(path: str, value: str, least: int, most: int) -> Iterator[Found]:
    if not least <= len(value) <= most or not PRINTABLE.issuperset(value):
        expected = f"{least} to {most} printable ASCII characters"
        yield path, f"found {quote(value)}, expected {expected}"


def _is_power(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _is_zero(identity: str) -> bool:
    return not identity.replace("-", "").strip("0")


def listed(value: Any) -> list[Found]:
    """Return the faults of any one part (a subsystem, namespace or listener) as a list."""
    if isinstance(value, SubsystemSettings):
        return list(check_subsystem(value, ""))
    if isinstance(value, NamespaceSettings):
        return list(check_namespace(value, ""))
    assert isinstance(value, ListenerSettings)
    return list(check_listener(value, ""))
