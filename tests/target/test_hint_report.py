from __future__ import annotations

import json

import pytest
from fake_data_path import HOST, Rig, run

from prestage.ext.names import Carrier, Reason
from prestage.ext.pages import Budget, Capability, Counts, Status
from prestage.target.errors import NotFound
from prestage.target.hint_report import scheduler_report

A, B = "nqn.2026-11.com.example:a", "nqn.2026-11.com.example:b"


def some_status() -> Status:
    dropped = [0] * 8
    dropped[Reason.RATE] = 9
    return Status(
        Capability(Carrier(0)),
        intents=Budget(4096, 3),
        batches=5,
        timely_hits=6,
        dropped=tuple(dropped),
        intent_counts=(Counts(3, 1, 1, 1, 1), Counts(), Counts(), Counts()),
        read_counts=(Counts(), Counts(), Counts(), Counts(arrived=2, late=2)),
    )


def test_every_host_has_its_budgets_counters_and_outcomes() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.host(host=A)
            rig.host(host=B)
            rig.fake.statuses[rig.runtime.tenants.numbers[A]] = some_status()
            report = json.loads(json.dumps(rig.target.hints()))
            assert report["enabled"] is True and report["sets"] == 0
            a, b = report["tenants"]
            assert (a["host_nqn"], a["tenant"]) == (A, rig.runtime.tenants.numbers[A])
            assert (a["batches"], a["timely_hits"]) == (5, 6)
            assert a["budgets"]["intents"] == {"limit": 4096, "used": 3}
            assert a["dropped"]["rate"] == 9 and "none" not in a["dropped"]
            assert a["intents"]["urgent"]["met_warm"] == 1
            assert a["dated_reads"]["low"] == {
                "arrived": 2, "pending": 0, "met": 0, "met_warm": 0, "late": 2, "dropped": 0,
                "cancelled": 0,
            }  # fmt: skip
            assert a["tier"] == {"frames": 0}
            assert b["batches"] == 0
            assert rig.target.stats()["hints"] == report

    run(main())


def test_one_host_may_be_asked_for() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.host(host=A)
            rig.host(host=B)
            (only,) = rig.target.hints(B)["tenants"]
            assert only["host_nqn"] == B
            with pytest.raises(NotFound, match="has not connected"):
                rig.target.hints(HOST)

    run(main())


def test_a_scheduler_is_told_of_by_class() -> None:
    report = scheduler_report({"window": 8, "waiting": [1, 2, 3, 4], "started": [5, 6, 7, 8]})
    assert report == {
        "window": 8,
        "classes": {
            "demand": {"waiting": 1, "started": 5},
            "dated": {"waiting": 2, "started": 6},
            "write": {"waiting": 3, "started": 7},
            "speculative": {"waiting": 4, "started": 8},
        },
    }
