"""The commands hint, residency and outcome: what they send, print, write and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prestage.ext import layout
from prestage.ext.answers import AnswerPage, encode_answer
from prestage.ext.codec import decode_batch
from prestage.ext.names import (
    AnswerState,
    CancelWhat,
    Fault,
    IntentFlag,
    Reason,
    SetFlag,
    SetOp,
    State,
)
from prestage.ext.pages import (
    LEAST,
    MOST,
    Benefit,
    Event,
    EventLog,
    Refusal,
    Status,
    encode_events,
    encode_status,
)
from prestage.ext.records import (
    Cancel,
    Intent,
    Outcome,
    OutcomeAnswer,
    Range,
    Residency,
    ResidencyAnswer,
    Retain,
    SetRecord,
    Signature,
)
from prestage.host_client.commands.units import format_size, parse_ranges, parse_size, parse_span
from prestage.host_client.errors import InvalidRequest

from .fake_pax import CAPABILITY, FakePax
from .scripted import BLOCK, NQN

Prestage = Callable[..., int]
OUT = ("--output", "x")


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


# ---- what is sent ----


def test_a_set_is_defined_extended_and_dropped(
    prestage: Prestage, node: Path, pax: FakePax
) -> None:
    assert (
        prestage(
            "hint", "set", node, "--id", "0x10", "--range", "0+8,16+8", "--range", "32+1",
            "--ordered", "--ttl", "2min", "--nsid", 3,
        ) == 0
    )  # fmt: skip
    assert prestage("hint", "set", node, "--id", 16, "--range", "64+8", "--extend") == 0
    assert prestage("hint", "set", node, "--id", 16, "--drop") == 0
    assert pax.records == [
        SetRecord(
            16, 3, (Range(0, 8), Range(16, 8), Range(32, 1)), SetOp.DEFINE, SetFlag.ORDERED, 120000
        ),
        SetRecord(16, 1, (Range(64, 8),), SetOp.EXTEND),
        SetRecord(16, 1, (), SetOp.DROP),
    ]


def test_an_intent_is_made_and_waited_for(
    prestage: Prestage,
    node: Path,
    pax: FakePax,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = FakePax.submit

    def submit(self: FakePax, mailbox: int, data: bytes) -> AnswerPage:
        page = real(self, mailbox, data)
        if any(isinstance(one, Outcome) for one in decode_batch(data).records):
            self.warm_up(9)
        return page

    monkeypatch.setattr(FakePax, "submit", submit)
    assert (
        prestage(
            "hint", "intend", node, "--range", "1M:64K", "--block", "4K", "--deadline", "50ms",
            "--priority", "urgent", "--confidence", 80, "--session", 5, "--late-ok", "--prefix",
            "--id", 9, "--wait",
        ) == 0
    )  # fmt: skip
    assert pax.records[0] == Intent(
        9,
        50000,
        1,
        (Range(256, 16),),
        session=5,
        priority=0,
        confidence=80,
        flags=IntentFlag.LATE_OK | IntentFlag.PREFIX,
    )
    report, outcome = capsys.readouterr().out.splitlines()
    assert report == "accepted 1"
    assert outcome == (
        "intent 9: met, accepted 64K of 64K, warm 64K, predicted 25 ms, ready after 1.23 ms"
    )


def test_signatures_retains_and_cancels_are_sent(
    prestage: Prestage, node: Path, pax: FakePax
) -> None:
    vector = "00112233445566778899aabbccddeeff"
    for words in (
        ("sign", node, "--range", "0+8,8+8", "--vector", vector, "--family", 2),
        ("retain", node, "--range", "0+8", "--duration", "10s"),
        ("retain", node, "--set", 7, "--duration", "1h"),
        ("cancel", node, "--id", 4),
        ("cancel", node, "--session", 5),
        ("cancel", node, "--intents"),
        ("cancel", node, "--everything"),
    ):
        assert prestage("hint", *words) == 0
    assert pax.records == [
        Signature(1, 0, 8, bytes.fromhex(vector), 2),
        Signature(1, 8, 8, bytes.fromhex(vector), 2),
        Retain(10000, 1, (Range(0, 8),)),
        Retain(3600000, 1, (), 7),
        Cancel(CancelWhat.INTENT, 4),
        Cancel(CancelWhat.SESSION, 5),
        Cancel(CancelWhat.ALL),
        Cancel(CancelWhat.EVERYTHING),
    ]


BATCH = """
{"type": "set", "set_id": 1, "nsid": 1, "ranges": [[0, 8], [16, 8]], "flags": ["ordered"]}
{"type": "set", "set_id": 1, "nsid": 1, "op": "extend", "ranges": [[32, 8]]}
{"type": "signature", "nsid": 1, "slba": 0, "nlb": 8, "vector": "0011223344556677"}

{"type": "intent", "intent_id": 5, "deadline_us": 1000, "set_id": 1, "flags": ["late_ok"]}
{"type": "cancel", "what": "session", "id": 6}
{"type": "retain", "duration_ms": 5, "set_id": 1}
"""


def test_a_batch_of_json_lines_is_sent(
    prestage: Prestage,
    node: Path,
    pax: FakePax,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text(BATCH)
    assert prestage("hint", "batch", node, "--input", file, "--json") == 0
    assert pax.records == [
        SetRecord(1, 1, (Range(0, 8), Range(16, 8)), SetOp.DEFINE, SetFlag.ORDERED),
        SetRecord(1, 1, (Range(32, 8),), SetOp.EXTEND),
        Signature(1, 0, 8, bytes.fromhex("0011223344556677")),
        Intent(5, 1000, set_id=1, flags=IntentFlag.LATE_OK),
        Cancel(CancelWhat.SESSION, 6),
        Retain(5, set_id=1),
    ]
    found = printed(capsys)
    assert found["report"]["accepted"] == 6
    assert found["outcomes"][0]["intent_id"] == 5


def test_a_block_size_that_is_not_the_namespaces_is_refused(
    prestage: Prestage, address: str, pax: FakePax, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("hint", "set", address, "--nqn", NQN, "--id", 1, "--range", "0:8K", "--block")
    assert prestage(*words, 512) == 2
    assert f"--block: found 512 (expected {BLOCK}, the block size" in capsys.readouterr().err
    assert pax.batches == []
    assert prestage(*words, BLOCK) == 0


# ---- questions ----


def test_residency_is_printed(
    prestage: Prestage,
    node: Path,
    address: str,
    pax: FakePax,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pax.warm = {0, 1}
    assert prestage("residency", node, "--range", "0+8") == 0
    assert capsys.readouterr().out == "warm 8K of 32K (25 %)\n"
    # The initiator knows the size of a block.
    assert prestage("residency", address, "--nqn", NQN, "--range", "0:16K", "--json") == 0
    found = printed(capsys)
    assert (found["total_bytes"], found["warm_bytes"], found["reason"]) == (16384, 8192, "none")


def test_outcomes_are_printed(
    prestage: Prestage, address: str, pax: FakePax, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"nvme+tcp://{address}/{NQN}"
    pax.intents = {
        1: OutcomeAnswer(1, 4096, 4096, 4096, 10, 2_500_000, State.LATE),
        2: OutcomeAnswer(2, state=State.DROPPED, reason=Reason.DEADLINE),
    }
    assert prestage("outcome", url, "--id", 1, "--id", 2, "--id", 3) == 0
    late, dropped, unknown = capsys.readouterr().out.splitlines()
    assert late.startswith("intent 1: late") and late.endswith("ready after 2.5 s")
    assert dropped == "intent 2: dropped; it could not be ready in time"
    assert unknown == "intent 3: unknown"
    assert prestage("outcome", url, "--id", 1, "--wait", "--json") == 0
    assert printed(capsys)[0]["state"] == "late"
    pax.intents[1] = OutcomeAnswer(1)
    assert prestage("outcome", url, "--id", 1, "--json") == 0
    assert printed(capsys)[0]["ready_us"] is None


def test_the_status_is_printed(
    prestage: Prestage, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prestage("hint", "status", address, "--nqn", NQN) == 0
    assert "PAX 1.0 by read_attributes, dataset_management" in capsys.readouterr().out
    assert prestage("hint", "status", address, "--nqn", NQN, "--json") == 0
    assert printed(capsys)["capability"]["carriers"][0] == "read_attributes"


# ---- pages in files ----


def test_pages_are_written_for_dd_and_decoded(
    prestage: Prestage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.bin"
    for words, record in (
        (
            ("hint", "intend", "--range", "0+256", "--deadline", "1s", "--id", 3),
            Intent(3, 1_000_000, 1, (Range(0, 256),)),
        ),
        (("hint", "set", "--id", 5, "--range", "1+2"), SetRecord(5, 1, (Range(1, 2),))),
        (("residency", "--set", 5), Residency(1, (), 5)),
        (("outcome", "--id", 3), Outcome(3)),
    ):
        assert prestage(*words, "--output", page) == 0
        assert f"dd if={page} of=NODE bs=4096 seek=64 oflag=direct" in capsys.readouterr().out
        assert page.stat().st_size == layout.PAGE_BYTES
        assert decode_batch(page.read_bytes()).records == (record,)
        assert prestage("hint", "decode", page) == 0
        assert capsys.readouterr().out.splitlines()[1] == str(record)


def test_many_records_are_written_as_many_pages(
    prestage: Prestage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.bin"
    ranges = ",".join(f"{index}+1" for index in range(600))
    assert prestage("hint", "set", "--id", 5, "--range", ranges, "--output", page, "--json") == 0
    assert printed(capsys)["pages"] == 3
    assert page.stat().st_size == 3 * layout.PAGE_BYTES


def test_every_page_of_a_target_is_decoded(
    prestage: Prestage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "page.bin"
    answers = (ResidencyAnswer(8192, 4096, 4096, 1500), OutcomeAnswer(7, state=State.MET))
    applied = AnswerPage(0xAB, 3, AnswerState.APPLIED, answers, accepted=2)
    refused = AnswerPage(0xAB, 4, AnswerState.REFUSED, fault=Fault.CHECKSUM, fault_offset=12)
    status = Status(CAPABILITY, refusals=(Refusal(0xAB, 4, 12, Fault.CHECKSUM, 1),))
    unknown = Status(CAPABILITY, benefit=Benefit(9, 1, 4, LEAST, MOST))
    measured = Status(CAPABILITY, benefit=Benefit(90, 10, 41, -2, 84))
    for data, kind, text in (
        (encode_answer(applied), "answerpage", "warm 4K of 8K (50 %), 4K coming, ready in 1.5 ms"),
        (encode_answer(refused), "answerpage", "batch 4 of writer ab: refused, checksum at byte"),
        (encode_status(status), "status", "refused: batch 4 of writer ab, checksum at byte 12"),
        (encode_status(unknown), "status", "9 acted on, 1 held out, benefit not known yet"),
        (encode_status(measured), "status", "benefit 41 reads, -2 to 84 (95 %)"),
        (encode_events(EventLog((Event(7),), 2)), "eventlog", "intent 7 of session 0: met"),
    ):
        file.write_bytes(data)
        assert prestage("hint", "decode", file) == 0
        assert text in capsys.readouterr().out
        assert prestage("hint", "decode", file, "--json") == 0
        assert printed(capsys)["kind"] == kind


def test_what_is_no_page_is_not_decoded(
    prestage: Prestage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "page.bin"
    good = encode_answer(AnswerPage(1, 2, AnswerState.APPLIED))
    for data, text in (
        (b"", "magic at byte 0"),
        (bytes(4096), "magic at byte 0"),
        (good[:20] + b"?" + good[21:], "checksum at byte 12"),
    ):
        file.write_bytes(data)
        assert prestage("hint", "decode", file) == 1
        assert text in capsys.readouterr().err
    assert prestage("hint", "decode", tmp_path / "none") == 1
    assert "No such file" in capsys.readouterr().err


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("hint", "set", "--id", 1, "--range", "0+1"), "TARGET"),
        (("hint", "set", "--output", "x", "--id", 1, "--range", "0"), "SLBA+NLB"),
        (("hint", "set", "--output", "x", "--id", 1), "--range"),
        (("hint", "set", "--output", "x", "--id", 1, "--extend", "--drop"), "one of them"),
        (("hint", "set", "--output", "x", "--id", 1, "--drop", "--range", "0+1"), "none with"),
        (("hint", "set", "--output", "x", "--id", 1, "--range", "0:4K"), "--block SIZE"),
        (("hint", "set", "--output", "x", "--id", 1, "--range", "1:4K", "--block", 4096), "multip"),
        (("hint", "set", "--output", "x", "--id", 1, "--range", "0+1", "--block", "3"), "power of"),
        (("hint", "set", "--output", "x", "--id", 1, "--range", "0+1", "--ttl", "1y"), "time span"),
        (("hint", "sign", "--output", "x", "--range", "0+1", "--vector", "zz"), "hex digits"),
        (("hint", "sign", "--output", "x", "--range", "0+1", "--vector", "00"), "8 or 16"),
        (("hint", "intend", "--output", "x", "--deadline", "1s"), "one of them"),
        (
            (
                "hint",
                "intend",
                "--output",
                "x",
                "--deadline",
                "1s",
                "--range",
                "0+1",
                "--confidence",
                101,
            ),
            "confidence: found 101 (expected 0 to 100)",
        ),
        (("hint", "intend", "--output", "x", "--deadline", "1s", "--set", 0), "--set: found 0"),
        (("hint", "set", "--output", "x", "--id", 0, "--range", "0+1"), "--id: found 0 (expect"),
        (("hint", "intend", *OUT, "--deadline", "1s", "--set", 1, "--id", 0), "--id: found 0"),
        (
            ("hint", "intend", *OUT, "--deadline", "1s", "--set", 1, "--confidence", -5),
            "--confidence: found -5 (expected 0 to 100)",
        ),
        (
            ("hint", "sign", *OUT, "--range", "0+1", "--vector", "0" * 16, "--family", -1),
            "--family",
        ),
        (("hint", "cancel", *OUT, "--id", 0), "--id: found 0"),
        (("outcome", *OUT, "--id", 0), "--id: found 0"),
        (("hint", "set", *OUT, "--id", 1, "--range", "0+99999999999"), "1 to 4294967295 blocks"),
        (("hint", "set", *OUT, "--id", 1, "--nsid", 0, "--range", "0+1"), "--nsid: found 0"),
        (
            ("conform", "127.0.0.1", "--host-nqn", NQN, "--other-host-nqn", NQN, "--nqn", NQN),
            "two different hosts",
        ),
        (("residency", "--range", "0+1"), "TARGET"),
        (("residency", "http://a", "--range", "0+1"), "expected nvme+tcp://"),
        (("conform", "a:1", "--clause", "99.9"), "--clause: found '99.9'"),
        (("outcome", "a:1", "--nqn", "x", "--id", 1), "an NQN"),
    ],
)
def test_wrong_usage_is_named_and_ends_with_status_2(
    prestage: Prestage,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: tuple[object, ...],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert prestage(*words) == 2
    error = capsys.readouterr().err
    assert error.startswith("prestage: ") and text in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("pax", [FakePax(capability=None)])
def test_a_target_without_pax_says_so(
    prestage: Prestage, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prestage("residency", address, "--nqn", NQN, "--range", "0+1") == 1
    assert "the target does not speak PAX" in capsys.readouterr().err


def test_faults_of_the_target_end_with_status_1(
    prestage: Prestage, node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prestage("residency", node, "--set", 99) == 1
    assert capsys.readouterr().err == f"prestage: {node}: no answer: no such set\n"
    assert prestage("residency", "/dev/no-such-node", "--set", 99) == 1
    assert capsys.readouterr().err == "prestage: /dev/no-such-node: No such file or directory\n"
    assert prestage("residency", "/dev/null", "--set", 99) == 1
    assert capsys.readouterr().err.startswith("prestage: /dev/null: it is no device of NVMe (")


# ---- units ----


def test_sizes_spans_and_ranges_are_read_as_people_write_them() -> None:
    assert [parse_size(one, "x") for one in ("0", "4k", "1MiB", "2G", "512B")] == [
        0, 4096, 1 << 20, 2 << 30, 512,
    ]  # fmt: skip
    assert [parse_span(one, "x") for one in ("50ms", "1.5 s", "500us", "2", "1min")] == [
        0.05, 1.5, 0.0005, 2.0, 60.0,
    ]  # fmt: skip
    assert parse_ranges(["1+2, 3+4", "8K:4K"], BLOCK) == [Range(1, 2), Range(3, 4), Range(2, 1)]
    assert [format_size(one) for one in (0, 512, 4096, 3 << 20, 4097)] == [
        "0", "512", "4K", "3M", "4097",
    ]  # fmt: skip
    for text in ("1+0", "1+4294967296", "+1", "1+", "a:b", "1;2"):
        with pytest.raises(InvalidRequest):
            parse_ranges([text], BLOCK)
