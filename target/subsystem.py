"""Subsystems, their namespaces, and which hosts may connect (Base 2.0, 3.2; NVMe-oF, 4.1)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from prestage.target.datapath import MAX_NSID
from prestage.target.errors import AlreadyExists, Exhausted, NotFound
from prestage.target.extension import Extension, extension_of
from prestage.target.nvme import MAX_CONTROLLER
from prestage.target.settings import NamespaceSettings, SubsystemSettings

if TYPE_CHECKING:
    from prestage.target.controller import Controller


class Kind(Enum):
    """What the controllers of a subsystem are for (Identify Controller, CNTRLTYPE)."""

    IO = 1
    DISCOVERY = 2


@dataclass(eq=False)
class Namespace:
    """A namespace: a volume of the data path under a number and identifiers that never change."""

    nsid: int
    settings: NamespaceSettings
    volume: int
    size_bytes: int
    uuid: uuid.UUID
    nguid: bytes
    failing: int = 0
    """The errno with which deferred writes fail now, or 0."""
    warnings: list[str] = field(default_factory=list)
    """What somebody should know of its medium, in sentences."""

    @property
    def block_bytes(self) -> int:
        """Bytes of a logical block."""
        return self.settings.block

    @property
    def blocks(self) -> int:
        """Logical blocks (NSZE)."""
        return self.size_bytes // self.settings.block


@dataclass(eq=False)
class Subsystem:
    """An NVM or discovery subsystem."""

    nqn: str
    kind: Kind = Kind.IO
    serial: str = ""
    model: str = "prestage"
    index: int = 0
    """Into the data path's namespace maps."""
    max_namespaces: int = 256
    hosts: set[str] = field(default_factory=set)
    allow_any_host: bool = True
    any_is_implied: bool = False
    """Any host may connect only because no list was given; the first listed host ends that."""
    namespaces: dict[int, Namespace] = field(default_factory=dict)
    """Those with a volume, by NSID."""
    leaving: set[int] = field(default_factory=set)
    """The NSIDs of those that were removed and still have commands, or a medium at work."""
    extension: Extension | None = None
    controllers: dict[int, Controller] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: SubsystemSettings, serial: str, index: int) -> Subsystem:
        """Return an NVM subsystem without namespaces but that of its extension."""
        is_open = not settings.hosts if settings.allow_any_host is None else settings.allow_any_host
        return cls(
            settings.nqn,
            serial=serial,
            model=settings.model,
            index=index,
            max_namespaces=settings.max_namespaces,
            hosts=set(settings.hosts),
            allow_any_host=is_open,
            any_is_implied=is_open and settings.allow_any_host is None,
            extension=extension_of(settings, serial),
        )

    @property
    def is_discovery(self) -> bool:
        """True for the discovery subsystem."""
        return self.kind is Kind.DISCOVERY

    @property
    def namespace_limit(self) -> int:
        """Namespaces that there may be at most (MNAN)."""
        return self.max_namespaces + (self.extension is not None)

    @property
    def nsids(self) -> list[int]:
        """The active NSIDs, ascending, that of the extension namespace among them."""
        own = [self.extension.nsid] if self.extension is not None else []
        return sorted([*self.namespaces, *own])

    def allows(self, host_nqn: str) -> bool:
        """Return whether the host may connect."""
        return self.allow_any_host or host_nqn in self.hosts

    def namespace(self, nsid: int, settings: NamespaceSettings | None = None) -> Namespace:
        """Return the namespace; raise NotFound.

        `settings` are those of the one that is meant, the very object.
        """
        where = f"{self.nqn} namespace {nsid}"
        try:
            found = self.namespaces[nsid]
        except KeyError:
            there = ", ".join(str(n) for n in sorted(self.namespaces)) or "none"
            raise NotFound("no such namespace", where, there) from None
        if settings is not None and found.settings is not settings:
            raise NotFound("another namespace has taken its number", where)
        return found

    def free_nsid(self, wanted: int) -> int:
        """Return `wanted`, or the lowest free NSID for 0. Raises AlreadyExists, Exhausted."""
        if len(self.namespaces) >= self.max_namespaces:
            raise Exhausted("no more namespaces", self.nqn, f"at most {self.max_namespaces}")
        taken = self.nsids
        if wanted in taken:
            raise AlreadyExists("the namespace exists", f"{self.nqn} namespace {wanted}")
        if wanted in self.leaving:
            where = f"{self.nqn} namespace {wanted}"
            raise AlreadyExists("the one that was removed has not finished yet", where)
        taken = [*taken, *self.leaving]
        return wanted or next(n for n in range(1, MAX_NSID + 1) if n not in taken)

    def free_cntlid(self) -> int | None:
        """Return the lowest free controller identifier, or None when all are taken."""
        ids = range(1, MAX_CONTROLLER + 1)
        return next((n for n in ids if n not in self.controllers), None)

    def allow(self, host_nqn: str) -> None:
        """Put a host on the list."""
        if host_nqn in self.hosts:
            raise AlreadyExists("the host is on the list", f"{self.nqn} host {host_nqn}")
        self.hosts.add(host_nqn)
        if self.any_is_implied:
            self.any_is_implied = self.allow_any_host = False

    def namespace_changed(self, nsid: int) -> None:
        """Tell all controllers that a namespace came, went or changed."""
        for controller in list(self.controllers.values()):
            controller.namespace_changed(nsid)

    def forbidden(self) -> list[Controller]:
        """Return the controllers of hosts that may not be connected (any more)."""
        return [c for c in self.controllers.values() if not self.allows(c.host_nqn)]
