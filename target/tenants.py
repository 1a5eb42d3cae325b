"""Tenants: hosts by their NQN, with a small number each, and what the hints of each may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prestage.target.datapath import DataPath, HintBudget
from prestage.target.settings import (
    MAX_TENANTS,
    HintSettings,
    TargetSettings,
    TenantSettings,
)

OTHER_TENANTS = 0
"""The tenant of hosts that came after the last number was given away.

They share it, so their hints are dropped and not even answers to them are kept: one must not see
what another asked for.
"""
BUDGETS = ("sets", "set_ranges", "signatures", "intents", "intent_bytes", "records_per_s")
"""Fields of a budget that are configured as they are."""


def default_budget(settings: TargetSettings) -> HintBudget:
    """Return the budget of every tenant that has no other."""
    return _budget(settings, settings.hints)


def _budget(settings: TargetSettings, own: HintSettings | TenantSettings) -> HintBudget:
    def given(name: str) -> int:
        value: int | None = getattr(own, name)
        return getattr(settings.hints, name) if value is None else value

    share = settings.tier.size * given("tier_percent") // 100
    own_limits: dict[str, Any] = {name: given(name) for name in BUDGETS}
    return HintBudget(tier_bytes=share, **own_limits)


class Tenants:
    """The numbers of hosts; each stays the same while the target runs."""

    def __init__(self, data_path: DataPath, settings: TargetSettings) -> None:
        self._data_path = data_path
        self._settings = settings
        self.numbers: dict[str, int] = {}
        """By host NQN."""
        self.named: Callable[[int, str], None] = lambda number, host_nqn: None
        """Called when a host gets its number."""

    def start(self) -> None:
        """Give their budgets to the hosts that the configuration names, and to the others."""
        self._data_path.set_budget(OTHER_TENANTS, HintBudget(is_shared=True))
        for own in self._settings.hints.tenants:
            self._data_path.set_budget(self.number(own.host), _budget(self._settings, own))

    def number(self, host_nqn: str) -> int:
        """Return the number of a host."""
        if host_nqn not in self.numbers:
            if len(self.numbers) >= MAX_TENANTS:
                return OTHER_TENANTS
            self.numbers[host_nqn] = len(self.numbers) + 1
            self.named(self.numbers[host_nqn], host_nqn)
        return self.numbers[host_nqn]
