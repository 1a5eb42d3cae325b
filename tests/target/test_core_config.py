from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

from fake_data_path import settings_in

from prestage.target.core_config import core_config
from prestage.target.extension import MAX_QUERY_BYTES
from prestage.target.settings import HintSettings, SchedulerSettings, TierSettings

CSRC = Path(__file__).resolve().parents[2] / "csrc"
LIB = SimpleNamespace(
    PS_MAX_REACTORS=64, PS_DIGEST_HEADER=1, PS_DIGEST_DATA=2, PS_MAX_SUBSYSTEMS=512
)


def test_hints_and_scheduler_reach_the_data_path_in_its_units(tmp_path: Path) -> None:
    settings = settings_in(
        tmp_path,
        tier=TierSettings(size=64 << 20, slot=64 << 10),
        scheduler=SchedulerSettings(starvation_ms=2.5, merge_bytes=128 << 10),
        hints=HintSettings(
            total_sets=11, total_set_ranges=12, total_signatures=13, total_intents=14,
            answer_pages=15, max_set_ranges=16, max_ttl_s=1.5, grace_s=0.25, follow_bytes=17,
            ring_facts=1024, tier_percent=50,
        ),
    )  # fmt: skip
    config = core_config(settings, LIB)
    assert (config["starvation_ns"], config["merge_bytes"]) == (2_500_000, 128 << 10)
    assert (config["tenant_count"], config["ring_capacity"]) == (4097, 1024)
    hints = config["hints"]
    assert [hints[name] for name in ("sets", "set_ranges", "signatures", "intents")] == [
        11, 12, 13, 14,
    ]  # fmt: skip
    assert (hints["answer_pages"], hints["max_set_ranges"]) == (15, 16)
    assert (hints["max_ttl_ms"], hints["grace_ns"]) == (1500, 250_000_000)
    assert (hints["piece_bytes"], hints["follow_bytes"]) == (128 << 10, 17)
    assert hints["budget"]["tier_bytes"] == 32 << 20
    assert "slot_size" not in hints, "the core knows it"


def test_a_piece_is_a_slot_at_least(tmp_path: Path) -> None:
    settings = settings_in(
        tmp_path, tier=TierSettings(slot=1 << 20), scheduler=SchedulerSettings(merge_bytes=0)
    )
    assert core_config(settings, LIB)["hints"]["piece_bytes"] == 1 << 20


def fields_of(header: str, struct: str) -> set[str]:
    """Return the names of the fields of a C struct."""
    text = re.sub(r"/\*.*?\*/", "", (CSRC / header).read_text("utf-8"), flags=re.DOTALL)
    body = re.search(rf"struct {struct} \{{(.*?)\}};", text, re.DOTALL)
    assert body is not None, struct
    names: set[str] = set()
    for declaration in body[1].split(";"):
        _, _, rest = declaration.strip().rpartition("  ")
        names |= set(re.findall(r"(\w+)(?:\[\d+\])?\s*(?:,|$)", rest or declaration.strip()))
    return names


def test_every_field_of_the_data_path_is_given_and_none_that_is_not_there(tmp_path: Path) -> None:
    config = core_config(settings_in(tmp_path), LIB)
    assert set(config) == fields_of("core.h", "ps_core_config")
    by_the_core = {"tenant_count", "volume_count", "slot_size"}
    assert set(config["hints"]) | by_the_core == fields_of("hints.h", "ps_hints_config")
    assert set(config["hints"]["budget"]) == fields_of("hints.h", "ps_hints_budget")


def test_a_residency_query_is_cut_where_the_capability_says() -> None:
    text = (CSRC / "hints.h").read_text("utf-8")
    (number,) = re.findall(r"#define PS_HINTS_QUERY_BYTES (\d+)", text)
    assert int(number) == MAX_QUERY_BYTES
