"""numpy dtypes of every PAX structure, made from `prestage.ext.layout`.

They have the sizes and offsets of the wire, little-endian on any machine; bytes that no field names
are holes of the dtype.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from . import layout

_SCALARS: Final = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i64": "<i8"}


def _dtype(struct: layout.Struct, known: dict[str, np.dtype[Any]]) -> np.dtype[Any]:
    formats: list[Any] = []
    for field in struct.fields:
        scalar = known.get(field.kind, _SCALARS.get(field.kind))
        assert scalar is not None, f"{struct.name}.{field.name}: {field.kind}"
        formats.append((scalar, (field.count,)) if field.count > 1 else scalar)
    return np.dtype(
        {
            "names": [field.name for field in struct.fields],
            "formats": formats,
            "offsets": [field.offset for field in struct.fields],
            "itemsize": struct.size,
        }
    )


def _all() -> dict[str, np.dtype[Any]]:
    known: dict[str, np.dtype[Any]] = {}
    for struct in sorted(layout.STRUCTS, key=_has_structs):
        known[struct.name] = _dtype(struct, known)
    return known


def _has_structs(struct: layout.Struct) -> bool:
    return any(field.kind not in _SCALARS for field in struct.fields)


DTYPES: Final[dict[str, np.dtype[Any]]] = _all()
"""By the name of the structure: `batch`, `record`, `range`, `set` ... `event`."""
