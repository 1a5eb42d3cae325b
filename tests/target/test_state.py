"""The state directory of a target: lost, full, or another's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fake_data_path import NQN, FakeDataPath, Rig, ram, run, settings_in, subsystem

from prestage.target.errors import AlreadyExists, TargetError
from prestage.target.target import Target

OTHER = "nqn.2026-11.io.prestage:other"


def test_two_targets_do_not_share_a_state_directory(tmp_path: Path) -> None:
    async def main() -> None:
        settings = settings_in(tmp_path, subsystem(NQN, 1))
        async with Rig(settings):
            second = Target(settings, FakeDataPath())
            with pytest.raises(AlreadyExists, match="in use by a running target"):
                await second.start()
            assert not second.is_running
        async with Rig(settings) as again:
            assert again.target.is_running

    run(main())


def test_stop_is_clean_although_the_state_directory_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        target = Target(settings_in(tmp_path / "state", subsystem(NQN, 1)), FakeDataPath())
        await target.start()
        shutil.rmtree(tmp_path / "state")
        assert (await target.stop()).clean

    run(main())


def test_what_cannot_be_kept_is_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    async def main() -> None:
        async with Rig(settings_in(tmp_path, subsystem(NQN, 1))) as rig:
            before = sorted(rig.fake.maps)
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fails)
                with pytest.raises(TargetError, match="No space left"):
                    await rig.target.add_namespace(NQN, ram())
                with pytest.raises(TargetError, match="No space left"):
                    await rig.target.add_subsystem(subsystem(OTHER, 1))
            assert sorted(rig.fake.maps) == before
            assert sum(volume.open for volume in rig.fake.volumes.values()) == 1
            assert [each.nqn for each in rig.target.subsystems] == [NQN]
            assert await rig.target.add_namespace(NQN, ram()) == 2
            await rig.target.add_subsystem(subsystem(OTHER, 1))

    run(main())
