"""What is refused before it is run, and the share that would do."""

from __future__ import annotations

import random

import pytest
from workload_support import workload_of

from prestage.replay.result import LEAST_SERVED, Regime
from prestage.replay.usage import LEAST_BLOCKS, check_demand, check_room, least_share
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid, InvalidFlag


def of_blocks(count: int) -> Workload:
    """Return a workload of so many blocks."""
    return workload_of((0.0, range(count)), (1.0, range(count)))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, 1000])
@pytest.mark.parametrize("least", [LEAST_BLOCKS, LEAST_SERVED])
def test_a_tier_of_all_blocks_is_always_good(count: int, least: int) -> None:
    check_room(of_blocks(count), Regime(tier=1.0), least)
    assert Regime(tier=1.0).frames(of_blocks(count)) == max(count, LEAST_SERVED)


def test_the_share_that_is_said_to_do_does_and_is_hardly_more_than_needed() -> None:
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    draw = random.Random(seed)
    for count in [1, 8, 160, 320, 100_000_000, *(draw.randrange(1, 1 << 24) for _ in range(500))]:
        for least in (LEAST_BLOCKS, LEAST_SERVED):
            share = float(f"{least_share(count, least):.6g}")
            assert share == 100 or int(share / 100 * count) >= least, (count, least)
            assert share == 100 or share < 1.25 * 100 * least / count, (count, least)


@pytest.mark.parametrize(
    "workload", [workload_of((0.0, [1]), (5.0, [2])), workload_of((3.0, [1, 2]), (3.0, [1, 2]))]
)
def test_what_has_no_mean_read_demand_is_refused_by_whose_fault_it_is(workload: Workload) -> None:
    for trace, kind in (("a.csv", Invalid), ("writes", InvalidFlag)):
        with pytest.raises(Invalid, match=rf"{trace}: found .* no mean read demand") as caught:
            check_demand(workload, workload, Regime(), trace)
        assert type(caught.value) is kind
    whole = workload_of((0.0, [1]), (2e-6, [1]))
    check_demand(whole, whole, Regime(), "a.csv")
    with pytest.raises(InvalidFlag, match=r"--filter: found 50%, which leaves . reads"):
        check_demand(whole, workload, Regime(filter=0.5), "a.csv")


def test_flash_that_does_not_get_done_is_refused() -> None:
    workload = workload_of((0.0, [1]), (1e9, [1]))
    check_demand(workload, workload, Regime(flash=0.25), "a.csv")
    with pytest.raises(InvalidFlag, match=r"--flash: found 0.2x"):
        check_demand(workload, workload, Regime(flash=0.2), "a.csv")
