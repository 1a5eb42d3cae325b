"""sd_notify: what arrives at the service manager, and that its absence harms nobody."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from prestage.target.notify import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_lines_arrive_as_one_datagram(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        name = f"prestage-test-{tmp_path.name}-{id(manager)}"
        manager.bind(f"\0{name}" if abstract else str(tmp_path / "n"))
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else str(tmp_path / "n"))
        assert notify("READY=1", "STATUS=all\nwell")
        manager.settimeout(5)
        assert manager.recv(1000) == b"READY=1\nSTATUS=all well"


@pytest.mark.parametrize(
    "address", ["", "relative", "/no/such/socket", "@nobody-listens", "/" * 200]
)
def test_without_a_listener_nothing_happens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")


def test_without_a_service_manager_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")


def test_a_manager_that_reads_nothing_does_not_block_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        sent = [notify(f"STATUS={n}") for n in range(2000)]
    assert sent[0]
    assert not sent[-1]
