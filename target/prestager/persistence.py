"""What was learned as named arrays, and back, for a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.errors import Invalid
from prestage.target.prestager.extents import ABSENT, ExtentMap
from prestage.target.prestager.groups import FREE, TAIL, Groups

__all__ = ["load_arrays", "load_groups", "save_arrays", "save_groups"]

GROUP_FIELDS: Final = (
    "touched_s", "gap_s", "past_gap_s", "looked_s", "score", "size", "fresh", "touches", "tenant",
    "value_class", "kind",
)  # fmt: skip
EXTENT_FIELDS: Final = ("key", "group", "position", "moves", "turn")

Arrays = Mapping[str, NDArray[Any]]
Places = Mapping[str, tuple[object, str]]
"""By name: an object, and its attribute that is an array or a number."""


def save_arrays(places: Places) -> dict[str, NDArray[Any]]:
    """Return copies of what stands in these places."""
    return {name: np.array(getattr(*place)) for name, place in places.items()}


def load_arrays(places: Places, state: Arrays) -> None:
    """Put back what `save_arrays` returned, all or nothing.

    Raises Invalid when something is not there, is of another shape or is no number.
    """
    found = {name: _checked(name, getattr(*place), state) for name, place in places.items()}
    for name, (owner, attribute) in places.items():
        before = getattr(owner, attribute)
        value = found[name]
        setattr(owner, attribute, value if isinstance(before, np.ndarray) else type(before)(value))


def _checked(name: str, like: Any, state: Arrays) -> NDArray[Any]:
    if name not in state:
        raise Invalid("it is not there", name)
    value, like = state[name], np.asarray(like)
    if value.shape != like.shape or value.dtype.kind not in "iufb":
        raise Invalid(f"{value.dtype} of shape {value.shape}", name, f"{like.dtype}, {like.shape}")
    if not np.isfinite(value).all():
        raise Invalid("some of it is no finite number", name)
    return value.astype(like.dtype)


def save_groups(extents: ExtentMap, groups: Groups) -> dict[str, NDArray[Any]]:
    """Return who owns what; what is in the tier is not part of it."""
    rows = extents.live_rows()
    rows = rows[extents.group[rows] >= 0]
    state = {f"extents.{name}": getattr(extents, name)[rows] for name in EXTENT_FIELDS}
    for name in GROUP_FIELDS:
        state[f"groups.{name}"] = getattr(groups, name)[: groups.high].copy()
    return state


def load_groups(state: Arrays, extents: ExtentMap, groups: Groups) -> None:
    """Fill an empty map and empty records with what `save_groups` returned. Raises Invalid."""
    columns = {
        name: _column(state, f"{kind}.{name}")
        for kind, fields in (("extents", EXTENT_FIELDS), ("groups", GROUP_FIELDS))
        for name in fields
    }
    for fields in (EXTENT_FIELDS, GROUP_FIELDS):
        lengths = {len(columns[name]) for name in fields}
        if len(lengths) != 1:
            raise Invalid(f"columns of {sorted(lengths)} rows", fields[0], "one length")
    owner, size, kind = columns["group"], columns["size"], columns["kind"]
    if len(np.unique(columns["key"])) != len(owner):
        raise Invalid("an extent stands there twice", "extents.key")
    if len(owner) and not 0 <= owner.min() <= owner.max() < len(kind):
        raise Invalid("a group that is not there", "extents.group", f"0 to {len(kind) - 1}")
    held = np.bincount(owner, minlength=len(kind))
    if (kind > TAIL).any() or ((kind == FREE) != (held == 0)).any() or (size != held).any():
        raise Invalid("groups do not hold what they own", "groups.size")
    _fill(columns, extents, groups)


def _column(state: Arrays, name: str) -> NDArray[Any]:
    if name not in state or state[name].ndim != 1 or state[name].dtype.kind not in "iuf":
        raise Invalid("it is not there, or no column of numbers", name)
    if not np.isfinite(state[name]).all():
        raise Invalid("some of it is no finite number", name)
    return state[name]


def _fill(columns: Arrays, extents: ExtentMap, groups: Groups) -> None:
    count = len(columns["kind"])
    groups.make(count)
    for name in GROUP_FIELDS:
        getattr(groups, name)[:count] = columns[name]
    groups.missing[:count] = columns["kind"] != FREE
    groups.kind[:count] = np.maximum(columns["kind"], 1)
    groups.forget(np.flatnonzero(columns["kind"] == FREE))
    rows = extents.find_or_add(columns["key"].astype(np.uint64))
    for name in EXTENT_FIELDS[1:]:
        getattr(extents, name)[rows] = columns[name]
    owner = columns["group"].astype(np.int64)
    order = np.lexsort((columns["position"], owner))
    groups.append(owner[order], rows[order])
    assert ABSENT not in extents.group[rows]
