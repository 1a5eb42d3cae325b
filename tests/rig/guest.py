#!/usr/bin/env python3
"""Runs in the guest: the host's side of the rig, one step after another.

    guest.py PLAN        PLAN is a JSON object: control_port, address, port, nqn, digests,
                             quick, reference (script that sets up nvmet here, or null), bad_lba

Each step's raw findings (what nvme-cli printed, what sysfs says, every new line of the kernel's
log) go as one JSON line to the control server of `rig.host`, which judges them (`rig.checks`);
nothing is judged here but whether a command succeeds.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

# This folder is the package `rig`, wherever the checkout is.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rig import pax
from rig.reference import Reference
from rig.tools import (
    Control,
    Facts,
    KernelLog,
    StepError,
    background,
    finish,
    run,
    run_json,
    wait_until,
)

HOST_UUID = "22222222-2222-2222-2222-222222222222"
HOST_NQN = f"nqn.2014-08.org.nvmexpress:uuid:{HOST_UUID}"
QUEUES = 4
MOUNT = Path("/run/rig-mount")


class Guest:
    """What the steps share: the plan, the connected controller, both sides' ears."""

    host_nqn = HOST_NQN

    def __init__(self, plan: Facts) -> None:
        self.plan = plan
        self.log = KernelLog()
        self.control = Control(plan["control_port"])
        self.target: Control | Reference = self.control
        if plan["reference"]:
            self.target = Reference(plan["reference"], plan["bad_lba"])
        self.where = f"-t tcp -a {plan['address']} -s {plan['port']}"
        self.who = f"--hostnqn={HOST_NQN} --hostid={HOST_UUID}"
        self.controller = ""
        self.checksums: dict[str, str] = {}

    def connect(self, digests: bool = False, more: str = "") -> Facts:
        """Connects over four queues, and waits for the disks of namespaces 1 and 2."""
        if digests or self.plan["digests"]:
            more += " --hdr-digest --data-digest"
        run(f"nvme connect {self.where} {self.who} -n {self.plan['nqn']} -i {QUEUES} {more}")
        found = wait_until(self._find_controller, 10, "the connected controller in sysfs")
        self.controller = found
        self.disk(1)
        self.disk(2)
        return self.state()

    def disconnect(self) -> Facts:
        printed = run(f"nvme disconnect -n {self.plan['nqn']}")
        wait_until(lambda: not self._find_controller(), 10, "the controller to be gone")
        return {
            "printed": printed,
            "controllers": sorted(path.name for path in Path("/sys/class/nvme").iterdir()),
        }

    def state(self) -> Facts:
        """The connected controller in sysfs."""
        root = Path("/sys/class/nvme", self.controller)
        names = ("state", "cntlid", "subsysnqn", "model", "serial", "firmware_rev", "queue_count")
        facts: Facts = {name: (root / name).read_text().strip() for name in names}
        facts["instance"] = self.controller
        return facts

    def find_disk(self, nsid: int) -> str | None:
        """The disk of a namespace; not the hidden ones of single paths (nvme0c0n1)."""
        for root in Path("/sys/block").glob("nvme*n*"):
            try:
                known = re.fullmatch(r"nvme\d+n\d+", root.name)
                if known and int((root / "nsid").read_text()) == nsid and self.size(root.name):
                    return root.name
            except OSError:
                continue
        return None

    def disk(self, nsid: int) -> str:
        return wait_until(lambda: self.find_disk(nsid), 10, f"the disk of namespace {nsid}")

    def size(self, disk: str) -> int:
        """In bytes; sysfs counts sectors of 512."""
        return int(Path("/sys/block", disk, "size").read_text()) * 512

    def node(self) -> str:
        return f"/dev/{self.controller}"

    def _find_controller(self) -> str | None:
        for root in Path("/sys/class/nvme").glob("nvme*"):
            try:
                live = (root / "state").read_text().strip() == "live"
                if live and (root / "subsysnqn").read_text().strip() == self.plan["nqn"]:
                    return root.name
            except OSError:
                continue
        return None


Step = Callable[[Guest], Facts]
STEPS: list[tuple[str, Step]] = []
VITAL = {"connect", "restart"}
"""Without these nothing after them means anything."""
SLOW = {"hint-command", "filesystem", "restart", "compare", "fio-digests", "killed-target"}
"""Left out with --quick."""
OURS = {name for name, _ in pax.STEPS}
"""Left out with --reference: nvmet does not speak PAX."""


def step(function: Step) -> Step:
    """Registers a step under its function's name; they run in the order of definition."""
    STEPS.append((function.__name__.rstrip("_").replace("_", "-"), function))
    return function


@step
def discover(guest: Guest) -> Facts:
    found = run_json(f"nvme discover {guest.where} {guest.who} -o json")
    return {"log": found, "port": guest.plan["port"]}


@step
def connect(guest: Guest) -> Facts:
    return guest.connect()


@step
def list_(guest: Guest) -> Facts:
    namespaces = run(f"nvme list-ns {guest.node()}")
    subsystems = run_json("nvme list-subsys -o json")
    disks = {
        nsid: {"name": guest.disk(nsid), "size": guest.size(guest.disk(nsid))} for nsid in (1, 2)
    }
    return {
        "list": run_json("nvme list -o json"),
        "namespaces": [int(n, 16) for n in re.findall(r":(0x[0-9a-f]+)", namespaces)],
        "subsystems": subsystems,
        "disks": disks,
    }


@step
def id_ctrl(guest: Guest) -> Facts:
    return {"identify": run_json(f"nvme id-ctrl {guest.node()} -o json"), **guest.state()}


@step
def id_ns(guest: Guest) -> Facts:
    return {str(nsid): run_json(f"nvme id-ns {guest.node()} -n {nsid} -o json") for nsid in (1, 2)}


@step
def ns_descs(guest: Guest) -> Facts:
    return identities(guest)


def identities(guest: Guest) -> Facts:
    """What must never change for a namespace, by namespace."""
    return {
        str(nsid): run_json(f"nvme ns-descs {guest.node()} -n {nsid} -o json")
        for nsid in guest.plan["namespaces"]
    }


@step
def smart_log(guest: Guest) -> Facts:
    """Counters before and after 2 MiB are written, and 4 MiB read, in commands of 64 KiB."""
    before = run_json(f"nvme smart-log {guest.node()} -o json")
    device = f"/dev/{guest.disk(1)}"
    run(f"dd if=/dev/urandom of={device} bs=64k count=32 oflag=direct conv=fsync")
    run(f"dd if={device} of=/dev/null bs=64k count=64 iflag=direct")
    return {"before": before, "after": run_json(f"nvme smart-log {guest.node()} -o json")}


@step
def error_log(guest: Guest) -> Facts:
    """A read of the block that the fault sits on, by nvme-cli and through the block layer."""
    device, bad = f"/dev/{guest.disk(2)}", guest.plan["bad_lba"]
    read = f"nvme read {device} -c 0 -z 512 -d /run/rig-block -s"
    before = run_json(f"nvme smart-log {guest.node()} -o json")
    # A target may keep its cache, and so read its medium, in units of 4 KiB.
    run(f"{read} {bad - 8}")
    run(f"{read} {bad + 8}")
    passed = run(f"{read} {bad}", fails=True)
    block = run(f"dd if={device} of=/dev/null bs=512 count=1 skip={bad} iflag=direct", fails=True)
    return {
        "disk": guest.disk(2),
        "passed": passed,
        "block": block,
        "log": run_json(f"nvme error-log {guest.node()} -e 8 -o json"),
        "before": before,
        "after": run_json(f"nvme smart-log {guest.node()} -o json"),
    }


@step
def fw_log(guest: Guest) -> Facts:
    return {"log": run_json(f"nvme fw-log {guest.node()} -o json")}


@step
def ana_log(guest: Guest) -> Facts:
    return {"log": run_json(f"nvme ana-log {guest.node()} -o json")}


@step
def effects_log(guest: Guest) -> Facts:
    """Log 05h as bytes: nvme-cli 2.3's own effects-log sends nothing."""
    raw = run(f"nvme get-log {guest.node()} -i 5 -l 4096 -n 0")
    rows = re.findall(r"^[0-9a-f]{4}: ((?:[0-9a-f]{2} )+)", raw, re.MULTILINE)
    return {"log": "".join(rows).replace(" ", "")}


@step
def get_feature(guest: Guest) -> Facts:
    return {"printed": run(f"nvme get-feature {guest.node()} -f 7")}


@step
def dsm(guest: Guest) -> Facts:
    """Deallocates blocks just written; also a range announced as to be read soon."""
    device = f"/dev/{guest.disk(1)}"
    run(f"dd if=/dev/urandom of={device} bs=64k count=1 seek=64 oflag=direct")
    size = int(Path("/sys/block", guest.disk(1), "queue/logical_block_size").read_text())
    first, count = (4 << 20) // size, 65536 // size
    run(f"nvme dsm {device} -n 1 --ad -s {first} -b {count}")
    run(f"nvme dsm {device} -n 1 --idr -s {first} -b {count}")
    run(f"dd if={device} of=/run/rig-dsm bs=64k count=1 skip=64 iflag=direct")
    features = run_json(f"nvme id-ns {guest.node()} -n 1 -o json")["dlfeat"]
    return {"dlfeat": features, "zero": not any(Path("/run/rig-dsm").read_bytes())}


@step
def io_commands(guest: Guest) -> Facts:
    """Flush and Write Zeroes, and what else the controller says that it can."""
    device = f"/dev/{guest.disk(1)}"
    run(f"dd if=/dev/urandom of={device} bs=64k count=1 oflag=direct")
    size = int(Path("/sys/block", guest.disk(1), "queue/logical_block_size").read_text())
    blocks = f"-c {8192 // size - 1}"
    run(f"nvme flush {device} -n 1")
    run(f"nvme write-zeroes {device} -s {8192 // size} {blocks}")
    run(f"nvme read {device} -s 0 {blocks} -z 8192 -d /run/rig-first")
    run(f"nvme read {device} -s {8192 // size} {blocks} -z 8192 -d /run/rig-zero")
    facts: Facts = {"zero": not any(Path("/run/rig-zero").read_bytes())}
    # Through the block layer too, which writes zeroes itself where a target cannot.
    run(f"dd if=/dev/urandom of={device} bs=64k count=2 seek=64 oflag=direct")
    run(f"blkdiscard -z -o {(4 << 20) + 4096} -l 8192 {device}")
    run(f"dd if={device} of=/run/rig-wiped bs=4k count=2 skip={(4 << 20) // 4096 + 1} iflag=direct")
    facts["wiped"] = not any(Path("/run/rig-wiped").read_bytes())
    facts["oncs"] = run_json(f"nvme id-ctrl {guest.node()} -o json")["oncs"]
    if facts["oncs"] & 1:
        same = f"nvme compare {device} -s 0 {blocks} -z 8192 -d"
        run(f"{same} /run/rig-first")
        facts["differs"] = run(f"{same} /run/rig-zero", fails=True)
    if facts["oncs"] & 0x80:
        run(f"nvme verify {device} -s 0 {blocks}")
    if facts["oncs"] & 0x100:
        run(f"nvme copy {device} --sdlba={16384 // size} --slbs=0 --blocks={8192 // size - 1}")
        run(f"nvme read {device} -s {16384 // size} {blocks} -z 8192 -d /run/rig-copy")
        facts["copied"] = Path("/run/rig-copy").read_bytes() == Path("/run/rig-first").read_bytes()
    return facts


@step
def reset(guest: Guest) -> Facts:
    before = guest.state()
    run(f"nvme reset {guest.node()}")
    wait_until(lambda: guest.state()["state"] == "live", 10, "the controller to be live again")
    run(f"dd if=/dev/{guest.disk(1)} of=/dev/null bs=64k count=4 iflag=direct")
    return {"before": before, "after": guest.state()}


@step
def ns_rescan(guest: Guest) -> Facts:
    run(f"nvme ns-rescan {guest.node()}")
    return {"disks": [guest.disk(1), guest.disk(2)], **guest.state()}


STEPS.extend(pax.STEPS)


@step
def filesystem(guest: Guest) -> Facts:
    """Makes ext4 (which deallocates everything first), and writes files into it."""
    device = f"/dev/{guest.disk(1)}"
    run(f"mkfs.ext4 -q -F {device}")
    MOUNT.mkdir(exist_ok=True)
    run(f"mount {device} {MOUNT}")
    source = random.Random(guest.plan["seed"])
    for number in range(24):
        data = source.randbytes(source.choice((100, 4096, 70_000, 400_000, 1_000_000)))
        path = MOUNT / f"directory{number % 3}" / f"file{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        guest.checksums[str(path)] = hashlib.sha256(data).hexdigest()
    # What goes is deallocated; nothing beside it may be.
    for gone in list(guest.checksums)[::3]:
        Path(gone).unlink()
        del guest.checksums[gone]
    trimmed = run(f"fstrim -v {MOUNT}")
    run(f"umount {MOUNT}")
    run(f"e2fsck -fn {device}")
    return {
        "trimmed": trimmed,
        "files": len(guest.checksums),
        "identities": identities(guest),
        **guest.state(),
    }


@step
def disconnect(guest: Guest) -> Facts:
    return guest.disconnect()


@step
def restart(guest: Guest) -> Facts:
    """The target stops in order and starts again on its files; then a new connection."""
    guest.target.ask("restart")
    facts = guest.connect()
    return {"identities": identities(guest), **facts}


@step
def compare(guest: Guest) -> Facts:
    """The files written before the restart, byte for byte by their checksums."""
    device = f"/dev/{guest.disk(1)}"
    run(f"e2fsck -fn {device}")
    run(f"mount -o ro {device} {MOUNT}")
    wrong = [
        path
        for path, checksum in guest.checksums.items()
        if hashlib.sha256(Path(path).read_bytes()).hexdigest() != checksum
    ]
    run(f"umount {MOUNT}")
    return {"files": len(guest.checksums), "wrong": wrong}


def fio_command(guest: Guest, more: str, nsid: int = 1) -> str:
    """Four jobs side by side, each on a CPU of its own, and so on a queue of its own."""
    place = "--offset_increment=12m"
    if nsid == 2:
        # Its second half: the fault sits in the first.
        place = "--offset=16m --offset_increment=3m"
    return (
        f"fio --name=rig --filename=/dev/{guest.disk(nsid)} --direct=1 --ioengine=libaio"
        f" --numjobs={QUEUES} --cpus_allowed=0-{QUEUES - 1} --cpus_allowed_policy=split {place}"
        f" --group_reporting --output-format=json"
        f" --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed={guest.plan['seed']} {more}"
    )


def fio_facts(printed: str) -> Facts:
    report = json.loads(printed[printed.index("{") :])
    job = report["jobs"][0]
    return {
        "errors": job["error"],
        "written": job["write"]["io_bytes"],
        "read": job["read"]["io_bytes"],
    }


@step
def fio(guest: Guest) -> Facts:
    """Random sizes and places, read while written, then verified as a whole."""
    if not guest.controller or not guest.find_disk(1):
        guest.connect()
    command = fio_command(guest, "--size=4m --bsrange=4k-256k --rw=randrw --iodepth=8")
    facts = {**fio_facts(run(command)), **guest.state()}
    command = fio_command(guest, "--size=1m --bsrange=512-64k --rw=randrw --iodepth=8", nsid=2)
    return {**facts, "small": fio_facts(run(command))}


@step
def fio_digests(guest: Guest) -> Facts:
    """The same with header and data digests."""
    guest.disconnect()
    facts = guest.connect(digests=True)
    command = fio_command(guest, "--size=3m --bsrange=4k-256k --rw=randrw --iodepth=8")
    return {**facts, **fio_facts(run(command))}


@step
def namespaces(guest: Guest) -> Facts:
    """Namespace 3 comes, grows and goes while fio writes namespace 1."""
    before = guest.state()
    command = fio_command(guest, "--size=3m --bs=16k --rw=randwrite --iodepth=4 --rate=320k")
    facts: Facts = {"before": before}
    with background(command) as load:
        guest.target.ask("add", nsid=3, size_mib=16)
        disk = guest.disk(3)
        facts["added"] = guest.size(disk)
        run(f"dd if=/dev/urandom of=/dev/{disk} bs=1M count=2 oflag=direct")
        guest.target.ask("grow", nsid=3, size_mib=24)
        wait_until(lambda: guest.size(disk) != facts["added"], 10, f"{disk} to grow")
        facts["grown"] = guest.size(disk)
        run(f"dd if=/dev/urandom of=/dev/{disk} bs=1M count=2 seek=20 oflag=direct")
        guest.target.ask("remove", nsid=3)
        wait_until(lambda: not Path("/sys/block", disk).exists(), 10, f"{disk} to go")
        facts["during"] = load.poll() is None
        facts.update(fio_facts(finish(load)))
    facts["after"] = guest.state()
    return facts


@step
def killed_target(guest: Guest) -> Facts:
    """SIGKILL while fio writes; every write that was answered is there afterwards.

    The writes are FUA (dsync): what a volatile write cache may lose is not asked for.
    """
    guest.disconnect()
    guest.connect(more="--ctrl-loss-tmo=60 --reconnect-delay=1")
    before = guest.state()
    disk = guest.disk(1)
    command = fio_command(
        guest, "--size=2m --bsrange=4k-64k --rw=randwrite --iodepth=4 --sync=dsync --rate=256k"
    )
    written = written_sectors(disk)
    facts: Facts = {"before": before}
    with background(command) as load:
        wait_until(lambda: written_sectors(disk) > written + 2048, 30, "fio to have written 1 MiB")
        guest.target.ask("kill")
        began = time.monotonic()
        guest.log.wait_for(r"Successfully reconnected", 20)
        facts["seconds"] = round(time.monotonic() - began, 2)
        facts["during"] = load.poll() is None
        facts.update(fio_facts(finish(load)))
    facts["after"] = guest.state()
    return facts


def written_sectors(disk: str) -> int:
    """Of the disk and its paths: before 6.3 only the paths count."""
    paths = Path("/sys/block").glob(re.sub(r"n(\d+)$", r"c*n\1", disk))
    return max(
        int((root / "stat").read_text().split()[6]) for root in [Path("/sys/block", disk), *paths]
    )


@step
def end(guest: Guest) -> Facts:
    return guest.disconnect()


def perform(guest: Guest, name: str, function: Step) -> bool:
    """Runs one step and reports it; whether it could be carried through."""
    began = time.monotonic()
    finding: Facts = {"step": name, "facts": {}, "error": None}
    try:
        finding["facts"] = function(guest)
    except StepError as error:
        finding["error"] = str(error)
    except Exception:  # noqa: BLE001 - whatever went wrong is this step's finding
        finding["error"] = traceback.format_exc(limit=4)
    finding["seconds"] = round(time.monotonic() - began, 2)
    finding["kernel"] = guest.log.take()
    guest.control.report(finding)
    return finding["error"] is None


def main() -> int:
    guest = Guest(json.loads(sys.argv[1]))
    guest.log.take()
    for name, function in STEPS:
        if guest.plan["quick"] and name in SLOW:
            continue
        if guest.plan["reference"] and name in OURS:
            continue
        if not perform(guest, name, function) and name in VITAL:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
