from __future__ import annotations

from typing import Any

import numpy as np

from prestage.target.prestager.extents import WAITING, ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.intake import MOST_EXTENTS, Intake
from prestage.target.prestager.shared import OrderEnd
from prestage.target.ring import FACT, FactFlag, FactKind

SLOT = 65536


def facts(*each: dict[str, Any]) -> np.ndarray:
    made = np.zeros(len(each), FACT)
    for index, fields in enumerate(each):
        made[index]["time_ns"] = (index + 1) * 1_000_000_000
        made[index]["length"] = SLOT
        for name, value in fields.items():
            made[index][name] = value
    return made


def read(extent: int, **fields: Any) -> dict[str, Any]:
    return {"kind": FactKind.READ, "offset": extent * SLOT, **fields}


def made() -> tuple[Intake, ExtentMap]:
    extents = ExtentMap()
    return Intake(extents, Flows(), SLOT), extents


def test_reads_and_writes_are_accesses_in_order_of_time() -> None:
    intake, extents = made()
    seen = intake.take(
        facts(
            read(5, queue=2, flags=FactFlag.HIT),
            read(6, queue=1, kind=FactKind.WRITE, tenant=3),
            read(5, queue=2),
            read(9, kind=FactKind.OUTCOME),
        )
    )
    accesses = seen.accesses
    assert accesses.rows.tolist() == [0, 1, 0] and accesses.times_s.tolist() == [1, 2, 3]
    assert accesses.is_write.tolist() == [False, True, False]
    assert accesses.is_hit.tolist() == [True, False, False]
    assert accesses.tenants.tolist() == [0, 3, 0]
    assert accesses.flows[0] == accesses.flows[2] != accesses.flows[1]
    assert extents.resident[:2].tolist() == [1, 1]


def test_a_long_or_crooked_range_is_all_extents_that_it_touches() -> None:
    intake, extents = made()
    crooked = read(0, offset=SLOT - 4096, length=2 * SLOT)
    seen = intake.take(facts(crooked, read(7), read(100, length=(MOST_EXTENTS + 9) * SLOT)))
    keys = extents.key[seen.accesses.rows].tolist()
    assert keys[:4] == [0, 1, 2, 7] and len(keys) == 4 + MOST_EXTENTS


def test_what_came_last_says_whether_an_extent_is_in_the_tier() -> None:
    intake, extents = made()
    gone = {"kind": FactKind.EVICTED, "offset": 5 * SLOT, "value": 30_000_000_000, "aux": 12}
    seen = intake.take(facts(read(5), gone))
    assert extents.resident[0] == 0
    assert round(float(seen.evictions.ages_s[0]), 6) == 30
    assert seen.evictions.classes.tolist() == [12]
    seen = intake.take(facts(gone, read(5)))
    assert extents.resident[0] == 1
    unread = dict(gone, flags=FactFlag.UNREAD, offset=77 * SLOT)
    assert len(intake.take(facts(unread)).evictions.rows) == 0, "nobody knows that extent"


def test_a_fetch_that_ended_is_no_longer_waited_for_and_may_have_landed() -> None:
    intake, extents = made()
    intake.take(facts(read(5), read(6)))
    extents.marks[:2], extents.resident[:2] = WAITING, 0
    ended = {"kind": FactKind.FETCHED, "length": SLOT}
    seen = intake.take(
        facts(
            {**ended, "offset": 5 * SLOT, "aux": OrderEnd.LANDED},
            {**ended, "offset": 6 * SLOT, "aux": OrderEnd.NO_ROOM},
        )
    )
    assert extents.resident[:2].tolist() == [1, 0] and extents.marks[:2].tolist() == [0, 0]
    assert seen.fetched.ends.tolist() == [OrderEnd.LANDED, OrderEnd.NO_ROOM]


def test_discards_and_volumes_that_go_are_told_by_row() -> None:
    intake, _ = made()
    intake.take(facts(*(read(extent) for extent in range(6)), read(3, volume=2)))
    seen = intake.take(facts({"kind": FactKind.DISCARD, "offset": 2 * SLOT, "length": 3 * SLOT}))
    assert seen.gone.tolist() == [2, 3, 4]
    assert intake.take(facts({"kind": FactKind.UNMAPPED, "volume": 2})).gone.tolist() == [6]
