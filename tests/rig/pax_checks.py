"""The golden fields of PAX: what a Linux host must find when it hints (`rig.pax` has the steps)."""

from __future__ import annotations

import re
import struct
from typing import Any

from rig.golden import (
    Check,
    Facts,
    Golden,
    Memory,
    Problems,
    differs,
    live,
    registry,
    status,
)

CHECKS: dict[str, Check] = {}
check = registry(CHECKS)
MIB = 1 << 20
EXTENSION_BYTES = 256 * 4096
PAX_UUID = "50415831707285739074616765000001"
WARM_EVENT = 0xD10007
"""DW0 of the event as Linux shows it: type 7, information 0, log page D1h."""


def at_least(moved: Facts, **least: int) -> Problems:
    """Counters that must have moved by so much, or by more."""
    for name, number in least.items():
        if moved[name] < number:
            yield f"{name}: moved by {moved[name]}, expected {number} or more"


def harmless(moved: Facts) -> Problems:
    """What may not happen while well-formed hints are within their budgets."""
    for name in ("refused", "unknown", "intents_dropped", "intents_cancelled"):
        yield from differs(f"{name} moved by", moved[name], 0)


@check("pax-identify")
def pax_identify(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    capability = bytes.fromhex(facts["capability"])
    magic, major, _, size, carriers = struct.unpack_from("<4sBBHI", capability)
    yield from differs("magic, version and size", (magic, major, size), (b"PAXC", 1, 128))
    yield from differs("carriers", carriers, 0x7F)
    (nsid,) = struct.unpack_from("<I", capability, 24)
    yield from differs("extension_nsid", nsid, golden.extension)
    # Status log, event log, feature, UUID index, opcodes: as docs/hosts.md has them.
    yield from differs("numbers", capability[54:61].hex(), "d0d1d001818292")
    yield from differs("UUID List in ctratt", facts["ctratt"] >> 9 & 1, 1)
    # The list begins with 32 reserved bytes; an entry is a header of 16 bytes, and the UUID.
    uuids = bytes.fromhex(facts["uuids"])
    yield from differs("UUID 1", uuids[48:64].hex(), PAX_UUID)
    yield from differs("UUID 2", uuids[80:96].hex(), "00" * 16)
    namespace = facts["namespace"]
    yield from differs("nsze", namespace["nsze"], 256)
    yield from differs("block", namespace["lbafs"][namespace["flbas"] & 0xF]["ds"], 12)
    yield from differs("vendor bytes of the namespace", facts["vendor"], "PAXC")
    yield from differs("size in sysfs", facts["size"], EXTENSION_BYTES)
    named = [one["uuid"] for one in facts["descriptors"]["ns-descs"] if "uuid" in one]
    if len(named) != 1 or not named[0].startswith("50415831-"):
        yield f"UUID of the extension namespace: found {named}, expected 50415831-..."


@check("udev")
def udev(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    wanted = {"group": "prestage", "mode": 0o660}
    yield from differs("node before the rule", facts["before"], {"group": "disk", "mode": 0o660})
    yield from differs("node", facts["nodes"][str(golden.extension)], wanted)
    yield from differs("group of the data's node", facts["nodes"]["1"]["group"], "disk")
    links = sorted(facts["links"].values())
    yield from differs("links", links, [f"/dev/{facts['disk']}"] * len(links))
    if f"/dev/prestage/{facts['disk']}" not in facts["links"]:
        yield f"links: found {sorted(facts['links'])}, expected /dev/prestage/{facts['disk']}"
    yield from differs("what blkid finds", facts["found"].strip(), "")
    for name in ("ID_FS_TYPE", "ID_PART_TABLE_TYPE"):
        if name in facts["properties"]:
            yield f"udev found {name} on the extension namespace"
    if "UDISKS_IGNORE=1" not in facts["properties"]:
        yield f"properties: found {facts['properties']!r}, expected UDISKS_IGNORE=1"
    yield from powerless(facts["member"])
    if "Permission denied" not in facts["refused"]:
        yield f"the member reads the data's node: {facts['refused']!r}"


def powerless(process: str) -> Problems:
    """A process that is nobody in particular: /proc/self/status."""
    fields = dict(line.split(":\t", 1) for line in process.splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        yield from differs(f"{name} of the member", int(fields[name], 16), 0)
    yield from differs("NoNewPrivs", fields["NoNewPrivs"].strip(), "1")
    if "0" in fields["Uid"].split():
        yield f"the member's Uid: {fields['Uid']!r}"


@check("hint-dd")
def hint_dd(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    """Cold, met, warm, and counted as timely when it was read."""
    lines = facts["decoded"].splitlines()
    warm = [line for line in lines if line.startswith("warm ")]
    yield from differs("answers to the questions", [re.sub(" of.*", "", w) for w in warm], WARM)
    if not any(line.startswith("intent 2: met") for line in lines):
        yield f"the intent's answer: found {lines}, expected `intent 2: met`"
    if not any(line.startswith("PAX 1.0 by ") for line in lines):
        yield f"the status page: found {lines}"
    yield from differs("bytes of the ranges are as they were", facts["same"], [True, True])
    yield from differs("timely hits by `prestage stats`", facts["told"], facts["found"])
    yield from at_least(facts["moved"], records=3, intents_met=1, timely_hits=2)
    yield from at_least(facts["moved"], hydrated_bytes=2 * MIB)
    yield from harmless(facts["moved"])


WARM = ["warm 0", "warm 2M"]


@check("hint-c")
def hint_c(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("warm before", facts["cold"], 0)
    yield from differs("warm afterwards", facts["warm"], MIB)
    if not re.fullmatch(r"state [23], warm 1048576 of 1048576 bytes .*\n", facts["printed"]):
        yield f"the example printed {facts['printed']!r}"
    yield from differs("bytes are as they were", facts["same"], True)
    yield from at_least(facts["moved"], intents_arrived=1, timely_hits=1)
    yield from harmless(facts["moved"])


@check("hint-command")
def hint_command(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    lines = facts["printed"].splitlines()
    shares = re.findall(r"^warm .*\((\d+) %\)", facts["printed"], re.MULTILINE)
    yield from differs("shares that are warm", shares, ["0", "100"] if facts["node"] else ["100"])
    if not any(re.match(r"intent \d+: (met|late)", line) for line in lines):
        yield f"prestage printed {lines}, expected an intent that ended well"
    yield from differs("bytes are as they were", facts["same"], True)
    yield from at_least(facts["moved"], intents_arrived=1, timely_hits=1)
    yield from harmless(facts["moved"])


@check("hint-dsm", "hint-read")
def hint_standard(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    """What a standard command predicts becomes warm, and its reads are timely."""
    yield from differs("warm before", facts["cold"], 0)
    if facts["warm"] <= 0:
        yield "nothing became warm"
    yield from differs("bytes are as they were", facts["same"], [True, True])
    if "buffered" in facts:
        yield from at_least(facts["moved"], read_hints=1, timely_hits=1)
        # The kernel marks what it reads ahead by itself.
        yield from at_least(facts["buffered"], read_hints=1)
    else:
        yield from at_least(facts["moved"], dataset_sets=1, timely_hits=1)
    yield from harmless(facts["moved"])


@check("hint-passthru")
def hint_passthru(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("warm before", facts["cold"], 0)
    yield from differs("warm afterwards", facts["warm"], MIB)
    yield from differs("bytes of the dated read", facts["dated"], True)
    yield from differs("bytes are as they were", facts["same"], True)
    for name, kind in (("outcome.bin", 0x8102), ("answer.bin", 0x8101)):
        head = answer(facts["answers"][name])
        yield from differs(f"{name}: state, answers", (head["state"], head["answers"]), (1, 1))
        (found,) = struct.unpack_from("<H", bytes.fromhex(facts["answers"][name]), 64)
        yield from differs(f"{name}: type of the answer", found, kind)
    yield from at_least(facts["moved"], intents_arrived=1, dated_reads_arrived=1, timely_hits=1)
    yield from differs("dated reads cancelled", facts["moved"]["dated_reads_cancelled"], 0)
    yield from harmless(facts["moved"])


def answer(encoded: str) -> dict[str, Any]:
    """The header of an answer page, in hex."""
    page = bytes.fromhex(encoded)
    magic, _, _, _, writer, sequence, state = struct.unpack_from("<4sIIIQIB", page)
    (answers,) = struct.unpack_from("<H", page, 42)
    return {"magic": magic, "who": (writer, sequence), "state": state, "answers": answers}


@check("hint-cache")
def hint_cache(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    asked = struct.unpack_from("<QI", bytes.fromhex(facts["asked"]), 16)
    for name in ("answer", "flushed"):
        found = answer(facts[name])
        yield from differs(f"{name}: magic, state", (found["magic"], found["state"]), (b"PAXA", 1))
        yield from differs(f"{name}: writer and sequence", found["who"], asked)


@check("warm-event")
def warm_event(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from live(facts, golden)
    yield from differs("magic of the status log", facts["status"], "PAXC")
    log = bytes.fromhex(facts["log"])
    magic, _, events = struct.unpack_from("<4sII", log)
    yield from differs("magic of the event log", magic, b"PAXE")
    if events < 1:
        yield "the event log is empty, though intents have ended"
    found = {int(event, 16) for event in facts["events"]}
    yield from differs("events that the kernel passed on", found, {WARM_EVENT})
    if not re.search(r"value:0x0*1\b", facts["printed"]):
        yield f"get-feature: found {facts['printed']!r}, expected the value 1"
    yield from differs("status without the UUID index", status(facts["wrong"]), 0x109)


@check("misuse")
def misuse(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    """Whatever was written, it was written; the target has counted it and works."""
    yield from live(facts, golden)
    for name, code in facts["exits"].items():
        program = name.split()[0]
        if program in ("dd", "wipefs", "blkdiscard") and code != 0:
            yield f"{name}: exit {code}, expected 0"
    yield from at_least(facts["moved"], refused=64)
    found = answer(facts["answer"])
    yield from differs("answer afterwards", (found["magic"], found["state"]), (b"PAXA", 1))
    yield from differs("size", facts["size"], EXTENSION_BYTES)


@check("udev-end")
def udev_end(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("group of the node", facts["nodes"]["group"], "prestage")
