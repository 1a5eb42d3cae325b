"""The target in places that forbid things: a container's seccomp profile, no root, a tmpfs."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from nvme_tcp.host import connected_queue_pair

ROOT = Path(__file__).resolve().parent.parent
CONFINED = ROOT / "tests" / "confined.py"
PROFILE = ROOT / "docs" / "seccomp-no-io-uring.json"
NOBODY = 65534
NQN = "nqn.2026-11.io.prestage:confined"
START_S = 30.0
STOP_S = 40.0

SETUP = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
done = libc.syscall(425, 4, ctypes.create_string_buffer(120))
print(os.getuid(), ctypes.get_errno() if done < 0 else 0)
"""
"""Prints the user and the errno of io_uring_setup."""


def is_open_to_others(path: Path) -> bool:
    """Return whether any user may pass through all the folders to `path`, and read it."""
    whole = path.resolve()
    return whole.stat().st_mode & stat.S_IROTH != 0 and all(
        each.stat().st_mode & stat.S_IXOTH for each in whole.parents
    )


def imported_from() -> list[Path]:
    """Return the packages that the target needs, as files and folders."""
    names = ("prestage", "cffi", "_cffi_backend", "msgspec", "numpy", "structlog", "aiofiles")
    specs = [importlib.util.find_spec(name) for name in (*names, "pyroute2")]
    assert all(spec is not None and spec.origin is not None for spec in specs), names
    origins = [Path(str(spec.origin)) for spec in specs if spec is not None]
    found = [path.parent if path.name == "__init__.py" else path for path in origins]
    # Libraries that a wheel brings along stand beside its package.
    beside = [path.with_name(f"{path.name}.libs") for path in found]
    return [*found, *(path for path in beside if path.is_dir())]


def open_interpreter() -> str | None:
    """Return a Python of this version that any user may run, or None."""
    for candidate in (sys.executable, f"/usr/bin/python{sys.version_info[0]}"):
        real = Path(candidate).resolve()
        if not real.exists() or not is_open_to_others(real):
            continue
        ask = "import sys; print(sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False)
        if done.stdout.strip() == str(sys.version_info[:2]):
            return candidate
    return None


class Python(NamedTuple):
    """How to run Python with the package: a command, and what the environment needs."""

    command: str
    environment: dict[str, str]


@pytest.fixture(scope="session")
def open_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Python]:
    """A Python that the unprivileged user may run; copies of the package where it lies closed."""
    command = open_interpreter()
    if command is None:
        pytest.skip(
            f"other users may not run {sys.executable}, and there is no /usr/bin/python3 of the"
            f" same version ({sys.version_info[0]}.{sys.version_info[1]})"
        )
    with tempfile.TemporaryDirectory(prefix="prestage-python-") as name:
        copies = Path(name)
        for path in imported_from():
            goal = copies / path.name
            if path.is_dir():
                shutil.copytree(path, goal, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, goal)
        for path in (copies, *copies.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield Python(command, {"PYTHONPATH": name, "PYTHONNOUSERSITE": "1"})


HERE = Python(sys.executable, {})


def prefix(*, profile: bool = False, unprivileged: bool = False) -> list[str]:
    """Return the words that confine the command behind them; they are said by this user."""
    words = [sys.executable, str(CONFINED)]
    words += ["--profile", str(PROFILE)] if profile else []
    return words + (["--uid", str(NOBODY)] if unprivileged else [])


def setup_result(words: list[str], python: Python = HERE) -> tuple[int, int]:
    """Return the user of a confined process, and the errno that io_uring_setup gives it."""
    command = [*words, python.command, "-c", SETUP]
    environment = {**os.environ, **python.environment}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    user, code = done.stdout.split()
    return int(user), int(code)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that the unprivileged user may write to (pytest's own are closed to others)."""
    with tempfile.TemporaryDirectory(prefix="prestage-confined-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@contextmanager
def target(
    words: list[str], place: Path, backing: Path, python: Python = HERE
) -> Iterator[dict[str, Any]]:
    """Run a target on a 16 MiB file behind `words`; yield what it says when it is ready."""
    ready = place / "ready.json"
    log = place / "log"
    command = [*words, python.command, "-m", "prestage", "serve", "--listen", "127.0.0.1:0"]
    command += ["--nqn", NQN, "--namespace", f"{backing},size=16M", "--dram", "16M"]
    command += ["--state-directory", str(place / "state"), "--ready-file", str(ready)]
    environment = {**os.environ, **python.environment}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=place, env=environment
        )
    try:
        limit = time.monotonic() + START_S
        while not ready.exists():
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < limit, log.read_text(errors="replace")
            time.sleep(0.01)
        yield json.loads(ready.read_text("utf-8"))
        process.terminate()
        assert process.wait(STOP_S) == 0, log.read_text(errors="replace")
    finally:
        process.kill()
        process.wait()


def check_bytes(said: dict[str, Any], backing: Path) -> None:
    """Write, flush, read back over the wire, and look at the file itself."""
    listener = said["listeners"][0]
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    data = random.Random(seed).randbytes(64 << 10)
    with connected_queue_pair((listener["address"], listener["port"]), NQN) as controller:
        queue = controller.io[0]
        size = controller.block_size()
        queue.write(0, data, size, fua=True)
        assert queue.read(0, len(data) // size, size) == data
    with backing.open("rb") as file:
        assert file.read(len(data)) == data


def test_the_profile_forbids_io_uring() -> None:
    user, code = setup_result(prefix(profile=True))
    assert (user, code) == (os.getuid(), errno.EPERM)


def test_a_confined_process_is_not_root(open_python: Python) -> None:
    user, code = setup_result(prefix(profile=True, unprivileged=True), open_python)
    assert user == (NOBODY if os.geteuid() == 0 else os.getuid())
    assert code == errno.EPERM


def test_without_the_profile_the_kernel_decides_about_io_uring() -> None:
    # EFAULT or success, but not the profile's EPERM, unless this machine forbids io_uring itself.
    _, code = setup_result(prefix())
    if code == errno.EPERM:
        pytest.skip("io_uring is forbidden on this machine anyway")
    assert code in {0, errno.EFAULT, errno.EINVAL, errno.ENOMEM}


def test_a_profile_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    profile.write_text('{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}')
    command = [sys.executable, str(CONFINED), "--profile", str(profile), "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "expected SCMP_ACT_ALLOW" in done.stderr


def test_serves_from_threads_where_io_uring_is_forbidden(place: Path) -> None:
    backing = place / "namespace"
    with target(prefix(profile=True), place, backing) as said:
        check_bytes(said, backing)
        assert any("io_uring is forbidden" in text for text in said["warnings"]), said["warnings"]


def test_serves_without_being_root(place: Path, open_python: Python) -> None:
    backing = place / "namespace"
    with target(prefix(unprivileged=True), place, backing, open_python) as said:
        check_bytes(said, backing)
        assert backing.stat().st_uid == (NOBODY if os.geteuid() == 0 else os.getuid())


@pytest.mark.parametrize(("limits", "is_enough"), [("200:4096", True), ("200:200", False)])
def test_open_files_are_allowed_as_far_as_the_user_may(
    place: Path, open_python: Python, limits: str, is_enough: bool
) -> None:
    backing = place / "namespace"
    words = ["prlimit", f"--nofile={limits}", *prefix(unprivileged=True)]
    with target(words, place, backing, open_python) as said:
        check_bytes(said, backing)
        warned = [text for text in said["warnings"] if "RLIMIT_NOFILE" in text]
        assert bool(warned) != is_enough, said["warnings"]


def test_serves_from_a_tmpfs(place: Path) -> None:
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        pytest.skip("/dev/shm cannot be written to here")
    with tempfile.TemporaryDirectory(dir=memory, prefix="prestage-") as name:
        backing = Path(name) / "namespace"
        with target([], place, backing) as said:
            check_bytes(said, backing)
            # Also on kernels from 6.6 on, which take O_DIRECT there and use the page cache.
            assert any("direct I/O is refused" in text for text in said["warnings"]), said
