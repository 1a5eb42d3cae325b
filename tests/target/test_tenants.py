from __future__ import annotations

from pathlib import Path

import pytest
from fake_data_path import HOST, NQN, Rig, run, settings_in, subsystem

from prestage.target import tenants
from prestage.target.datapath import HintBudget
from prestage.target.settings import HintSettings, TenantSettings, TierSettings
from prestage.target.tenants import OTHER_TENANTS, default_budget

A, B = "nqn.2026-11.com.example:a", "nqn.2026-11.com.example:b"
TIER = TierSettings(size=100 << 20, huge_pages=False)


def test_a_host_keeps_its_number_for_good() -> None:
    async def main() -> None:
        async with Rig() as rig:
            numbers = rig.runtime.tenants
            first = numbers.number(A)
            assert numbers.number(B) not in (first, OTHER_TENANTS)
            assert numbers.number(A) == first

    run(main())


def test_the_budget_is_that_of_the_settings(tmp_path: Path) -> None:
    hints = HintSettings(
        sets=1, set_ranges=2, signatures=3, intents=4, intent_bytes=5, tier_percent=10,
        records_per_s=6,
    )  # fmt: skip
    settings = settings_in(tmp_path, hints=hints, tier=TIER)
    assert default_budget(settings) == HintBudget(1, 2, 3, 4, 5, 10 << 20, 6)


def test_a_host_of_the_configuration_has_a_budget_of_its_own_before_it_connects(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        own = TenantSettings(host=HOST, sets=7, tier_percent=0)
        hints = HintSettings(sets=1, intents=4, tenants=[own])
        settings = settings_in(tmp_path, subsystem(NQN), hints=hints, tier=TIER)
        async with Rig(settings) as rig:
            number = rig.runtime.tenants.numbers[HOST]
            found = rig.fake.budgets[number]
            assert found is not None
            assert (found.sets, found.tier_bytes) == (7, 0), "its own"
            assert found.intents == 4, "as everybody's"
            rig.host()
            (queue,) = rig.fake.bound.values()
            assert queue.tenant == number

    run(main())


def test_hosts_that_have_to_share_a_number_have_no_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(tenants, "MAX_TENANTS", 1)
        async with Rig() as rig:
            assert rig.fake.budgets == {OTHER_TENANTS: HintBudget(is_shared=True)}
            rig.host(host=A)
            rig.host(host=B)
            assert [queue.tenant for queue in rig.fake.bound.values()] == [1, OTHER_TENANTS]

    run(main())
