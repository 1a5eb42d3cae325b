"""The udev rule that gives the node of an extension namespace to a group."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from prestage.ext.layout import EXTENSION_UUID_PREFIX

ROOT = Path(__file__).resolve().parents[2]
RULE = ROOT / "host_client" / "udev" / "59-prestage-pax.rules"


def lines() -> list[str]:
    """Return the lines that are rules."""
    found = RULE.read_text("utf-8").splitlines()
    return [line for line in found if line and not line.startswith("#")]


def test_it_knows_the_node_by_the_beginning_of_its_uuid() -> None:
    (match,) = [line for line in lines() if "ATTR{uuid}" in line]
    assert match == f'ATTR{{uuid}}!="{EXTENSION_UUID_PREFIX}-*", GOTO="prestage_pax_end"'


def test_the_group_may_read_and_write_it_and_nobody_else() -> None:
    assert 'GROUP="prestage", MODE="0660"' in lines()
    assert any(line.startswith('SYMLINK+="prestage/%k') for line in lines())


def test_others_leave_the_node_alone() -> None:
    assert 'ENV{UDISKS_IGNORE}="1"' in lines()
    assert 'ENV{UDEV_DISABLE_PERSISTENT_STORAGE_RULES_FLAG}="1"' in lines()
    assert RULE.name < "60-persistent-storage.rules", "which asks for that flag"


def test_every_jump_has_its_label() -> None:
    jumps = set(re.findall(r'GOTO="(\w+)"', RULE.read_text("utf-8")))
    assert jumps == {"prestage_pax_end"} and lines()[-1] == 'LABEL="prestage_pax_end"'


def test_it_is_installed_with_the_package_and_named_in_the_documentation() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    data = project["tool"]["setuptools"]["package-data"]
    assert data["prestage.host_client"] == ["udev/*.rules"]
    assert f"host_client/udev/{RULE.name}" in (ROOT / "docs" / "configuration.md").read_text()


@pytest.mark.skipif(shutil.which("udevadm") is None, reason="udev is not installed")
def test_udev_itself_finds_no_fault() -> None:
    command = ["udevadm", "verify", "--resolve-names=never", str(RULE)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if "nknown command" in result.stderr or "nrecognized option" in result.stderr:
        pytest.skip("this udevadm is older than its verify command")
    assert result.returncode == 0, result.stdout + result.stderr
