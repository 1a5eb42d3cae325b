from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fake_data_path import NQN, Rig, run, settings_in, subsystem

from prestage.target.errors import AlreadyExists, Invalid, MediumError
from prestage.target.settings import LimitSettings, NamespaceSettings
from prestage.target.volumes import backing_path, escape, medium_spec, validate


@pytest.mark.parametrize(
    ("settings", "spec"),
    [
        (NamespaceSettings(path="/a/b"), "file:/a/b"),
        (NamespaceSettings(path="/a/b", size=8192), "file:/a/b,size=8192,create=1"),
        (NamespaceSettings(path="/a,b|c%d"), "file:/a%2Cb%7Cc%25d"),
        (
            NamespaceSettings(path="/d", media_options={"engine": "threads", "depth": 4}),
            "file:/d,engine=threads,depth=4",
        ),
        (NamespaceSettings(media="ram", size=4096), "ram:size=4096"),
        (
            NamespaceSettings(media="model", path="/m", size=4096, media_options={"seed": 1}),
            "model:/m,size=4096,create=1,seed=1",
        ),
        (
            NamespaceSettings(
                media="ram", size=4096, faults=["delay:read_us=100", "error:op=read,errno=EIO"]
            ),
            "delay:read_us=100|error:op=read,errno=EIO|ram:size=4096",
        ),
    ],
)
def test_the_specification_of_a_medium(settings: NamespaceSettings, spec: str) -> None:
    assert medium_spec(settings) == spec


def test_a_relative_path_is_made_absolute_and_links_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("/dev/null")
    assert medium_spec(NamespaceSettings(path="link")) == f"file:{escape(str(tmp_path))}/link"


def test_another_way_to_the_same_file_is_the_same_path(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    other = NamespaceSettings(path=f"{tmp_path}/in/../image")
    assert backing_path(other) == backing_path(NamespaceSettings(path=f"{tmp_path}/./image"))


def test_good_settings_are_valid() -> None:
    validate(NamespaceSettings(path="/x", nguid="0" * 32, write_policy="through"), "here")


def test_the_error_says_what_where_and_what_was_expected() -> None:
    with pytest.raises(Invalid) as caught:
        validate(NamespaceSettings(path="/x", block=1000), "nqn.a namespace /x")
    error = caught.value
    assert (error.what, error.where) == ("1000 is not allowed", "nqn.a namespace /x block")
    assert error.expected == "512 or 4096"
    assert str(error) == ("nqn.a namespace /x block: 1000 is not allowed (expected 512 or 4096)")


@pytest.mark.parametrize("how", ["symlink_to", "hardlink_to"])
def test_a_file_that_is_served_by_another_path_is_named(tmp_path: Path, how: str) -> None:
    (tmp_path / "f").write_bytes(bytes(4096))
    (tmp_path / "other").write_bytes(bytes(4096))
    getattr(tmp_path / "g", how)(tmp_path / "f")

    async def main() -> None:
        async with Rig(settings_in(tmp_path / "state", subsystem(NQN, 1))) as rig:
            nsid = await rig.target.add_namespace(NQN, NamespaceSettings(path=str(tmp_path / "f")))
            rig.fake.refuses_open = str(tmp_path)
            expected = f"it is {NQN} namespace {nsid} already, by another path"
            with pytest.raises(AlreadyExists, match=expected):
                await rig.target.add_namespace(NQN, NamespaceSettings(path=str(tmp_path / "g")))
            with pytest.raises(MediumError, match="in use by another target"):
                await rig.target.add_namespace(NQN, NamespaceSettings(path=str(tmp_path / "other")))

    run(main())


def test_shrinking_waits_for_the_medium_within_a_bound(tmp_path: Path) -> None:
    async def main() -> None:
        limits = LimitSettings(stop_s=0.2)
        settings = msgspec.structs.replace(settings_in(tmp_path, subsystem(NQN, 1)), limits=limits)
        async with Rig(settings) as rig:
            namespace = rig.target.subsystem(NQN).namespaces[1]
            before = namespace.size_bytes
            rig.fake.busy_resizes = 3
            await rig.target.resize_namespace(NQN, 1, before // 2)
            assert (namespace.size_bytes, rig.fake.busy_resizes) == (before // 2, 0)
            rig.fake.busy_resizes = 1 << 30
            with pytest.raises(MediumError, match="busy beyond the new end"):
                await rig.target.resize_namespace(NQN, 1, before // 4)
            assert namespace.size_bytes == rig.fake.volumes[0].size == before // 2

    run(main())
