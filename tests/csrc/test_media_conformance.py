"""Every kind and wrapper, over both engines, holds the same bytes as a model of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from prestage.testing_media import Medium, check_media

FLASH = "seed=5,read_us=60,read_p99_us=200,write_us=30,bandwidth=2G,channels=8"

CHAINS = [
    "file:{path},size=2M,create=1,engine=uring",
    "file:{path},size=2M,create=1,engine=threads",
    "file:{path},size=2M,create=1,engine=uring,direct=0",
    "file:{path},size=2M,create=1,engine=threads,direct=0",
    "file:{path},size=2M,create=1,depth=1",
    "file:{shm},size=2M,create=1",
    "file:{shm},size=2M,create=1,engine=threads",
    "ram:size=2M",
    "ram:size=1049088",
    "model:{path},size=2M,create=1," + FLASH,
    "delay:read_us=100,write_us=50,sync_us=20|file:{path},size=2M,create=1",
    "delay:read_us=100,write_us=50,seed=7|ram:size=2M",
    "error:rate=0|file:{path},size=2M,create=1,engine=threads",
    "error:op=sync,count=0|ram:size=2M",
    "stall:after=1000000|file:{path},size=2M,create=1",
    "powercut:seed=1|ram:size=2M",
    "powercut:seed=1,limit=256K|ram:size=2M",
    "powercut:limit=4K|file:{path},size=2M,create=1",
    "powercut:limit=64K|file:{path},size=2M,create=1,depth=1",
    "powercut:limit=300K|file:{path},size=2M,create=1,engine=threads",
    "stall:after=100000|error:rate=0|delay|powercut:limit=1M|model:{path},size=2M,create=1,"
    + FLASH,
]


@pytest.fixture
def shm() -> Iterator[Path]:
    path = Path(f"/dev/shm/prestage-test-{random.randrange(1 << 48):x}")
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("chain", CHAINS)
def test_holds_the_same_bytes_as_its_model(chain: str, tmp_path: Path, shm: Path) -> None:
    spec = chain.format(path=tmp_path / "medium", shm=shm)
    check_media(lambda: Medium(spec), seed=random.randrange(1 << 32))
