"""Traces that nobody meant: each is told, with numbers, or is refused in one sentence."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from prestage.cli import main

HEAD = "time_s,request,block,op\n"
QUICK = ("none", "lru", "mq", "belady", "oracle", "clairvoyant")
SLOW = ("prestage",)
"""Looks four times a second, so that spans are short."""

Access = tuple[float, int, int, str]


def many(*, times: list[float], blocks: int, ops: str = "read", each: int = 4) -> list[Access]:
    """Return requests of `each` accesses that go through the blocks in turns."""
    return [
        (time_s, number, (number * each + at) % blocks, ops)
        for number, time_s in enumerate(times)
        for at in range(each)
    ]


ODD: dict[str, list[Access]] = {
    "one read": [(0, 0, 0, "read")],
    "one write": [(0, 0, 0, "write")],
    "two reads": [(0, 0, 0, "read"), (1, 1, 0, "read")],
    "equal times": many(times=[3.0] * 50, blocks=20),
    "a moment": many(times=[at * 1e-9 for at in range(50)], blocks=20),
    "least times": [(0, 0, 0, "read"), (5e-324, 1, 1, "read")],
    "a millisecond": many(times=[at * 1e-5 for at in range(100)], blocks=40),
    "only writes": many(times=[at / 4 for at in range(50)], blocks=20, ops="write"),
    "writes, then one read": [
        *many(times=[at / 4 for at in range(50)], blocks=20, ops="write"),
        (13, 99, 3, "read"),
    ],
    "one read, then writes": [
        (0, 99, 3, "read"),
        *many(times=[1 + at / 4 for at in range(50)], blocks=20, ops="write"),
    ],
    "a request twice as large as the tier": many(times=[0.0, 5.0, 10.0], blocks=40, each=40),
    "all at the end": [(0, 99, 0, "write"), *many(times=[9.0] * 30, blocks=30)],
    "repeats within a request": [
        (time_s, time_s, at // 2 + time_s % 2, "read") for time_s in range(20) for at in range(40)
    ],
}
FAR: dict[str, list[Access]] = {
    "gaps of days": many(times=[at * 4e5 for at in range(60)], blocks=40),
    "as late as can be": [(0, 0, 0, "read"), (1e9, 1, 0, "read"), (1e9, 2, 1, "read")],
}


def told(
    folder: Path, accesses: list[Access], words: list[str], capsys: pytest.CaptureFixture[str]
) -> list[dict[str, object]] | None:
    """Replay a trace; return what was said of each policy, None: it was refused, in a sentence."""
    path = folder / "odd.csv"
    path.write_text(HEAD + "".join(f"{t},{r},{b},{op}\n" for t, r, b, op in accesses))
    status = main(["replay", str(path), "--json", *words])
    out, err = capsys.readouterr()
    if status:
        # A file whose content says nothing is no wrong usage; all else is a flag's fault.
        expected = 1 if "no mean read demand" in err else 2
        assert (status, out, err.count("\n")) == (expected, "", 1), err
        return None
    (trial,) = json.loads(out)
    rows: list[dict[str, object]] = trial["policies"]
    return rows


def flags(policies: tuple[str, ...], tier: str) -> list[str]:
    return ["--tier", tier, *(word for each in policies for word in ("--policy", each))]


def ratios(rows: list[dict[str, object]]) -> Iterator[object]:
    for row in rows:
        yield from (row["read_hit_ratio"], row["ready_requests"], row["flash_reads_per_read"])


@pytest.mark.parametrize("tier", ["100%", "50%"])
@pytest.mark.parametrize("name", [*ODD, *FAR])
def test_an_odd_trace_is_told_or_refused(
    name: str, tier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = QUICK if name in FAR else (*QUICK, *SLOW)
    rows = told(tmp_path, {**ODD, **FAR}[name], flags(policies, tier), capsys)
    if rows is not None:
        assert [row["policy"] for row in rows] == list(policies)
        assert all(isinstance(each, float) for each in ratios(rows)), rows


@pytest.mark.parametrize("policy", [*QUICK, *SLOW])
@pytest.mark.parametrize("name", ["one read", "equal times", "only writes", "least times"])
def test_what_has_no_read_demand_is_refused_under_every_policy(
    name: str, policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(tmp_path, ODD[name], flags((policy,), "100%"), capsys) is None


def test_a_block_that_a_request_names_twice_is_no_hit_under_any_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twice: list[Access] = [
        (time_s, time_s, time_s, "read") for time_s in range(20) for _ in range(2)
    ]
    rows = told(tmp_path, twice, flags(("none", "lru", "mq", "belady"), "50%"), capsys)
    assert rows is not None
    assert [row["read_hit_ratio"] for row in rows] == [0] * 4


def test_any_trace_is_told_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(1 << 20)
    with capsys.disabled():
        print(f"seed {seed}", end=" ")
    draw = random.Random(seed)
    for _ in range(12):
        span_s = draw.choice([1e-6, 1.0, 20.0])
        times = [round(draw.random() * span_s, draw.randrange(8)) for _ in range(40)]
        blocks, sizes = draw.choice([1, 8, 60]), [draw.choice([1, 3, 30]) for _ in times]
        share = draw.choice([0.0, 0.1, 0.9])
        accesses: list[Access] = [
            (time_s, at, draw.randrange(blocks), "write" if draw.random() < share else "read")
            for at, (time_s, size) in enumerate(zip(times, sizes, strict=True))
            for _ in range(size)
        ]
        words = flags((*QUICK, *SLOW), draw.choice(["100%", "60%"]))
        words += ["--flash", draw.choice(["0.1x", "5x", "1e9x"]), "--seed", str(seed)]
        rows = told(tmp_path, accesses, [*words, "--filter", draw.choice(["0%", "30%"])], capsys)
        assert rows is None or all(isinstance(each, float) for each in ratios(rows)), rows
