"""A power cut loses, reorders and tears what was not synced, and never anything else."""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from prestage.testing_media import DISCARD, READ, SYNC, WRITE, ZERO, Medium

SECTOR = 512
BLOCK = 4096
SIZE = 1 << 20
RAM = "ram:size=1M"


def cut(medium: Medium) -> None:
    """Cut the power, and wait until the medium is on again."""
    medium.control("powercut", "cut")
    medium.read(0, SECTOR)


def sectors(data: bytes) -> list[bytes]:
    return [data[at : at + SECTOR] for at in range(0, len(data), SECTOR)]


def image(medium: Medium) -> bytes:
    return b"".join(medium.read(at, SIZE // 4) for at in range(0, SIZE, SIZE // 4))


class Model:
    """Per sector: the contents that it may have after a cut."""

    def __init__(self, medium: Medium, seed: int) -> None:
        self.medium = medium
        self.random = random.Random(seed)
        self.newest = [bytes(SECTOR)] * (SIZE // SECTOR)
        self.durable = list(self.newest)
        self.possible: list[set[bytes]] = [{each} for each in self.newest]

    def change(self) -> None:
        """Write, zero or discard a random range that often overlaps earlier ones."""
        op = self.random.choices([WRITE, ZERO, DISCARD], weights=[8, 1, 1])[0]
        count = self.random.choice([1, 2, 8, 16, self.random.randint(1, 64)])
        first = self.random.randrange(128) if self.random.random() < 0.5 else 0
        first = min(first + self.random.randrange(64), SIZE // SECTOR - count)
        data = self.random.randbytes(count * SECTOR) if op == WRITE else b""
        request = self.medium.run(op, first * SECTOR, count * SECTOR, data)
        assert request.error == 0
        for i, sector in enumerate(sectors(data or bytes(count * SECTOR)), first):
            self.newest[i] = sector
            self.possible[i].add(sector)

    def sync(self) -> None:
        self.medium.sync()
        self.durable = list(self.newest)
        self.possible = [{each} for each in self.newest]

    def cut(self) -> int:
        """Cut; return how many sectors differ from the newest."""
        cut(self.medium)
        found = sectors(image(self.medium))
        for i, sector in enumerate(found):
            assert sector in self.possible[i], f"sector {i} holds what was never written there"
        lost = sum(a != b for a, b in zip(found, self.newest, strict=True))
        self.newest = found
        self.durable = list(found)
        self.possible = [{each} for each in found]
        return lost


@pytest.mark.parametrize(
    "spec",
    [f"powercut:seed={{seed}}|{RAM}", "powercut:seed={seed},limit=64K|ram:size=1M"]
    + [
        "powercut:seed={seed}|file:{path},create=1,size=1M,engine=" + each
        for each in ("uring", "threads")
    ],
)
def test_synced_data_survives_every_cut_and_no_sector_is_made_up(spec: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    lost = 0
    with Medium(spec.format(seed=seed, path=tmp_path / "f")) as medium:
        model = Model(medium, seed)
        for _ in range(60):
            for _ in range(model.random.randint(0, 12)):
                model.change()
                if model.random.random() < 0.15:
                    model.sync()
            assert sectors(image(medium)) == model.newest
            lost += model.cut()
    assert lost > 0


def test_cut_after_sync_changes_nothing() -> None:
    for seed in range(20):
        with Medium(f"powercut:seed={seed}|{RAM}") as medium:
            data = random.Random(seed).randbytes(64 << 10)
            medium.write(0, data)
            medium.sync()
            cut(medium)
            assert medium.read(0, 64 << 10) == data


def outcomes(prepare: Callable[[Medium], None], length: int) -> list[bytes]:
    """What 60 seeds leave of unsynced changes."""
    found = []
    for seed in range(60):
        with Medium(f"powercut:seed={seed}|{RAM}") as medium:
            prepare(medium)
            cut(medium)
            found.append(medium.read(0, length))
    return found


def test_unsynced_write_may_be_lost_kept_or_torn_by_sectors() -> None:
    found = outcomes(lambda medium: medium.write(0, b"a" * BLOCK), BLOCK)
    shares = [sum(sector != bytes(SECTOR) for sector in sectors(data)) for data in found]
    assert all(
        sector in (bytes(SECTOR), b"a" * SECTOR) for data in found for sector in sectors(data)
    )
    assert 0 in shares
    assert 8 in shares
    assert sum(0 < share < 8 for share in shares) >= 10
    assert len(set(found)) > 8


def test_unsynced_writes_may_be_reordered() -> None:
    def prepare(medium: Medium) -> None:
        for number in range(1, 21):
            medium.write(0, bytes([number]) * SECTOR)

    winners = [each[0] for each in outcomes(prepare, SECTOR)]
    # In order, the last one that is not lost would win: hardly ever one of the first ten.
    assert sum(1 <= each <= 10 for each in winners) >= 15


def test_one_sector_is_never_torn() -> None:
    found = outcomes(lambda medium: medium.write(0, b"a" * SECTOR), SECTOR)
    assert set(found) == {bytes(SECTOR), b"a" * SECTOR}


def test_sectors_of_4096_bytes_are_torn_between_not_within() -> None:
    found = set()
    for seed in range(60):
        with Medium(f"powercut:seed={seed},sector=4096|{RAM}") as medium:
            medium.write(2 * SECTOR, b"a" * 2 * BLOCK)
            cut(medium)
            found.add(medium.read(0, 4 * BLOCK))
    # The write touches three sectors: most of the first, a whole one, and the start of a third.
    edges = [2 * SECTOR, BLOCK, 2 * BLOCK, 2 * BLOCK + 2 * SECTOR]
    for data in found:
        assert all(len(set(data[a:b])) == 1 for a, b in itertools.pairwise(edges))
        assert data[: edges[0]] + data[edges[-1] :] == bytes(2 * BLOCK)
    assert len(found) > 4


def test_unsynced_zero_and_discard_may_be_lost() -> None:
    for op in (ZERO, DISCARD):

        def prepare(medium: Medium, op: int = op) -> None:
            medium.write(0, b"a" * BLOCK)
            medium.sync()
            medium.run(op, 0, BLOCK)
            assert medium.read(0, BLOCK) == bytes(BLOCK)

        found = outcomes(prepare, BLOCK)
        assert bytes(BLOCK) in found
        assert b"a" * BLOCK in found


def test_same_seed_gives_same_cuts() -> None:
    def run(seed: int) -> list[bytes]:
        with Medium(f"powercut:seed={seed}|{RAM}") as medium:
            model = Model(medium, 99)
            found = []
            for _ in range(5):
                for _ in range(10):
                    model.change()
                model.cut()
                found.append(image(medium))
            return found

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_setting_the_seed_starts_its_cuts_again() -> None:
    with Medium(f"powercut:seed=1|{RAM}") as medium:
        found = []
        for _ in range(2):
            medium.control("powercut", "set seed=8")
            medium.write(0, bytes(64 << 10))
            medium.sync()
            for i in range(16):
                medium.write(i * BLOCK, b"a" * BLOCK)
            cut(medium)
            found.append(medium.read(0, 64 << 10))
        assert found[0] == found[1]


@pytest.mark.parametrize("is_kicked", [False, True])
def test_sync_covers_only_writes_that_had_ended(is_kicked: bool) -> None:
    """A write that is still under way when the SYNC comes may be lost all the same."""
    lost = 0
    for seed in range(40):
        with Medium(f"powercut:seed={seed}|{RAM}") as medium:
            medium.submit(WRITE, 0, data=b"a" * SECTOR)
            if is_kicked:
                medium.kick()
            medium.submit(SYNC)
            medium.wait()
            cut(medium)
            lost += medium.read(0, SECTOR) == bytes(SECTOR)
    assert 5 <= lost <= 38


def test_what_was_under_way_ends_with_eio_and_what_comes_later_is_served(tmp_path: Path) -> None:
    with Medium(f"powercut|stall:op=sync|file:{tmp_path}/f,create=1,size=1M") as medium:
        medium.write(0, b"a" * BLOCK)
        sync = medium.submit(SYNC)
        medium.kick()
        while medium.poll():
            pass
        early = [medium.submit(WRITE, BLOCK, data=bytes(BLOCK)), medium.submit(READ, 0, BLOCK)]
        medium.control("powercut", "cut")
        late = [medium.submit(READ, 0, BLOCK), medium.submit(WRITE, 0, data=b"b" * BLOCK)]
        medium.kick()
        medium.poll()
        assert not any(each.is_done for each in (sync, *late))
        medium.control("stall", "release")
        medium.wait()
        assert [each.error for each in (sync, *early)] == [errno.EIO] * 3
        assert [each.error for each in late] == [0, 0]
        assert medium.read(0, BLOCK) == b"b" * BLOCK


def test_write_whose_end_was_not_told_yet_ends_with_eio() -> None:
    with Medium(f"powercut|{RAM}") as medium:
        write = medium.submit(WRITE, 0, data=b"a" * BLOCK)
        medium.kick()
        medium.control("powercut", "cut")
        medium.wait()
        assert write.error == errno.EIO


def test_full_log_goes_down_early_and_in_order(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with Medium(f"powercut:limit=64K|file:{path},create=1,size=1M") as medium:
        for i in range(256):
            medium.write(i * BLOCK, bytes([i]) * BLOCK)
        on_disk = path.read_bytes()
        oldest = [on_disk[i * BLOCK : (i + 1) * BLOCK] == bytes([i]) * BLOCK for i in range(1, 200)]
        assert all(oldest)
        assert on_disk[255 * BLOCK :] == bytes(BLOCK)
        medium.write(0, b"x" * (128 << 10))  # larger than the log
        assert path.read_bytes()[: 128 << 10] == b"x" * (128 << 10)
        assert medium.read(255 * BLOCK, BLOCK) == b"\xff" * BLOCK


def test_closing_loses_what_was_not_synced(tmp_path: Path) -> None:
    spec = f"powercut|file:{tmp_path}/f,create=1,size=64K"
    with Medium(spec) as medium:
        medium.write(0, b"a" * BLOCK)
        medium.sync()
        medium.write(0, b"b" * BLOCK)
        medium.write(BLOCK, b"b" * BLOCK)
    with Medium(spec) as medium:
        assert medium.read(0, 2 * BLOCK) == b"a" * BLOCK + bytes(BLOCK)


def test_cut_just_before_the_close_happens(tmp_path: Path) -> None:
    def run(number: int, *, wait: bool) -> bytes:
        path = tmp_path / f"{number}{wait}"
        with Medium(f"powercut:seed={number}|file:{path},create=1,size=64K") as medium:
            for i in range(16):
                medium.write(i * BLOCK, b"a" * BLOCK)
            medium.control("powercut", "cut")
            if wait:
                medium.read(0, BLOCK)
        return path.read_bytes()

    for number in range(5):
        assert run(number, wait=False) == run(number, wait=True)
        assert b"a" in run(number, wait=False)


def test_failing_medium_below_fails_the_sync_and_loses_nothing() -> None:
    with Medium(f"powercut|error:op=write,count=1|{RAM}") as medium:
        medium.write(0, b"a" * BLOCK)
        medium.write(BLOCK, b"b" * BLOCK)
        assert medium.run(SYNC).error == errno.EIO
        assert medium.read(0, 2 * BLOCK) == b"a" * BLOCK + b"b" * BLOCK
        assert medium.run(SYNC).error == 0
        cut(medium)
        assert medium.read(0, 2 * BLOCK) == b"a" * BLOCK + b"b" * BLOCK


def test_full_log_over_a_failing_medium_fails_writes_and_recovers() -> None:
    with Medium(f"powercut:limit=16K|error:op=write,errno=ENOSPC|{RAM}") as medium:
        errors = [medium.run(WRITE, i * BLOCK, data=b"a" * BLOCK).error for i in range(12)]
        assert errors[:4] == [0] * 4
        assert set(errors[4:]) == {errno.ENOSPC}
        assert medium.read(0, 4 * BLOCK) == b"a" * 4 * BLOCK
        medium.control("error", "set rate=0")
        medium.write(8 * BLOCK, b"c" * BLOCK)
        medium.sync()
        assert medium.read(8 * BLOCK, BLOCK) == b"c" * BLOCK


def test_shrinking_drops_what_is_beyond() -> None:
    with Medium(f"powercut|{RAM}") as medium:
        medium.write(SIZE - BLOCK, b"a" * BLOCK)
        medium.write(0, b"b" * BLOCK)
        assert medium.resize(SIZE // 2) == 0
        medium.sync()
        assert medium.run(READ, SIZE - BLOCK, BLOCK).error == errno.EINVAL
        cut(medium)
        assert medium.read(0, BLOCK) == b"b" * BLOCK


@pytest.mark.parametrize("below", [RAM, "file:{path},create=1,size=1M"])
def test_each_part_of_a_read_has_what_is_not_below_yet(below: str, tmp_path: Path) -> None:
    with Medium("powercut|" + below.format(path=tmp_path / "f")) as medium:
        medium.write(0, b"a" * 4 * BLOCK)
        medium.sync()
        medium.write(BLOCK, b"b" * BLOCK)
        medium.write(2 * BLOCK + SECTOR, b"c" * SECTOR)
        parts = (BLOCK + SECTOR, BLOCK, 2 * BLOCK - SECTOR)
        request = medium.run(READ, 0, 4 * BLOCK, parts=parts)
        assert request.error == 0
        expected = b"a" * BLOCK + b"b" * BLOCK + b"a" * SECTOR + b"c" * SECTOR
        assert request.data == expected.ljust(4 * BLOCK, b"a")
        assert request.is_whole()
