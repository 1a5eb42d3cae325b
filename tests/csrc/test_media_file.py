"""The kind "file": locks, sizes, warnings, truncated files, devices, and closing under work."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from prestage.testing_media import (
    BUFFERED,
    DISCARD,
    NO_PUNCH,
    READ,
    SYNC,
    THREADS,
    WRITE,
    ZERO,
    MediaError,
    Medium,
    check_media,
)

ENGINES = ["uring", "threads"]
BLOCK = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "medium"


@pytest.fixture
def shm() -> Iterator[Path]:
    path = Path(f"/dev/shm/prestage-test-{random.randrange(1 << 48):x}")
    yield path
    path.unlink(missing_ok=True)


@contextmanager
def loop_device(path: Path, sector_size: int = 512) -> Iterator[str]:
    """A block device over a file, or a skip where this process may not make one."""
    made = subprocess.run(
        ["losetup", "--find", "--show", f"--sector-size={sector_size}", path],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no loop device here: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_second_open_is_refused_until_the_first_is_closed(engine: str, path: Path) -> None:
    spec = f"file:{path},create=1,size=1M,engine={engine}"
    for _ in range(5):
        with Medium(spec) as medium:
            medium.write(0, bytes(BLOCK))
            with pytest.raises(MediaError, match="is in use by another target"):
                Medium(spec)


def test_another_process_is_refused_too(path: Path) -> None:
    code = f"from prestage.testing_media import Medium; Medium('file:{path}')"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with Medium(f"file:{path},create=1,size=1M"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
    assert done.returncode == 1
    assert f"{path} is in use by another target" in done.stderr


def test_file_is_unlocked_after_abandoned_work(path: Path) -> None:
    for engine in ENGINES:
        medium = Medium(f"file:{path},create=1,size=16M,engine={engine}")
        for i in range(64):
            medium.submit(WRITE, i << 16, data=bytes(1 << 16))
        medium.kick()
        medium.close(abandon=True)
    Medium(f"file:{path}").close()


def test_file_keeps_its_bytes_and_grows_on_opening(path: Path) -> None:
    with Medium(f"file:{path},create=1,size=64K") as medium:
        medium.write(60 << 10, b"a" * BLOCK)
        medium.sync()
    with Medium(f"file:{path},size=128K") as medium:
        assert medium.limits.size == 128 << 10
        assert medium.read(60 << 10, BLOCK) == b"a" * BLOCK
        assert medium.read(64 << 10, BLOCK) == bytes(BLOCK)
    assert path.stat().st_size == 128 << 10


@pytest.mark.parametrize("engine", ENGINES)
def test_another_thread_than_the_owner_may_close(engine: str, path: Path) -> None:
    spec = f"delay|file:{path},create=1,size=64K,engine={engine}"
    for _ in range(5):
        medium = Medium(spec)
        medium.write(0, b"a" * BLOCK)
        thread = threading.Thread(target=medium.close)
        thread.start()
        thread.join()


def test_new_file_is_sparse_and_private(path: Path) -> None:
    with Medium(f"file:{path},create=1,size=4G"):
        assert path.stat().st_blocks == 0
        assert path.stat().st_mode & 0o777 == 0o600


def test_descriptors_do_not_leak_into_children(path: Path) -> None:
    with Medium(f"stall|file:{path},create=1,size=64K"):
        for entry in Path("/proc/self/fd").iterdir():
            try:
                target = str(entry.readlink())
            except OSError:
                continue
            if str(path) in target or "io_uring" in target or "event" in target:
                assert fcntl.fcntl(int(entry.name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC, target


@pytest.mark.parametrize("engine", ENGINES)
def test_truncated_file_is_an_io_error_and_no_signal(engine: str, path: Path) -> None:
    for direct in "01":
        spec = f"file:{path},create=1,size=64K,engine={engine},direct={direct}"
        with Medium(spec) as medium:
            medium.write(0, b"a" * (64 << 10))
            os.truncate(path, 6000)
            assert medium.run(READ, 0, BLOCK).error == 0
            assert medium.run(READ, BLOCK, BLOCK).error == errno.EIO
            assert medium.run(READ, 0, 32 << 10).error == errno.EIO
            assert medium.run(READ, 32 << 10, BLOCK).error == errno.EIO
            in_parts = medium.run(READ, 0, 4 * BLOCK, parts=(BLOCK, 2 * BLOCK, BLOCK))
            assert in_parts.error == errno.EIO
            assert in_parts.data[:BLOCK] == b"a" * BLOCK
            assert in_parts.is_whole()
            medium.write(32 << 10, b"b" * BLOCK)
            assert medium.read(32 << 10, BLOCK) == b"b" * BLOCK


@pytest.mark.parametrize("engine", ENGINES)
def test_full_file_system_is_enospc(engine: str, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no mount here")
    try:
        with Medium(f"file:{place}/f,create=1,size=8M,engine={engine}") as medium:
            errors = {medium.run(WRITE, i << 18, data=bytes(1 << 18)).error for i in range(8)}
            assert errors == {0, errno.ENOSPC}
            assert medium.run(ZERO, 0, 1 << 18).error == 0
            assert medium.run(WRITE, 4 << 20, data=b"x" * (1 << 17)).error == 0
        # A closed medium lets go of its file at once.
        subprocess.run(["umount", place], check=True)
    finally:
        subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_resize_grows_and_shrinks(engine: str, path: Path) -> None:
    with Medium(f"file:{path},create=1,size=64K,engine={engine}") as medium:
        medium.write(60 << 10, b"a" * BLOCK)
        assert medium.resize(1 << 20) == 0
        assert medium.limits.size == 1 << 20
        assert medium.read(60 << 10, 2 * BLOCK) == b"a" * BLOCK + bytes(BLOCK)
        medium.write((1 << 20) - BLOCK, b"z" * BLOCK)
        assert medium.resize(64 << 10) == 0
        assert medium.run(WRITE, 64 << 10, data=b"y" * BLOCK).error == errno.EINVAL
        assert path.stat().st_size == 64 << 10
        assert medium.resize(1000) == -errno.EINVAL
        assert medium.resize(2**63) == -errno.EINVAL
        os.truncate(path, 128 << 10)
        assert medium.limits.size == 64 << 10
        assert medium.resize(0) == 0
        assert medium.limits.size == 128 << 10


def test_ram_resizes_to_zeros() -> None:
    with Medium("ram:size=1049088") as medium:
        medium.write(0, b"a" * 1049088)
        assert medium.resize(512) == 0
        assert medium.run(READ, 512, 512).error == errno.EINVAL
        assert medium.resize(2 << 20) == 0
        assert medium.read(0, 2 << 20) == b"a" * 512 + bytes((2 << 20) - 512)
        assert medium.resize(700) == -errno.EINVAL
        assert medium.resize(0) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_tmpfs_is_reported_as_buffered(engine: str, shm: Path) -> None:
    with Medium(f"file:{shm},create=1,size=1M,engine={engine}") as medium:
        assert medium.limits.warnings == BUFFERED
    with pytest.raises(MediaError, match="cannot be opened with O_DIRECT; expected direct=auto"):
        Medium(f"file:{shm},direct=1")
    shm.unlink()
    with pytest.raises(MediaError, match="cannot be opened with O_DIRECT"):
        Medium(f"file:{shm},create=1,size=1M,direct=1")
    assert not shm.exists()


def test_direct_file_has_no_warning(path: Path) -> None:
    with Medium(f"file:{path},create=1,size=1M,direct=1,engine=uring") as medium:
        assert medium.limits.warnings == 0
        assert medium.limits.has_volatile_cache
        assert medium.limits.queue_depth == 128
    with Medium(f"file:{path},direct=0") as medium:
        assert medium.limits.warnings == BUFFERED


def test_block_size_is_that_of_the_device_below(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    path.write_bytes(bytes(8 << 20))
    with loop_device(path, 4096) as device:
        with Medium(f"file:{device}") as medium:
            assert medium.limits.block_size == 4096
            assert medium.run(WRITE, 512, data=bytes(4096)).error == errno.EINVAL
            assert medium.run(WRITE, 4096, data=bytes(512)).error == errno.EINVAL
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
        mounted = subprocess.run(["mount", device, place], capture_output=True, check=False)
        if mounted.returncode != 0:
            pytest.skip("no mount here")
        try:
            with pytest.raises(MediaError, match="expected a multiple of 4096"):
                Medium(f"file:{place}/f,create=1,size=512")
            for direct, block_size in [(1, 4096), (0, 512)]:
                with Medium(f"file:{place}/f,create=1,size=1M,direct={direct}") as medium:
                    assert medium.limits.block_size == block_size
                    medium.write(block_size, b"a" * block_size)
                    assert medium.read(block_size, block_size) == b"a" * block_size
        finally:
            subprocess.run(["umount", "--lazy", place], check=True)


def confined(call: str, path: Path) -> str:
    """Run media_confined.py without the system call; return what it prints."""
    program = Path(__file__).with_name("media_confined.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, program, call, path],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_io_uring_that_is_forbidden_is_replaced_by_threads(path: Path) -> None:
    said = confined("io_uring_setup", path)
    assert f"auto: warnings={THREADS}, same bytes" in said
    assert f"threads: warnings={0}, same bytes" in said
    assert "io_uring cannot be used here (errno 1); expected engine=auto or" in said


def test_file_system_without_holes_gets_zeros_written(path: Path) -> None:
    said = confined("fallocate", path)
    for engine in ("auto", "uring", "threads"):
        assert f"{engine}: warnings={NO_PUNCH}, same bytes" in said


def test_block_device(path: Path) -> None:
    path.write_bytes(bytes(4 << 20))
    with loop_device(path) as device:
        for engine in ENGINES:
            check_media(
                partial(Medium, f"file:{device},engine={engine}"),
                seed=random.randrange(1 << 32),
                operations=100,
            )
        with Medium(f"file:{device}") as medium:
            assert medium.limits.size == 4 << 20
            with pytest.raises(MediaError, match="is in use by another target"):
                Medium(f"file:{device}")
            assert medium.resize(8 << 20) == -errno.EINVAL
            os.truncate(path, 8 << 20)
            subprocess.run(["losetup", "--set-capacity", device], check=True)
            assert medium.resize(0) == 0
            assert medium.limits.size == 8 << 20
            medium.write((8 << 20) - BLOCK, b"a" * BLOCK)
            medium.sync()
        with pytest.raises(MediaError, match="is not the size of the device"):
            Medium(f"file:{device},size=16M")


@pytest.mark.parametrize("engine", ENGINES)
def test_zero_and_discard_give_space_back(engine: str, path: Path) -> None:
    with Medium(f"file:{path},create=1,size=1M,engine={engine}") as medium:
        for op in (ZERO, DISCARD):
            medium.write(0, b"a" * (1 << 20))
            medium.sync()
            assert path.stat().st_blocks >= 2048
            assert medium.run(op, 0, 1 << 20).error == 0
            assert path.stat().st_blocks < 64
            assert path.stat().st_size == 1 << 20


@pytest.mark.parametrize("engine", ENGINES)
def test_zeros_on_a_device_give_its_space_back(engine: str, path: Path) -> None:
    path.write_bytes(b"a" * (4 << 20))
    with loop_device(path) as device, Medium(f"file:{device},engine={engine}") as medium:
        if medium.limits.warnings & NO_PUNCH:
            pytest.skip("loop devices have no holes here")
        assert medium.run(ZERO, 0, 3 << 20).error == 0
        medium.sync()
        assert path.stat().st_blocks <= 2048 + 64
        assert medium.read(3 << 20, BLOCK) == b"a" * BLOCK
        assert medium.read(0, BLOCK) == bytes(BLOCK)


@pytest.mark.parametrize("engine", ENGINES)
def test_whole_depth_can_be_under_way_many_times(engine: str, path: Path) -> None:
    with Medium(f"file:{path},create=1,size=8M,engine={engine},depth=256") as medium:
        for _ in range(4):
            for i in range(256):
                medium.submit(WRITE, i * BLOCK, data=bytes([i]) * BLOCK)
            medium.wait()
        medium.run(SYNC)
        requests = [medium.submit(READ, i * BLOCK, BLOCK) for i in range(256)]
        medium.wait()
        assert [request.data for request in requests] == [bytes([i]) * BLOCK for i in range(256)]
        assert not any(request.error for request in requests)


@pytest.mark.parametrize("engine", ENGINES)
def test_closing_media_leaves_nothing(engine: str, path: Path) -> None:
    def count(folder: str) -> int:
        return sum(1 for _ in Path(folder).iterdir())

    def threads_and_descriptors() -> tuple[int, int]:
        return count("/proc/self/task"), count("/proc/self/fd")

    spec = f"delay|powercut|file:{path},create=1,size=1M,engine={engine}"
    Medium(spec).close()
    before = threads_and_descriptors()
    for _ in range(20):
        with Medium(spec) as medium:
            medium.write(0, bytes(BLOCK))
        Medium(spec, start=False).close()
    end = time.monotonic() + 10
    while threads_and_descriptors() > before and time.monotonic() < end:
        os.sched_yield()  # io-wq threads of a closed ring end a little later
    assert threads_and_descriptors() <= before
