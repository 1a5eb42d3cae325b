"""A workload through a real kernel host: fio in the guest reads and writes at the trace's times.

Nothing but the hit ratio means anything: the guest is emulated, and late.
"""

from __future__ import annotations

import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.host import LINUX_HOST
from rig.target import RigError

from prestage.replay.live_config import NQN
from prestage.replay.live_run import Wire
from prestage.replay.live_target import own_target
from prestage.replay.run import layout_of
from prestage.testing import SpawnedTarget

GUEST = Path(__file__).resolve().with_name("replay_guest.sh")
DEVICE = "@DEVICE@"
SECONDS = 240
"""The guest is switched off after this time."""
CPUS = 2


def iolog(wire: Wire) -> str:
    """Return the accesses of a workload as a trace of fio, in its version 3 (microseconds)."""
    workload, layout = wire.workload, layout_of(wire.workload, wire.regime)
    since_s = (workload.time_s - workload.time_s[0]) / wire.speed
    lines = ["fio version 3 iolog", f"0 {DEVICE} add", f"0 {DEVICE} open"]
    for at_s, block, is_write in zip(
        since_s.tolist(), workload.block.tolist(), workload.is_write.tolist(), strict=True
    ):
        action = "write" if is_write else "read"
        offset = layout.slots[block] * layout.slot_size
        lines.append(f"{round(at_s * 1e6)} {DEVICE} {action} {offset} {layout.slot_size}")
    lines.append(f"{round(float(since_s[-1]) * 1e6)} {DEVICE} close")
    return "\n".join(lines) + "\n"


@dataclass
class Counted:
    """What the target had counted before fio began and when it was done."""

    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def reads(self) -> int:
        """Extents of reads."""
        return sum(self._moved(name) for name in ("read_hits", "read_misses"))

    @property
    def read_hit_ratio(self) -> float:
        """Of these, those that were in the tier."""
        return self._moved("read_hits") / self.reads

    def _moved(self, name: str) -> int:
        return int(self.after[name]) - int(self.before[name])


class Holder:
    """Keeps the guest from beginning, and from ending, until the counters have been taken."""

    def __init__(self, target: SpawnedTarget) -> None:
        self.counted: Counted | None = None
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(SECONDS)
        self._thread = threading.Thread(target=self._hold, name="rig-replay")
        self._thread.start()

    @property
    def port(self) -> int:
        """Where the guest asks."""
        return int(self._server.getsockname()[1])

    def _take(self) -> dict[str, Any]:
        with self._target.client() as client:
            found: dict[str, Any] = client.call("prestage_get_stats")["tier"]
        return found

    def _hold(self) -> None:
        try:
            guest, _ = self._server.accept()
        except OSError:
            return  # it never came, or nobody waits for it any more
        with guest, guest.makefile("rb") as lines:
            before = self._take()
            guest.sendall(b"begin\n")
            if lines.readline() == b"done\n":
                self.counted = Counted(before, self._take())

    def close(self) -> None:
        """Stop waiting."""
        # Closing alone does not wake who waits in accept().
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()


def replay(wire: Wire, kernel: str, folder: Path, *, prestager: bool) -> Counted:
    """Boot a kernel, let it do a workload on a target of our own; RigError when it does not."""
    trace = folder / "iolog"
    trace.write_text(iolog(wire), "ascii")
    with own_target(
        wire.workload, wire.regime, seed=wire.seed, speed=wire.speed, prestager=prestager
    ) as target:
        holder = Holder(target)
        try:
            said = _boot(kernel, target.port, trace, holder.port)
        finally:
            holder.close()
    if holder.counted is None:
        raise RigError(f"the guest did not replay; it said:\n{said}")
    return holder.counted


def _boot(kernel: str, port: int, trace: Path, hold: int) -> str:
    """Run the guest; return the end of what it said, empty when all went well."""
    # Should this process be killed, the emulator goes too.
    command = ["setpriv", "--pdeathsig", "TERM", str(LINUX_HOST), "-k", kernel, "-c", str(CPUS)]
    command += ["-t", str(SECONDS), str(GUEST), "10.0.2.2", str(port), NQN, str(trace), str(hold)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]
