"""Run a command as it would run in a container: unprivileged, some system calls forbidden.

    python tests/confined.py [--profile FILE.json] [--uid UID] COMMAND [ARGUMENT...]

`--profile` is a seccomp profile as Docker and Podman take it, of the plain kind that forbids names
unconditionally (docs/seccomp-no-io-uring.json). `--uid` gives up root, groups and capabilities for
good; it needs root and does nothing for others. Exit status 2: wrong usage, or it cannot be done.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import struct
import sys
from pathlib import Path
from typing import Any, NoReturn

SYSTEM_CALLS = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427}
"""Numbers of the calls that profiles may name here; the same on x86-64 and aarch64."""
MACHINES = ("x86_64", "aarch64")

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ALLOW = 0x7FFF0000
SECCOMP_RET_ERRNO = 0x00050000
BPF_LOAD_WORD = 0x20
BPF_JUMP_EQUAL = 0x15
BPF_RETURN = 0x06


def fail(text: str) -> NoReturn:
    """Say what is wrong, and end."""
    print(f"confined: {text}", file=sys.stderr)
    raise SystemExit(2)


def forbidden(profile: dict[str, Any]) -> dict[int, int]:
    """Return number and errno of each system call that a profile forbids."""
    if profile["defaultAction"] != "SCMP_ACT_ALLOW":
        fail(f"defaultAction is {profile['defaultAction']}; expected SCMP_ACT_ALLOW")
    found = {}
    for rule in profile["syscalls"]:
        if rule["action"] != "SCMP_ACT_ERRNO":
            fail(f"action is {rule['action']}; expected SCMP_ACT_ERRNO")
        for name in rule["names"]:
            if name not in SYSTEM_CALLS:
                fail(f"{name} is not known; expected one of {', '.join(SYSTEM_CALLS)}")
            found[SYSTEM_CALLS[name]] = int(rule.get("errnoRet", 1))
    return found


def filter_program(calls: dict[int, int]) -> bytes:
    """Return the BPF instructions (struct sock_filter) that answer `calls` with their errno."""
    instructions = [(BPF_LOAD_WORD, 0, 0, 0)]  # seccomp_data.nr
    for number, errno in calls.items():
        instructions.append((BPF_JUMP_EQUAL, 0, 1, number))
        instructions.append((BPF_RETURN, 0, 0, SECCOMP_RET_ERRNO | errno))
    instructions.append((BPF_RETURN, 0, 0, SECCOMP_RET_ALLOW))
    return b"".join(struct.pack("=HBBI", *each) for each in instructions)


def forbid(calls: dict[int, int]) -> None:
    """Forbid system calls to this process and all that it starts."""
    if platform.machine() not in MACHINES:
        fail(f"the numbers of system calls on {platform.machine()} are not known")
    libc = ctypes.CDLL(None, use_errno=True)
    code = filter_program(calls)
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: a count of instructions and their address.
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    arguments = (ctypes.c_ulong(SECCOMP_MODE_FILTER), program, ctypes.c_ulong(0), ctypes.c_ulong(0))
    one, zero = ctypes.c_ulong(1), ctypes.c_ulong(0)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, one, zero, zero, zero) != 0:
        fail(f"PR_SET_NO_NEW_PRIVS: {os.strerror(ctypes.get_errno())}")
    if libc.prctl(PR_SET_SECCOMP, *arguments) != 0:
        fail(f"PR_SET_SECCOMP: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Confine this process, then become the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--uid", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        fail("no command given")
    if options.uid is not None and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(options.uid, options.uid, options.uid)
        os.setresuid(options.uid, options.uid, options.uid)
    if options.profile is not None:
        forbid(forbidden(json.loads(options.profile.read_text("utf-8"))))
    try:
        os.execvp(options.command[0], options.command)
    except OSError as error:
        fail(f"cannot run {options.command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
