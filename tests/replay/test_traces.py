from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from workload_support import AGENTS, CONVERSATION

from prestage.replay.agents import Mix, mix_sessions, read_sessions
from prestage.replay.conversation import GRID_S, sessions_of
from prestage.replay.trace_lines import read_lines
from prestage.replay.traces import load_trace
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid

REAL_AGENTS = "PRESTAGE_TEST_AGENTS"
"""Path of the whole trace of agent sessions, where somebody has it."""
OPENING = {"session": "a", "block_size": 64, "tool_tokens": 512, "system_tokens": 100}


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def request(t: float, *runs: tuple[int, int], s: str = "a", p: str = "") -> dict[str, object]:
    return {"s": s, "p": p, "t": t, "runs": list(runs)}


def requests_of(workload: Workload, session: int) -> list[int]:
    return [int(each) for each in np.flatnonzero(workload.request_session == session)]


def check_shape(workload: Workload) -> None:
    """What holds of every workload made from a trace."""
    assert (np.diff(workload.time_s) >= 0).all()
    assert (np.diff(workload.request) >= 0).all()
    assert np.array_equal(workload.time_s, workload.request_time_s[workload.request])
    assert sorted(set(workload.block.tolist())) == list(range(workload.block_count))
    _, first = np.unique(workload.block, return_index=True)
    assert np.array_equal(np.flatnonzero(workload.is_write), np.sort(first))


def test_chat_requests_keep_their_grid_and_their_chains() -> None:
    workload = load_trace(CONVERSATION, seed=7)
    check_shape(workload)
    with gzip.open(CONVERSATION, "rt") as lines:
        published = [json.loads(line) for line in lines]
    assert (workload.name, workload.requests) == ("conversation", len(published))
    grid_s = np.sort([each["timestamp"] / 1000 for each in published])
    late_s = workload.request_time_s - grid_s
    assert (late_s >= 0).all() and (late_s < GRID_S).all() and late_s.std() > GRID_S / 10
    assert len(workload) == sum(len(each["hash_ids"]) for each in published)
    distinct = {block for each in published for block in each["hash_ids"]}
    assert workload.block_count == len(distinct)
    lengths = sorted(len(workload.blocks_of(each)) for each in range(workload.requests))
    assert lengths == sorted(len(each["hash_ids"]) for each in published)


def test_a_seed_repeats_a_trace_and_another_spreads_it_otherwise() -> None:
    for path in (CONVERSATION, AGENTS):
        first, again, other = (load_trace(path, seed=seed) for seed in (1, 1, 2))
        assert np.array_equal(first.time_s, again.time_s)
        assert np.array_equal(first.block, again.block)
        assert np.array_equal(first.queue, again.queue)
        assert not np.array_equal(first.request_time_s, other.request_time_s)


def test_plain_and_compressed_files_say_the_same(tmp_path: Path) -> None:
    plain = tmp_path / "conversation"
    plain.write_bytes(gzip.decompress(CONVERSATION.read_bytes()))
    assert np.array_equal(load_trace(plain, seed=1).block, load_trace(CONVERSATION, seed=1).block)


def test_a_chat_continues_when_most_of_its_last_chain_is_there() -> None:
    chains = [[0, 1, 2, 3], [0, 1, 2, 4, 5], [0, 6], [0, 1, 9], [0, 1, 2, 4, 7, 8]]
    arrays = [np.array(chain) for chain in chains]
    assert sessions_of(arrays, np.arange(5)).tolist() == [0, 0, 1, 2, 0]


def test_agent_blocks_are_their_prefix_and_share_the_prompt(tmp_path: Path) -> None:
    other = OPENING | {"session": "b"}
    path = written(
        tmp_path / "agents.jsonl",
        OPENING,
        request(0, (1, 8), (100, 8)),  # two blocks
        request(1, (1, 8), (100, 8), (300, 9)),  # the same, and one more; the tail is dropped
        request(2, (1, 8), (200, 8)),  # another second block
        request(3, (200, 8), (100, 8)),  # the prompt's place, and another prefix
        other,
        request(0, (50, 8), (100, 8), s="b"),
    )
    mix = Mix(span_s=1e6, jitter_s=0)
    workload = mix_sessions(read_sessions(read_lines(path)), mix, name="mix", seed=3)
    check_shape(workload)
    chains = {
        (session, each): workload.blocks_of(request).tolist()
        for session in range(2)
        for each, request in enumerate(requests_of(workload, session))
    }
    if len([key for key in chains if key[0] == 0]) == 1:
        chains = {(1 - session, each): chain for (session, each), chain in chains.items()}
    prompt, second = chains[0, 0]
    assert chains[0, 1][:2] == [prompt, second]
    assert chains[0, 2][0] == prompt
    assert chains[0, 3][0] == prompt, "its place makes it shared"
    assert chains[1, 0][0] == prompt
    alone = [second, chains[0, 1][2], chains[0, 2][1], chains[0, 3][1], chains[1, 0][1]]
    assert len({prompt, *alone}) == 6


def test_the_mix_leaves_out_what_is_too_long_and_cuts_what_is_too_late(tmp_path: Path) -> None:
    long = OPENING | {"session": "long"}
    path = written(
        tmp_path / "agents.jsonl",
        OPENING,
        request(0, (1, 16)),
        request(60, (1, 16), p="/1"),
        request(7300, (1, 16)),
        long,
        request(0, (1, 8 * 601), s="long"),
    )
    workload = load_trace(path, seed=1)
    assert (workload.requests, workload.block_count) == (1, 2)
    assert 0 <= workload.request_time_s[0] < 7201
    with pytest.raises(Invalid, match=r"agents\.jsonl: no session can be used"):
        load_trace(path, seed=1, mix=Mix(most_blocks=1))


def test_the_extract_of_agent_sessions_is_mixed_as_it_should_be() -> None:
    workload = load_trace(AGENTS, seed=1)
    check_shape(workload)
    assert len(set(workload.request_session.tolist())) == 16
    assert np.count_nonzero(workload.is_write) < 0.2 * len(workload)
    few = load_trace(AGENTS, seed=1, mix=Mix(sessions=4))
    assert len(set(few.request_session.tolist())) == 4


@pytest.mark.skipif(REAL_AGENTS not in os.environ, reason=f"{REAL_AGENTS} names no file")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_whole_mix_has_the_size_that_figures_speak_of(seed: int) -> None:
    workload = load_trace(Path(os.environ[REAL_AGENTS]), seed=seed)
    check_shape(workload)
    assert len(set(workload.request_session.tolist())) == 240
    assert 59_000 <= workload.block_count <= 67_000
    assert 1_250_000 <= len(workload) <= 1_500_000
    assert 0.04 <= workload.block_count / len(workload) <= 0.05


def broken(path: Path) -> None:
    path.write_bytes(CONVERSATION.read_bytes()[:-200])


CASES: dict[str, tuple[Callable[[Path], object] | list[object] | bytes, str]] = {
    "missing": (lambda path: None, r"trace: cannot be read"),
    "a folder": (lambda path: path.mkdir(), r"trace: cannot be read"),
    "empty": (b"", r"trace: it is empty \(expected a trace\)"),
    "blank": (b"\n \n\n", r"it is empty"),
    "not text": (b"\xff\xfe\x00", r"byte 0 is no text \(expected UTF-8\)"),
    "prose": (b"hello\n", r"line 1: neither JSON lines nor CSV \(expected .*time_s"),
    "half a gzip": (broken, r"cannot be unpacked"),
    "other JSON": ([{"a": 1}], r"line 1: unknown format \(expected the member hash_ids"),
    "an array": (b"{]\n", r"line 1: JSON is malformed"),
    "no time": ([{"hash_ids": [1]}], r"line 1: .*missing required field `timestamp`"),
    "a word in a chain": (
        [{"timestamp": 0, "hash_ids": [1, "x"]}],
        r"line 1, hash_ids\[1\]: Expected `int`, got `str`",
    ),
    "a time before": ([{"timestamp": -1, "hash_ids": []}], r"line 1, timestamp: .*>= 0"),
    "a late fault": (
        [{"timestamp": 0, "hash_ids": [1]}, {"timestamp": 0, "hash_ids": 5}],
        r"line 2, hash_ids: Expected `array`",
    ),
    "a huge id": ([{"timestamp": 0, "hash_ids": [2**70]}], r"line 1, hash_ids\[0\]"),
    "no accesses": ([{"timestamp": 0, "hash_ids": []}], r"no accesses"),
    "a stray request": ([OPENING, request(0, s="b")], r"line 2, s: no line opened this session"),
    "opened twice": ([OPENING, OPENING], r"line 2, session: was opened before"),
    "an odd block": ([OPENING | {"block_size": 100}], r"line 1, block_size: 100 .*divisor of 512"),
    "no session length": ([{"session": "a"}], r"line 1: .*missing required field `block_size`"),
    "endless runs": (
        [OPENING, request(0, (0, 1 << 20), (0, 1 << 20))],
        r"line 2, runs: 2097152 ids \(expected at most 1048576 in a request\)",
    ),
    "a run below nothing": ([OPENING, request(0, (0, -1))], r"line 2, runs\[0\]\[1\]"),
    "an endless time": ([OPENING, request(1e12)], r"line 2, t: "),
    "nested": (b'{"hash_ids":' + b"[" * 5000 + b"]" * 5000 + b"}\n", r"line 1"),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_files_say_where_and_what_was_expected(case: str, tmp_path: Path) -> None:
    content, message = CASES[case]
    path = tmp_path / "trace"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, list):
        written(path, *content)
    else:
        content(path)
    with pytest.raises(Invalid, match=message) as caught:
        load_trace(path, seed=1)
    assert str(path) in caught.value.where


@pytest.mark.parametrize("path", [CONVERSATION, AGENTS], ids=["conversation", "agents"])
@pytest.mark.parametrize("seed", range(40))
def test_damage_never_does_worse_than_be_refused(path: Path, seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    random = np.random.default_rng(seed)
    content = bytearray(gzip.decompress(path.read_bytes())[:20_000])
    for place in random.integers(0, len(content), 3).tolist():
        content[place] = int(random.integers(256))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content)
    try:
        workload = load_trace(damaged, seed=1)
    except Invalid as fault:
        assert str(damaged) in fault.where
    else:
        check_shape(workload)
