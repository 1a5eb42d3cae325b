"""The checks: what each needs, which clause of the specification it tests, how it says no."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ..names import Carrier, RecordType

if TYPE_CHECKING:
    from .session import Session


class Level(Enum):
    """How a clause is worded (1.3.1)."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class Need(Enum):
    """What else a check needs to be run."""

    NO_PAX = "a controller without PAX"
    BATCHES = "a carrier of batches"
    RECORDS = "budgets that records fit in"


class Failed(Exception):
    """The target breaks the clause; the text says what was expected and what was found."""


class Skipped(Exception):
    """The check cannot be made here; the text says why."""


Function = Callable[["Session"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """A test of one clause."""

    clause: str
    level: Level
    title: str
    function: Function
    carriers: Carrier
    records: tuple[RecordType, ...]
    needs: tuple[Need, ...]

    @property
    def name(self) -> str:
        """Return the name of its function, which no other check has."""
        return str(getattr(self.function, "__name__", self.title))


CHECKS: Final[list[Check]] = []
"""All, in the order of their modules; `checks` sorts them by clause."""


def check(
    clause: str,
    level: Level,
    *needs: Need | Carrier | RecordType,
) -> Callable[[Function], Function]:
    """Register a function that tests a clause; it raises Failed or Skipped.

    Its docstring is its title: what holds when the check passes.

    It is made on controllers with PAX, or with Need.NO_PAX on others; it is skipped where a carrier
    or a type of record is missing.
    """
    carriers, records, others = Carrier.NONE, [], []
    for need in needs:
        if isinstance(need, Carrier):
            carriers |= need
        elif isinstance(need, RecordType):
            records.append(need)
        else:
            others.append(need)

    def register(function: Function) -> Function:
        assert function.__doc__ is not None, function
        title = function.__doc__.splitlines()[0].rstrip(".")
        made = Check(clause, level, title, function, carriers, tuple(records), tuple(others))
        CHECKS.append(made)
        return function

    return register


def expect(is_so: object, why: str) -> None:
    """Fail the check with a reason unless something is so."""
    if not is_so:
        raise Failed(why)


def expect_equal(found: object, wanted: object, what: str) -> None:
    """Fail the check unless two values are equal."""
    if found != wanted:
        raise Failed(f"{what}: {_shown(found)}, expected {_shown(wanted)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
