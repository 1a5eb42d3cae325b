"""Checks file media in a process that may not use some system call.

    python media_confined.py io_uring_setup|fallocate PATH

Without io_uring_setup: as in default container profiles. Without fallocate: as on a file system
that knows no holes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from functools import partial

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
ALLOW = 0x7FFF0000
REFUSE = 0x00050000
CALLS = {
    "io_uring_setup": ({"x86_64": 425, "aarch64": 425}, errno.EPERM),
    "fallocate": ({"x86_64": 285, "aarch64": 47}, errno.EOPNOTSUPP),
}


def forbid(name: str) -> None:
    """Install a filter: load the number of the call; if it is this one, refuse it."""
    numbers, error = CALLS[name]
    code = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in [
            (0x20, 0, 0, 0),
            (0x15, 0, 1, numbers[platform.machine()]),
            (0x06, 0, 0, REFUSE | error),
            (0x06, 0, 0, ALLOW),
        ]
    )
    buffer = ctypes.create_string_buffer(code, len(code))
    count = len(code) // 8
    program = ctypes.create_string_buffer(struct.pack("HP", count, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in [
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0),
    ]:
        if libc.prctl(*(ctypes.c_ulong(each) for each in arguments)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    """Run the conformance checks with each engine, and print warnings or the complaint."""
    forbid(sys.argv[1])
    from prestage.testing_media import DISCARD, NO_PUNCH, MediaError, Medium, check_media

    for engine in ("auto", "uring", "threads"):
        spec = f"file:{sys.argv[2]},create=1,size=1M,engine={engine}"
        try:
            with Medium(spec, start=False) as medium:
                limits = medium.limits
        except MediaError as error:
            print(error)
            continue
        check_media(partial(Medium, spec), seed=1)
        with Medium(spec) as medium:
            assert medium.limits == limits
            before = medium.read(0, 4096)
            assert medium.run(DISCARD, 0, 4096).error == 0
            kept = medium.read(0, 4096) == before
            assert kept or not limits.warnings & NO_PUNCH
        print(f"{engine}: warnings={limits.warnings}, same bytes")


if __name__ == "__main__":
    main()
