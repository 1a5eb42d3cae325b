"""A hint is only ever a performance path: bytes and statuses are the same with and without it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.commands import Completion
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from .hint_noise import MODES, Noise
from .model import BlockModel
from .probing import SEED, Site, turns
from .running import MIB, NQN, RunningTarget, base_config, merge
from .traffic import Plan, Traffic

EXTENSION = 9
BLOCK = 512
GOOD, FAILING = 1, 2
FAILS = (2 * MIB, 3 * MIB)
"""These bytes of the second namespace cannot be read from its medium."""
CONFIG: dict[str, Any] = {
    # Much smaller than the namespaces, so that hints and reads want each other's frames, and hints
    # may have most of it.
    "tier": {"size": 16 * MIB},
    "hints": {"tier_percent": 60},
    "limits": {"connections": 64},
    "reactors": 2,
    "subsystems": [
        {
            "nqn": NQN,
            "extension": True,
            "extension_nsid": EXTENSION,
            "namespaces": [
                {"nsid": GOOD, "media": "ram", "size": 64 * MIB, "block": BLOCK},
                {
                    "nsid": FAILING,
                    "media": "ram",
                    "size": 8 * MIB,
                    "block": BLOCK,
                    "faults": [
                        f"error:op=read,errno=EIO,rate=1,first={FAILS[0]},last={FAILS[1] - 1}"
                    ],
                },
            ],
        }
    ],
}
PLAN = Plan(clusters=60, stride=2001)
COMMANDS = turns("PRESTAGE_TEST_COMMANDS", 2500)


# ---- many commands at once, against the model ----


class HintedTraffic(Traffic):
    """Traffic whose Reads say something, with hints between its commands."""

    def __init__(self, *arguments: Any, noise: Noise) -> None:
        super().__init__(*arguments)
        self.noise = noise

    def read_entry(self, slba: int, blocks: int) -> bytes:
        """A Read or a dated read."""
        return self.noise.read_entry(slba, blocks)

    def further_kinds(self) -> list[Callable[[Queue], None]]:
        """Hints, about as many as there are Reads."""
        return [self.hint] * 8 if self.noise.mode != "off" else []

    def hint(self, queue: Queue) -> None:
        """A command that carries hints."""
        said = self.noise.say()

        def finish(answer: Completion) -> None:
            assert answer.code in said.codes, f"{said.entry.hex()}: {answer.text()}"

        self._submit(queue, said.entry, finish, **said.options())


def drive(site: Site, mode: str) -> None:
    """Traffic on several queues of several hosts; each read is judged."""
    rng = random.Random(f"{SEED} {mode}")
    noise = Noise(rng, mode, nsid=GOOD, extension=EXTENSION, blocks=PLAN.clusters * PLAN.stride)
    with contextlib.ExitStack() as stack:
        queues: list[Queue] = []
        for index in range(3):
            options = {
                "digests": (0, 3, 1)[index],
                "hostnqn": f"nqn.2026-11.io.prestage:host{index}",
                "hostid": bytes([index + 1]) * 16,
            }
            queues += stack.enter_context(site.pair(2, **options)).io
        traffic = HintedTraffic(rng, queues, BlockModel(BLOCK), PLAN, noise=noise)
        traffic.prepare()
        traffic.run(COMMANDS)
    with site.pair(1) as reader:
        traffic.check_all(lambda slba, blocks: reader.io[0].read(slba, blocks, BLOCK))
    if mode != "off":
        assert traffic.counts["hint"] > 0


@pytest.mark.stress
@pytest.mark.parametrize("mode", ["on", "random", "hostile"])
def test_concurrent_commands_show_only_possible_bytes(site: Site, mode: str) -> None:
    drive(site, mode)


@pytest.mark.stress
def test_concurrent_commands_where_hints_are_off(directory: Path, site: Site) -> None:
    with own_target(directory, "off") as started:
        drive(started.site(), "off")


# ---- one command after the other, the same ones in every mode ----


@contextlib.contextmanager
def own_target(directory: Path, mode: str, reactors: int = 2) -> Any:
    """A target with nothing in it yet, hints as `mode` says."""
    changes = {**CONFIG, "reactors": reactors}
    if mode == "off":
        (subsystem,) = CONFIG["subsystems"]
        plain = {key: value for key, value in subsystem.items() if "extension" not in key}
        changes |= {"hints": {"enabled": False}, "subsystems": [plain]}
    started = RunningTarget(directory, merge(base_config(directory), changes))
    try:
        yield started
        assert started.stop() == 0, started.said()[-2000:]
    finally:
        started.kill()


@dataclasses.dataclass(frozen=True)
class Step:
    """A command of the script."""

    kind: str
    nsid: int
    slba: int
    blocks: int
    data: bytes = b""

    def run(self, queue: Queue, noise: Noise) -> Completion:
        """Carry it out; a Read may say something of itself."""
        block = functools.partial(
            nvme.block_command, slba=self.slba, blocks=self.blocks, nsid=self.nsid
        )
        if self.kind == "read":
            entry = noise.read_entry(self.slba, self.blocks, self.nsid)
            return queue.execute(entry, expected=self.blocks * BLOCK)
        if self.kind == "deallocate":
            entry = nvme.sqe(nvme.DSM, self.nsid, cdw11=4)
            return queue.execute(entry, data=nvme.dsm_ranges([(self.slba, self.blocks)]))
        if self.kind == "flush":
            return queue.execute(nvme.sqe(nvme.FLUSH, self.nsid))
        opcodes = {
            "write": nvme.WRITE,
            "compare": nvme.COMPARE,
            "zeroes": nvme.WRITE_ZEROES,
            "verify": nvme.VERIFY,
        }
        return queue.execute(block(opcodes[self.kind]), data=self.data)


KINDS = ("read", "read", "read", "write", "write", "compare", "zeroes", "deallocate", "verify")
ONLY_READ = ("read", "compare", "verify")


REFUSED = (
    Step("read", 77, 0, 8),
    Step("read", GOOD, 64 * MIB // BLOCK, 8),
    Step("read", FAILING, FAILS[0] // BLOCK, 8),
    Step("verify", FAILING, FAILS[0] // BLOCK, 8),
    Step("compare", GOOD, 0, 8, b"?" * 8 * BLOCK),
)
"""Whatever the seed is, these are among them."""


class Script:
    """Commands of all kinds, some of them refused; what the namespaces hold meanwhile."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.held = {GOOD: bytearray(64 * MIB), FAILING: bytearray(8 * MIB)}

    def step(self) -> Step:
        """The next one."""
        rng, nsid = self.rng, self.rng.choice((GOOD, FAILING))
        size, kind = len(self.held[nsid]) // BLOCK, self.rng.choice(KINDS)
        blocks = rng.choice((1, 3, 8, 100) if kind == "compare" else (1, 3, 8, 128, 600))
        slba = rng.randrange(size // 16) * 16 % (size - blocks)
        if rng.random() < 0.03:
            return Step("flush", nsid, 0, 0)
        if nsid == FAILING and kind in ONLY_READ and rng.random() < 0.3:
            slba = FAILS[0] // BLOCK + rng.randrange(1024)
        if nsid == FAILING and kind not in ONLY_READ:
            # What was written there could be read for as long as the tier has it, and no longer.
            slba %= FAILS[0] // BLOCK - blocks
        if kind == "read" and rng.random() < 0.1:
            slba = rng.choice((size, size - 1, (1 << 64) - 1))
        if kind == "read" and rng.random() < 0.05:
            nsid = 77
        return Step(kind, nsid, slba, blocks, self.data(kind, nsid, slba, blocks))

    def data(self, kind: str, nsid: int, slba: int, blocks: int) -> bytes:
        """What the command brings; the namespace holds then what it has done."""
        where = slice(slba * BLOCK, (slba + blocks) * BLOCK)
        if kind == "compare":
            right = bytes(self.held[nsid][where])
            return right if self.rng.random() < 0.7 else right[:-1] + b"?"
        if kind == "write":
            self.held[nsid][where] = self.rng.randbytes(blocks * BLOCK)
            return bytes(self.held[nsid][where])
        if kind in ("zeroes", "deallocate"):
            self.held[nsid][where] = bytes(blocks * BLOCK)
        return b""


def run_script(controller: Controller, steps: list[Step], noise: Noise) -> list[tuple[str, str]]:
    """Carry out the steps, hints before each; status and a hash of the data of every one."""
    queue, other = controller.io
    answers = []
    for step in steps:
        for speaker in [queue, other, other][: 0 if noise.mode == "off" else 3]:
            said = noise.say()
            answer = speaker.execute(said.entry, **said.options())
            assert answer.code in said.codes, answer.text()
        answer = step.run(queue, noise)
        answers.append((answer.text(), hashlib.sha256(answer.data).hexdigest()))
    return answers


def check_final(controller: Controller, script: Script) -> None:
    """The namespaces hold what the script has left in them."""
    queue = controller.io[0]
    for nsid, right in script.held.items():
        for at in range(0, len(right), MIB):
            if nsid == FAILING and at == FAILS[0]:
                continue
            seen = queue.read(at // BLOCK, MIB // BLOCK, BLOCK, nsid=nsid)
            assert seen == right[at : at + MIB], f"seed {SEED}, namespace {nsid} from {at} on"


@pytest.mark.parametrize(("digests", "reactors"), [(0, 1), (3, 2)])
def test_the_same_commands_have_the_same_answers_in_every_mode(
    directory: Path, running: RunningTarget | None, digests: int, reactors: int
) -> None:
    if running is None:
        pytest.skip("needs targets of its own")
    script = Script(random.Random(SEED))
    commands = turns("PRESTAGE_TEST_COMMANDS", 300)
    # This host is slow with digests.
    steps = [*REFUSED, *(script.step() for _ in range(commands // 3 if digests else commands))]
    answers = {}
    for mode in MODES:
        rng = random.Random(f"{SEED} {mode}")
        others = {FAILING: 8 * MIB // BLOCK, 77: 1000}
        noise = Noise(
            rng, mode, nsid=GOOD, extension=EXTENSION, blocks=64 * MIB // BLOCK, others=others
        )
        with own_target(directory / mode, mode, reactors) as started:
            with started.site().pair(2, digests=digests) as controller:
                answers[mode] = run_script(controller, steps, noise)
            with started.site().pair(1) as controller:
                check_final(controller, script)
    codes = {text for text, _ in answers["off"]}
    assert {"ok", "0/80 dnr", "0/0b dnr"} <= codes
    assert any(text.startswith("2/85") for text in codes), codes
    assert any(text.startswith("2/81") for text in codes), codes
    for mode in MODES:
        for number, step in enumerate(steps):
            assert answers[mode][number] == answers["off"][number], (
                f"seed {SEED}, {mode}, command {number}: {dataclasses.replace(step, data=b'')}"
            )
