"""The example in C: it compiles without a warning, and says what the codec reads."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prestage.ext import layout
from prestage.ext.answers import AnswerPage, encode_answer
from prestage.ext.codec import Batch, decode_batch
from prestage.ext.names import AnswerState, Fault, IntentFlag, Magic, State
from prestage.ext.records import Intent, OutcomeAnswer, Range

from .fake_pax import FakeNode, FakePax

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "host_client" / "examples" / "intend.c"
LIMIT_S = 30.0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("example") / "intend"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2"]
    subprocess.run([compiler, *flags, "-I", ROOT / "csrc", "-o", path, SOURCE], check=True)
    return path


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeNode]:
    """A file of the namespace's size, where direct I/O works."""
    folder = ROOT / "build" if not takes_direct(tmp_path) else tmp_path
    folder.mkdir(exist_ok=True)
    path = folder / f"extension-{os.getpid()}"
    yield FakeNode(FakePax(), path)
    path.unlink()


def takes_direct(folder: Path) -> bool:
    path = folder / "probe"
    path.touch()
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
    except OSError:
        return False
    return True


def found_batch(path: Path) -> tuple[int, Batch]:
    """The mailbox that has a batch, and the batch, once there is one."""
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        data = path.read_bytes()
        for mailbox in range(layout.MAILBOXES):
            page = data[(layout.PAGE_MAILBOXES + mailbox) * layout.PAGE_BYTES :][
                : layout.PAGE_BYTES
            ]
            if int.from_bytes(page[:4], "little") == Magic.BATCH:
                return mailbox, decode_batch(page)
    pytest.fail("no batch came")


def put(path: Path, mailbox: int, page: AnswerPage) -> None:
    with path.open("r+b") as file:
        file.seek((layout.PAGE_MAILBOXES + mailbox) * layout.PAGE_BYTES)
        file.write(encode_answer(page))


def play(
    program: Path, node: FakeNode, answers: Callable[[Batch], list[AnswerPage]]
) -> tuple[int, str, str, Batch]:
    """Run the example, with `answers` put into its mailbox one after the other."""
    words = [str(program), str(node.path), "3", "256", "16", "50"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        mailbox, batch = found_batch(node.path)
        for page in answers(batch):
            put(node.path, mailbox, page)
        out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err, batch


def test_the_example_says_its_intent_and_waits_until_it_is_warm(
    program: Path, node: FakeNode
) -> None:
    def answers(batch: Batch) -> list[AnswerPage]:
        (intent,) = batch.records
        assert isinstance(intent, Intent)
        pending = OutcomeAnswer(intent.intent_id, 65536, 65536, state=State.PENDING)
        met = replace(pending, state=State.MET, warm_bytes=65536, ready_us=777)
        ours = AnswerPage(batch.writer, batch.sequence, AnswerState.APPLIED, accepted=1)
        theirs = replace(ours, writer=batch.writer ^ 2)
        return [theirs, *(replace(ours, answers=(one,)) for one in (pending, met))]

    code, out, err, batch = play(program, node, answers)
    assert (code, out, err) == (0, "state 2, warm 65536 of 65536 bytes after 777 us\n", "")
    (intent,) = batch.records
    assert isinstance(intent, Intent)
    assert intent == Intent(
        intent.intent_id,
        50000,
        3,
        (Range(256, 16),),
        priority=0,
        flags=IntentFlag.LATE_OK,
    )


def test_the_example_says_why_it_was_refused(program: Path, node: FakeNode) -> None:
    def answers(batch: Batch) -> list[AnswerPage]:
        refused = AnswerPage(
            batch.writer,
            batch.sequence,
            AnswerState.REFUSED,
            fault=Fault.FIELD,
            fault_offset=72,
        )
        return [refused]

    code, out, err, _ = play(program, node, answers)
    assert (code, out, err) == (1, "", "intend: refused: fault 7 at byte 72\n")


def test_the_example_ends_when_there_is_no_node(program: Path, tmp_path: Path) -> None:
    words = [str(program), str(tmp_path / "none"), "1", "0", "8", "50"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "No such file" in done.stderr
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "usage: intend NODE NSID SLBA NLB DEADLINE_MS" in done.stderr


def test_the_example_writes_to_nothing_but_an_extension_namespace(
    program: Path, node: FakeNode
) -> None:
    content = b"\x55" * node.path.stat().st_size
    node.path.write_bytes(content)
    words = [str(program), str(node.path), "1", "0", "8", "50"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "has no status page" in done.stderr
    assert node.path.read_bytes() == content
