"""What is refused of `[prestager]`, and how it is switched off."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from prestage.target.config import InvalidConfig, load_config, settings_from
from prestage.target.flags import ServeFlags, settings_from_flags
from prestage.target.prestager_checks import check_prestager
from prestage.target.processors import available, listed
from prestage.target.settings import PrestagerSettings

FAULTS = [
    ("enabled = 1", "enabled: found 1, expected true or false"),
    ("snapshot_s = 0.5", "snapshot_s: found 0.5s, expected 0, or 1s to 86400s"),
    ("snapshot_s = 'often'",
     'snapshot_s: found "often", expected a duration such as 30s, 500ms, 2m or a number of '
     "seconds"),
    ("holdout_percent = 51", "holdout_percent: found 51, expected 0 to 50"),
    ("holdout_percent = nan", "holdout_percent: found nan, expected 0 to 50"),
    ("memory = '64M'", "memory: found 64M, expected 128M to 1T"),
    ("orders = 1000", "orders: found 1000, expected a power of two, 64 to 1048576"),
    ("orders = 0", "orders: found 0, expected a power of two, 64 to 1048576"),
    ("silence_s = 0", "silence_s: found 0s, expected 1s to 3600s"),
    ("scheduling = 'fifo'", 'scheduling: found "fifo", expected idle or nice'),
    (f"cpus = [{min(available())}, 5000]",
     "cpus[1]: found 5000, expected a processor that this process may run on: "
     f"{listed(available())}"),
    ("seed = -1", "seed: found -1, expected 0 to 9223372036854775807"),
    ("snapshot = '/'", 'snapshot: found the directory "/", expected a file'),
    ("snapshot = '/dev/null'", 'snapshot: found "/dev/null", expected a regular file'),
    ("snapshot = '/nowhere/at/all'",
     'snapshot: found "/nowhere/at/all", expected a file in a directory that is there'),
    ('snapshot = "a\\u0000b"',
     'snapshot: found "a\\x00b", expected a path without a zero byte'),
    ("holdout = 1", 'holdout: unknown field, did you mean "holdout_percent"?'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_fault_is_named_with_file_field_and_expectation(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "target.toml"
    file.write_text(f"[prestager]\n{text}\n", "utf-8")
    with pytest.raises(InvalidConfig) as caught:
        load_config(file)
    assert str(caught.value) == f"{file}: prestager.{message}"


def test_a_name_that_is_too_long_for_a_file_is_refused() -> None:
    (found,) = check_prestager(PrestagerSettings(snapshot="n" * 251))
    assert found[1].endswith("expected a name of at most 250 bytes")
    (found,) = check_prestager(PrestagerSettings(snapshot="n/" * 5000))
    assert found[0] == "prestager.snapshot"


def test_the_defaults_are_good_and_so_is_a_file_beside_others(tmp_path: Path) -> None:
    for one in (PrestagerSettings(), PrestagerSettings(snapshot=str(tmp_path / "new"))):
        assert list(check_prestager(one)) == []


def test_the_flag_goes_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "target.toml"
    file.write_text("[prestager]\nseed = 7\n", "utf-8")
    settings = settings_from_flags(ServeFlags(config=str(file), prestager=False))
    assert (settings.prestager.enabled, settings.prestager.seed) == (False, 7)
    assert settings_from_flags(ServeFlags(config=str(file))).prestager.enabled


def test_sizes_and_durations_have_units() -> None:
    text = "[prestager]\nmemory = '512M'\nsnapshot_s = '5m'\nsilence_s = '3s'"
    found = settings_from(tomllib.loads(text), "file").prestager
    assert (found.memory, found.snapshot_s, found.silence_s) == (512 << 20, 300.0, 3.0)
