from __future__ import annotations

from typing import Any

import numpy as np

from prestage.target.prestager.announced import COLD, WARM, Announced
from prestage.target.prestager.bursts import Bursts
from prestage.target.prestager.continuation import continuing
from prestage.target.prestager.extents import ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Accesses, Formation
from prestage.target.prestager.groups import Groups
from prestage.target.prestager.hints import AFTER_S, Hints
from prestage.target.ring import FACT, FactKind

SLOT = 65536


class World:
    def __init__(self) -> None:
        self.extents, self.groups, self.flows = ExtentMap(), Groups(), Flows()
        self.formation = Formation(self.extents, self.groups, self.flows, lambda *_: None)
        self.announced = Announced(self.extents, self.groups)
        self.hints = Hints(self.formation, self.extents, self.groups, SLOT, self.announced, 1e9)

    def take(self, *each: dict[str, Any]) -> None:
        facts = np.zeros(len(each), FACT)
        for index, fields in enumerate(each):
            facts[index]["time_ns"] = 5 * 10**9
            for name, value in fields.items():
                facts[index][name] = value
        self.hints.take(facts)

    def members(self, group: int) -> list[int]:
        _, rows = self.groups.members(np.array([group]), self.extents)
        return [int(key) for key in self.extents.key[rows]]


def extent_range(first: int, count: int) -> dict[str, Any]:
    return {"kind": FactKind.RANGE, "offset": first * SLOT, "length": count * SLOT}


def test_a_set_with_its_ranges_is_a_group_in_their_order() -> None:
    world = World()
    world.take({"kind": FactKind.SET, "aux": 2, "tenant": 3, "value": 1 << 32},
               extent_range(40, 2), extent_range(7, 1))  # fmt: skip
    assert world.members(0) == [40, 41, 7] and world.groups.tenant[0] == 3


def test_ranges_that_come_later_belong_to_the_set_before_them() -> None:
    world = World()
    world.take({"kind": FactKind.SET, "aux": 2, "value": 1 << 32}, extent_range(40, 1))
    world.take(extent_range(50, 1))
    assert world.members(0) == [40, 50]


def test_what_is_announced_is_left_to_its_hint() -> None:
    world = World()
    world.take({"kind": FactKind.SET, "aux": 1, "value": 1 << 32}, extent_range(1, 4))
    world.take({"kind": FactKind.INTENT, "aux": 1, "value": 2_000_000}, extent_range(1, 4))
    assert world.groups.asked_s[0] == 5 + 2 + AFTER_S


def test_what_is_announced_is_marked_as_cold_or_warm() -> None:
    world = World()
    world.take({"kind": FactKind.SET, "aux": 1, "value": 1 << 32}, extent_range(0, 12))
    warm = world.extents.find(np.arange(2, dtype=np.uint64))
    world.extents.resident[warm] = 1
    world.take({"kind": FactKind.INTENT, "aux": 1, "value": 2_000_000}, extent_range(0, 12))
    rows = world.extents.find(np.arange(12, dtype=np.uint64))
    assert world.extents.announced[rows].tolist() == [WARM] * 2 + [COLD] * 10


def test_signatures_are_kept_and_others_do_no_harm() -> None:
    world = World()
    sign = {"kind": FactKind.SIGNATURE, "offset": 9 * SLOT, "length": SLOT, "aux": 128 << 16 | 1}
    world.take({**sign, "id": 5, "value": 6}, {**sign, "aux": 77 << 16})
    assert world.hints.neighbours is not None
    world.take({"kind": FactKind.CANCEL}, extent_range(3, 1), {"kind": FactKind.RETAIN, "aux": 9})


def test_a_chain_that_is_read_one_by_one_is_expected_to_go_on_at_its_pace() -> None:
    world = World()
    rows = world.extents.find_or_add(np.arange(20, dtype=np.uint64))
    world.formation.adopt(rows, 0, 1.0)
    bursts = Bursts(world.flows)
    flow = world.flows.find(np.array([1], np.uint64))[0]
    no = np.zeros(5, bool)
    times_s = 10 + 0.1 * np.arange(5, dtype=np.float64)
    bursts.add(Accesses(rows[:5], np.full(5, flow), times_s, no, no, np.zeros(5, np.uint16)))
    found = continuing(bursts, world.extents, world.groups, world.flows, 10.41)
    late = continuing(bursts, world.extents, world.groups, world.flows, 12.0)
    assert len(late.groups) == 0, "it has ended"
    assert found.groups.tolist() == [0] and abs(found.lags_s[0] - 1.5) < 1e-6


def test_what_is_read_at_once_has_no_pace() -> None:
    world = World()
    rows = world.extents.find_or_add(np.arange(20, dtype=np.uint64))
    world.formation.adopt(rows, 0, 1.0)
    bursts = Bursts(world.flows)
    flow = world.flows.find(np.array([1], np.uint64))[0]
    no = np.zeros(5, bool)
    at_once = np.full(5, 10.0)
    bursts.add(Accesses(rows[:5], np.full(5, flow), at_once, no, no, np.zeros(5, np.uint16)))
    found = continuing(bursts, world.extents, world.groups, world.flows, 10.0)
    assert len(found.groups) == 0
