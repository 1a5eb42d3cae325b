"""The structs and names of csrc/replay.h as Python has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prestage._core import ffi
from prestage.replay.machine import EVENT, RESULT, MachineStats, Op, OrderStats, State, TierStats


@pytest.mark.parametrize(
    ("dtype", "struct"), [(EVENT, "ps_replay_event"), (RESULT, "ps_replay_result")]
)
def test_structs_in_python_are_those_of_the_header(dtype: np.dtype[np.void], struct: str) -> None:
    fields = ffi.typeof(f"struct {struct}").fields
    expected = {name: (field.offset, ffi.sizeof(field.type)) for name, field in fields}
    assert dtype.fields is not None
    assert {name: (at[1], at[0].itemsize) for name, at in dtype.fields.items()} == expected
    assert dtype.itemsize == ffi.sizeof(f"struct {struct}")


@pytest.mark.parametrize(("names", "enum"), [(Op, "ps_replay_op"), (State, "ps_replay_state")])
def test_names_in_python_are_those_of_the_header(names: Any, enum: str) -> None:
    expected = ffi.typeof(f"enum {enum}").relements
    assert {f"PS_REPLAY_{each.name}": int(each) for each in names} == expected


@pytest.mark.parametrize(
    ("python", "struct"),
    [(MachineStats, "ps_replay_stats"), (OrderStats, "ps_orders_stats")],
)
def test_counts_in_python_are_all_of_those_of_the_header(python: Any, struct: str) -> None:
    names = [name for name, _ in ffi.typeof(f"struct {struct}").fields]
    assert list(python.__dataclass_fields__) == names


def test_counts_of_the_tier_are_some_of_those_of_the_header() -> None:
    names = {name for name, _ in ffi.typeof("struct ps_tier_stats").fields}
    assert set(TierStats.__dataclass_fields__) <= names
