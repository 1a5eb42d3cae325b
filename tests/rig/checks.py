"""What is wrong with a step's findings: each step has its check.

`Judge` takes the findings of `rig.guest` in their order.
"""

from __future__ import annotations

import re

from rig import kernel_log, pax_checks
from rig.golden import (
    BAD_LBA,
    QUEUES,
    Check,
    Facts,
    Golden,
    Memory,
    Problems,
    differs,
    lacks,
    live,
    logged,
    registry,
    status,
)

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
RECONNECT_S = 10.0
CHECKS: dict[str, Check] = dict(pax_checks.CHECKS)
check = registry(CHECKS)


class Judge:
    """Judges the findings of one run, in their order."""

    def __init__(self) -> None:
        self._memory = Memory()

    def judge(self, finding: Facts, golden: Golden) -> tuple[list[str], list[str]]:
        """What contradicts the golden fields, and the kernel's unexplained complaints."""
        name, lines = finding["step"], [(level, text) for level, text in finding["kernel"]]
        fault = (finding["facts"].get("disk", ""), BAD_LBA)
        complaints = kernel_log.complaints(name, lines, fault)
        if finding["error"] is not None:
            return [finding["error"]], complaints
        facts = {**finding["facts"], "kernel": [text for _, text in lines]}
        try:
            return list(CHECKS[name](facts, golden, self._memory)), complaints
        except (KeyError, IndexError, TypeError, ValueError) as error:
            return [f"the findings lack something: {error!r}"], complaints


@check("discover")
def discover(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    records = {record["subnqn"]: record for record in facts["log"]["records"]}
    # Whether a discovery subsystem lists itself is its own choice.
    others = sorted(set(records) - {DISCOVERY_NQN})
    yield from differs("subsystems", others, [golden.nqn])
    subtypes = {golden.nqn: "nvme subsystem", DISCOVERY_NQN: "current discovery subsystem"}
    for nqn, record in records.items():
        yield from differs(f"subtype of {nqn}", record["subtype"], subtypes.get(nqn))
        for field, wanted in (("trtype", "tcp"), ("adrfam", "ipv4"), ("traddr", "127.0.0.1")):
            yield from differs(f"{field} of {nqn}", record[field], wanted)
    yield from differs("trsvcid", records[golden.nqn]["trsvcid"], str(facts["port"]))


@check("connect", "ns-rescan")
def connect(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from live(facts, golden)


@check("list")
def list_(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("active namespaces", facts["namespaces"], golden.namespaces)
    found = {device["NameSpace"]: device for device in facts["list"]["Devices"]}
    yield from differs("listed namespaces", sorted(found), golden.namespaces)
    for nsid, size in golden.sizes.items():
        device, of = found[nsid], f"of namespace {nsid}"
        yield from differs(f"PhysicalSize {of}", device["PhysicalSize"], size)
        yield from differs(f"SectorSize {of}", device["SectorSize"], golden.blocks[nsid])
        yield from differs(f"SerialNumber {of}", device["SerialNumber"], golden.serial)
        yield from differs(f"ModelNumber {of}", device["ModelNumber"], golden.model)
        yield from differs(f"size in sysfs {of}", facts["disks"][str(nsid)]["size"], size)
    subsystems = [s for host in facts["subsystems"] for s in host["Subsystems"]]
    yield from differs("subsystems", [s["NQN"] for s in subsystems], [golden.nqn])
    yield from differs("paths", [p["State"] for p in subsystems[0]["Paths"]], ["live"])


@check("id-ctrl")
def id_ctrl(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    identify = facts["identify"]
    memory.firmware = identify["fr"].strip()
    for field, wanted in (
        ("sn", golden.serial),
        ("mn", golden.model),
        ("subnqn", golden.nqn),
    ):
        yield from differs(field, identify[field].strip(), wanted)
    for field, number in (
        ("cntlid", int(facts["cntlid"])),
        ("cntrltype", 1),
        ("sqes", 0x66),
        ("cqes", 0x44),
        ("iorcsz", 1),
        ("icdoff", 0),
        ("ver", golden.version or identify["ver"]),
    ):
        yield from differs(field, identify[field], number)
    yield from lacks("oaes (namespace attribute notices)", identify["oaes"], 0x100)
    yield from lacks("sgls (SGLs, offsets in them)", identify["sgls"], 0x100001)
    yield from lacks("oncs (optional commands)", identify["oncs"], golden.oncs)
    yield from lacks("fuses (fused commands)", identify["fuses"], golden.fuses)
    yield from lacks("vwc (a write cache)", identify["vwc"], 1)
    yield from lacks("lpa (commands' effects, long logs)", identify["lpa"], 0x06)
    for field, least in (("kas", 1), ("ioccsz", 4), ("nn", 3), ("aerl", 3), ("maxcmd", 32)):
        if identify[field] < least:
            yield f"{field}: found {identify[field]}, expected {least} or more"


@check("id-ns")
def id_ns(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    for nsid, size in golden.sizes.items():
        identify, of = facts[str(nsid)], f"of namespace {nsid}"
        blocks = size // golden.blocks[nsid]
        yield from differs(f"nsze {of}", identify["nsze"], blocks)
        yield from differs(f"ncap {of}", identify["ncap"], blocks)
        if identify["nuse"] > blocks:
            yield f"nuse {of}: found {identify['nuse']}, expected at most {blocks}"
        used = identify["lbafs"][identify["flbas"] & 0xF]
        yield from differs(f"block {of}", 1 << used["ds"], golden.blocks[nsid])
        yield from differs(f"metadata {of}", used["ms"], 0)
        if golden.has_nguid and not int(identify["nguid"], 16):
            yield f"nguid {of}: found zeros, expected an identity"


@check("ns-descs")
def ns_descs(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    memory.identities = {str(nsid): facts[str(nsid)] for nsid in golden.namespaces}
    seen: list[str] = []
    for nsid, found in memory.identities.items():
        by_type = {descriptor["type"]: descriptor for descriptor in found["ns-descs"]}
        wanted = {"uuid", "csi"} | ({"nguid"} if golden.has_nguid else set())
        if int(nsid) == golden.extension:
            wanted -= {"nguid"}
        if not wanted <= set(by_type):
            yield f"descriptors of namespace {nsid}: {sorted(by_type)}, expected {sorted(wanted)}"
            continue
        yield from differs(f"csi of namespace {nsid}", int(by_type["csi"]["csi"]), 0)
        seen += [by_type[kind][kind] for kind in sorted(wanted - {"csi"})]
    if len(set(seen)) != len(seen):
        yield f"identities are shared between namespaces: {seen}"


def same_identities(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    found = {str(nsid): facts["identities"][str(nsid)] for nsid in golden.namespaces}
    yield from differs("identities", found, memory.identities)


@check("smart-log")
def smart_log(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    """32 writes and 64 reads of 64 KiB; units are thousands of 512 bytes, rounded up."""
    moved = {name: int(facts["after"][name]) - int(facts["before"][name]) for name in COUNTERS}
    yield from differs("critical_warning", facts["after"]["critical_warning"], 0)
    for name, least, most in (
        ("host_write_commands", 32, 32),
        ("host_read_commands", 64, 64),
        ("data_units_written", 4, 5),
        ("data_units_read", 8, 9),
        ("media_errors", 0, 0),
        ("num_err_log_entries", 0, 0),
    ):
        if not least <= moved[name] <= most:
            yield f"{name}: moved by {moved[name]}, expected {least} to {most}"


COUNTERS = (
    "data_units_read",
    "data_units_written",
    "host_read_commands",
    "host_write_commands",
    "media_errors",
    "num_err_log_entries",
)


@check("error-log")
def error_log(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("status of the read", status(facts["passed"]), golden.read_error)
    known = int(facts["before"]["num_err_log_entries"])
    entries = [entry for entry in facts["log"]["errors"] if entry["error_count"] > known]
    if len(entries) < 2:
        yield f"error log: {len(entries)} entries, expected one for each of two failed reads"
    for entry in entries:
        of = f"of log entry {entry['error_count']}"
        yield from differs(f"lba {of}", entry["lba"], BAD_LBA)
        yield from differs(f"nsid {of}", entry["nsid"], 2)
        yield from differs(f"status {of}", entry["status_field"] & 0x7FF, golden.read_error)
        if not 1 <= entry["sqid"] <= QUEUES:
            yield f"sqid {of}: found {entry['sqid']}, expected 1 to {QUEUES}"
    counts = [entry["error_count"] for entry in entries]
    yield from differs("order of the log", counts, sorted(set(counts), reverse=True))
    moved = {name: int(facts["after"][name]) - int(facts["before"][name]) for name in COUNTERS}
    yield from differs("num_err_log_entries moved by", moved["num_err_log_entries"], len(entries))
    if golden.counts_media_errors and moved["media_errors"] < 2:
        yield f"media_errors: moved by {moved['media_errors']}, expected 2 or more"


@check("fw-log")
def fw_log(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    (log,) = facts["log"].values()
    yield from differs("active slot", log["Active Firmware Slot (afi)"] & 7, golden.firmware_slot)
    if golden.firmware_slot:
        slot = str(log.get(f"Firmware Rev Slot {golden.firmware_slot}", "nothing"))
        if memory.firmware not in slot:
            yield f"revision in the active slot: found {slot}, expected {memory.firmware}"


@check("ana-log")
def ana_log(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    groups = facts["log"]["ANA DESC LIST "]
    yield from differs("states", [group["state"] for group in groups], ["optimized"])
    found = sorted(entry["nsid"] for group in groups for entry in group["NSIDS"])
    yield from differs("namespaces", found, golden.namespaces)


@check("effects-log")
def effects_log(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    """Entries of 4 bytes: the admin opcodes, then from 1024 the I/O opcodes; bit 0 is CSUPP."""
    log = bytes.fromhex(facts["log"])
    yield from differs("length", len(log), 4096)
    for opcode in (0x02, 0x06, 0x09, 0x0A, 0x0C):
        if not log[4 * opcode] & 1:
            yield f"admin opcode {opcode:#04x}: not marked as supported"
    for opcode in (0x00, 0x01, 0x02, 0x08, 0x09):
        if not log[1024 + 4 * opcode] & 1:
            yield f"I/O opcode {opcode:#04x}: not marked as supported"
    for opcode in (0x81, 0x82, 0x92) if golden.extension else ():
        at = 1024 + 4 * opcode
        yield from differs(f"effects of {opcode:#04x}", log[at : at + 4].hex(), "01000000")


@check("get-feature")
def get_feature(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    value = re.search(r"value:(0x[0-9a-f]+)", facts["printed"])
    if value is None:
        yield f"number of queues: no value in {facts['printed']!r}"
        return
    number = int(value[1], 16)
    for what, count in (("submission", number & 0xFFFF), ("completion", number >> 16)):
        if not QUEUES - 1 <= count <= 127:
            yield f"{what} queues, from 0: found {count}, expected {QUEUES - 1} to 127"


@check("dsm")
def dsm(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    if facts["dlfeat"] & 7 == 1 and not facts["zero"]:
        yield "deallocated blocks read back as they were, though DLFEAT promises zeros"


@check("io-commands")
def io_commands(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("zeroes after Write Zeroes", facts["zero"], True)
    yield from differs("zeroes after blkdiscard -z", facts["wiped"], True)
    if facts["oncs"] & 1:
        yield from differs("status of a Compare that differs", status(facts["differs"]), 0x285)
    if facts["oncs"] & 0x100:
        yield from differs("copied blocks are the same", facts["copied"], True)


@check("reset")
def reset(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from live(facts["after"], golden)
    yield from differs("instance", facts["after"]["instance"], facts["before"]["instance"])
    yield from logged(facts, "resetting controller", 1)
    yield from logged(facts, "creating 4 I/O queues", 1)


@check("filesystem")
def filesystem(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from live(facts, golden)
    if not re.search(r"\([1-9]\d* bytes\) trimmed", facts["trimmed"]):
        yield f"fstrim: found {facts['trimmed']!r}, expected something to be trimmed"
    yield from same_identities(facts, golden, memory)


@check("disconnect", "end")
def disconnect(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("controllers left", facts["controllers"], [])
    if "disconnected 1 controller" not in facts["printed"]:
        yield f"nvme disconnect printed {facts['printed']!r}"


@check("restart")
def restart(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from live(facts, golden)
    yield from same_identities(facts, golden, memory)


@check("compare")
def compare(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("files that changed", facts["wrong"], [])
    if facts["files"] < 10:
        yield f"only {facts['files']} files were compared"


def fio_done(facts: Facts, written: int) -> Problems:
    yield from differs("fio's errors", facts["errors"], 0)
    if facts["written"] < written or facts["read"] < written:
        yield (
            f"fio wrote {facts['written']} and read {facts['read']} bytes,"
            f" expected {written} or more of both"
        )


@check("fio", "fio-digests")
def fio(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from live(facts, golden)
    yield from fio_done(facts, 4 << 20)
    if "small" in facts:
        yield from fio_done(facts["small"], 1 << 20)


@check("namespaces")
def namespaces(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from differs("size when added", facts["added"], 16 << 20)
    yield from differs("size when grown", facts["grown"], 24 << 20)
    yield from differs("fio was still writing", facts["during"], True)
    yield from differs("controller", facts["after"], facts["before"])
    yield from logged(facts, "rescanning namespaces", 3)
    yield from fio_done(facts, 12 << 20)
    for line in facts["kernel"]:
        if re.search("I/O queues|econnect|resetting", line):
            yield f"the host connected anew: {line}"


@check("killed-target")
def killed_target(facts: Facts, golden: Golden, memory: Memory) -> Problems:
    yield from live(facts["after"], golden)
    yield from differs("fio was still writing", facts["during"], True)
    yield from logged(facts, "starting error recovery", 1)
    yield from fio_done(facts, 8 << 20)
    if facts["seconds"] > RECONNECT_S:
        yield f"reconnected after {facts['seconds']} s, expected {RECONNECT_S:g} s or less"
