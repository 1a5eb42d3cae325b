"""scripts/bench_*: aims, verdicts and the view of what changed since an earlier run."""

from __future__ import annotations

import dataclasses
import json
import random
from functools import partial
from pathlib import Path

import bench_growth
import bench_hints
import bench_lines
import bench_sockets
import pytest
from bench_counts import EVENT, calls_in, commands_of
from bench_figures import Figure, Measure, comparison, earlier_run, inverse, measured, ratio, table
from bench_run import Case, Run, ratios, regime, rounds_of, with_interval
from bench_targets import SETTINGS, Setting, Side

from prestage.target.config import load_config

SPEEDS: Run = dict.fromkeys(
    ("iops", "bytes_per_s", "p99_us", "p999_us", "cpu_us_per_command", "resident_bytes"), 0.0
)


def figure(*values: float, less_is_better: bool = True, aim: float | None = None) -> Figure:
    return Figure("line", "ratio", list(values), less_is_better, aim)


def test_the_median_decides_whether_an_aim_is_reached() -> None:
    assert figure(1.1, 1.19, 9.0, aim=1.2).verdict() == "reached"
    assert figure(1.1, 1.21, 1.3, aim=1.2).verdict() == "NOT REACHED"
    assert figure(0.5, 0.95, 1.0, less_is_better=False, aim=0.93).verdict() == "reached"
    assert figure(0.9, less_is_better=False, aim=0.93).verdict() == "NOT REACHED"
    assert figure(0.9).verdict() == ""
    assert "<= 1.20" in table([figure(1.1, aim=1.2)])


def test_three_times_as_bad_is_grossly_off_in_either_direction() -> None:
    fine = [figure(3.5, aim=1.2), figure(0.32, less_is_better=False, aim=0.93), figure(99.0)]
    assert bench_lines.grossly_off(fine) == []
    assert bench_lines.grossly_off([figure(9.0, 9.0, 3.5, aim=1.2)]) == []
    (said,) = bench_lines.grossly_off([figure(3.7, 9.0, aim=1.2)])
    assert said == "line: ratio: in no round less than 3 times as bad as the aim"
    assert bench_lines.grossly_off([figure(0.30, less_is_better=False, aim=0.93)])


def test_a_figure_compares_runs_of_one_round() -> None:
    runs = [{"iops": 10.0}, {"iops": 60.0}]
    base = [{"iops": 20.0}, {"iops": 30.0}]
    (found,) = measured("x", [Measure("IOPS", ratio("iops"), False, 0.9)], runs, base)
    assert found == Figure("x", "IOPS", [0.5, 2.0], False, 0.9)


def test_a_round_in_which_nothing_was_done_is_left_out() -> None:
    runs = [{"iops": 10.0}, {"iops": 0.0}, {"iops": 60.0}]
    base = [{"iops": 0.0}, {"iops": 30.0}, {"iops": 30.0}]
    measures = [Measure("IOPS", each, False) for each in (ratio("iops"), inverse(ratio("iops")))]
    assert [found.values for found in measured("x", measures, runs, base)] == [[2.0], [0.5]]
    never = figure(aim=1.0)
    assert never.verdict() == "NOT MEASURED"
    assert bench_lines.grossly_off([never])
    assert table([never])


def test_a_change_beyond_the_spread_is_said_in_the_right_direction() -> None:
    dice = random.Random(20)
    old = [1.0 + dice.uniform(-0.02, 0.02) for _ in range(9)]
    more = [1.2 * each for each in old]
    same = [each + dice.uniform(-0.01, 0.01) for each in old]
    for less_is_better, values, said in (
        (True, more, "worse"),
        (False, more, "better"),
        (True, same, ""),
        (False, same, ""),
    ):
        now = figure(*values, less_is_better=less_is_better)
        then = figure(*old, less_is_better=less_is_better)
        last = comparison([now], [then]).splitlines()[-1]
        assert last.endswith(said or ")"), last


def test_what_may_be_nothing_is_not_divided_by() -> None:
    assert comparison([figure(0.0, 1.0)], [figure(1.0)]).splitlines()[-1].endswith("-")


def test_runs_without_a_common_figure_cannot_be_compared() -> None:
    with pytest.raises(SystemExit, match="no figure in common"):
        comparison([figure(1.0)], [dataclasses.replace(figure(1.0), of="another")])


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    path, now = tmp_path / "old.json", regime("lines", 5, 1.0, ())
    figures = [dataclasses.asdict(figure(1.0, aim=2.0))]
    path.write_text(json.dumps({"regime": now, "figures": figures}))
    assert earlier_run(path, now) == [figure(1.0, aim=2.0)]
    path.write_text('{"results": {}}')
    with pytest.raises(SystemExit, match="expected what --json"):
        earlier_run(path, now)


def test_another_mode_is_not_compared_and_another_regime_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, then = tmp_path / "old.json", regime("lines", 9, 1.0, ())
    path.write_text(json.dumps({"regime": then, "figures": []}))
    with pytest.raises(SystemExit, match="mode lines, expected sockets"):
        earlier_run(path, regime("sockets", 9, 1.0, ()))
    earlier_run(path, regime("lines", 5, 1.0, ()))
    assert capsys.readouterr().err == ""
    earlier_run(path, regime("lines", 5, 0.5, ["--reactors", "2"]))
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].split(": ")[1].split()[0] for line in said] == [
        "seconds_per_run",
        "serve",
    ]


def test_one_round_has_no_interval() -> None:
    assert with_interval([1.5]) == "1.500 (-)"
    assert with_interval([]) == "-"
    assert with_interval([1.0, 2.0]) == "1.500 (1.000 to 2.000)"
    then, now = figure(1.0, 1.0, 1.0), figure(2.0)
    assert comparison([now], [then]).splitlines()[-1].endswith("2.000 (-)")


def test_a_round_without_commands_or_records_has_no_ratio_and_no_cost() -> None:
    done = {"commands": 10.0, "records": 5.0, "cpu_s": 1.0, "p50_us": 2.0}
    nothing = dict.fromkeys(done, 0.0)
    assert ratios([done, nothing, done], [nothing, done, done], "p50_us") == [1.0]
    assert bench_hints.cpu_us_per_record([done, nothing], [nothing, done]) == []
    assert bench_hints.cpu_us_per_record([done | {"records": 0.0}], [done]) == []
    assert bench_sockets.speeds([nothing | SPEEDS])[-2] == "-"


def test_which_comes_first_goes_round() -> None:
    seen: list[str] = []

    def note(name: str) -> Run:
        seen.append(name)
        return {}

    rounds_of({name: partial(note, name) for name in "abc"}, 2, "", turn=1)
    assert "".join(seen) == "bcacab"


def test_what_may_be_added_grows_by_a_tenth_each_eightfold() -> None:
    assert bench_growth.aim(1) == 1
    assert bench_growth.aim(8) == pytest.approx(1.1)
    assert bench_growth.aim(64) == pytest.approx(1.21)


def test_system_calls_are_those_that_perf_counted() -> None:
    assert calls_in(f"# started\n\n144,,{EVENT},1039271,100.00,,\n") == 144
    for report in ("", f"<not supported>,,{EVENT},0,100.00,,\n"):
        with pytest.raises(ValueError, match="perf|invalid"):
            calls_in(report)


def test_a_count_has_at_least_what_is_in_flight() -> None:
    assert commands_of(Case("read", 1 << 20, 8)) == 64
    assert commands_of(Case("read", 4096, 256, 64)) == 256 * 64


def every_side() -> list[Side]:
    lines = [side for line in bench_lines.LINES for side in (line.mine, line.base)]
    return [*lines, *bench_sockets.own_sides()]


def test_every_load_has_a_server_and_every_name_is_given_once() -> None:
    for side in every_side():
        assert side.server in SETTINGS
    names = [line.name for line in bench_lines.LINES]
    assert len(set(names)) == len(names)
    cases = [side.case.name for side in bench_sockets.own_sides()]
    assert len(set(cases)) == len(cases)


GROWING = {step.server: step.setting for every in bench_growth.steps().values() for step in every}
TARGETS = {name: one for name, one in SETTINGS.items() if isinstance(one, Setting)} | GROWING


@pytest.mark.parametrize("name", TARGETS)
def test_every_configuration_is_valid(tmp_path: Path, name: str) -> None:
    setting = TARGETS[name]
    (tmp_path / "file").write_bytes(bytes(4096))
    path = tmp_path / "bench.toml"
    path.write_text(setting.config(tmp_path))
    assert load_config(path).subsystems
