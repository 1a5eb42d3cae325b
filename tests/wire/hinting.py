"""What the tests of hints share: a target with two subsystems, and how hosts speak to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.commands import Completion
from nvme_tcp.queue import Queue

from .running import MIB, NQN

OTHER_NQN = "nqn.2026-11.io.prestage:other"
OTHER_HOST = {
    "hostnqn": "nqn.2014-08.org.nvmexpress:uuid:22222222-2222-2222-2222-222222222222",
    "hostid": bytes.fromhex("22222222222222222222222222222222"),
}
EXTENSION = 1024
"""NSID of the extension namespace of NQN; that of OTHER_NQN is another."""
OTHER_EXTENSION = 9
BLOCK = 512
CONFIG: dict[str, Any] = {
    "tier": {"size": 64 * MIB},
    "subsystems": [
        {
            "nqn": NQN,
            "extension": True,
            "namespaces": [
                {"media": "ram", "size": 64 * MIB, "block": BLOCK},
                {"media": "ram", "size": 16 * MIB, "block": 4096},
            ],
        },
        {
            "nqn": OTHER_NQN,
            "extension": True,
            "extension_nsid": OTHER_EXTENSION,
            "namespaces": [{"media": "ram", "size": 16 * MIB, "block": BLOCK}],
        },
    ],
}
WITHIN_S = 20.0
T = TypeVar("T")


def until(look: Callable[[], T], is_right: Callable[[T], bool]) -> T:
    """What `look` returns once it is right. Raises AssertionError with the last when it is not."""
    limit = time.monotonic() + WITHIN_S
    while not is_right(seen := look()):
        assert time.monotonic() < limit, seen
        time.sleep(0.002)
    return seen


# ---- by the vendor opcodes ----


def submit(
    queue: Queue, *records: bytes, mailbox: int = hints.NO_MAILBOX, **options: Any
) -> Completion:
    """A batch of `records` by the submit opcode."""
    return queue.execute(hints.submit(mailbox), data=hints.batch(*records, sequence=1), **options)


def accepted(queue: Queue, *records: bytes, **options: Any) -> None:
    """As `submit`; every record must have been taken."""
    answer = submit(queue, *records, **options)
    assert answer.is_ok, answer.text()
    assert (answer.dw0, answer.dw1) == (len(records), 0), answer


def ask(queue: Queue, kind: int, number: int = 0, **options: Any) -> bytes:
    """The page that the query opcode answers with."""
    answer = queue.execute(hints.query(kind, number, **options), expected=hints.PAGE)
    assert answer.is_ok, answer.text()
    return answer.data


def mailbox_answer(queue: Queue, mailbox: int) -> hints.Answer:
    """The answer page of a mailbox."""
    return hints.parse_answer(ask(queue, hints.ASK_MAILBOX, mailbox=mailbox))


def status(queue: Queue) -> hints.Status:
    """The status page of the queue's host."""
    return hints.parse_status(ask(queue, hints.ASK_STATUS))


def residency(queue: Queue, slba: int, blocks: int, *, nsid: int = 1) -> hints.Residency:
    """How much of a range is warm."""
    page = ask(queue, hints.ASK_RANGE, slba, blocks=blocks, nsid=nsid)
    (answer,) = hints.parse_answer(page).answers
    assert isinstance(answer, hints.Residency)
    return answer


def outcome(queue: Queue, intent_id: int) -> hints.Outcome:
    """What became of an intent."""
    (answer,) = hints.parse_answer(ask(queue, hints.ASK_OUTCOME, intent_id)).answers
    assert isinstance(answer, hints.Outcome)
    return answer


def ended(queue: Queue, intent_id: int) -> hints.Outcome:
    """What became of an intent, once it has ended."""
    return until(lambda: outcome(queue, intent_id), lambda seen: seen.state != hints.PENDING)


def warm(queue: Queue, slba: int, blocks: int, *, nsid: int = 1) -> hints.Residency:
    """Wait until all of a range is warm."""
    return until(
        lambda: residency(queue, slba, blocks, nsid=nsid),
        lambda seen: seen.warm_bytes == seen.total_bytes > 0,
    )


# ---- by the extension namespace ----


def write_pages(queue: Queue, first: int, data: bytes, **options: Any) -> Completion:
    """Write whole pages of the extension namespace."""
    nsid = options.pop("nsid", EXTENSION)
    entry = nvme.block_command(nvme.WRITE, first, len(data) // hints.PAGE, nsid=nsid)
    return queue.execute(entry, data=data, **options)


def read_pages(queue: Queue, first: int, count: int = 1, *, nsid: int = EXTENSION) -> bytes:
    """Read whole pages of the extension namespace."""
    return queue.read(first, count, hints.PAGE, nsid=nsid)
