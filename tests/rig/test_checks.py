"""The rig's judgement, on findings recorded from the kernel's own target, and from ours for PAX.

`findings.json` is what `scripts/rig --reference -k 6.12 --seed 1 --json` printed, and of what it
prints without --reference the steps of `rig.pax`, without the pages that were decoded.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rig import checks, guest, kernel_log
from rig.golden import BAD_LBA, NVMET, OURS

REPORTS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("findings.json").read_text("utf-8")
)
FINDINGS, PAX_FINDINGS = (report["steps"] for report in REPORTS)
LOG_LEVEL_INFO = 6


def judge(change: dict[str, Any] | None = None) -> dict[str, list[str]]:
    """What is wrong with each recorded step; `change`: paths such as "step/a/0/b" set anew."""
    findings = {step["name"]: copy.deepcopy(step) for step in [*FINDINGS, *PAX_FINDINGS]}
    for path, value in (change or {}).items():
        name, *keys, last = path.split("|")
        place = findings[name]["facts"]
        for key in keys:
            place = place[int(key) if isinstance(place, list) else key]
        place[int(last) if isinstance(place, list) else last] = value
    judging, wrong = checks.Judge(), {}
    for name, step in findings.items():
        finding = {"step": name, "error": None, "facts": step["facts"], "kernel": step["kernel"]}
        problems, complaints = judging.judge(finding, OURS if name in guest.OURS else NVMET)
        if problems or complaints:
            wrong[name] = problems + complaints
    return wrong


def test_recorded_findings_are_content() -> None:
    assert judge() == {}


def test_every_step_has_a_check() -> None:
    assert {name for name, _ in guest.STEPS} == set(checks.CHECKS)
    found = [name for name, _ in guest.STEPS]
    assert [step["name"] for step in PAX_FINDINGS] == [name for name in found if name in guest.OURS]
    assert [step["name"] for step in FINDINGS] == [name for name in found if name not in guest.OURS]


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
    ("pax-identify|capability", "00" * 128),
    ("pax-identify|ctratt", 0),
    ("pax-identify|uuids", "00" * 96),
    ("pax-identify|namespace|nsze", 255),
    ("pax-identify|vendor", ""),
    ("pax-identify|descriptors|ns-descs|0|uuid", "00000000-0000-0000-0000-000000000001"),
    ("pax-identify|size", 0),
    ("udev|before|group", "root"),
    ("udev|nodes|1024|group", "disk"),
    ("udev|nodes|1024|mode", 0o666),
    ("udev|nodes|1|group", "prestage"),
    ("udev|links", {}),
    ("udev|found", '/dev/nvme0n1: TYPE="ext4"'),
    ("udev|properties", "ID_FS_TYPE=ext4 UDISKS_IGNORE=1"),
    ("udev|properties", "DEVTYPE=disk"),
    ("udev|refused", "0+0 records in"),
    ("hint-dd|decoded", ""),
    ("hint-dd|same", [True, False]),
    ("hint-dd|told", 0),
    ("hint-dd|moved|timely_hits", 0),
    ("hint-dd|moved|refused", 1),
    ("hint-dd|moved|intents_met", 0),
    ("hint-c|cold", 4096),
    ("hint-c|warm", 4096),
    ("hint-c|printed", "state 5, warm 0 of 1048576 bytes after 9 us\n"),
    ("hint-c|same", False),
    ("hint-command|printed", "warm 0 of 2M (0 %)\nwarm 0 of 2M (0 %)\n"),
    ("hint-command|same", False),
    ("hint-command|moved|timely_hits", 0),
    ("hint-dsm|cold", 4096),
    ("hint-dsm|warm", 0),
    ("hint-dsm|moved|dataset_sets", 0),
    ("hint-dsm|same", [False, True]),
    ("hint-read|moved|read_hints", 0),
    ("hint-read|moved|timely_hits", 0),
    ("hint-read|buffered|read_hints", 0),
    ("hint-passthru|dated", False),
    ("hint-passthru|warm", 0),
    ("hint-passthru|answers|answer.bin", "00" * 120),
    ("hint-passthru|moved|dated_reads_arrived", 0),
    ("hint-passthru|moved|dated_reads_cancelled", 1),
    ("hint-cache|answer", "00" * 64),
    ("hint-cache|flushed", "00" * 64),
    ("hint-cache|asked", "00" * 28),
    ("warm-event|events", []),
    ("warm-event|log", "00" * 64),
    ("warm-event|printed", "get-feature:0xd0 (Unknown), Current value:00000000"),
    ("warm-event|wrong", "Success"),
    ("warm-event|state", "resetting"),
    ("misuse|exits", {"dd 3": 1}),
    ("misuse|moved|refused", 0),
    ("misuse|answer", "00" * 64),
    ("misuse|state", "connecting"),
    ("udev-end|nodes|group", "disk"),
]


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_a_wrong_field_is_a_problem_of_its_step(path: str, value: object) -> None:
    wrong = judge({path: value})
    assert path.split("|", maxsplit=1)[0] in wrong


def test_changed_dlfeat_makes_unzeroed_blocks_a_problem() -> None:
    assert "dsm" in judge({"dsm|dlfeat": 1, "dsm|zero": False})


@pytest.mark.parametrize("name", ["CapEff", "CapBnd", "NoNewPrivs", "Uid"])
def test_a_member_with_power_is_a_problem(name: str) -> None:
    (process,) = (step["facts"]["member"] for step in PAX_FINDINGS if step["name"] == "udev")
    changed = re.sub(rf"^{name}:.*$", f"{name}:\t0\t8", process, flags=re.MULTILINE)
    if name.startswith("Cap"):
        changed = changed.replace("0\t8", "000001ffffffffff")
    assert "udev" in judge({"udev|member": changed})


def test_a_missing_field_is_a_problem_and_no_crash() -> None:
    problems, _ = checks.Judge().judge(
        {"step": "id-ctrl", "error": None, "facts": {}, "kernel": []}, OURS
    )
    assert "lack" in problems[0]


FAULT = ("nvme0n2", BAD_LBA)


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
