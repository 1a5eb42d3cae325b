"""The ready file: only what a target has written is replaced or removed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from prestage.target.errors import Invalid
from prestage.target.ready_file import ReadyFile
from prestage.target.rpc.server import take_lock


def report(socket: Path) -> dict[str, Any]:
    """What a ready file has, of a target with that control socket."""
    return {
        "ready": True,
        "pid": 1,
        "listeners": [],
        "subsystems": [],
        "control_socket": str(socket),
        "state_directory": str(socket.parent),
        "warnings": [],
    }


@pytest.mark.parametrize(
    "content",
    [b"", b"precious", b"{}", b'{"ready": true}', b'{"ready": true, "pid": 7}', b"\xff", b"[1]"],
)
def test_a_file_of_somebody_else_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "precious"
    path.write_bytes(content)
    ready = ReadyFile(str(path))
    with pytest.raises(Invalid) as error:
        ready.claim(str(tmp_path / "s"))
    assert str(error.value) == (
        f'--ready-file: found "{path}": something else is there already (expected a path where'
        " nothing is, or a ready file of a target that has ended)"
    )
    ready.remove()
    assert path.read_bytes() == content


def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("pipe", "link", ""):
        with pytest.raises(Invalid, match="something else is there already"):
            ReadyFile(str(tmp_path / name)).claim(str(tmp_path / "s"))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["no/such", "n" * 300])
def test_a_file_that_could_not_be_written_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(Invalid, match=rf"^--ready-file: found \S+{name[-9:]}\S*: .* \(expected a"):
        ReadyFile(str(tmp_path / name)).claim(str(tmp_path / "s"))


def test_a_file_whose_folder_goes_away_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    ready = ReadyFile(str(folder / "r"))
    ready.claim(str(tmp_path / "s"))
    folder.rmdir()
    with pytest.raises(Invalid, match=r'^--ready-file: found "\S+/r": No such file or directory'):
        ready.write(report(tmp_path / "s"))


def test_one_that_a_target_left_is_taken_away_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_text(json.dumps(report(tmp_path / "other")))
    ready = ReadyFile(str(path))
    ready.claim(str(tmp_path / "s"))
    assert not path.exists()
    ready.write(report(tmp_path / "s"))
    assert json.loads(path.read_text()) == report(tmp_path / "s")
    assert path.stat().st_mode & 0o777 == 0o644
    ready.remove()
    assert list(tmp_path.iterdir()) == []


def test_that_of_a_running_target_is_refused_and_stays(tmp_path: Path) -> None:
    path, other = tmp_path / "r", tmp_path / "other"
    path.write_text(json.dumps(report(other)))
    lock = take_lock(f"{other}.lock")
    try:
        with pytest.raises(Invalid, match="it is that of a running target, process 1"):
            ReadyFile(str(path)).claim(str(tmp_path / "s"))
        # Whoever has the lock is the only one who can have written it, and did so before.
        ReadyFile(str(path)).claim(str(other))
    finally:
        os.close(lock)
    assert not path.exists()


def test_what_has_taken_its_place_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    ready = ReadyFile(str(path))
    ready.write(report(tmp_path / "s"))
    (tmp_path / "new").write_text("of somebody else")
    (tmp_path / "new").replace(path)
    ready.remove()
    assert path.read_text() == "of somebody else"
