"""The rig's judgement, on findings recorded from the kernel's own target.

`findings.json` is what `scripts/rig --reference -k 6.12 --seed 1 --json` printed.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from rig import checks, guest, kernel_log

FINDINGS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("findings.json").read_text("utf-8")
)[0]["steps"]
LOG_LEVEL_INFO = 6


def judge(change: dict[str, Any] | None = None) -> dict[str, list[str]]:
    """What is wrong with each recorded step; `change`: paths such as "step/a/0/b" set anew."""
    findings = {step["name"]: copy.deepcopy(step) for step in FINDINGS}
    for path, value in (change or {}).items():
        name, *keys, last = path.split("|")
        place = findings[name]["facts"]
        for key in keys:
            place = place[int(key) if isinstance(place, list) else key]
        place[int(last) if isinstance(place, list) else last] = value
    judging, wrong = checks.Judge(), {}
    for name, step in findings.items():
        finding = {"step": name, "error": None, "facts": step["facts"], "kernel": step["kernel"]}
        problems, complaints = judging.judge(finding, checks.NVMET)
        if problems or complaints:
            wrong[name] = problems + complaints
    return wrong


def test_recorded_findings_are_content() -> None:
    assert judge() == {}


def test_every_step_has_a_check() -> None:
    assert {name for name, _ in guest.STEPS} == set(checks.CHECKS)
    assert [step["name"] for step in FINDINGS] == [name for name, _ in guest.STEPS]


CHANGES: list[tuple[str, object]] = [
    ("discover|log|records|1|traddr", "10.0.2.2"),
    ("discover|log|records|1|trsvcid", "4421"),
    ("discover|log|records|1|subnqn", "nqn.2026-11.io.prestage:other"),
    ("discover|log|records|0|subtype", "nvme subsystem"),
    ("connect|state", "connecting"),
    ("connect|queue_count", "2"),
    ("list|list|Devices|0|PhysicalSize", 1),
    ("list|list|Devices|0|SerialNumber", "OTHER"),
    ("list|namespaces", [1]),
    ("list|disks|1|size", 512),
    ("id-ctrl|identify|sn", "OTHER"),
    ("id-ctrl|identify|mn", "other"),
    ("id-ctrl|identify|subnqn", "nqn.2026-11.io.prestage:other"),
    ("id-ctrl|identify|cntlid", 77),
    ("id-ctrl|identify|oaes", 0),
    ("id-ctrl|identify|oncs", 8),
    ("id-ctrl|identify|kas", 0),
    ("id-ns|1|nsze", 131071),
    ("id-ns|2|ncap", 0),
    ("id-ns|2|nuse", 65537),
    ("id-ns|2|lbafs|0|ds", 12),
    ("ns-descs|1|ns-descs", []),
    ("smart-log|after|host_read_commands", "0"),
    ("smart-log|after|data_units_written", "0"),
    ("smart-log|after|critical_warning", 4),
    ("error-log|log|errors|0|lba", 24_602),
    ("error-log|log|errors|1|nsid", 1),
    ("error-log|log|errors|0|sqid", 0),
    ("error-log|log|errors|0|error_count", 1),
    ("error-log|after|num_err_log_entries", "0"),
    ("error-log|passed", "NVMe status: SUCCESS(0x0)"),
    ("fw-log|log|nvme0|Active Firmware Slot (afi)", 2),
    ("ana-log|log|ANA DESC LIST |0|state", "inaccessible"),
    ("ana-log|log|ANA DESC LIST |0|NSIDS", []),
    ("effects-log|log", "00" * 4096),
    ("get-feature|printed", "get-feature:0x07 (Number of Queues), Current value:00000000"),
    ("io-commands|zero", False),
    ("io-commands|wiped", False),
    ("reset|after|state", "resetting"),
    ("reset|after|instance", "nvme1"),
    ("filesystem|identities|1|ns-descs|0|uuid", "00000000-0000-0000-0000-000000000001"),
    ("filesystem|trimmed", "/run/rig-mount: 0 B (0 bytes) trimmed"),
    ("disconnect|controllers", ["nvme0"]),
    ("restart|identities|2|ns-descs|0|uuid", "00000000-0000-0000-0000-000000000001"),
    ("compare|wrong", ["/run/rig-mount/file1"]),
    ("compare|files", 0),
    ("fio|errors", 84),
    ("fio|written", 0),
    ("fio|small|errors", 84),
    ("fio-digests|read", 0),
    ("namespaces|added", 0),
    ("namespaces|grown", 16 << 20),
    ("namespaces|during", False),
    ("namespaces|after|cntlid", "9"),
    ("killed-target|during", False),
    ("killed-target|seconds", 10.5),
    ("killed-target|after|state", "connecting"),
    ("end|controllers", ["nvme0"]),
]


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_a_wrong_field_is_a_problem_of_its_step(path: str, value: object) -> None:
    wrong = judge({path: value})
    assert path.split("|", maxsplit=1)[0] in wrong


def test_changed_dlfeat_makes_unzeroed_blocks_a_problem() -> None:
    assert "dsm" in judge({"dsm|dlfeat": 1, "dsm|zero": False})


def test_a_missing_field_is_a_problem_and_no_crash() -> None:
    problems, _ = checks.Judge().judge(
        {"step": "id-ctrl", "error": None, "facts": {}, "kernel": []}, checks.OURS
    )
    assert "lack" in problems[0]


FAULT = ("nvme0n2", checks.BAD_LBA)


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("fio", "nvme nvme0: I/O tag 5 (1005) type 4 opcode 0x2 (I/O Cmd) QID 1 timeout"),
        ("fio", "nvme nvme0: starting error recovery"),
        ("fio", "EXT4-fs error (device nvme0n1): ext4_lookup:1855: inode #2"),
        ("filesystem", "Buffer I/O error on dev nvme0n1, logical block 0, lost sync page write"),
        ("error-log", "I/O error, dev nvme0n2, sector 24602 op 0x0:(READ) flags 0x0 phys_seg 1"),
        ("error-log", "I/O error, dev nvme0n1, sector 24601 op 0x0:(READ) flags 0x0 phys_seg 1"),
        ("end", "INFO: task fio:211 blocked for more than 120 seconds."),
        ("connect", "nvme nvme0: identifiers changed for nsid 1, duplicate IDs"),
        ("namespaces", "BUG: kernel NULL pointer dereference, address: 0000000000000008"),
    ],
)
def test_trouble_in_the_kernel_log_is_a_complaint(step: str, line: str) -> None:
    assert kernel_log.complaints(step, [(LOG_LEVEL_INFO, line)], FAULT)


def test_any_warning_is_a_complaint() -> None:
    assert kernel_log.complaints("fio", [(4, "something new")], FAULT)


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("reset", "nvme nvme0: resetting controller"),
        ("error-log", "critical medium error, dev nvme0c0n2, sector 24601 op 0x0:(READ) flags 0x0"),
        ("killed-target", "nvme nvme0: failed to connect socket: -111"),
        ("killed-target", "nvme nvme0: Successfully reconnected (1 attempt)"),
        ("killed-target", "nvme nvme0: Successfully reconnected (attempt 1/60)"),
    ],
)
def test_what_a_step_provokes_is_no_complaint(step: str, line: str) -> None:
    assert not kernel_log.complaints(step, [(4, line)], FAULT)
    assert kernel_log.complaints("fio", [(4, line)], FAULT)
