"""What is promised of intents by a target that has read nothing yet: over slow flash, with a small
tier."""

from __future__ import annotations

from pathlib import Path

from nvme_tcp import hints
from nvme_tcp.queue import Queue

from . import hinting
from .running import MIB, NQN, RunningTarget, base_config, merge

BLOCK = 4096
MODEL = {
    "seed": 1,
    "read_us": 80,
    "read_p99_us": 200,
    "write_us": 20,
    "bandwidth": "4M",
    "channels": 8,
}
ACCEPTED, PARTIAL, DROPPED = 1, 2, 4


def intend(queue: Queue, number: int, size: int, deadline_s: float, flags: int = 0) -> None:
    """Say that so many bytes are needed; every intent has a place of its own."""
    ranges = [(number * 64 * MIB // BLOCK, size // BLOCK)]
    deadline_us = int(deadline_s * 1e6)
    record = hints.intent(number, ranges, deadline_us=deadline_us, flags=flags)
    assert hinting.submit(queue, record).is_ok


def test_only_what_can_be_kept_is_promised_from_the_first_intent_on(tmp_path: Path) -> None:
    space = {
        "path": str(tmp_path / "flash"),
        "size": 512 * MIB,
        "block": BLOCK,
        "media": "model",
        "media_options": MODEL,
    }
    subsystem = {"nqn": NQN, "extension": True, "namespaces": [space]}
    changes = {"tier": {"size": 8 * MIB}, "subsystems": [subsystem]}
    target = RunningTarget(tmp_path, merge(base_config(tmp_path), changes))
    try:
        with target.site().pair(1) as controller:
            (queue,) = controller.io
            intend(queue, 1, 2 * MIB, 0.1)  # the flash needs half a second
            found = hinting.outcome(queue, 1)
            assert (found.state, found.reason) == (hints.DROPPED, "deadline")
            assert 400_000 < found.predicted_us < 1_000_000
            intend(queue, 2, 64 * MIB, 60)  # hints may hold 4 MiB
            assert hinting.outcome(queue, 2).reason == "room"
            intend(queue, 3, 4 * MIB, 0.2, hints.PREFIX)
            found = hinting.outcome(queue, 3)
            assert found.verdict == PARTIAL
            assert 256 << 10 <= found.admitted_bytes < MIB
            assert hinting.ended(queue, 3).state == hints.MET
            intend(queue, 4, MIB, 5)
            found = hinting.outcome(queue, 4)
            assert found.verdict == ACCEPTED
            assert 200_000 < found.predicted_us < 400_000
            assert hinting.ended(queue, 4).state == hints.MET
        assert target.stop() == 0
    finally:
        target.kill()
