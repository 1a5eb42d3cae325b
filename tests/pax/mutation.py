"""What a mutant is, and how methods of the target in memory are replaced."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pax.controller import Controller
from pax.target import FakeTarget
from pax.tenant import Tenant
from prestage.ext import layout
from prestage.ext.conform.host import Tenant as Who


class Mutant(NamedTuple):
    """What it breaks, and how."""

    clause: str
    name: str
    make: Callable[[FakeTarget], None]


REGISTRY: Final[list[Mutant]] = []
PAGE: Final = layout.PAGE_BYTES


def breaks(clause: str) -> Callable[[Callable[[FakeTarget], None]], None]:
    def register(make: Callable[[FakeTarget], None]) -> None:
        REGISTRY.append(Mutant(clause, getattr(make, "__name__", clause), make))

    return register


def change(thing: object, name: str, new: Callable[..., Any]) -> None:
    """Replace a method; `new` gets the old one first."""
    setattr(thing, name, functools.partial(new, getattr(thing, name)))


def change_tenants(target: FakeTarget, name: str, new: Callable[..., Any]) -> None:
    """Replace a method of every tenant; `new` gets the old one and the tenant first."""
    for tenant in target.tenants.values():
        change(tenant, name, functools.partial(_with_tenant, new, tenant))


def _with_tenant(new: Callable[..., Any], tenant: Tenant, old: Any, *args: Any) -> Any:
    return new(old, tenant, *args)


def change_capability(target: FakeTarget, **values: int) -> None:
    change(target, "capability", lambda old: dataclasses.replace(old(), **values))


def put(page: bytes, at: int, data: bytes) -> bytes:
    return page[:at] + data + page[at + len(data) :]


def change_controllers(target: FakeTarget, name: str, new: Callable[..., Any]) -> None:
    async def connect(old: Any, who: Who) -> Controller:
        controller: Controller = await old(who)
        change(controller, name, functools.partial(_with_controller, new, controller))
        return controller

    change(target, "connect", connect)


def _with_controller(new: Callable[..., Any], which: Controller, old: Any, *args: Any) -> Any:
    return new(old, which, *args)
