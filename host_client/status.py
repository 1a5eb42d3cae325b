"""Names of status codes (Base 2.0, 3.3.3.2.1, figures 91 to 97; NVM Command Set 1.0, 3.1)."""

from __future__ import annotations

SUCCESS = 0x000
INVALID_OPCODE = 0x001
INVALID_FIELD = 0x002
COMPARE_FAILURE = 0x285
DNR = 1 << 14

TYPES = {
    0: "generic",
    1: "command specific",
    2: "media and data integrity",
    3: "path related",
    7: "vendor specific",
}

NAMES = {
    0x000: "Successful Completion",
    0x001: "Invalid Command Opcode",
    0x002: "Invalid Field in Command",
    0x003: "Command ID Conflict",
    0x004: "Data Transfer Error",
    0x005: "Commands Aborted due to Power Loss Notification",
    0x006: "Internal Error",
    0x007: "Command Abort Requested",
    0x008: "Command Aborted due to SQ Deletion",
    0x009: "Command Aborted due to Failed Fused Command",
    0x00A: "Command Aborted due to Missing Fused Command",
    0x00B: "Invalid Namespace or Format",
    0x00C: "Command Sequence Error",
    0x00D: "Invalid SGL Segment Descriptor",
    0x00E: "Invalid Number of SGL Descriptors",
    0x00F: "Data SGL Length Invalid",
    0x010: "Metadata SGL Length Invalid",
    0x011: "SGL Descriptor Type Invalid",
    0x012: "Invalid Use of Controller Memory Buffer",
    0x014: "Atomic Write Unit Exceeded",
    0x015: "Operation Denied",
    0x016: "SGL Offset Invalid",
    0x018: "Host Identifier Inconsistent Format",
    0x019: "Keep Alive Timer Expired",
    0x01A: "Keep Alive Timeout Invalid",
    0x01B: "Command Aborted due to Preempt and Abort",
    0x01C: "Sanitize Failed",
    0x01D: "Sanitize In Progress",
    0x020: "Namespace is Write Protected",
    0x021: "Command Interrupted",
    0x022: "Transient Transport Error",
    0x080: "LBA Out of Range",
    0x081: "Capacity Exceeded",
    0x082: "Namespace Not Ready",
    0x083: "Reservation Conflict",
    0x084: "Format In Progress",
    0x100: "Completion Queue Invalid",
    0x101: "Invalid Queue Identifier",
    0x102: "Invalid Queue Size",
    0x103: "Abort Command Limit Exceeded",
    0x105: "Asynchronous Event Request Limit Exceeded",
    0x109: "Invalid Log Page",
    0x10A: "Invalid Format",
    0x10D: "Feature Identifier Not Saveable",
    0x10E: "Feature Not Changeable",
    0x10F: "Feature Not Namespace Specific",
    0x12B: "I/O Command Set Combination Rejected",
    0x180: "Conflicting Attributes",
    0x181: "Invalid Protection Information",
    0x182: "Attempted Write to Read Only Range",
    0x183: "Command Size Limit Exceeded",
    0x280: "Write Fault",
    0x281: "Unrecovered Read Error",
    0x282: "End-to-end Guard Check Error",
    0x283: "End-to-end Application Tag Check Error",
    0x284: "End-to-end Reference Tag Check Error",
    0x285: "Compare Failure",
    0x286: "Access Denied",
    0x287: "Deallocated or Unwritten Logical Block",
    0x300: "Internal Path Error",
    0x301: "Asymmetric Access Persistent Loss",
    0x302: "Asymmetric Access Inaccessible",
    0x303: "Asymmetric Access Transition",
    0x360: "Controller Pathing Error",
    0x370: "Host Pathing Error",
    0x371: "Command Aborted By Host",
}

CONNECT_NAMES = {
    0x180: "Incompatible Format",
    0x181: "Controller Busy",
    0x182: "Connect Invalid Parameters",
    0x183: "Connect Restart Discovery",
    0x184: "Connect Invalid Host",
    0x190: "Discover Restart",
    0x191: "Authentication Required",
}
"""Command specific codes that mean this after a Connect (Base 2.0, figure 494)."""

CONNECT_INVALID_PARAMETERS = 0x182
CONNECT_INVALID_HOST = 0x184
CONNECT_FIELDS = {
    0x10100: "the target has no subsystem of this NQN",
    0x10200: "the target does not take this host NQN",
}
"""What is wrong, by DW0: the offset of a field in the data of Connect (IATTR 1)."""


def status_name(sct: int, sc: int) -> str:
    """Return the specification's words for a status, or its type where the code has no name."""
    known = NAMES.get(sct << 8 | sc)
    return known or f"{TYPES.get(sct, 'reserved type')} status {sc:02X}h"


def connect_status_name(status: int) -> str:
    """Return the words for the status of a Connect command."""
    code = status & 0x7FF
    return CONNECT_NAMES.get(code) or status_name(code >> 8, code & 0xFF)


def connect_refusal(status: int, dw0: int) -> str:
    """Return why a Connect was refused, as a sentence. `dw0` points at the field at fault."""
    code = status & 0x7FF
    if code == CONNECT_INVALID_HOST:
        return "the target does not let this host NQN connect"
    if code == CONNECT_INVALID_PARAMETERS:
        return CONNECT_FIELDS.get(dw0, "the target refuses a field of Connect")
    return "the target refuses the connection"
