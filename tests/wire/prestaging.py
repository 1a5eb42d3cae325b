"""What the tests of the prestager share: a target on a slow medium, and a host that reads slots.

The target runs in a thread of the test's process, so that another program may stand in for the
prestager's: follower.py, which is small and known, or one that writes nonsense.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from follower import AHEAD
from nvme_tcp.host import Controller

from prestage.target.rpc.client import Client
from prestage.target.settings import (
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    PrestagerSettings,
    SubsystemSettings,
    TargetSettings,
    TierSettings,
)
from prestage.target.target import Target
from prestage.testing import Target as TestTarget
from prestage.testing import in_thread

from .probing import SEED, Site
from .running import MIB, NQN

TESTS = Path(__file__).resolve().parents[1]
FOLLOWER = (sys.executable, str(TESTS / "follower.py"))
SLOT = 65536
BLOCK = 4096
FRAMES = 32
ORDERS_A_READ = AHEAD + 1
"""Of the follower, which also says that what was read is worth nothing any more."""
CHAIN_SLOTS = 3 * FRAMES
"""So many are read one after the other, in turns: what was used last is never read next."""
VOLUME_SLOTS = 128
WITHIN_S = 60.0
MEDIUM: dict[str, str | int | float] = {
    "seed": 7, "read_us": 200, "read_p99_us": 400, "write_us": 200, "bandwidth": "1G",
    "channels": 8,
}  # fmt: skip


def image(path: Path) -> list[bytes]:
    """Fill a backing file with seeded bytes; returns its slots."""
    rng = random.Random(SEED)
    slots = [rng.randbytes(SLOT) for _ in range(VOLUME_SLOTS)]
    path.write_bytes(b"".join(slots))
    return slots


def chain() -> list[int]:
    """The slots that the host reads, in its order: neighbours in it are none on the medium."""
    rng = random.Random(SEED + 1)
    return rng.sample(range(VOLUME_SLOTS), CHAIN_SLOTS)


def settings(folder: Path, **prestager: Any) -> TargetSettings:
    """A target with a tier of FRAMES slots before one namespace on modelled flash.

    Tests wait for the prestager, which has to go on however busy the machine is.
    """
    namespace = NamespaceSettings(
        path=str(folder / "image"), media="model", media_options=dict(MEDIUM), block=BLOCK
    )
    return TargetSettings(
        listeners=[ListenerSettings(port=0)],
        subsystems=[SubsystemSettings(nqn=NQN, namespaces=[namespace])],
        tier=TierSettings(size=FRAMES * SLOT, slot=SLOT, huge_pages=False),
        limits=LimitSettings(connections=64, max_transfer=MIB // 4, stop_s=20),
        prestager=PrestagerSettings(
            snapshot=str(folder / "learned"), scheduling="nice", **prestager
        ),
        state_directory=str(folder / "state"),
    )


@dataclasses.dataclass
class Host:
    """A host that checks every byte it reads, and what the target says of itself."""

    controller: Controller
    slots: list[bytes]
    call: Callable[..., Any]

    def read(self, slot: int) -> None:
        """Read a slot; it has the bytes that it always has."""
        found = self.controller.io[0].read(slot * SLOT // BLOCK, SLOT // BLOCK, BLOCK)
        assert found == self.slots[slot], f"slot {slot}, PRESTAGE_TEST_SEED={SEED}"

    def read_all(self, order: Sequence[int]) -> None:
        """Read many, without a pause."""
        for slot in order:
            self.read(slot)

    def learn(self, order: Sequence[int]) -> None:
        """Read many, and wait until the prestager knows what follows each."""
        self.read_all(order)
        self.until(lambda now: now["learned"].get("known", 0) >= len(order) - 1)
        self.settle()

    def settle(self) -> None:
        """Wait until the prestager has heard of everything, and nothing comes of it any more."""
        before = self.prestager()

        def has_settled(now: dict[str, Any]) -> bool:
            nonlocal before
            if now["process"].get("wake_ups") == before["process"].get("wake_ups"):
                return False  # It has said nothing since.
            is_quiet = now["orders"]["pending"] == 0 and now["process"]["facts_waiting"] == 0
            is_same = now["process"]["facts"] == before["process"].get("facts")
            before = now
            return bool(is_quiet and is_same)

        self.until(has_settled)

    def read_in_a_rhythm(self, order: Sequence[int]) -> int:
        """Read each once what was ordered because of the one before has ended; returns the hits.

        What follows is known of each.
        """
        before, orders = self.hits, int(self.prestager()["orders"]["orders"])
        for slot in order:
            self.read(slot)
            orders += ORDERS_A_READ
            self.until(partial(self._has_ended, orders))
        return self.hits - before

    def _has_ended(self, least: int, now: dict[str, Any]) -> bool:
        return int(now["orders"]["orders"]) >= least and now["orders"]["pending"] == 0

    @property
    def hits(self) -> int:
        """Reads that found everything in the tier."""
        return int(self.call("prestage_get_stats")["tier"]["read_hits"])

    def prestager(self) -> dict[str, Any]:
        """How the prestager is."""
        found: dict[str, Any] = self.call("prestage_get_prestager")
        return found

    def until(self, is_right: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the prestager is as it should be; returns how it is."""
        limit = time.monotonic() + WITHIN_S
        while not is_right(seen := self.prestager()):
            assert time.monotonic() < limit, seen
            time.sleep(0.005)
        return seen

    def until_running(self, restarts: int = 0) -> dict[str, Any]:
        """Wait for a process that was started so many times anew."""
        return self.until(lambda now: now["state"] == "running" and now["restarts"] >= restarts)


@contextlib.contextmanager
def served(folder: Path, command: Sequence[str] = FOLLOWER, **prestager: Any) -> Iterator[Host]:
    """A target with a prestager, and a host connected to it. The image is made once."""
    folder.mkdir(exist_ok=True)
    path = folder / "image"
    slots = image(path) if not path.exists() else split(path.read_bytes())
    target = TestTarget(
        settings=settings(folder, **prestager),
        make=lambda made: Target(made, prestager_command=command),
    )
    with in_thread(target), target.client() as client:
        site = Site((target.address, target.port), NQN)
        with site.pair(1) as controller:
            yield Host(controller, slots, client.call)


def split(data: bytes) -> list[bytes]:
    """The slots of an image."""
    return [data[start : start + SLOT] for start in range(0, len(data), SLOT)]


def is_there(pid: int) -> bool:
    """Whether a process runs (one that nobody has buried yet does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until_gone(pid: int) -> None:
    """Wait for the end of a process that is not ours."""
    limit = time.monotonic() + WITHIN_S
    while is_there(pid):
        assert time.monotonic() < limit, f"process {pid} goes on"
        time.sleep(0.005)


def fill_the_disk(pid: int) -> None:
    """From now on the process can write no file of any size."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


def until_heard(client: Client, facts: int = 0) -> int:
    """Wait until the prestager of a daemon runs and has heard so much; returns its process."""
    limit = time.monotonic() + WITHIN_S
    while (now := client.call("prestage_get_prestager"))["process"].get("facts", -1) < facts:
        assert time.monotonic() < limit, now
        time.sleep(0.005)
    return int(now["pid"])
