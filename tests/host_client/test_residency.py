"""Residency of more than one question may be about: what is asked, and what it adds up to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from prestage.ext import layout
from prestage.ext.names import Reason
from prestage.ext.records import Range, Residency, ResidencyAnswer
from prestage.host_client import HintError, hint_residency
from prestage.host_client.hint_residency import MOST_RANGES, pieces, residency_of, total

from .fake_pax import CAPABILITY, CARRIERS, FakePax, hints_by
from .scripted import BLOCK

MOST_BYTES = 100 * BLOCK


def fake() -> FakePax:
    return FakePax(replace(CAPABILITY, max_query_bytes=MOST_BYTES))


def ask(pax: FakePax, carrier: str, folder: Path, *ranges: tuple[int, int]) -> ResidencyAnswer:
    async def main() -> ResidencyAnswer:
        async with hints_by(carrier, pax, folder) as hints:
            return await hints.residency(ranges)

    return asyncio.run(main())


@pytest.mark.parametrize("carrier", CARRIERS)
def test_more_than_one_question_may_be_about_is_asked_in_pieces(
    carrier: str, tmp_path: Path
) -> None:
    pax = fake()
    pax.warm = {7, 99, 100, 399, 400}
    answer = ask(pax, carrier, tmp_path, (0, 300), (350, 50))
    assert answer == ResidencyAnswer(350 * BLOCK, 4 * BLOCK, ready_us=layout.READY_NEVER)
    asked = [one.ranges for one in pax.records if isinstance(one, Residency)]
    assert asked[2:] == [
        (Range(0, 100),),
        (Range(100, 100),),
        (Range(200, 100),),
        (Range(350, 50),),
    ]


def test_what_one_question_may_be_about_is_asked_once(tmp_path: Path) -> None:
    pax = fake()
    assert ask(pax, "opcodes", tmp_path, (0, 60), (80, 40)).total_bytes == MOST_BYTES
    assert len(pax.records) == 1


def test_more_ranges_than_a_page_has_room_for_are_asked_about(tmp_path: Path) -> None:
    pax = fake()
    pax.warm = {0, 2 * MOST_RANGES}
    many = [(2 * number, 1) for number in range(MOST_RANGES + 1)]
    answer = ask(pax, "opcodes", tmp_path, *many)
    assert (answer.total_bytes, answer.warm_bytes) == (len(many) * BLOCK, 2 * BLOCK)


def test_a_piece_that_is_too_much_for_this_second_is_asked_about_again(tmp_path: Path) -> None:
    pax = fake()
    pax.refused_by_rate = {3, 4, 6}
    assert ask(pax, "opcodes", tmp_path, (0, 250)).total_bytes == 250 * BLOCK


def test_a_target_that_has_no_answer_to_a_piece_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hint_residency, "PATIENCE_S", 0.1)
    pax = fake()
    pax.refused_by_rate = set(range(3, 1000))
    with pytest.raises(HintError, match="records per second are used up"):
        ask(pax, "opcodes", tmp_path, (0, 250))


def test_a_set_that_is_too_large_has_no_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with hints_by("opcodes", fake(), tmp_path) as hints:
            await hints.define_set(3, [(0, 101)])
            with pytest.raises(HintError, match="budget"):
                await hints.residency(set_id=3)

    asyncio.run(main())


def test_pieces_have_all_blocks_once_and_in_order(rng: random.Random) -> None:
    for _ in range(200):
        ranges = [
            Range(rng.randrange(1 << 40), rng.randrange(1, 3000))
            for _ in range(rng.randrange(1, 600))
        ]
        most = rng.choice([1000, 5000, 1 << 40])
        found = list(pieces(ranges, most))
        assert all(sum(one.nlb for one in piece) <= most for piece in found)
        assert all(0 < len(piece) <= MOST_RANGES for piece in found)
        assert flat(range_ for piece in found for range_ in piece) == flat(ranges)


def flat(ranges: Iterable[Range]) -> list[tuple[int, int]]:
    """Neighbours as one: first block and end."""
    joined: list[tuple[int, int]] = []
    for one in ranges:
        if joined and joined[-1][1] == one.slba:
            joined[-1] = (joined[-1][0], one.slba + one.nlb)
        else:
            joined.append((one.slba, one.slba + one.nlb))
    return joined


def test_pieces_are_ready_when_the_last_that_comes_is() -> None:
    warm = ResidencyAnswer(10, 10)
    cold = ResidencyAnswer(10, 0, 0, layout.READY_NEVER)
    coming = ResidencyAnswer(10, 2, 8, 500)
    assert total([warm, warm]) == ResidencyAnswer(20, 20)
    assert total([warm, coming, ResidencyAnswer(4, 0, 4, 900)]) == ResidencyAnswer(24, 12, 12, 900)
    assert total([coming, cold, warm]) == ResidencyAnswer(30, 12, 8, 500)
    assert total([warm, cold]).ready_us == layout.READY_NEVER


def test_a_target_whose_blocks_have_no_size_does_no_harm() -> None:
    asked: list[Residency] = []

    async def odd(record: Residency) -> ResidencyAnswer:
        asked.append(record)
        return ResidencyAnswer(reason=Reason.BUDGET if len(asked) == 1 else Reason.NONE)

    answer = asyncio.run(residency_of(odd, Residency(1, (Range(0, 9),)), 1 << 20))
    assert answer == ResidencyAnswer()
