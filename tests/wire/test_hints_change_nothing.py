"""A hint is only ever a performance path: bytes and statuses are the same with and without it."""

from __future__ import annotations

import contextlib
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
    # Much smaller than the namespaces, so that hints and reads want each other's frames.
    "tier": {"size": 9 * MIB},
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
def own_target(directory: Path, mode: str) -> Any:
    """A target with nothing in it yet, hints as `mode` says."""
    changes = dict(CONFIG)
    if mode == "off":
        (subsystem,) = CONFIG["subsystems"]
        plain = {key: value for key, value in subsystem.items() if "extension" not in key}
        changes = {**CONFIG, "hints": {"enabled": False}, "subsystems": [plain]}
    started = RunningTarget(directory, merge(base_config(directory), changes))
    try:
        yield started
        assert started.stop() == 0, started.said()[-2000:]
    finally:
        started.kill()


def script(rng: random.Random, commands: int) -> list[tuple[str, int, int, int, bytes]]:
    """Reads, writes and deallocations, some of them refused: kind, NSID, SLBA, blocks, data."""
    steps = []
    for _ in range(commands):
        nsid = rng.choice((GOOD, FAILING))
        size = (64 if nsid == GOOD else 8) * MIB // BLOCK
        blocks = rng.choice((1, 3, 8, 128, 600))
        slba = rng.randrange(size // 16) * 16 % (size - blocks)
        if nsid == FAILING and rng.random() < 0.3:
            slba = FAILS[0] // BLOCK + rng.randrange(1024)
        kind = rng.choice(("read", "read", "read", "write", "deallocate"))
        if kind == "read" and rng.random() < 0.1:
            slba = rng.choice((size, size - 1, (1 << 64) - 1))
        if kind == "read" and rng.random() < 0.05:
            nsid = 77
        # What was written there could be read for as long as the tier has it, and no longer.
        if kind != "read" and nsid == FAILING:
            slba %= FAILS[0] // BLOCK - blocks
        data = rng.randbytes(blocks * BLOCK) if kind == "write" else b""
        steps.append((kind, nsid, slba, blocks, data))
    return steps


def run_script(
    controller: Controller, steps: list[tuple[str, int, int, int, bytes]], noise: Noise
) -> list[tuple[str, str]]:
    """Carry out the steps, hints before each; status and a hash of the data of every one."""
    queue, other = controller.io
    answers = []
    for kind, nsid, slba, blocks, data in steps:
        for speaker in [queue, other, other][: 0 if noise.mode == "off" else 3]:
            said = noise.say()
            answer = speaker.execute(said.entry, **said.options())
            assert answer.code in said.codes, answer.text()
        if kind == "read":
            entry = noise.read_entry(slba, blocks, nsid)
            answer = queue.execute(entry, expected=blocks * BLOCK)
        elif kind == "write":
            entry = nvme.block_command(nvme.WRITE, slba, blocks, nsid=nsid)
            answer = queue.execute(entry, data=data)
        else:
            entry = nvme.sqe(nvme.DSM, nsid, cdw11=4)
            answer = queue.execute(entry, data=nvme.dsm_ranges([(slba, blocks)]))
        answers.append((answer.text(), hashlib.sha256(answer.data).hexdigest()))
    return answers


def test_the_same_commands_have_the_same_answers_in_every_mode(
    directory: Path, running: RunningTarget | None
) -> None:
    if running is None:
        pytest.skip("needs targets of its own")
    steps = script(random.Random(SEED), turns("PRESTAGE_TEST_COMMANDS", 300))
    answers = {}
    for mode in MODES:
        rng = random.Random(f"{SEED} {mode}")
        noise = Noise(rng, mode, nsid=GOOD, extension=EXTENSION, blocks=64 * MIB // BLOCK)
        with (
            own_target(directory / mode, mode) as started,
            started.site().pair(2) as controller,
        ):
            answers[mode] = run_script(controller, steps, noise)
    codes = {text for text, _ in answers["off"]}
    assert {"ok", "0/80 dnr", "0/0b dnr"} <= codes
    assert any(text.startswith("2/81") for text in codes), codes
    for mode in MODES:
        for number, step in enumerate(steps):
            assert answers[mode][number] == answers["off"][number], (
                f"seed {SEED}, {mode}, command {number}: {step[:4]}"
            )
