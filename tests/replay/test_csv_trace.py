from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from prestage.replay.traces import load_trace
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "replay-formats.md"
HEADER = "time_s,request,block,op\n"


def load(tmp_path: Path, text: str) -> Workload:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return load_trace(path, seed=5)


def test_the_documented_example_is_read_as_it_says(tmp_path: Path) -> None:
    found = re.search(r"```csv\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    workload = load(tmp_path, found[1])
    assert workload.request_time_s.tolist() == [0.0, 31.5]
    assert workload.block.tolist() == [0, 1, 0, 1, 2]
    assert workload.is_write.tolist() == [True, True, False, False, True]
    assert workload.request_session.tolist() == [0, 0]


def test_columns_come_in_any_order_and_names_are_only_names(tmp_path: Path) -> None:
    text = (
        "\ufeffop, block ,queue,tenant,request,time_s\n"
        'read,"a,b",q1,bob,7,3\n\nwrite,x,q0,ann,8,1e0\nread,x,q1,bob,7,3\n'
    )
    workload = load(tmp_path, text)
    assert workload.request_time_s.tolist() == [1.0, 3.0]
    assert workload.block.tolist() == [0, 1, 0]
    assert workload.is_write.tolist() == [True, False, False]
    assert workload.tenant.tolist() == [1, 0, 0]
    assert workload.queue.tolist() == [1, 0, 0]
    assert workload.request_session.tolist() == [1, 0]


def test_requests_are_spread_over_queues_by_the_seed_without_a_column(tmp_path: Path) -> None:
    text = HEADER + "".join(f"{each},{each},b,read\n" for each in range(100))
    assert len(set(load(tmp_path, text).queue.tolist())) > 8
    assert np.array_equal(load(tmp_path, text).queue, load(tmp_path, text).queue)


def test_windows_line_ends_are_line_ends(tmp_path: Path) -> None:
    assert len(load(tmp_path, HEADER.replace("\n", "\r\n") + "0,1,b,read\r\n")) == 1


CASES = {
    "a column is missing": ("time_s,request,op\n", "line 1: no column block"),
    "a column is unknown": (HEADER.strip() + ",colour\n", r"line 1: column .colour."),
    "a column is there twice": (HEADER.strip() + ",op\n", r"line 1: column .op."),
    "a value is missing": (HEADER + "0,1,b\n", "line 2: 3 values .expected 4: time_s, request"),
    "a value is too many": (HEADER + "0,1,b,read,\n", "line 2: 5 values"),
    "no time": (HEADER + "soon,1,b,read\n", r"line 2, time_s: .soon. \(expected seconds from 0"),
    "not a number": (HEADER + "nan,1,b,read\n", "line 2, time_s"),
    "a number of Python": (HEADER + "1_0,1,b,read\n", "line 2, time_s"),
    "other digits": (HEADER + "\u0665,1,b,read\n", "line 2, time_s"),
    "endless": (HEADER + "inf,1,b,read\n", "line 2, time_s"),
    "before": (HEADER + "-1,1,b,read\n", "line 2, time_s"),
    "no operation": (HEADER + "0,1,b,raed\n", r"line 2, op: .raed. \(expected read or write\)"),
    "no name": (HEADER + "0,1,,read\n", "line 2, block: .* 1 to 128 characters"),
    "too long a name": (HEADER + f"0,{'x' * 129},b,read\n", "line 2, request"),
    "two times": (HEADER + "0,1,b,read\n1,1,b,read\n", r"line 3, time_s: .1. \(expected 0.0, as"),
    "two tenants": (
        HEADER.strip() + ",tenant\n0,1,b,read,a\n0,1,b,read,c\n",
        "line 3, tenant: .c. .expected .a., as of its request",
    ),
    "a stray quote": (HEADER + '0,1,"b"x,read\n', "line 2: .* expected"),
    "an open quote": (HEADER + '0,1,"b,read\n', "line 2: "),
    "nothing but a header": (HEADER, "no accesses"),
    "too many tenants": (
        HEADER.strip() + ",tenant\n" + "".join(f"0,{i},b,read,{i}\n" for i in range(1025)),
        r"trace.csv, tenant: 1025 of them \(expected at most 1024\)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_values_say_line_field_and_what_was_expected(case: str, tmp_path: Path) -> None:
    text, message = CASES[case]
    with pytest.raises(Invalid, match=message.replace(".* expected", r".*\(expected")) as caught:
        load(tmp_path, text)
    assert str(tmp_path / "trace.csv") in caught.value.where
