"""In the guest: what a host says and asks by PAX; each recipe of docs/hosts.md as it stands.

What goes by the extension namespace is done by a user who is in the group that the udev rule names
and has no capability; everything else is done by root.
"""

from __future__ import annotations

import base64
import grp
import os
import re
import stat
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rig import pattern, recipes
from rig.tools import Facts, StepError, background, run, run_json, wait_until

if TYPE_CHECKING:
    from rig.guest import Guest

Step = Callable[["Guest"], Facts]
STEPS: list[tuple[str, Step]] = []
EXTENSION = 1024
MEMBER = "rig"
WORK = Path("/run/rig-hints")
"""Where the recipes run, with the pages that were made before the boot."""
AS_MEMBER = (
    *("setpriv", f"--reuid={MEMBER}", f"--regid={MEMBER}", "--init-groups", "--no-new-privs"),
    *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"),
)
UDEVD = "/lib/systemd/systemd-udevd"
COUNTERS = {
    "batches": 240,
    "refused": 248,
    "records": 256,
    "unknown": 264,
    "read_hints": 336,
    "dataset_sets": 344,
    "timely_hits": 352,
    "late_hits": 360,
    "hydrated_bytes": 376,
}
"""Of the status page, by their offsets."""
OUTCOMES = ("arrived", "pending", "met", "met_warm", "late", "dropped", "cancelled")
"""Of intents and of dated reads, for each priority, in the order of the status page."""


def step(function: Step) -> Step:
    """Registers a step under its function's name; they run in the order of definition."""
    STEPS.append((function.__name__.replace("_", "-"), function))
    return function


# ---- what the steps share ----


def places(guest: Guest) -> dict[str, str]:
    """The variables of the recipes, and where `prestage` is."""
    disk = guest.disk(1)
    return {
        **os.environ,
        "NODE": f"/dev/prestage/{guest.disk(EXTENSION)}",
        "DATA": f"/dev/{disk}",
        "CHAR": f"/dev/{disk.replace('nvme', 'ng', 1)}",
        "CTRL": guest.node(),
        "MEMBER": MEMBER,
        "PATH": f"{Path(guest.plan['prestage']).parent}:{os.environ['PATH']}",
    }


def play(guest: Guest, name: str, *, member: bool = False, cwd: Path = WORK) -> str:
    """Runs a recipe, by the member of the group or by root; returns what it printed."""
    words = [*(AS_MEMBER if member else ()), *recipes.shell(name)]
    try:
        return run(words, cwd=cwd, environment=places(guest))
    except StepError as error:
        raise StepError(f"recipe {name}: {error}") from error


def page(name: str) -> bytes:
    return (WORK / name).read_bytes()


def pages(*names: str) -> dict[str, str]:
    """Pages that a recipe has read, for whoever has prestage to say what they mean."""
    return {name: base64.b64encode(page(name)).decode() for name in names}


def warm_bytes(guest: Guest, slba: int, nlb: int) -> int:
    """How much of some blocks of namespace 1 is warm, asked by opcode 82h."""
    answer = raw(
        f"nvme io-passthru {places(guest)['CHAR']} --opcode=0x82 --namespace-id=1 --cdw10=1"
        f" --cdw12={slba} --cdw14={nlb} --data-len=4096 --read --raw-binary"
    )
    kind, _, _, total, warm = struct.unpack_from("<HHIQQ", answer, 64)
    if (answer[:4], kind, total) != (b"PAXA", 0x8101, nlb * pattern.BLOCK_BYTES):
        raise StepError(f"residency of {slba}+{nlb}: found the page {answer[:104].hex()}")
    return int(warm)


def raw(command: str) -> bytes:
    """The bytes that a command prints."""
    done = subprocess.run(command.split(), check=False, capture_output=True, timeout=60)
    if done.returncode != 0:
        raise StepError(f"{command}: exit {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def becomes_warm(guest: Guest, slba: int, nlb: int) -> int:
    """Waits until all of some blocks is warm; returns how much that is."""
    all_bytes = nlb * pattern.BLOCK_BYTES
    return wait_until(
        lambda: warm_bytes(guest, slba, nlb) == all_bytes and all_bytes,
        10,
        f"blocks {slba}+{nlb} to become warm",
    )


def reads(guest: Guest, slba: int, nlb: int) -> bool:
    """Reads blocks of namespace 1 around the page cache; whether they are what they were."""
    run(
        f"dd if={places(guest)['DATA']} of={WORK}/read bs=4096 skip={slba} count={nlb} iflag=direct"
    )
    return page("read") == pattern.blocks(slba, nlb)


def stats(guest: Guest) -> Facts:
    """This host's counters, from its status page."""
    status = raw(f"dd if={places(guest)['NODE']} bs=4096 count=1 iflag=direct status=none")
    found: Facts = {
        name: struct.unpack_from("<Q", status, offset)[0] for name, offset in COUNTERS.items()
    }
    for kind, offset in (("intents", 400), ("dated_reads", 624)):
        by_priority = [struct.unpack_from("<7Q", status, offset + 56 * n) for n in range(4)]
        sums = [sum(column) for column in zip(*by_priority, strict=True)]
        found |= {f"{kind}_{word}": one for word, one in zip(OUTCOMES, sums, strict=True)}
    return found


def moved(guest: Guest, before: Facts) -> Facts:
    """By how much each counter has moved since."""
    return {name: value - before[name] for name, value in stats(guest).items()}


# ---- the steps ----


@step
def pax_identify(guest: Guest) -> Facts:
    """The capability, the UUID list, the extension namespace's identity."""
    identify = raw(f"nvme id-ctrl {guest.node()} --raw-binary")
    namespace = raw(f"nvme id-ns {guest.node()} -n {EXTENSION} --raw-binary")
    return {
        "capability": identify[3072:3200].hex(),
        "ctratt": int.from_bytes(identify[96:100], "little"),
        # nvme-cli 2.3 prints the list from the second on.
        "uuids": raw(f"nvme id-uuid {guest.node()} --raw-binary")[:96].hex(),
        "namespace": run_json(f"nvme id-ns {guest.node()} -n {EXTENSION} -o json"),
        "vendor": namespace[384:388].decode(errors="replace"),
        "descriptors": run_json(f"nvme ns-descs {guest.node()} -n {EXTENSION} -o json"),
        "size": guest.size(guest.disk(EXTENSION)),
    }


@step
def udev(guest: Guest) -> Facts:
    """The real udevd, with the rule that is shipped; a member of its group."""
    run([UDEVD, "--daemon"])
    # Not with --settle, which waits for the hidden disks of single paths, and they say nothing.
    run("udevadm trigger --action=add --subsystem-match=block")
    run("udevadm settle")
    run(f"useradd --system --user-group {MEMBER}")
    disk = guest.disk(EXTENSION)
    before = node_facts(Path("/dev", disk))
    play(guest, "rule", cwd=recipes.ROOT)
    reach(recipes.ROOT)
    reach(Path(guest.plan["prestage"]).with_name("python").resolve())
    run(f"cp -r {guest.plan['pages']} {WORK}")
    run(f"chown -R {MEMBER} {WORK}")
    nodes = {nsid: node_facts(Path("/dev", guest.disk(nsid))) for nsid in (1, EXTENSION)}
    return {
        "before": before,
        "nodes": nodes,
        "links": {str(path): str(path.resolve()) for path in Path("/dev/prestage").rglob("nvme*")},
        "disk": disk,
        "found": run(f"blkid -p /dev/{disk}", fails=True),
        "properties": run(f"udevadm info --query=property /dev/{disk}"),
        "member": run([*AS_MEMBER, "cat", "/proc/self/status"]),
        "refused": run([*AS_MEMBER, "dd", f"if=/dev/{guest.disk(1)}", "count=1"], fails=True),
    }


def node_facts(node: Path) -> Facts:
    status = node.stat()
    return {"group": grp.getgrgid(status.st_gid).gr_name, "mode": stat.S_IMODE(status.st_mode)}


def reach(path: Path) -> None:
    """Lets the member come to a path below somebody's home; the guest forgets that again."""
    for folder in path.parents:
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH)


@step
def hint_dd(guest: Guest) -> Facts:
    """A set, an intent on it, cold and then warm, with nothing but dd and pages made elsewhere."""
    before = stats(guest)
    play(guest, "dd", member=True)
    facts: Facts = {"pages": pages("before.bin", "outcome.bin", "after.bin", "status.bin")}
    facts["same"] = [reads(guest, slba, 256) for slba in (4096, 5120)]
    told: list[Facts] = guest.control.ask("stats")["result"]["tenants"]
    facts["told"] = {one["host_nqn"]: one["timely_hits"] for one in told}[guest.host_nqn]
    return {**facts, "found": stats(guest)["timely_hits"], "moved": moved(guest, before)}


@step
def hint_c(guest: Guest) -> Facts:
    """The example in C, compiled before the boot."""
    before = stats(guest)
    cold = warm_bytes(guest, 11264, 256)
    printed = play(guest, "c", member=True)
    facts: Facts = {"cold": cold, "printed": printed, "warm": warm_bytes(guest, 11264, 256)}
    return {**facts, "same": reads(guest, 11264, 256), "moved": moved(guest, before)}


@step
def hint_command(guest: Guest) -> Facts:
    """prestage itself on a node: as the member on the newer kernel, as root on the older one.

    Its start is dear under emulation, so each kernel pays it once.
    """
    before = stats(guest)
    by_node = guest.plan["kernel"] != "6.1"
    words = recipes.in_one_process("node" if by_node else "char", guest.plan["prestage"])
    words = [*(AS_MEMBER if by_node else ()), *words]
    environment = {**places(guest), "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    printed = run(words, cwd=WORK, environment=environment)
    first = 2048 if by_node else 10240
    same = reads(guest, first, 256)
    return {"printed": printed, "same": same, "moved": moved(guest, before), "node": by_node}


@step
def hint_dsm(guest: Guest) -> Facts:
    """An integral set by nvme-cli; reading its first range makes the second warm."""
    before = stats(guest)
    cold = warm_bytes(guest, 7168, 256)
    play(guest, "dsm")
    same = page("read.bin") == pattern.blocks(6144, 8)
    facts: Facts = {"cold": cold, "warm": becomes_warm(guest, 7168, 256)}
    facts["same"] = [same, reads(guest, 7168, 256)]
    return {**facts, "moved": moved(guest, before)}


@step
def hint_read(guest: Guest) -> Facts:
    """A read with access frequency 7; what follows it becomes warm. Also by a buffered read."""
    before = stats(guest)
    cold = warm_bytes(guest, 8208, 192)
    play(guest, "read")
    same = page("read.bin") == pattern.blocks(8192, 8)
    facts: Facts = {"cold": cold, "warm": becomes_warm(guest, 8208, 192)}
    facts["same"] = [same, reads(guest, 8208, 192)]
    facts["moved"] = moved(guest, before)
    before = stats(guest)
    run(f"dd if={places(guest)['DATA']} of={WORK}/read bs=64k skip=736 count=16")
    return {**facts, "buffered": moved(guest, before)}


@step
def hint_passthru(guest: Guest) -> Facts:
    """Opcodes 81h, 82h and 92h; the dated read gives the bytes that a Read gives."""
    before = stats(guest)
    cold = warm_bytes(guest, 9216, 256)
    play(guest, "passthru")
    facts: Facts = {"cold": cold, "warm": becomes_warm(guest, 9216, 256)}
    facts["dated"] = page("dated.bin") == pattern.blocks(9216, 8)
    facts["answers"] = {name: page(name)[:120].hex() for name in ("outcome.bin", "answer.bin")}
    return {**facts, "same": reads(guest, 9216, 256), "moved": moved(guest, before)}


@step
def hint_cache(guest: Guest) -> Facts:
    """Through the page cache, as a program does that cannot go around it."""
    node = places(guest)["NODE"]
    play(guest, "cache", member=True)
    facts: Facts = {"asked": page("ask.bin")[:28].hex(), "answer": page("cached.bin")[:64].hex()}
    run(f"blockdev --flushbufs {node}")
    run(f"dd if={node} of={WORK}/cached.bin bs=4096 skip=67 count=1")
    return {**facts, "flushed": page("cached.bin")[:64].hex()}


@step
def warm_event(guest: Guest) -> Facts:
    """Log pages and the feature; the event comes as a uevent, and the kernel says nothing of it."""
    monitor = "stdbuf -oL udevadm monitor --kernel --property --subsystem-match=nvme"
    heard = WORK / "monitor"
    node = places(guest)["NODE"]
    facts: Facts = {}
    with background(monitor, heard):
        wait_until(lambda: "KERNEL" in heard.read_text(), 20, "udevadm to monitor")
        facts["printed"] = play(guest, "logs")
        # The log is empty now: what ends next makes it non-empty once more.
        told = len(aens(heard))
        run(f"dd if={WORK}/intend.bin of={node} bs=4096 seek=68 oflag=direct")
        wait_until(lambda: len(aens(heard)) > told, 20, "a warm event")
        facts["events"] = aens(heard)
    facts["status"] = page("status.bin")[:4].decode(errors="replace")
    facts["log"] = page("events.bin")[:64].hex()
    # With another UUID index, these numbers mean nothing here.
    wrong = f"nvme get-log {guest.node()} --log-id=0xd0 --uuid-index=0 --log-len=4096"
    return {**facts, "wrong": run(wrong, fails=True), **guest.state()}


def aens(heard: Path) -> list[str]:
    return re.findall(r"^NVME_AEN=(\S+)", heard.read_text(), re.MULTILINE)


@step
def misuse(guest: Guest) -> Facts:
    """Takes the extension namespace for a disk; nothing may hang, and all goes on afterwards."""
    before = stats(guest)
    node = places(guest)["NODE"]
    exits = {
        command.split()[0] + f" {number}": attempt(command)
        for number, command in enumerate(
            (
                f"mkfs.ext4 -q -F {node}",
                f"mount {node} /mnt",
                f"wipefs --all {node}",
                f"dd if=/dev/urandom of={node} bs=64k count=16 oflag=direct",
                f"blkdiscard {node}",
                f"blkdiscard --zeroout {node}",
                f"blockdev --rereadpt {node}",
                f"nvme compare {node} -s 64 -c 0 -z 4096 -d {WORK}/ask.bin",
                f"nvme write {node} -s 250 -c 7 -z 32768 -d {WORK}/dated.bin",
            )
        )
    }
    run("udevadm settle")
    facts: Facts = {"exits": exits, "moved": moved(guest, before)}
    run(f"dd if={WORK}/ask.bin of={node} bs=4096 seek=64 oflag=direct")
    run(f"dd if={node} of={WORK}/answer.bin bs=4096 skip=64 count=1 iflag=direct")
    facts["answer"] = page("answer.bin")[:64].hex()
    return {**facts, "size": guest.size(guest.disk(EXTENSION)), **guest.state()}


def attempt(command: str) -> int:
    """The exit status of a command that may fail, but has to end."""
    try:
        run(command)
    except StepError as error:
        found = re.search(r"exit (\d+)", str(error))
        if found is None:
            raise
        return int(found[1])
    return 0


@step
def udev_end(guest: Guest) -> Facts:
    """Without udevd, for the steps that count every read."""
    run("udevadm control --exit")
    return {"nodes": node_facts(Path("/dev", guest.disk(EXTENSION)))}
