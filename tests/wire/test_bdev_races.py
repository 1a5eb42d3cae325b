"""Requests that wait for each other: each is carried out on what it meant, or not at all."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp import commands as nvme

from .probing import Site
from .running import MIB, NQN, RunningTarget

BLOCK = 512
STOP_S = 1.0
CONFIG: dict[str, Any] = {"tier": {"size": 16 * MIB}, "limits": {"stop_s": STOP_S}}
NSID = 7
PAUSE_S = 0.2
"""Until a request waits for the one before it."""
READ_US = 3_000_000
"""How long a Read takes that outlasts the removal of its namespace."""


@pytest.fixture
def files(target: RunningTarget, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two files with a bdev each, "a" in the namespace NSID."""
    paths = (tmp_path / "a", tmp_path / "b")
    for path, size in zip(paths, (4 * MIB, 8 * MIB), strict=True):
        path.write_bytes(path.name.encode() * size)
        target.rpc("bdev_aio_create", name=path.name, filename=str(path), block_size=BLOCK)
    attach(target, "a")
    yield paths
    for path in paths:
        with contextlib.suppress(AssertionError):
            target.rpc("bdev_aio_delete", name=path.name)


def attach(target: RunningTarget, name: str, nsid: int = NSID) -> int:
    """Make a bdev a namespace."""
    wanted = {"bdev_name": name, "nsid": nsid}
    return int(target.rpc("nvmf_subsystem_add_ns", nqn=NQN, namespace=wanted))


def in_namespace(target: RunningTarget) -> list[str]:
    """The bdevs of this test that are in a namespace."""
    found = target.rpc("bdev_get_bdevs")
    return [one["name"] for one in found if one["claimed"] and not one["name"].startswith("nqn")]


@contextlib.contextmanager
def slow(target: RunningTarget, site: Site, path: Path) -> Iterator[int]:
    """A namespace, bdev "slow", whose medium has a Read that it takes READ_US to finish."""
    path.write_bytes(bytes(MIB))
    faults = [f"delay:read_us={READ_US}"]
    target.rpc("prestage_bdev_create", name="slow", path=str(path), block=BLOCK, faults=faults)
    nsid = attach(target, "slow", 9)
    with site.pair(1) as controller:
        queue = controller.io[0]
        cid = queue.submit(nvme.block_command(nvme.READ, 0, 8, nsid=nsid), expected=8 * BLOCK)
        time.sleep(PAUSE_S)
        yield nsid
        queue.wait(cid)


def remove_slow(target: RunningTarget, nsid: int) -> None:
    """Take it away: that takes as long as a request may."""
    with pytest.raises(AssertionError, match="has not finished yet"):
        target.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=nsid)


def one_after_the_other(*requests: Callable[[], object]) -> None:
    """Send each on a connection of its own, shortly after the one before, which may wait still."""

    def ask(request: Callable[[], object]) -> None:
        with contextlib.suppress(AssertionError):
            request()

    threads = [threading.Thread(target=ask, args=(request,)) for request in requests]
    for thread in threads:
        thread.start()
        time.sleep(PAUSE_S)
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("what", ["rescan", "resize", "remove", "delete"])
def test_request_that_waited_leaves_alone_what_took_the_place(
    target: RunningTarget, site: Site, files: tuple[Path, Path], tmp_path: Path, what: str
) -> None:
    first, second = files
    os.truncate(first, 5 * MIB)
    requests: dict[str, Callable[[], object]] = {
        "rescan": lambda: target.rpc("bdev_aio_rescan", name="a"),
        "resize": lambda: target.rpc("prestage_namespace_resize", nqn=NQN, nsid=NSID, size=5 * MIB),
        "remove": lambda: target.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=NSID),
        "delete": lambda: target.rpc("bdev_aio_delete", name="a"),
    }
    with slow(target, site, tmp_path / "slow") as nsid:
        one_after_the_other(
            lambda: remove_slow(target, nsid),
            lambda: target.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=NSID),
            lambda: attach(target, "b"),
            requests[what],
        )
    assert second.read_bytes() == b"b" * 8 * MIB, "another file was cut"
    assert in_namespace(target) == ["b"]
    with site.pair(1) as controller:
        assert controller.block_count(NSID) == 8 * MIB // BLOCK
    target.rpc("prestage_bdev_delete", name="slow")


def test_bdev_whose_namespace_went_late_is_not_in_the_next_of_its_number(
    target: RunningTarget, site: Site, files: tuple[Path, Path], tmp_path: Path
) -> None:
    with slow(target, site, tmp_path / "slow") as nsid:
        remove_slow(target, nsid)
        for _ in range(3):
            with pytest.raises(AssertionError, match="the one that was removed has not finished"):
                attach(target, "b", nsid)
        time.sleep(READ_US / 1e6)
        assert attach(target, "b", nsid) == nsid
        assert in_namespace(target) == ["a", "b"]
        target.rpc("prestage_bdev_delete", name="slow")
        with site.pair(1) as controller:
            assert controller.io[0].read(0, 8, BLOCK, nsid=nsid) == b"b" * 8 * BLOCK
