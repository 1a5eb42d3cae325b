"""What a target would refuse when it starts is found before, with where it stands."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec
import pytest

from prestage.target.config_checks import check
from prestage.target.places import check_places
from prestage.target.settings import (
    DEFAULT_NQN,
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    SubsystemSettings,
    TargetSettings,
)

MODEL = {"seed": 1, "read_us": 80, "read_p99_us": 200, "write_us": 20, "bandwidth": "1G"}
UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


def ram(**more: object) -> NamespaceSettings:
    return msgspec.structs.replace(NamespaceSettings(media="ram", size=1 << 20), **more)


def faults(tmp_path: Path, *namespaces: NamespaceSettings, **more: object) -> list[str]:
    """The faults of a target with these namespaces."""
    settings = TargetSettings(
        subsystems=[SubsystemSettings(namespaces=list(namespaces))],
        state_directory=str(tmp_path / "state" / "of"),
    )
    found = check(msgspec.structs.replace(settings, **more))
    return [f"{path}: {message}" for path, message in found]


def of_file(tmp_path: Path, **more: object) -> list[str]:
    """The faults of one namespace, without the path to it."""
    base = NamespaceSettings(path=str(tmp_path / "f"))
    found = faults(tmp_path, msgspec.structs.replace(base, **more))
    return [one.removeprefix("subsystems[0].namespaces[0].") for one in found]


# ---- listeners ----


@pytest.mark.parametrize(
    ("first", "second"),
    [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("::", "::1"), ("::1", "::")],
)
def test_a_wildcard_takes_its_port_on_every_address_of_its_family(
    tmp_path: Path, first: str, second: str
) -> None:
    both = [ListenerSettings(address=one, port=4439) for one in (first, second)]
    wild, other = (0, 1) if first in ("0.0.0.0", "::") else (1, 0)
    found = f"found {both[other].address}:4439, which {both[wild].address}:4439 takes as well"
    assert faults(tmp_path, listeners=both) == [
        f"listeners[{other}]: {found}, expected another port than in listeners[{wild}]"
    ]


def test_the_families_share_a_port_and_others_are_apart(tmp_path: Path) -> None:
    pairs = (("0.0.0.0", 4439), ("::", 4439), ("127.0.0.1", 4440), ("::1", 4440), ("::", 0))
    listeners = [ListenerSettings(address=address, port=port) for address, port in pairs]
    listeners += [ListenerSettings(address="0.0.0.0", port=0), ListenerSettings(port=0)]
    assert faults(tmp_path, listeners=listeners) == []


def test_an_ipv4_address_in_the_form_of_ipv6_cannot_be_listened_on(tmp_path: Path) -> None:
    listeners = [ListenerSettings(address="::ffff:127.0.0.1")]
    assert faults(tmp_path, listeners=listeners) == [
        'listeners[0].address: found "::ffff:127.0.0.1", expected the IPv4 address 127.0.0.1'
    ]


# ---- numbers and identities ----


def test_a_number_that_is_the_lowest_free_one_of_another_is_taken(tmp_path: Path) -> None:
    assert faults(tmp_path, ram(), ram(nsid=1)) == [
        "subsystems[0].namespaces[1].nsid: found 1 again, expected something else than in "
        "subsystems[0].namespaces[0].nsid"
    ]
    assert faults(tmp_path, ram(nsid=1), ram(), ram(nsid=3)) == []


def test_an_extension_namespace_takes_a_number_too(tmp_path: Path) -> None:
    extended = SubsystemSettings(extension=True, extension_nsid=1, namespaces=[ram(), ram(nsid=2)])
    assert faults(tmp_path, subsystems=[extended]) == [
        "subsystems[0].namespaces[1].nsid: found 2 again, expected something else than in "
        "subsystems[0].namespaces[0].nsid"
    ]


def test_the_bytes_of_a_uuid_are_no_nguid_of_another(tmp_path: Path) -> None:
    nguid = UUID.replace("-", "").upper()
    assert faults(tmp_path, ram(nguid=nguid), ram(uuid=UUID)) == [
        f"subsystems[0].namespaces[1].uuid: found {UUID}, expected other bytes than in "
        "subsystems[0].namespaces[0].nguid"
    ]
    assert faults(tmp_path, ram(uuid=UUID, nguid=nguid)) == []
    assert faults(tmp_path, ram(nguid=nguid), ram(uuid=UUID, nguid="1" * 32)) == []


def test_data_in_a_capsule_is_no_more_than_a_transfer(tmp_path: Path) -> None:
    limits = LimitSettings(max_transfer=4096, in_capsule=8192)
    assert faults(tmp_path, limits=limits) == [
        "limits.in_capsule: found 8K, expected at most limits.max_transfer, 4K"
    ]


# ---- media ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"read_p99_us": 79}, "read_p99_us: found 79, expected at least read_us, 80"),
        ({"write_p99_us": "19.5"}, 'write_p99_us: found "19.5", expected at least write_us, 20'),
    ],
)
def test_a_percentile_is_not_below_its_median(
    tmp_path: Path, options: dict[str, str | int | float], message: str
) -> None:
    good = {**MODEL, "channels": 4, "write_p99_us": 20}
    more = {"media": "model", "size": 1 << 20}
    assert of_file(tmp_path, **more, media_options=good) == []
    found = of_file(tmp_path, **more, media_options={**good, **options})
    assert found == [f"media_options.{message}"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("error:first=9,last=1", "last: found 1, expected at least first, 9"),
        ("error:last=1K,first=2K", "last: found 1K, expected at least first, 2K"),
        ("error:first=9,first=9", "first: found it again, expected it once"),
    ],
)
def test_a_wrapper_that_could_not_work_is_refused(tmp_path: Path, spec: str, message: str) -> None:
    assert faults(tmp_path, ram(faults=[spec])) == [
        f"subsystems[0].namespaces[0].faults[0]: {message}"
    ]
    assert faults(tmp_path, ram(faults=["error:first=9,last=9", "error:last=4K"])) == []


def test_there_are_only_so_many_wrappers(tmp_path: Path) -> None:
    assert faults(tmp_path, ram(faults=["delay"] * 15)) == []
    assert faults(tmp_path, ram(faults=["delay"] * 16)) == [
        "subsystems[0].namespaces[0].faults: found 16, expected at most 15"
    ]


# ---- backing files ----


def test_a_new_file_is_in_a_folder_that_is_there_or_that_the_target_makes(tmp_path: Path) -> None:
    size = 1 << 20
    for good in ("f", "state/f", "state/of/f"):
        assert of_file(tmp_path, path=str(tmp_path / good), size=size) == []
    for bad in ("no/f", "state/other/f"):
        path = tmp_path / bad
        (found,) = of_file(tmp_path, path=str(path), size=size)
        assert found.startswith('path: found "')
        assert found.endswith(", expected a file in a directory that is there")


def test_a_file_is_of_whole_blocks_unless_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(4096 + 512))
    (found,) = of_file(tmp_path)
    assert found.startswith("size: found none, and ")
    assert found.endswith(
        " has 4608 bytes, expected a multiple of block, 4096, or a size to grow it to"
    )
    assert of_file(tmp_path, block=512) == []
    assert of_file(tmp_path, size=8192) == []
    path.write_bytes(b"")
    (found,) = of_file(tmp_path)
    assert found.startswith("size: found none, and ")
    assert found.endswith(" is empty, expected a size to give it")
    assert of_file(tmp_path, size=8192) == []


def test_a_link_to_nothing_is_no_path_for_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "f").symlink_to(tmp_path / "nothing")
    (found,) = of_file(tmp_path, size=4096)
    assert found.endswith("a link to nothing, expected a file, or a path where nothing is")


def test_a_size_is_one_that_a_medium_can_have(tmp_path: Path) -> None:
    assert faults(tmp_path, ram(size=1 << 46)) == []
    assert faults(tmp_path, ram(size=1 << 47)) == [
        "subsystems[0].namespaces[0].size: found 128T, expected at most 70368744177664"
    ]
    (found,) = of_file(tmp_path, size=1 << 63)
    assert found.endswith("expected at most 9223372036854775807")


def test_namespaces_of_all_subsystems_are_counted(tmp_path: Path) -> None:
    many = [ram(size=4096)] * 600
    subsystems = [
        SubsystemSettings(nqn=f"{DEFAULT_NQN}{n}", namespaces=many, max_namespaces=1023)
        for n in range(2)
    ]
    assert faults(tmp_path, subsystems=subsystems) == [
        "subsystems: found 1200 namespaces, expected at most 1024 in all"
    ]


def test_what_is_neither_file_nor_block_device_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    (found,) = of_file(tmp_path)
    assert found.startswith("path: found the pipe ")
    assert of_file(tmp_path, path="/dev/null") == [
        'path: found the character device "/dev/null", expected a file or block device'
    ]


@pytest.mark.parametrize("how", ["symlink_to", "hardlink_to"])
def test_one_file_by_two_names_is_found(tmp_path: Path, how: str) -> None:
    (tmp_path / "f").write_bytes(bytes(4096))
    getattr(tmp_path / "g", how)(tmp_path / "f")
    both = [NamespaceSettings(path=str(tmp_path / name)) for name in "fg"]
    (found,) = faults(tmp_path, *both)
    assert found.startswith("subsystems[0].namespaces[1].path: found ")
    assert found.endswith(
        " again, expected something else than in subsystems[0].namespaces[0].path"
    )


# ---- the target's own places ----


def test_places_that_cannot_be_made_are_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")

    def found(directory: str, control_socket: str = "") -> list[str]:
        state = str(tmp_path / directory)
        settings = TargetSettings(state_directory=state, control_socket=control_socket)
        return [f"{path}: {message}" for path, message in check_places(settings)]

    assert found("new/s", str(tmp_path / "other" / "c")) == []
    for bad in ("f", "f/s"):
        (one,) = found(bad)
        assert one.startswith("state_directory: found ")
        assert one.endswith("expected a directory")
    (one,) = found("d" * 100)
    assert one.startswith("state_directory: found ")
    assert one.endswith("expected the path of a Unix socket, at most 107 bytes")
    (one,) = found("new", str(tmp_path / "f"))
    assert one.startswith("control_socket: found ")
    assert one.endswith("expected a free path for a socket")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "prestage.sock"))
    assert found(".") == []
