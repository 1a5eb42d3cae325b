"""The flags of serve: what they say, what they refuse, and how they go over the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from prestage.target.config import InvalidConfig
from prestage.target.flags import (
    ServeFlags,
    UsageError,
    parse_listener,
    parse_namespace,
    settings_from_flags,
)
from prestage.target.settings import DEFAULT_NQN, ListenerSettings, NamespaceSettings
from prestage.target.sizes import quote

FILE = """
[[listeners]]
port = 5000
[tier]
size = "32M"
slot = "32K"
[[subsystems]]
nqn = "nqn.2026-11.com.example:a"
serial = "S1"
[[subsystems.namespaces]]
media = "ram"
size = "1M"
"""
SECOND = '[[subsystems]]\nnqn = "nqn.2026-11.com.example:b"\n'


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "t.toml"
    path.write_text(FILE)
    return str(path)


def test_without_flags_the_embedded_default_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = settings_from_flags(ServeFlags())
    assert settings.listeners == [ListenerSettings(address="127.0.0.1", port=4420)]
    (subsystem,) = settings.subsystems
    assert subsystem.nqn == DEFAULT_NQN == "nqn.2026-11.io.prestage:default"
    assert subsystem.namespaces == [NamespaceSettings(path="var/default.img", nsid=1, size=4 << 30)]
    assert settings.tier.size == 512 << 20


def test_the_default_image_keeps_the_size_that_it_has(tmp_path: Path) -> None:
    image = tmp_path / "default.img"
    for content, size in ((b"", 4 << 30), (bytes(8192), 0)):  # 0: what the file has
        image.write_bytes(content)
        settings = settings_from_flags(ServeFlags(state_directory=str(tmp_path)))
        assert settings.subsystems[0].namespaces[0].size == size


def test_the_default_image_is_in_the_state_directory() -> None:
    settings = settings_from_flags(ServeFlags(state_directory="/srv/x"))
    assert settings.subsystems[0].namespaces[0].path == "/srv/x/default.img"


@pytest.mark.parametrize(("present", "size"), [(0, 4 << 30), (1 << 20, 0), (8 << 30, 0)])
def test_a_default_image_that_was_resized_keeps_its_size(
    tmp_path: Path, present: int, size: int
) -> None:
    with (tmp_path / "default.img").open("wb") as image:
        image.truncate(present)
    settings = settings_from_flags(ServeFlags(state_directory=str(tmp_path)))
    assert settings.subsystems[0].namespaces[0].size == size


def test_flags_alone_make_one_subsystem() -> None:
    settings = settings_from_flags(
        ServeFlags(
            listen=["127.0.0.1:0", "[::1]:4421"],
            nqn="nqn.2026-11.com.example:x",
            namespace=["ram:,size=1M", "/tmp/x.img,size=2M,block=512"],
            dram="64M",
            reactors=2,
            control_socket="/tmp/c",
        )
    )
    assert [(one.address, one.port) for one in settings.listeners] == [
        ("127.0.0.1", 0),
        ("::1", 4421),
    ]
    (subsystem,) = settings.subsystems
    assert subsystem.nqn == "nqn.2026-11.com.example:x"
    assert [one.media for one in subsystem.namespaces] == ["ram", "file"]
    assert settings.tier.size == 64 << 20
    assert settings.reactors == 2
    assert settings.control_socket == "/tmp/c"


def test_flags_go_over_the_file_and_leave_the_rest_of_it(config: str) -> None:
    settings = settings_from_flags(
        ServeFlags(
            config=config,
            listen=["127.0.0.1:0"],
            nqn="nqn.2026-11.com.example:x",
            namespace=["ram:,size=2M"],
            dram="64M",
        )
    )
    assert [one.port for one in settings.listeners] == [0]
    (subsystem,) = settings.subsystems
    assert (subsystem.nqn, subsystem.serial) == ("nqn.2026-11.com.example:x", "S1")
    assert [one.size for one in subsystem.namespaces] == [2 << 20]
    assert (settings.tier.size, settings.tier.slot) == (64 << 20, 32 << 10)


def test_an_extension_namespace_is_asked_for_by_a_flag(config: str) -> None:
    for flags in (
        ServeFlags(extension=True),
        ServeFlags(extension=True, namespace=["ram:,size=1M"]),
        ServeFlags(extension=True, config=config),
    ):
        (subsystem,) = settings_from_flags(flags).subsystems
        assert (subsystem.extension, subsystem.extension_nsid) == (True, 0)
        assert len(subsystem.namespaces) == 1, "beside what is there anyway"


def test_with_several_subsystems_the_flag_is_for_the_one_that_is_named(config: str) -> None:
    with Path(config).open("a") as file:
        file.write(SECOND)
    flags = ServeFlags(config=config, extension=True, nqn="nqn.2026-11.com.example:b")
    assert [one.extension for one in settings_from_flags(flags).subsystems] == [False, True]
    with pytest.raises(UsageError, match="--nqn"):
        settings_from_flags(ServeFlags(config=config, extension=True))


def test_a_file_alone_is_taken_as_it_is(config: str) -> None:
    settings = settings_from_flags(ServeFlags(config=config))
    assert [one.port for one in settings.listeners] == [5000]
    assert [one.size for one in settings.subsystems[0].namespaces] == [1 << 20]


def test_nqn_chooses_among_the_subsystems_of_the_file(config: str) -> None:
    with Path(config).open("a") as file:
        file.write(SECOND)
    chosen = ServeFlags(config=config, nqn="nqn.2026-11.com.example:b", namespace=["ram:,size=2M"])
    first, second = settings_from_flags(chosen).subsystems
    assert [one.size for one in first.namespaces] == [1 << 20]
    assert [one.size for one in second.namespaces] == [2 << 20]
    with pytest.raises(UsageError) as caught:
        settings_from_flags(ServeFlags(config=config, namespace=["ram:,size=2M"]))
    assert str(caught.value) == (
        "--nqn: found none, expected one of nqn.2026-11.com.example:a, nqn.2026-11.com.example:b"
    )


def test_a_fault_of_the_file_is_no_fault_of_a_flag(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        settings_from_flags(ServeFlags(config=str(tmp_path / "none"), dram="64M"))
    assert not isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (ServeFlags(dram="lots"),
         '--dram: found "lots", expected a size such as 4G, 512M, 64K or a whole number of bytes'),
        (ServeFlags(dram="1M"),
         ("command line: tier.size: found 1M, expected at least 4M (16 slots, and 4 transfers of "
         "limits.max_transfer)")),
        (ServeFlags(reactors=0), "command line: reactors: found 0, expected 1 to 64"),
        (ServeFlags(listen=["localhost:1"]),
         ('--listen: "localhost:1": found "localhost", expected an IPv4 or IPv6 address such as '
         "127.0.0.1 or ::1")),
        (ServeFlags(listen=["::1:4420"]),
         '--listen: found "::1:4420", expected brackets around an IPv6 address: [::1:4420]:4420'),
        (ServeFlags(listen=["127.0.0.1:99999"]),
         '--listen: "127.0.0.1:99999": found 99999, expected 0 to 65535'),
        (ServeFlags(listen=["127.0.0.1:http"]),
         ('--listen: found "127.0.0.1:http", expected ADDRESS:PORT such as 127.0.0.1:4420 or '
         "[::1]:4420")),
        (ServeFlags(nqn="x"),
         ('command line: subsystems[0].nqn: found "x", expected an NQN such as '
         "nqn.2026-11.com.example:name")),
        (ServeFlags(namespace=["/no/such"]),
         ('--namespace /no/such: path: found no file "/no/such", expected an existing file, or a '
         "size to create it with")),
        (ServeFlags(namespace=["/x,size=1Q"]),
         ('--namespace /x,size=1Q: size: found "1Q", expected a size such as 4G, 512M, 64K or a '
         "whole number of bytes")),
        (ServeFlags(namespace=["/x,sice=1G"]),
         '--namespace: sice: unknown option, did you mean "size"?'),
        (ServeFlags(namespace=["ram:,size=1M,size=2M"]),
         "--namespace: size: given twice, expected once"),
        (ServeFlags(namespace=["/" + "x" * 300 + ",size=1M"]),
         (f'--namespace /{"x" * 300},size=1M: path: found {quote("/" + "x" * 300)}: '
          "File name too long, expected a file that can be opened")),
        (ServeFlags(namespace=["ram:,size=1M,nsid=x"]),
         '--namespace: nsid: found "x", expected a whole number'),
        (ServeFlags(namespace=["ram:,size=1M,readonly=maybe"]),
         '--namespace: read_only: found "maybe", expected true or false'),
        (ServeFlags(namespace=["ram:,size=1M", "ram:,size=1M,nsid=2", "ram:,size=1M,nsid=2"]),
         ("command line: subsystems[0].namespaces[2].nsid: found 2 again, expected something else "
         "than in subsystems[0].namespaces[1].nsid")),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_named(flags: ServeFlags, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_from_flags(flags)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("/tmp/a,size=4G", NamespaceSettings(path="/tmp/a", size=4 << 30)),
        ("file:/tmp/a,size=1M,depth=4",
         NamespaceSettings(path="/tmp/a", size=1 << 20, media_options={"depth": "4"})),
        ("/tmp/a%2Cb%25,size=1M", NamespaceSettings(path="/tmp/a,b%", size=1 << 20)),
        ("ram:,size=1M,block=512,nsid=3,write=through,read_only",
         NamespaceSettings(media="ram", size=1 << 20, block=512, nsid=3, write_policy="through",
                           read_only=True)),
        (("model:/tmp/a,size=1M,seed=7,read_us=90,read_p99_us=200,write_us=9,bandwidth=2G,"
         "channels=4"),
         NamespaceSettings(media="model", path="/tmp/a", size=1 << 20,
                           media_options={"seed": "7", "read_us": "90", "read_p99_us": "200",
                                          "write_us": "9", "bandwidth": "2G", "channels": "4"})),
        ("ram:,size=1M,fault=delay:read_us=1;seed=2,fault=stall",
         NamespaceSettings(media="ram", size=1 << 20,
                           faults=["delay:read_us=1,seed=2", "stall"])),
    ],
)  # fmt: skip
def test_a_namespace_is_described_in_a_flag(text: str, settings: NamespaceSettings) -> None:
    assert parse_namespace(text, "--namespace") == settings


@pytest.mark.parametrize(
    ("text", "address", "port"),
    [("127.0.0.1:0", "127.0.0.1", 0), ("127.0.0.1", "127.0.0.1", 4420), ("[::1]:80", "::1", 80),
     ("[::]", "::", 4420), ("0.0.0.0:4421", "0.0.0.0", 4421)],
)  # fmt: skip
def test_a_listener_is_described_in_a_flag(text: str, address: str, port: int) -> None:
    assert parse_listener(text, "--listen") == ListenerSettings(address=address, port=port)
