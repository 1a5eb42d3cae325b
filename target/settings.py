"""What can be configured, with its defaults; the TOML file and the command line both end here.

Sizes in these structures are bytes, times are seconds unless the name says otherwise. The
configuration reader (`prestage.target.config`) turns "4G" and the like into numbers, and names the
file and the field's path when something is wrong.
"""

from __future__ import annotations

import msgspec

DEFAULT_NQN = "nqn.2026-11.io.prestage:default"
DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
MAX_NSID = 1024
MAX_TENANTS = 4096
"""Hosts that have a number, and with it hints, of their own."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all settings: immutable, and unknown fields are errors."""


class ListenerSettings(Settings, frozen=True):
    """An address to listen on. Port 0 takes a free one."""

    address: str = "127.0.0.1"
    port: int = 4420


class NamespaceSettings(Settings, frozen=True):
    """A namespace and the medium below it (`csrc/media.h`, ps_media_open)."""

    path: str = ""
    """Backing file or block device; empty for `media = "ram"`."""
    nsid: int = 0
    """0: the lowest free one."""
    size: int = 0
    """0: what the backing file or device has. A missing file is created when a size is given."""
    block: int = 4096
    media: str = "file"
    """file, ram or model."""
    media_options: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    """Options of the medium: engine, direct, depth; seed, read_us, bandwidth, ..."""
    faults: list[str] = msgspec.field(default_factory=list)
    """Fault wrappers, outermost first, as in ps_media_open: "delay:read_us=100"."""
    write_policy: str = "back"
    """back or through."""
    read_only: bool = False
    uuid: str = ""
    """Empty: made once and kept beside the backing file's identity."""
    nguid: str = ""


class SubsystemSettings(Settings, frozen=True):
    """An NVM subsystem: who may connect, and what is in it."""

    nqn: str = DEFAULT_NQN
    serial: str = ""
    """Empty: made once and kept. At most 20 ASCII characters."""
    model: str = "prestage"
    hosts: list[str] = msgspec.field(default_factory=list)
    """Host NQNs that may connect."""
    allow_any_host: bool | None = None
    """None: any host while `hosts` is empty."""
    namespaces: list[NamespaceSettings] = msgspec.field(default_factory=list)
    max_namespaces: int = 256
    extension: bool = False
    """Whether there is an extension namespace, beyond `max_namespaces`."""
    extension_nsid: int = 0
    """Its NSID; 0: 1024, the highest there is."""


class TierSettings(Settings, frozen=True):
    """The DRAM tier."""

    size: int = 512 << 20
    slot: int = 64 << 10
    dirty_percent: int = 30
    writeback_s: float = 1.0
    huge_pages: bool = True


class LimitSettings(Settings, frozen=True):
    """What bounds memory and time."""

    connections: int = 1024
    io_queues: int = 128
    """Per controller."""
    queue_depth: int = 128
    max_transfer: int = 1 << 20
    in_capsule: int = 8192
    handshake_s: float = 10.0
    stop_s: float = 30.0
    """SIGTERM: drain and flush within this time."""
    discovery_keep_alive_s: float = 120.0


class TransportSettings(Settings, frozen=True):
    """The NVMe/TCP transport."""

    header_digest: bool = True
    data_digest: bool = True
    success: bool = False
    """SUCCESS in C2HData also while SQ flow control is enabled."""
    poll_us: int = 0


class SchedulerSettings(Settings, frozen=True):
    """The order in which each medium works (csrc/scheduler.h)."""

    starvation_ms: float = 100.0
    """What waited longer goes first."""
    merge_bytes: int = 256 << 10
    """Neighbouring reads go as one up to here; 0: never."""


class TenantSettings(Settings, frozen=True):
    """Budgets of one host that differ from those of every other; None: as the others'."""

    host: str = ""
    """Its NQN."""
    sets: int | None = None
    set_ranges: int | None = None
    signatures: int | None = None
    intents: int | None = None
    intent_bytes: int | None = None
    tier_percent: int | None = None
    records_per_s: int | None = None


class HintSettings(Settings, frozen=True):
    """What hosts may say beside their commands: the extension (ext/SPECIFICATION.md)."""

    enabled: bool = True
    """False: as if there were no extension."""
    sets: int = 1 << 18
    """This and what follows, up to `records_per_s`, is of one host (by its NQN) at most."""
    set_ranges: int = 1 << 20
    signatures: int = 1 << 18
    intents: int = 4096
    """Pending at a time."""
    intent_bytes: int = 4 << 30
    """Of pending intents."""
    tier_percent: int = 50
    """Share of the tier that its hints bring in or keep, not read yet."""
    records_per_s: int = 200_000
    total_sets: int = 1 << 20
    """This and what follows, up to `answer_pages`, is of all hosts together."""
    total_set_ranges: int = 1 << 22
    total_signatures: int = 1 << 20
    total_intents: int = 1 << 16
    answer_pages: int = 4096
    """Mailboxes in use."""
    max_set_ranges: int = 16384
    """Of one set."""
    max_ttl_s: float = 86400.0
    """Of a set or signature."""
    grace_s: float = 1.0
    """What was brought in for an intent is kept this long past its deadline."""
    follow_bytes: int = 1 << 20
    """Brought in beyond a Read that says that what follows will be read (AF = 7)."""
    ring_facts: int = 1 << 16
    """Facts that wait for the model, a power of two; 0: nobody is told."""
    tenants: list[TenantSettings] = msgspec.field(default_factory=list)
    """Hosts whose budgets differ."""


class PrestagerSettings(Settings, frozen=True):
    """The process that learns what is read, and has it brought in before (docs/anticipation.md)."""

    enabled: bool = True
    """False: the tier keeps what was used last, and hosts' hints are all that is known ahead."""
    snapshot: str = ""
    """The file of what was learned; empty: prestager.snapshot in the state directory."""
    snapshot_s: float = 60.0
    """How often it is written; 0: only when the target stops."""
    holdout_percent: float = 2.0
    """Share of its predictions that it does not act on, to measure what the others are worth."""
    memory: int = 1 << 30
    """It may take so much; when that is not enough it starts anew."""
    orders: int = 1 << 14
    """Orders of it that wait for the data path at most, a power of two."""
    silence_s: float = 10.0
    """Without a sign of life for so long it is killed and started anew."""
    scheduling: str = "idle"
    """`idle`: it runs when nothing else wants its processor; `nice`: less often than others."""
    cpus: list[int] = msgspec.field(default_factory=list)
    """It runs on these; empty: on those that no reactor is pinned to, if there are any."""
    seed: int = 0
    """Of what it decides by chance: the holdout, and what it tries."""
    time_scale: float = 1.0
    """Seconds that pass for it in each second, for replays at another speed."""


class TargetSettings(Settings, frozen=True):
    """Everything."""

    listeners: list[ListenerSettings] = msgspec.field(default_factory=lambda: [ListenerSettings()])
    subsystems: list[SubsystemSettings] = msgspec.field(default_factory=list)
    tier: TierSettings = msgspec.field(default_factory=TierSettings)
    limits: LimitSettings = msgspec.field(default_factory=LimitSettings)
    transport: TransportSettings = msgspec.field(default_factory=TransportSettings)
    scheduler: SchedulerSettings = msgspec.field(default_factory=SchedulerSettings)
    hints: HintSettings = msgspec.field(default_factory=HintSettings)
    prestager: PrestagerSettings = msgspec.field(default_factory=PrestagerSettings)
    reactors: int = 1
    cpus: list[int] = msgspec.field(default_factory=list)
    """Reactor n is pinned to cpus[n]; empty: not pinned."""
    state_directory: str = "var"
    """Identities, control socket, and embedded backing files."""
    control_socket: str = ""
    """Empty: prestage.sock in the state directory."""
