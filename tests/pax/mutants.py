"""Targets that break the contract, each in one way that one clause forbids."""

from __future__ import annotations

from typing import Final

from pax import mutants_batches, mutants_carriers, mutants_commands, mutants_hints
from pax.mutation import REGISTRY, Mutant

MODULES: Final = (mutants_carriers, mutants_commands, mutants_batches, mutants_hints)
"""Where they are; they register themselves."""
MUTANTS: Final[list[Mutant]] = REGISTRY

__all__ = ["MODULES", "MUTANTS", "Mutant"]
