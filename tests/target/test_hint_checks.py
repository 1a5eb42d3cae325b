"""What is refused of `[hints]`, `[scheduler]`, and the extension of a subsystem."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from fake_data_path import subsystem

from prestage.target.checks import check_limits, check_subsystem
from prestage.target.config import InvalidConfig, settings_from
from prestage.target.errors import Invalid
from prestage.target.hint_checks import BUDGETS, check_hints
from prestage.target.settings import HintSettings, TargetSettings, TenantSettings

FAULTS = [
    ("[scheduler]\nstarvation_ms = 0", "scheduler.starvation_ms: found 0ms, expected 1ms to 60s"),
    ("[scheduler]\nmerge_bytes = 1000",
     "scheduler.merge_bytes: found 1000, expected 0, or a multiple of 4096 up to 4M"),
    ("[hints]\nenabled = 1", "hints.enabled: found 1, expected true or false"),
    ("[hints]\nsets = -1", "hints.sets: found -1, expected 0 to 16777216"),
    ("[hints]\ntier_percent = 101", "hints.tier_percent: found 101, expected 0 to 100"),
    ("[hints]\ntotal_intents = 0", "hints.total_intents: found 0, expected 1 to 1048576"),
    ("[hints]\nmax_ttl_s = 0", "hints.max_ttl_s: found 0s, expected 1s to 2592000s"),
    ("[hints]\nfollow_bytes = '2G'", "hints.follow_bytes: found 2G, expected 0 to 1G"),
    ("[hints]\nring_facts = 5000",
     "hints.ring_facts: found 5000, expected 0, or a power of two, 1024 to 16777216"),
    ("[[hints.tenants]]\nintents = 1",
     'hints.tenants[0].host: found "", expected an NQN such as nqn.2026-11.com.example:name'),
    ("[[hints.tenants]]\nhost = 'nqn.2026-11.com.example:a'\nintent_bytes = 'x'",
     'hints.tenants[0].intent_bytes: found "x", expected a size such as 4G, 512M, 64K or a whole '
     "number of bytes"),
    ("[[hints.tenants]]\nhost = 'nqn.2026-11.com.example:a'\n"
     "[[hints.tenants]]\nhost = 'nqn.2026-11.com.example:a'",
     'hints.tenants[1].host: found "nqn.2026-11.com.example:a" again, expected something else than '
     "in hints.tenants[0].host"),
    ("[hints]\nenabled = false\n[[subsystems]]\nextension = true",
     "subsystems[0].extension: found true, expected false while hints.enabled is false"),
    ("[[subsystems]]\nextension_nsid = 5",
     "subsystems[0].extension_nsid: found 5, expected 0 without extension = true"),
    ("[[subsystems]]\nextension = true\nextension_nsid = 1025",
     "subsystems[0].extension_nsid: found 1025, expected 0 to 1024"),
    ("[[subsystems]]\nextension = true\nmax_namespaces = 1024",
     "subsystems[0].max_namespaces: found 1024, expected at most 1023 beside an extension "
     "namespace"),
    ("[[subsystems]]\nextension = true\nextension_nsid = 2\n"
     "[[subsystems.namespaces]]\nmedia = 'ram'\nsize = '1M'\nnsid = 2",
     "subsystems[0].namespaces[0].nsid: found 2, expected another than that of the extension "
     "namespace"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_fault_is_named_with_field_and_expectation(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        settings_from(tomllib.loads(text), "file")
    assert str(caught.value) == f"file: {message}"


def test_the_defaults_and_budgets_of_nothing_are_good() -> None:
    none: dict[str, Any] = dict.fromkeys(BUDGETS, 0)
    tenants = [TenantSettings(host="nqn.2026-11.com.example:a", **none)]
    for hints in (HintSettings(), HintSettings(**none, tenants=tenants)):
        assert list(check_hints(TargetSettings(hints=hints))) == []


def test_settings_that_came_by_no_file_are_looked_at_too() -> None:
    with pytest.raises(Invalid, match=r"hints\.tier_percent: found 200, expected 0 to 100"):
        check_limits(TargetSettings(hints=HintSettings(tier_percent=200)))
    with pytest.raises(Invalid, match=r"extension_nsid: found 5, expected 0 without"):
        check_subsystem(subsystem("nqn.2026-11.com.example:a", extension_nsid=5))
