"""In the guest: the kernel's nvmet as the target, so that the rig's own steps are known right.

It answers the same requests as the control server does for our target (`rig.host`), through
configfs. Sizes are MiB.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

NQN = "nqn.2026-11.io.prestage:reference"
NVMET = Path("/sys/kernel/config/nvmet")
NULLB = Path("/sys/kernel/config/nullb")


class Reference:
    """nvmet on 127.0.0.1:4420 in this guest, set up by `scripts/guest/nvmet`."""

    def __init__(self, script: str, bad_lba: int) -> None:
        self.subsystem = NVMET / "subsystems" / NQN
        self.link = NVMET / "ports/1/subsystems" / NQN
        process = subprocess.Popen([script, "127.0.0.1"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        line = process.stdout.readline()
        if line.strip() != "nvmet: ready":
            raise RuntimeError(f"{script} said {line!r}, expected 'nvmet: ready'")
        process.kill()
        process.wait()
        self._add_null(2, 32)
        (NULLB / "rig2/badblocks").write_text(f"+{bad_lba}-{bad_lba}\n")

    def ask(self, what: str, **arguments: int) -> dict[str, object]:
        """Does what the control server would do; `what` is one of the methods below."""
        getattr(self, what)(**arguments)
        return {"ok": True}

    def restart(self) -> None:
        """Off the port, which closes its listener, and on again."""
        self.link.unlink()
        self.link.symlink_to(self.subsystem)

    kill = restart

    def add(self, nsid: int, size_mib: int) -> None:
        """A file-backed namespace: such a one can grow."""
        path = Path(f"/run/rig{nsid}")
        with path.open("wb") as file:
            file.truncate(size_mib << 20)
        self._enable(nsid, path, buffered=True)

    def grow(self, nsid: int, size_mib: int) -> None:
        """Grows the file and has nvmet look again, which it announces."""
        with Path(f"/run/rig{nsid}").open("r+b") as file:
            file.truncate(size_mib << 20)
        (self.subsystem / f"namespaces/{nsid}/revalidate_size").write_text("1")

    def remove(self, nsid: int) -> None:
        """Removes the namespace, not its file."""
        (self.subsystem / f"namespaces/{nsid}/enable").write_text("0")
        (self.subsystem / f"namespaces/{nsid}").rmdir()

    def _add_null(self, nsid: int, size_mib: int) -> None:
        device = NULLB / f"rig{nsid}"
        device.mkdir()
        for name, value in (("size", size_mib), ("blocksize", 512), ("memory_backed", 1)):
            (device / name).write_text(str(value))
        (device / "power").write_text("1")
        path = Path(f"/dev/rig{nsid}")
        deadline = time.monotonic() + 10
        while not path.is_block_device():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{path} did not appear")
            time.sleep(0.02)
        self._enable(nsid, path)

    def _enable(self, nsid: int, path: Path, buffered: bool = False) -> None:
        namespace = self.subsystem / f"namespaces/{nsid}"
        namespace.mkdir()
        (namespace / "device_path").write_text(str(path))
        if buffered:
            # Before 6.6 a file on a tmpfs cannot be opened for direct I/O.
            (namespace / "buffered_io").write_text("1")
        (namespace / "enable").write_text("1")
