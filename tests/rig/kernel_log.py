"""Which lines of the guest's kernel log are complaints."""

from __future__ import annotations

import re

WARNING = 4
"""The kernel's log levels: 3 error, 4 warning, 5 notice, 6 info."""

SUSPECT = re.compile(
    r"BUG|WARNING:|Call Trace|blocked for more than|lockup|stall|hung"
    r"|error|fail|timeout|timed out|reconnect|refus|duplicate|invalid|unable|corrupt|mismatch",
    re.IGNORECASE,
)
"""Words that make a line a complaint whatever its level; much of nvme's trouble is only info."""

ALWAYS = "*"
ALLOWED = (
    # Each: the steps it may come in, the whole line, and why it is no complaint there.
    ({"reset"}, r"nvme nvme\d+: resetting controller", "what the step asks for"),
    (
        {"error-log"},
        r"(critical medium error|I/O error), dev ({disk}|rig2), sector {bad_lba} .*",
        "the block that the fault sits on; no other sector may be named",
    ),
    (
        {"error-log"},
        r"{disk}: (I/O Cmd|Read)\(0x2\) @ LBA {bad_lba}, 1 blocks, .*",
        "the same fault, as the NVMe driver words it",
    ),
    (
        {"killed-target"},
        r"nvme nvme\d+: (starting error recovery|Reconnecting in 1 seconds\.\.\.)",
        "the target was killed",
    ),
    (
        {"killed-target"},
        r"nvme nvme\d+: (failed to connect socket: -111|Failed reconnect attempt \d+(/\d+)?)",
        "nobody listens until the target is back",
    ),
    (
        {"killed-target"},
        r"nvme nvme\d+: Successfully reconnected \(\d* ?attempts?( \d+/\d+)?\)",
        "what the step waits for",
    ),
    (
        {"killed-target"},
        r"block nvme\d+n\d+: no usable path - requeuing I/O",
        "the writes in flight wait for the target, as they should",
    ),
    (
        {"killed-target"},
        r"nvme nvme\d+: (Property Set error: 880, offset 0x14|failed nvme_keep_alive_end_io .*)",
        "the host tells a dead connection farewell",
    ),
    (
        ALWAYS,
        r"(clocksource|hrtimer|workqueue|sched|perf): .*",
        "the emulated machine's clock runs unevenly on a busy one; nothing of ours",
    ),
)


def complaints(step: str, lines: list[tuple[int, str]], fault: tuple[str, int]) -> list[str]:
    """The lines of a step, as (level, text), that nothing on the list explains.

    `fault`: the disk and the block whose reads fail on purpose.
    """
    return [
        f"<{level}> {text}"
        for level, text in lines
        if (level <= WARNING or SUSPECT.search(text)) and not _explained(step, text, fault)
    ]


def _explained(step: str, text: str, fault: tuple[str, int]) -> bool:
    # The path's disk is nvme0c0n1 where the namespace's is nvme0n1.
    disk = re.sub(r"n(\d+)$", r"(c\\d+)?n\1", fault[0])
    return any(
        (steps == ALWAYS or step in steps)
        and re.fullmatch(
            pattern.replace("{bad_lba}", str(fault[1])).replace("{disk}", disk), text.strip()
        )
        for steps, pattern, _ in ALLOWED
    )
