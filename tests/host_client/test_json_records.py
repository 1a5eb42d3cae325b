"""What `prestage hint batch` takes of a file, what it prints, and which lines it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from prestage.ext.records import Intent

from .fake_pax import FakePax

Prestage = Callable[..., int]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 1"),
        ("[1]", "line 1"),
        ('{"type": "sett"}', 'found the type "sett" (expected set signature intent'),
        ('{"type": ["set"]}', 'found the type ["set"]'),
        ('["set"]', 'found ["set"] (expected a JSON object)'),
        ('{"type": "set", "set_id": 1, "nsid": 1}', "ranges: found 0 (expected some ranges"),
        ('{"type": "intent", "deadline_us": 5}', "intent needs the field intent_id (expected the"),
        ('{"type": "retain", "duration_us": 5}', 'retain has no field "duration_us" (expected the'),
        ('{"type": "outcome", "intent_id": 1.5}', "intent_id: found 1.5 (expected a whole number)"),
        ('{"type": "outcome", "intent_id": true}', "intent_id: found true (expected a whole"),
        ('{"type": "residency", "ranges": [[0]]}', "ranges: found [0] (expected a list of [SLBA"),
        ('{"type": "residency", "ranges": 5}', "ranges: found 5 (expected a list of [SLBA, NLB])"),
        ('{"type": "cancel", "what": "none"}', 'what: found "none" (expected one of intent, '),
        ('{"type": "cancel", "what": null}', "what: found null (expected one of intent, session"),
        (
            '{"type": "intent", "intent_id": 1, "deadline_us": 1, "flags": [3]}',
            "flags: found 3 (expected one of late_ok, prefix)",
        ),
        (
            '{"type": "signature", "nsid": 1, "slba": 0, "nlb": 1, "vector": "zz"}',
            'vector: found "zz" (expected 8 or 16 bytes as hexadecimal digits)',
        ),
        ('{"type": "set", "set_id": 1}', "the fields set_id, nsid, ranges"),
        ('{"type": "set", "set_id": 0, "nsid": 1, "ranges": [[0, 1]]}', "line 1: set_id: found 0"),
        ('{"type": "set", "set_id": 1, "nsid": 1, "ranges": [[0]]}', "ranges: found [0]"),
        ('{"type": "set", "set_id": 1, "nsid": 1, "op": "x", "ranges": [[0, 1]]}', 'op: found "x"'),
        ('{"type": "intent", "intent_id": 1, "deadline_us": 1, "flags": ["x"]}', "flags: found"),
        ('{"type": "signature", "nsid": 1, "slba": 0, "nlb": 1, "vector": "xy"}', "vector: found"),
        ('{"type": "intent", "intent_id": 1, "deadline_us": 1, "flags": ["LATE_OK"]}', "LATE_OK"),
        ('{"type": "intent", "intent_id": 1, "deadline_us": 1, "priority": "URGENT"}', "urgent"),
        ('{"type": "outcome", "intent_id": 1, "intent_id": 2}', 'found "intent_id" twice'),
        ("", "nothing is there (expected a JSON object on each line)"),
    ],
)
def test_a_wrong_line_of_a_batch_is_named(
    prestage: Prestage, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, text: str
) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text(line)
    words = ("--input", file, "--output", tmp_path / "page")
    assert prestage("hint", "batch", *words) == 2
    assert text in capsys.readouterr().err


def test_a_batch_takes_words_and_prints_all_answers(
    prestage: Prestage,
    node: Path,
    pax: FakePax,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pax.warm = {0, 1}
    file = tmp_path / "batch.jsonl"
    intent = {"type": "intent", "intent_id": 4, "deadline_us": 9, "nsid": 1, "ranges": [[0, 1]]}
    residency = {"type": "residency", "nsid": 1, "ranges": [[0, 8]]}
    lines = [intent | {"priority": "urgent"}, residency]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert prestage("hint", "batch", node, "--input", file) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("intent 4: ")
    assert said[2] == "warm 8K of 32K (25 %)"
    (sent,) = [one for one in pax.records if isinstance(one, Intent)]
    assert sent.priority == 0
