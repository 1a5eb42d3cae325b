"""Running targets for other people's tests: in a loop, in a thread, from fixtures."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import pytest
from fake_target import FakeReport, FakeTarget

from prestage import testing
from prestage.target.errors import Invalid, TargetError
from prestage.target.flags import parse_namespace
from prestage.target.rpc import view
from prestage.target.rpc.client import CallFailed
from prestage.target.settings import DEFAULT_NQN, NamespaceSettings

pytest_plugins = ["pytester"]


def fake(**arguments: object) -> testing.Target:
    return testing.Target(make=FakeTarget, **arguments)  # type: ignore[arg-type]


def test_a_target_runs_while_its_block_does_and_leaves_no_file() -> None:
    async def body() -> Path:
        async with fake() as target:
            assert (target.address, target.port) == ("127.0.0.1", 40000)
            assert target.nqn == DEFAULT_NQN
            (namespace,) = target.namespaces
            assert (namespace.nsid, namespace.size_bytes) == (1, 64 << 20)

            def ask() -> object:
                with target.client() as client:
                    return client.call("nvmf_get_subsystems")

            assert len(await asyncio.to_thread(ask)) == 2  # type: ignore[arg-type]
            assert target.directory.is_dir()
        return target.directory

    assert not asyncio.run(body()).exists()


def test_namespaces_are_sizes_paths_or_settings(tmp_path: Path) -> None:
    target = fake(
        namespaces=["1M", 1 << 20, f"{tmp_path}/a,size=2M"],
        nqn="nqn.2026-11.com.example:x",
        hosts=["nqn.2026-11.com.example:h"],
        dram="32M",
        extension=True,
    )
    with testing.in_thread(target):
        assert [one.settings.media for one in target.namespaces] == ["ram", "ram", "file"]
        assert target.nqn == "nqn.2026-11.com.example:x"
        assert target.settings.tier.size == 32 << 20
        assert view.subsystems(target.target)[0].extension_nsid == 1024


def test_wrong_arguments_are_named_and_leave_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    real = tempfile.mkdtemp

    def mkdtemp(**arguments: str) -> str:
        path = real(**arguments)
        made.append(Path(path))
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    with pytest.raises(Invalid, match=r"subsystems\[0\].nqn: found \"x\", expected an NQN"):
        fake(nqn="x")
    assert len(made) == 1
    assert not made[0].exists()


def test_a_failing_test_is_not_hidden_by_a_failing_stop() -> None:
    async def body() -> None:
        async with fake() as target:
            target.target.report = FakeReport(False, ["x"])  # type: ignore[attr-defined]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(body())


def test_data_that_was_not_flushed_fails_the_test() -> None:
    with (
        pytest.raises(TargetError, match="could not flush: x"),
        testing.in_thread(fake()) as target,
    ):
        target.target.report = FakeReport(False, ["x"])  # type: ignore[attr-defined]


def test_a_target_that_cannot_start_raises_in_the_callers_thread() -> None:
    def broken(settings: object) -> FakeTarget:
        target = FakeTarget(settings)  # type: ignore[arg-type]
        target.start_error = TargetError("no")
        return target

    target = testing.Target(make=broken)
    with pytest.raises(TargetError, match=r"^no$"), testing.in_thread(target):
        pytest.fail("it did start")
    assert not target.directory.exists()


def test_a_target_in_a_test_cannot_be_killed_by_its_control_socket() -> None:
    with testing.in_thread(fake()) as target, target.client() as client:
        with pytest.raises(CallFailed, match="SIGKILL is refused"):
            client.call("spdk_kill_instance", sig_name="SIGKILL")
        assert client.call("framework_wait_init") is True


def test_many_run_beside_each_other() -> None:
    async def body() -> int:
        async with fake() as one, fake() as two, fake() as three:
            return len({one.control_socket, two.control_socket, three.control_socket})

    assert asyncio.run(body()) == 3


@pytest.mark.parametrize(
    "settings",
    [
        NamespaceSettings(media="ram", size=1 << 20),
        NamespaceSettings(path="/tmp/a,b|c%", size=4097 * 512, block=512, nsid=3),
        NamespaceSettings(
            media="ram",
            size=1 << 20,
            faults=["delay:read_us=1,seed=2", "stall"],
            write_policy="through",
            read_only=True,
            uuid="6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            nguid="6ba7b8109dad11d180b400c04fd430c8",
        ),
    ],
)
def test_the_flag_of_a_namespace_gives_that_namespace(settings: NamespaceSettings) -> None:
    assert parse_namespace(testing.namespace_flag(settings), "--namespace") == settings


def test_a_spawned_target_that_cannot_start_is_shown_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(TargetError, match=r"(?s)ended with status 2; it said: .*--no-such-flag"),
        testing.spawn_target("--no-such-flag", directory=tmp_path),
    ):
        pytest.fail("it did start")


def test_the_fixtures_give_running_targets(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = [str(Path(entry).absolute()) for entry in sys.path if entry]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    pytester.makeconftest(
        """
        import prestage.testing
        from fake_target import FakeTarget

        prestage.testing.Target.__init__.__kwdefaults__["make"] = FakeTarget
        """
    )
    pytester.makepyfile(
        """
        def test_one(prestage_target):
            with prestage_target.client() as client:
                assert client.call("framework_wait_init") is True

        def test_two(prestage_target_factory):
            targets = [prestage_target_factory(namespaces=["1M"]) for _ in range(2)]
            assert [one.namespaces[0].size_bytes for one in targets] == [1 << 20] * 2
        """
    )
    found = pytester.runpytest_subprocess(
        "-p", "prestage.pytest_plugin", "-p", "no:looptime_plugin", "-p", "no:cacheprovider"
    )
    found.assert_outcomes(passed=2)
