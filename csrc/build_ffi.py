"""The two cffi modules, each from the header that is its single source.

Environment: PRESTAGE_CFLAGS is added to the compile and link flags (for sanitizers).
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
MARKED = re.compile(r"/\* cffi: begin \*/(.*?)/\* cffi: end \*/", re.DOTALL)
OPTIMISE = ["-O2", "-flto=auto", "-fvisibility=hidden"]
WARNINGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wno-unused-parameter"]


def declarations(*headers: str) -> str:
    """Return what stands between the cffi marks of `headers`, in order."""
    return "\n".join(
        text for header in headers for text in MARKED.findall((HERE / header).read_text("utf-8"))
    )


def sources(*folders: str) -> list[str]:
    """Return the C files of `folders`, relative to the repository, in a stable order."""
    return [
        str(path.relative_to(HERE.parent))
        for folder in folders
        for path in sorted((HERE / folder).glob("*.c"))
    ]


def builder(module: str, headers: list[str], folders: list[str], libraries: list[str]) -> FFI:
    """Return the FFI of one extension module."""
    extra = shlex.split(os.environ.get("PRESTAGE_CFLAGS", ""))
    ffi = FFI()
    ffi.cdef("struct iovec { void *iov_base; size_t iov_len; };" + declarations(*headers))
    ffi.set_source(
        module,
        "#include <sys/uio.h>\n" + "".join(f'#include "{header}"\n' for header in headers),
        sources=sources(*folders),
        libraries=libraries,
        # Assertions stay: a target that has lost its way must stop before it writes.
        # -iquote, for <sched.h> of the C library must not be found here.
        extra_compile_args=[*OPTIMISE, "-UNDEBUG", "-iquote", "csrc", *WARNINGS, "-g", *extra],
        extra_link_args=[*OPTIMISE, *extra],
        py_limited_api=True,
    )
    return ffi


engine = builder(
    "prestage._engine", ["digest.h", "engine.h", "host.h"], ["engine", "host"], ["isal"]
)
core = builder(
    "prestage._core",
    [
        "digest.h",
        "media.h",
        "media/flash_model.h",
        "tier.h",
        "ring.h",
        "scheduler.h",
        "pax.h",
        "hints.h",
        "orders.h",
        "replay.h",
        "core.h",
    ],
    ["engine", "tier", "media", "ring", "sched", "hints", "orders", "replay", "reactor"],
    ["isal", "uring", "pthread", "m"],
)
