from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fake_data_path import run

from prestage.target.errors import AlreadyExists, TargetError
from prestage.target.identity import MAX_FILE_BYTES, Identity, lock_directory


def test_identifiers_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        first = await Identity.load(tmp_path / "new" / "folder")
        serial, number = first.serial("nqn.a"), first.namespace_uuid("/backing/file")
        assert 1 <= len(serial) <= 20 and serial.isascii()
        await first.save()
        second = await Identity.load(tmp_path / "new" / "folder")
        assert second.serial("nqn.a") == serial
        assert second.namespace_uuid("/backing/file") == number
        assert second.serial("nqn.b") != serial
        assert not second.warnings

    run(main())


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"version": 9}',
        b'{"serials": 5}',
        b'{"other": {}}',
        b"[]",
        b'{"starts": -1}',
        b'{"unsafe_stops": 99999999999999999999}',
    ],
)
def test_a_damaged_file_is_set_aside_with_a_warning(tmp_path: Path, damage: bytes) -> None:
    async def main() -> None:
        (tmp_path / "identity.json").write_bytes(damage)
        identity = await Identity.load(tmp_path)
        assert len(identity.warnings) == 1
        assert "identity.json.damaged-1" in identity.warnings[0]
        assert (tmp_path / "identity.json.damaged-1").read_bytes() == damage
        identity.serial("nqn.a")
        await identity.save()
        (tmp_path / "identity.json").write_bytes(damage)
        await Identity.load(tmp_path)
        assert (tmp_path / "identity.json.damaged-2").read_bytes() == damage

    run(main())


def test_saving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        identity = await Identity.load(tmp_path)
        serial = identity.serial("nqn.a")
        await identity.save()
        identity.serial("nqn.b")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fails)
            with pytest.raises(TargetError, match="No space left"):
                await identity.save()
        assert list(json.loads((tmp_path / "identity.json").read_text())["serials"]) == ["nqn.a"]
        assert (await Identity.load(tmp_path)).serial("nqn.a") == serial
        await identity.save()
        assert len(json.loads((tmp_path / "identity.json").read_text())["serials"]) == 2

    run(main())


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    async def main() -> None:
        identity = await Identity.load(tmp_path)
        await identity.save()
        assert not (tmp_path / "identity.json").exists()

    run(main())


def test_a_state_directory_that_is_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "var").write_text("")
        with pytest.raises(TargetError) as caught:
            await Identity.load(tmp_path / "var")
        assert "var" in caught.value.where and caught.value.expected == "a writable directory"

    run(main())


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "huge"])
def test_what_is_no_regular_file_of_bounded_size_is_refused_at_once(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "identity.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(TargetError, match="state directory"):
        run(Identity.load(tmp_path))


def test_a_path_that_is_not_utf_8_has_its_identifier_too(tmp_path: Path) -> None:
    async def main() -> None:
        first = await Identity.load(tmp_path)
        number = first.namespace_uuid(os.fsdecode(b"/a\xff"))
        await first.save()
        assert (await Identity.load(tmp_path)).namespace_uuid(os.fsdecode(b"/a\xff")) == number

    run(main())


def test_a_locked_directory_is_refused_to_the_next(tmp_path: Path) -> None:
    fd = lock_directory(tmp_path / "new")
    with pytest.raises(AlreadyExists, match=r"identity\.lock: in use by a running target"):
        lock_directory(tmp_path / "new")
    os.close(fd)
    os.close(lock_directory(tmp_path / "new"))
