"""The configuration file: what it gives, and that every fault is named."""

from __future__ import annotations

import os
import random
import string
from pathlib import Path

import pytest

from prestage.target.config import InvalidConfig, load_config, settings_from
from prestage.target.config_checks import nqn_fault
from prestage.target.settings import (
    HintSettings,
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    SchedulerSettings,
    SubsystemSettings,
    TargetSettings,
    TenantSettings,
    TierSettings,
    TransportSettings,
)

NS = "[[subsystems]]\n[[subsystems.namespaces]]\n"
RAM = NS + 'media = "ram"\nsize = "1M"\n'


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some processors, whatever this machine has."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 8})


def errors_of(text: str, tmp_path: Path) -> list[str]:
    """Load `text` as a file and return its faults, without the file's name."""
    path = tmp_path / "t.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidConfig) as caught:
        load_config(path)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


FULL = """
reactors = 2
cpus = [0, 1]
state_directory = "/srv/x"
control_socket = "/srv/x/c.sock"

[[listeners]]
address = "::1"
port = 0

[tier]
size = "64M"
slot = "32K"
dirty_percent = 20
writeback_s = "500ms"
huge_pages = false

[limits]
connections = 10
io_queues = 4
queue_depth = 64
max_transfer = "256K"
in_capsule = "4K"
handshake_s = 5
stop_s = "1m"
discovery_keep_alive_s = "90s"

[transport]
header_digest = false
data_digest = false
success = true
poll_us = "50us"

[scheduler]
starvation_ms = "50ms"
merge_bytes = "128K"

[hints]
sets = 10
intent_bytes = "1G"
tier_percent = 40
max_ttl_s = "2h"
grace_s = 0.5
follow_bytes = "512K"
ring_facts = 4096

[[hints.tenants]]
host = "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427"
intent_bytes = "2G"
records_per_s = 5

[[subsystems]]
nqn = "nqn.2026-11.com.example:a"
serial = "S1"
extension = true
extension_nsid = 17
model = "M1"
hosts = ["nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427"]
allow_any_host = true
max_namespaces = 16

[[subsystems.namespaces]]
path = "/srv/x/d.img"
nsid = 3
size = "1G"
block = 512
media = "model"
media_options.seed = 1
media_options.read_us = 80
media_options.read_p99_us = 200.5
media_options.write_us = 20
media_options.bandwidth = "2G"
media_options.channels = 8
faults = ["delay:read_us=100", "error:op=write,errno=ENOSPC,rate=0.5"]
write_policy = "through"
read_only = true
uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
nguid = "6ba7b8109dad11d180b400c04fd430c8"
"""
FULL_NAMESPACE = NamespaceSettings(
    path="/srv/x/d.img",
    nsid=3,
    size=1 << 30,
    block=512,
    media="model",
    media_options={
        "seed": 1,
        "read_us": 80,
        "read_p99_us": 200.5,
        "write_us": 20,
        "bandwidth": "2G",
        "channels": 8,
    },
    faults=["delay:read_us=100", "error:op=write,errno=ENOSPC,rate=0.5"],
    write_policy="through",
    read_only=True,
    uuid="6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    nguid="6ba7b8109dad11d180b400c04fd430c8",
)
FULL_SETTINGS = TargetSettings(
    listeners=[ListenerSettings(address="::1", port=0)],
    subsystems=[
        SubsystemSettings(
            nqn="nqn.2026-11.com.example:a",
            serial="S1",
            extension=True,
            extension_nsid=17,
            model="M1",
            hosts=["nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427"],
            allow_any_host=True,
            max_namespaces=16,
            namespaces=[FULL_NAMESPACE],
        )
    ],
    tier=TierSettings(
        size=64 << 20, slot=32 << 10, dirty_percent=20, writeback_s=0.5, huge_pages=False
    ),
    limits=LimitSettings(
        connections=10,
        io_queues=4,
        queue_depth=64,
        max_transfer=256 << 10,
        in_capsule=4096,
        handshake_s=5.0,
        stop_s=60.0,
        discovery_keep_alive_s=90.0,
    ),
    transport=TransportSettings(header_digest=False, data_digest=False, success=True, poll_us=50),
    scheduler=SchedulerSettings(starvation_ms=50.0, merge_bytes=128 << 10),
    hints=HintSettings(
        sets=10,
        intent_bytes=1 << 30,
        tier_percent=40,
        max_ttl_s=7200.0,
        grace_s=0.5,
        follow_bytes=512 << 10,
        ring_facts=4096,
        tenants=[
            TenantSettings(
                host="nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427",
                intent_bytes=2 << 30,
                records_per_s=5,
            )
        ],
    ),
    reactors=2,
    cpus=[0, 1],
    state_directory="/srv/x",
    control_socket="/srv/x/c.sock",
)


def test_everything_that_can_be_configured_is_read(tmp_path: Path) -> None:
    path = tmp_path / "full.toml"
    path.write_text(FULL)
    assert load_config(path) == FULL_SETTINGS


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert load_config(path) == TargetSettings()


FAULTS = [
    # types and names
    ("reactors = 'two'", 'reactors: found "two", expected a whole number'),
    ("reactors = 1.5", "reactors: found 1.5, expected a whole number"),
    ("reactors = true", "reactors: found true, expected a whole number"),
    ("reactor = 1", 'reactor: unknown field, did you mean "reactors"?'),
    ("tier = 3", "tier: found 3, expected a table"),
    ("[tier]\nsise = '1G'", 'tier.sise: unknown field, did you mean "size"?'),
    ("[tier]\nhuge_pages = 1", "tier.huge_pages: found 1, expected true or false"),
    ("listeners = 3", "listeners: found 3, expected a list"),
    ("listeners = [3]", "listeners[0]: found 3, expected a table"),
    ("cpus = ['a']", 'cpus[0]: found "a", expected a whole number'),
    ("state_directory = 3", "state_directory: found 3, expected a text"),
    ("state_directory = ''", 'state_directory: found "", expected a directory'),
    ("[[subsystems]]\nhosts = 'x'", 'subsystems[0].hosts: found "x", expected a list'),
    ("[[subsystems]]\nallow_any_host = 'x'",
     'subsystems[0].allow_any_host: found "x", expected true or false'),
    # ranges
    ("reactors = 0", "reactors: found 0, expected 1 to 64"),
    ("reactors = 65", "reactors: found 65, expected 1 to 64"),
    ("cpus = [0, 1]", "cpus: found 2, expected one for each of 1 reactors"),
    ("reactors = 2\ncpus = [1, 1]",
     "cpus[1]: found 1 again, expected something else than in cpus[0]"),
    ("cpus = [-1]",
     "cpus[0]: found -1, expected a processor that this process may run on: 0-3,8"),
    ("reactors = 2\ncpus = [8, 500]",
     "cpus[1]: found 500, expected a processor that this process may run on: 0-3,8"),
    ("[[listeners]]\nport = 65536", "listeners[0].port: found 65536, expected 0 to 65535"),
    ("[[listeners]]\naddress = 'localhost'",
     ('listeners[0].address: found "localhost", expected an IPv4 or IPv6 address such as 127.0.0.1 '
     "or ::1")),
    ("[[listeners]]\n[[listeners]]",
     "listeners[1]: found 127.0.0.1:4420 again, expected something else than in listeners[0]"),
    ("[[listeners]]\naddress = '::1'\n[[listeners]]\naddress = '0:0::1'",
     "listeners[1]: found 0:0::1:4420 again, expected something else than in listeners[0]"),
    ("[tier]\nslot = '24K'", "tier.slot: found 24K, expected a power of two, 16K to 2M"),
    ("[tier]\nslot = '8K'", "tier.slot: found 8K, expected a power of two, 16K to 2M"),
    ("[tier]\nslot = '4M'", "tier.slot: found 4M, expected a power of two, 16K to 2M"),
    ("[tier]\nsize = '1M'",
     ("tier.size: found 1M, expected at least 4M (16 slots, and 4 transfers of "
     "limits.max_transfer)")),
    ("[tier]\ndirty_percent = 0", "tier.dirty_percent: found 0, expected 1 to 80"),
    ("[tier]\nwriteback_s = 0", "tier.writeback_s: found 0s, expected 0.001s to 3600s"),
    ("[limits]\nio_queues = 129", "limits.io_queues: found 129, expected 1 to 128"),
    ("[limits]\nconnections = 0", "limits.connections: found 0, expected 1 to 16384"),
    ("[limits]\nqueue_depth = 8", "limits.queue_depth: found 8, expected 32 to 4096"),
    ("[limits]\nmax_transfer = '96K'",
     "limits.max_transfer: found 96K, expected a power of two, 4K to 16M"),
    ("[limits]\nin_capsule = 100",
     "limits.in_capsule: found 100, expected a multiple of 512, 0 to 64K"),
    ("[limits]\nstop_s = 'soon'",
     ('limits.stop_s: found "soon", expected a duration such as 30s, 500ms, 2m or a number of '
     'seconds')),
    ("[transport]\npoll_us = -1",
     "transport.poll_us: found -1, expected microseconds from 0 to 1000000000"),
    # subsystems
    ("[[subsystems]]\nnqn = 'disk'",
     'subsystems[0].nqn: found "disk", expected an NQN such as nqn.2026-11.com.example:name'),
    ("[[subsystems]]\nnqn = 'nqn.2014-08.org.nvmexpress.discovery'",
     "subsystems[0].nqn: found the discovery NQN, expected the NQN of an NVM subsystem"),
    ("[[subsystems]]\n[[subsystems]]",
     ('subsystems[1].nqn: found "nqn.2026-11.io.prestage:default" again, expected something else '
     "than in subsystems[0].nqn")),
    ("[[subsystems]]\nserial = '123456789012345678901'",
     ('subsystems[0].serial: found "123456789012345678901", expected 0 to 20 printable ASCII '
     'characters')),
    ("[[subsystems]]\nserial = 'é'",
     'subsystems[0].serial: found "é", expected 0 to 20 printable ASCII characters'),
    ("[[subsystems]]\nmodel = ''",
     'subsystems[0].model: found "", expected 1 to 40 printable ASCII characters'),
    ("[[subsystems]]\nhosts = ['me']",
     'subsystems[0].hosts[0]: found "me", expected an NQN such as nqn.2026-11.com.example:name'),
    ("[[subsystems]]\nmax_namespaces = 0",
     "subsystems[0].max_namespaces: found 0, expected 1 to 1024"),
    # namespaces
    (RAM + "nsid = -1", "subsystems[0].namespaces[0].nsid: found -1, expected 0 to 256"),
    (RAM + "nsid = 257", "subsystems[0].namespaces[0].nsid: found 257, expected 0 to 256"),
    (RAM + "block = 1024", "subsystems[0].namespaces[0].block: found 1024, expected 512 or 4096"),
    (NS + "media = 'ram'\nsize = 4097",
     "subsystems[0].namespaces[0].size: found 4097, expected a multiple of block, 4096"),
    (NS + "media = 'ram'",
     'subsystems[0].namespaces[0].size: found no size, expected one with media = "ram"'),
    (RAM + "path = '/x'",
     'subsystems[0].namespaces[0].path: found "/x", expected none with media = "ram"'),
    (NS,
     "subsystems[0].namespaces[0].path: found no path, expected a backing file or block device"),
    (NS + "path = '/'",
     'subsystems[0].namespaces[0].path: found the directory "/", expected a file or block device'),
    (NS + "path = '/no/such'",
     ('subsystems[0].namespaces[0].path: found no file "/no/such", expected an existing file, or a '
     "size to create it with")),
    (NS + "path = '/proc/version/x'\nsize = '1M'",
     ('subsystems[0].namespaces[0].path: found "/proc/version/x": Not a directory, expected a file '
     "that can be opened")),
    (RAM + "write_policy = 'around'",
     'subsystems[0].namespaces[0].write_policy: found "around", expected "back" or "through"'),
    (RAM + "uuid = '1'",
     ('subsystems[0].namespaces[0].uuid: found "1", expected a UUID such as '
     "6ba7b810-9dad-11d1-80b4-00c04fd430c8, not zero")),
    (RAM + "nguid = '00000000000000000000000000000000'",
     ('subsystems[0].namespaces[0].nguid: found "00000000000000000000000000000000", expected 32 '
     "hexadecimal digits, not all zero")),
    (RAM + "[[subsystems.namespaces]]\nmedia = 'ram'\nsize = '1M'\nnsid = 7\n"
     "[[subsystems.namespaces]]\nmedia = 'ram'\nsize = '1M'\nnsid = 7",
     ("subsystems[0].namespaces[2].nsid: found 7 again, expected something else than in "
     "subsystems[0].namespaces[1].nsid")),
    (NS + "path = '/tmp/./d'\nsize = '1M'\n[[subsystems.namespaces]]\npath = '/tmp/d'\nsize = '1M'",
     ('subsystems[0].namespaces[1].path: found "/tmp/d" again, expected something else than in '
     "subsystems[0].namespaces[0].path")),
    # media and faults
    (RAM.replace("ram", "rom"),
     ('subsystems[0].namespaces[0].media: found "rom", expected file, ram or model (did you mean '
     '"ram"?)')),
    (RAM + "media_options = { depth = 1 }",
     'subsystems[0].namespaces[0].media_options.depth: unknown option, media = "ram" has none'),
    (NS + "path = 'd'\nsize = '1M'\nmedia_options = { dept = 1 }",
     ('subsystems[0].namespaces[0].media_options.dept: unknown option of media = "file", did you '
     'mean "depth"?')),
    (NS + "path = 'd'\nsize = '1M'\nmedia_options = { engine = 'aio' }",
     ('subsystems[0].namespaces[0].media_options.engine: found "aio", expected auto, uring or '
     'threads')),
    (NS + "path = 'd'\nsize = '1M'\nmedia_options = { depth = 0 }",
     ("subsystems[0].namespaces[0].media_options.depth: found 0, expected a whole number from 1 "
     "to 4096")),
    (RAM + "faults = ['dely:read_us=1']",
     ('subsystems[0].namespaces[0].faults[0]: found "dely:read_us=1", expected delay, error, stall '
     'or powercut (did you mean "delay"?), then its options')),
    (RAM + "faults = ['delay:read_us']",
     'subsystems[0].namespaces[0].faults[0]: found "read_us", expected NAME=VALUE'),
    (RAM + "faults = ['error:errno=EPERM']",
     'subsystems[0].namespaces[0].faults[0]: errno: found "EPERM", expected EIO, ENOSPC or SHORT'),
    (RAM + "faults = ['stall:|ram:size=1']",
     ('subsystems[0].namespaces[0].faults[0]: found "|" in "stall:|ram:size=1", expected one '
     "wrapper an entry")),
    (NS + "path = 'd'\nsize = '1M'\nmedia = 'model'\nmedia_options = { seed = 1, read_us = 1 }",
     ("subsystems[0].namespaces[0].media_options: found no read_p99_us, write_us, bandwidth, "
     'channels, media = "model" needs seed, read_us, read_p99_us, write_us, bandwidth, channels')),
    (RAM + "faults = ['error:first=1k']",
     ('subsystems[0].namespaces[0].faults[0]: first: found "1k", expected a size such as 2G or '
     "500M, or a whole number of bytes")),
    (RAM + "faults = ['delay:read_us=+1']",
     ('subsystems[0].namespaces[0].faults[0]: read_us: found "+1", expected a whole number from 0 '
     "to 3600000000")),
    (RAM + "faults = ['powercut:limit=1K']",
     'subsystems[0].namespaces[0].faults[0]: limit: found "1K", expected a size from 4K to 64G'),
    # the file itself
    ("a = ?", "line 1, column 5: Invalid value, expected TOML"),
    ("a = [", "end of the file: Invalid value, expected TOML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[fault[1][:40] for fault in FAULTS])
def test_a_fault_is_named_with_file_field_and_expectation(
    text: str, message: str, tmp_path: Path
) -> None:
    assert errors_of(text, tmp_path) == [message]


def test_a_size_that_would_cut_a_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    found = errors_of(NS + f"path = '{image}'\nsize = '512K'", tmp_path)
    where = "subsystems[0].namespaces[0].size"
    expected = "expected at least the 1M that the file has, or no size"
    assert found == [f"{where}: found 512K, {expected}"]
    for size in ("", "size = '1M'", "size = '2M'"):
        config = tmp_path / "good.toml"
        config.write_text(NS + f"path = '{image}'\n{size}", "utf-8")
        assert load_config(config).subsystems[0].namespaces[0].path == str(image)


def test_a_path_that_is_too_long_is_a_named_fault(tmp_path: Path) -> None:
    (found,) = errors_of(NS + f"path = '/{'x' * 5000}'", tmp_path)
    assert found.startswith("subsystems[0].namespaces[0].path: found ")
    assert "File name too long" in found


def test_several_faults_are_reported_together_and_once_each(tmp_path: Path) -> None:
    found = errors_of(
        "reactors = 0\n[tier]\nslot = 'x'\n[limits]\nio_queues = 0\nconections = 2", tmp_path
    )
    assert [line.split(":")[0] for line in found] == [
        "tier.slot",
        "limits.conections",
        "reactors",
        "limits.io_queues",
    ]


def test_a_default_in_place_of_a_wrong_value_is_not_judged(tmp_path: Path) -> None:
    found = errors_of(
        "[[listeners]]\nport = 'x'\n[[listeners]]\n"
        "[[subsystems]]\nnqn = 3\n[[subsystems]]\nnqn = 4\n[[subsystems.namespaces]]\npath = 5",
        tmp_path,
    )
    assert [line.split(":")[0] for line in found] == [
        "listeners[0].port",
        "subsystems[0].nqn",
        "subsystems[1].nqn",
        "subsystems[1].namespaces[0].path",
    ]


def test_a_hundred_faults_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    found = errors_of("".join(f"x{n} = 1\n" for n in range(250)), tmp_path)
    assert len(found) == 101
    assert found[-1] == "and 150 more"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "cannot be read: No such file or directory, expected a TOML file"),
        (lambda path: path.mkdir(), "found something else, expected a regular TOML file"),
        (os.mkfifo, "found something else, expected a regular TOML file"),
        (lambda path: path.symlink_to("/dev/zero"),
         "found something else, expected a regular TOML file"),
        (lambda path: path.write_bytes(b"a = '\xff'"),
         "found a byte that is not UTF-8 at 5, expected UTF-8"),
        (lambda path: path.write_text("a = " + "[" * 100_000),
         "found lists nested too deeply, expected a TOML file"),
        (lambda path: path.write_bytes(b"#" * (5 << 20)),
         "found more than 4 MiB, expected a TOML file of at most 4 MiB"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_configuration_is_named(
    make: object, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.toml"
    make(path)  # type: ignore[operator]
    with pytest.raises(InvalidConfig) as caught:
        load_config(path)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    "nqn",
    [
        "nqn.2026-11.io.prestage:default",
        "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba-2fa1-11d2-883f-0016d3cca427",
        "nqn.2001-01.com.x",
        "nqn.2026-11.com.example:" + "x" * 199,
        "nqn.2026-11.com.example:größe",
    ],
)
def test_a_good_nqn_is_accepted(nqn: str) -> None:
    assert nqn_fault(nqn) is None


@pytest.mark.parametrize(
    "nqn",
    ["", "nqn", "nqn.2026-13.com.x", "nqn.26-11.com.x", "NQN.2026-11.com.x", "nqn.2026-11.",
     "nqn.2026-11.com.x:", "nqn.2026-11.com.x: y", "nqn.2026-11.com.x:\0", "nqn.2026-11.com..x:y",
     "nqn.2026-11.com.x:y\n", "iqn.2026-11.com.x:y", "nqn.2026-11.com.example:" + "x" * 200],
)  # fmt: skip
def test_a_bad_nqn_is_refused(nqn: str) -> None:
    assert nqn_fault(nqn) is not None


def test_whatever_the_data_is_the_answer_is_settings_or_named_faults() -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    names = [*TargetSettings.__struct_fields__, *NamespaceSettings.__struct_fields__, "zz"]

    def anything(depth: int) -> object:
        kind = rng.randrange(7 if depth else 5)
        scalars = [rng.randrange(-(1 << 70), 1 << 70), rng.random(), True, None]
        if kind < 4:
            return scalars[kind]
        if kind == 4:
            return "".join(rng.choices(string.printable, k=rng.randrange(8)))
        if kind == 5:
            return [anything(depth - 1) for _ in range(rng.randrange(3))]
        return {rng.choice(names): anything(depth - 1) for _ in range(rng.randrange(4))}

    for _ in range(2000):
        data = {rng.choice(names): anything(4) for _ in range(rng.randrange(5))}
        try:
            settings_from(data, "x")
        except InvalidConfig as error:
            assert error.problems, f"seed {seed}: {data}"
        except BaseException as error:
            error.add_note(f"seed {seed}: {data}")
            raise
