"""The stages of `scripts/test`: what is run, and how each is judged.

Stages that do not mind company run two at a time; those that keep time or want both cores come
afterwards, each by itself, with their output on the terminal. Every stage's output is in
build/test/STAGE.log. The last line printed is "N passed, N failed", counting stages.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from stage_runner import ROOT, Shell, Stage, StageError, run_all

BIN = Path(sys.prefix) / "bin"
PYTHON = BIN / "python"
BUILD = ROOT / "build"
ROOMS = ("engine", "host", "tier", "media", "ring", "sched", "hints", "orders", "replay", "reactor")
PACKAGES = ("target", "ext", "host_client")
SLOW_DOWN = {"native": 1, "asan": 4, "tsan": 10, "aarch64": 15}
"""How many times longer a program may take, by variant."""
PROGRAM_TIMEOUT_S = 120.0
RUNS = {
    "tier_model": 5_000,
    "fuzz_engine": 8_000,
    "hints_model": 1_500,
    "fuzz_hints": 4_000,
    "orders_model": 1_500,
    "host_model": 1_500,
    "fuzz_queue": 4_000,
    "fuzz_orders": 4_000,
    "replay_random": 1_000,
}
"""How many seeded runs a program makes in the native variant; it takes SEED RUNS."""
FUZZ_SECONDS = 60
SOCKET_FREE = ("tier_model",)
"""C tests that run under qemu-user, which has neither sockets nor io_uring worth testing."""
THREADED = ("media_stress", "ring_stress", "core_stress")
"""C tests with threads: what ThreadSanitizer is for."""


def c_files(*patterns: str) -> list[Path]:
    """Return the C files of csrc that match, relative to the checkout. At least one must."""
    found = sorted(
        path.relative_to(ROOT) for pattern in patterns for path in (ROOT / "csrc").rglob(pattern)
    )
    if not found:
        raise StageError(f"csrc has no {' or '.join(patterns)}: nothing would be checked")
    return found


def python_programs() -> list[str]:
    """Return the Python programs of scripts/ that have no suffix to be found by."""
    paths = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    found = [path for path in paths if b"python" in path.read_bytes().split(b"\n", 1)[0]]
    return sorted(str(path.relative_to(ROOT)) for path in found)


# ---- static checks ----


def ruff(shell: Shell) -> None:
    """Python style."""
    shell.call(BIN / "ruff", "check", ".", *python_programs())


def ruff_format(shell: Shell) -> None:
    """Python layout."""
    shell.call(BIN / "ruff", "format", "--check", "--diff", ".", *python_programs())


def mypy(shell: Shell) -> None:
    """Python types: the package by its own name, then programs and tests beside it."""
    arguments = [
        ["-p", "prestage"],
        ["setup.py", "csrc", "tests"],
        ["scripts"],
        *([program] for program in python_programs()),
    ]
    environment = {"MYPYPATH": "src:scripts:tests"}
    shell.call_each([(BIN / "mypy", *each) for each in arguments], environment)


def imports(shell: Shell) -> None:
    """Who may know whom."""
    shell.call(BIN / "lint-imports", "--no-cache", environment={"PYTHONPATH": "src"})


def tidy(shell: Shell) -> None:
    """The rules of the house."""
    shell.call(PYTHON, "-m", "pytest", "tests/test_tidy.py")


def clang_format(shell: Shell) -> None:
    """C layout."""
    shell.call(BIN / "clang-format", "--dry-run", "-Werror", *c_files("*.c", "*.h"))


def clang_tidy(shell: Shell) -> None:
    """C static analysis."""
    flags = ("--", "-std=c11", "-D_GNU_SOURCE", "-iquote", "csrc")
    shell.call(BIN / "clang-tidy", "--quiet", *c_files("*.c"), *flags)


def package(shell: Shell) -> None:
    """A source distribution, and the wheel that is made of it, hold what they should."""
    place = BUILD / "package"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shell.call(PYTHON, "setup.py", "-q", "sdist", f"--dist-dir={place}")
    (source,) = place.glob("*.tar.gz")
    pip = (PYTHON, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-cache-dir")
    shell.call(*pip, "--no-deps", "--no-build-isolation", "-w", place, source)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    shell.say("\n".join(names))
    for wanted in (*(f"prestage/{room}/__init__.py" for room in PACKAGES), "prestage/py.typed"):
        if wanted not in names:
            raise StageError(f"{wheel.name} has no {wanted}")
    for module in ("_core", "_engine"):
        if not any(name.startswith(f"prestage/{module}.") and ".so" in name for name in names):
            raise StageError(f"{wheel.name} has no module prestage.{module}")
    if "abi3" not in wheel.name:
        raise StageError(f"{wheel.name} is for one version of Python; expected an abi3 wheel")


# ---- C programs ----


def make(shell: Shell, variant: str, *goals: str) -> None:
    """Build `goals` of csrc/Makefile."""
    shell.call("make", "-C", "csrc", "-j2", "--no-print-directory", f"VARIANT={variant}", *goals)


def built(variant: str, folder: str, *names: str) -> list[Path]:
    """Return the programs of a variant. StageError for one of `names` that is not there."""
    place = BUILD / "csrc" / variant / folder
    for name in names:
        if not (place / name).is_file():
            raise StageError(f"csrc/{folder}/{name}.c is not there: nothing would be tested")
    return [place / name for name in names]


FUZZ_TARGET = "\nint LLVMFuzzerTestOneInput("


def programs_with(text: str) -> list[str]:
    """Return the names of the C files of csrc/tests that contain `text`, as the Makefile does."""
    sources = (ROOT / "csrc" / "tests").glob("*.c")
    return sorted(path.stem for path in sources if text in path.read_text("utf-8"))


def test_programs() -> list[str]:
    """Return the names of the C test programs, fuzz targets left out."""
    return [name for name in programs_with("\nint main(") if name not in programs_with(FUZZ_TARGET)]


def fuzzers() -> list[str]:
    """Return the names of the fuzz targets. At least one must be there."""
    names = programs_with(FUZZ_TARGET)
    if not names:
        raise StageError("csrc/tests has no fuzz target: nothing would be fuzzed")
    return names


def run_programs(shell: Shell, variant: str, names: Sequence[str], *wrapper: str | Path) -> None:
    """Run C test programs of a variant, failing on what a sanitizer reports."""
    timeout_s = PROGRAM_TIMEOUT_S * SLOW_DOWN[variant]
    environment = {
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "exitcode=66:second_deadlock_stack=1",
        "PRESTAGE_TEST_VARIANT": variant,
    }
    for program in built(variant, "tests", *names):
        arguments = []
        if program.name in RUNS:
            runs = RUNS[program.name] // SLOW_DOWN[variant]
            arguments = [str(random.randrange(1 << 31)), str(runs)]
        shell.call(*wrapper, program, *arguments, environment=environment, timeout_s=timeout_s)


def fixed_addresses() -> list[str]:
    """Return the words that switch address randomisation off, where that is allowed.

    ThreadSanitizer does not understand all that newer kernels choose at random.
    """
    words = ["setarch", "--addr-no-randomize"]
    return words if subprocess.run([*words, "true"], check=False).returncode == 0 else []


def c_native(shell: Shell) -> None:
    """C test programs, optimised; the bench programs must build too."""
    make(shell, "native", "all")
    run_programs(shell, "native", [*SOCKET_FREE, *THREADED])
    others = [name for name in test_programs() if name not in (*SOCKET_FREE, *THREADED)]
    run_programs(shell, "native", others)


def c_asan(shell: Shell) -> None:
    """C test programs and fuzz targets under ASan and UBSan."""
    make(shell, "asan", "programs", "fuzzers")
    run_programs(shell, "asan", test_programs())
    run_programs(shell, "asan", fuzzers())


def c_tsan(shell: Shell) -> None:
    """C test programs with threads under TSan."""
    make(shell, "tsan", "programs")
    others = [name for name in test_programs() if name not in (*SOCKET_FREE, *THREADED)]
    run_programs(shell, "tsan", [*THREADED, *others], *fixed_addresses())


def aarch64(shell: Shell) -> None:
    """Everything compiles without a warning for aarch64; what needs no socket runs there."""
    shell.call(ROOT / "scripts" / "arm64-sysroot")
    make(shell, "aarch64", "all")
    libraries = BUILD / "sysroot-arm64" / "usr" / "lib" / "aarch64-linux-gnu"
    emulator = (
        "qemu-aarch64",
        "-L",
        "/usr/aarch64-linux-gnu",
        "-E",
        f"LD_LIBRARY_PATH={libraries}",
    )
    run_programs(shell, "aarch64", SOCKET_FREE, *emulator)
    run_programs(shell, "aarch64", fuzzers(), *emulator)


def fuzz(shell: Shell, seconds: int) -> None:
    """Coverage-guided fuzzing; what was found before is where it starts."""
    make(shell, "fuzz", "fuzzers")
    names = fuzzers()
    for name, program in zip(names, built("fuzz", "tests", *names), strict=True):
        corpus, findings = (BUILD / "fuzz" / name / part for part in ("corpus", "findings"))
        findings.mkdir(parents=True, exist_ok=True)
        if not corpus.is_dir():
            corpus.mkdir()
            maker = ROOT / "csrc" / "tests" / "fuzz_corpus.py"
            if maker.is_file():
                shell.call(PYTHON, maker, corpus)
        shell.call(
            program,
            f"-max_total_time={max(1, seconds // len(names))}",
            "-max_len=4096",
            "-timeout=10",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            f"-seed={random.randrange(1, 1 << 31)}",
            f"-artifact_prefix={findings}/",
            corpus,
            timeout_s=seconds + 120,
        )


# ---- pytest ----


WIRE_TESTS = ("tests/wire", "tests/network")
"""Tests that mostly wait for a peer, a medium or a timer, and leave others the processors."""


def pytest(shell: Shell) -> None:
    """Every test but those of other stages, and the long forms."""
    ignored = (*WIRE_TESTS, "tests/test_tidy.py")
    _pytest(shell, "tests", *(f"--ignore={path}" for path in ignored))


def wire(shell: Shell) -> None:
    """The tests over sockets, but for their long forms."""
    _pytest(shell, *WIRE_TESTS)


def _pytest(shell: Shell, *arguments: str) -> None:
    options = ("-m", "not rig and not slow", "--durations=10", "-p", "no:cacheprovider")
    shell.call(PYTHON, "-m", "pytest", *options, *arguments)


def slow(shell: Shell) -> None:
    """The long forms of tests that have a short one."""
    shell.call(PYTHON, "-m", "pytest", "-m", "slow", "--timeout=3600", timeout_s=6 * 3600)


def bench(shell: Shell) -> None:
    """The target beside a bare server: nothing is three times as bad as it should be."""
    short = ("--gross", "--rounds", "3", "--seconds", "0.3")
    shell.call(PYTHON, ROOT / "scripts" / "bench", "lines", *short)


def rig(shell: Shell) -> None:
    """Real Linux hosts under emulation."""
    shell.call(PYTHON, "-m", "pytest", "-m", "rig and not slow", "--timeout=900", "--durations=0")


def runtime_library(name: str) -> str:
    """Return the path of one of gcc's libraries."""
    command = ["gcc", f"-print-file-name={name}"]
    path = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    if not Path(path).is_absolute():
        raise StageError(f"gcc has no {name}; expected it from Debian's gcc")
    return os.path.realpath(path)


def build_sanitized(shell: Shell, kind: str, flags: str) -> Path:
    """Build the package with sanitized extension modules; return the folder it is in."""
    place = BUILD / kind
    sources = sorted((ROOT / "csrc").rglob("*.[ch]"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    stamp = place / "sources"
    command: list[str | Path] = [
        PYTHON,
        "setup.py",
        "-q",
        "build",
        f"--build-base={place}",
        f"--build-lib={place}/lib",
    ]
    shutil.rmtree(place / "lib", ignore_errors=True)
    if not stamp.is_file() or stamp.read_text("utf-8") != digest:
        shutil.rmtree(place, ignore_errors=True)
    shell.call(*command, environment={"PRESTAGE_CFLAGS": flags})
    stamp.write_text(digest, "utf-8")
    return place / "lib"


def run_sanitized(
    shell: Shell, kind: str, libraries: Sequence[str], options: dict[str, str]
) -> None:
    """Run the stress tests on sanitized modules; any report fails, whatever pytest says.

    A race that ThreadSanitizer saw leaves the exit status alone, and pytest swallows what is
    written to standard error, so reports go to files.
    """
    reports = BUILD / kind / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    environment = {
        "LD_PRELOAD": " ".join(runtime_library(name) for name in libraries),
        "PYTHONPATH": str(BUILD / kind / "lib"),
        "PYTHONMALLOC": "malloc",
        "PRESTAGE_TEST_VARIANT": kind,
        **{name: f"{value}:log_path={reports}/report" for name, value in options.items()},
    }
    runner: list[str | Path] = [*fixed_addresses(), PYTHON]
    where = "import prestage._core as c, sys; sys.exit(f'build/{sys.argv[1]}/' not in c.__file__)"
    shell.call(*runner, "-c", where, kind, environment=environment)
    problem = None
    try:
        shell.call(
            *(*runner, "-m", "pytest", "-m", "stress and not slow", "--timeout=900"),
            environment=environment,
            timeout_s=1800,
        )
    except StageError as error:
        problem = error
    written = [path for path in sorted(reports.iterdir()) if path.stat().st_size > 0]
    for path in written:
        shell.say(path.read_text("utf-8", errors="replace"))
    if written:
        raise StageError(f"{len(written)} sanitizer reports in {reports.relative_to(ROOT)}")
    if problem is not None:
        raise problem


def asan(shell: Shell) -> None:
    """The stress tests with ASan and UBSan in the extension modules."""
    flags = "-fsanitize=address,undefined -fno-omit-frame-pointer -O1"
    build_sanitized(shell, "asan", flags)
    # Python leaks by design at exit, and libstdc++ must be there before ASan wraps it.
    options = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    run_sanitized(shell, "asan", ["libasan.so", "libubsan.so", "libstdc++.so.6"], options)


def tsan(shell: Shell) -> None:
    """The stress tests with TSan in the extension modules."""
    build_sanitized(shell, "tsan", "-fsanitize=thread -fno-omit-frame-pointer -O1")
    run_sanitized(shell, "tsan", ["libtsan.so"], {"TSAN_OPTIONS": "second_deadlock_stack=1"})


def stage(
    function: Callable[[Shell], None], name: str = "", phase: int = 0, *, by_default: bool = True
) -> Stage:
    """Make a stage of a function: its name, and the first line of its docstring."""
    what = (function.__doc__ or "").splitlines()[0].rstrip(".")
    name = name or function.__name__.replace("_", "-")
    return Stage(name, what, function, phase, by_default)


def stages(seconds: int) -> list[Stage]:
    """Return all stages in their order; `seconds` of fuzzing."""
    return [
        stage(ruff),
        stage(ruff_format),
        stage(imports),
        stage(tidy),
        stage(clang_format),
        # The long ones first, so that nothing waits for them at the end.
        stage(clang_tidy),
        stage(functools.update_wrapper(functools.partial(fuzz, seconds=seconds), fuzz), "fuzz"),
        stage(c_asan),
        stage(mypy),
        stage(package),
        stage(c_native),
        stage(c_tsan),
        stage(aarch64),
        # Tests build programs that the stages above build too.
        stage(pytest, phase=1),
        stage(wire, phase=1),
        # Each of these wants both processors, or keeps time.
        stage(asan, phase=2),
        stage(tsan, phase=3),
        stage(bench, phase=4),
        stage(rig, phase=5),
        stage(slow, phase=6, by_default=False),
    ]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    names = [each.name for each in stages(FUZZ_SECONDS)]
    parser = argparse.ArgumentParser(prog="scripts/test", description=__doc__)
    parser.add_argument("stage", nargs="*", help=f"run only these: {', '.join(names)}")
    parser.add_argument("-l", "--list", action="store_true", help="list the stages and end")
    parser.add_argument("-x", "--stop", action="store_true", help="stop at the first failing stage")
    parser.add_argument("-j", "--jobs", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--fuzz-seconds", type=int, default=FUZZ_SECONDS, help=f"default {FUZZ_SECONDS}"
    )
    options = parser.parse_args(arguments)
    for name in options.stage:
        if name not in names:
            parser.error(f"there is no stage {name!r}; expected one of {', '.join(names)}")
    if options.jobs < 1 or options.fuzz_seconds < 1:
        parser.error("--jobs and --fuzz-seconds take numbers of 1 and more")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; 0 when all of it passed."""
    options = parse(arguments)
    every = stages(options.fuzz_seconds)
    if options.list:
        for each in every:
            print(f"{each.name:14}{each.what}{'' if each.by_default else ' (when named)'}")
        return 0
    # Whoever ends the driver ends what it has started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = [s for s in every if s.name in options.stage or (s.by_default and not options.stage)]
    try:
        return 0 if run_all(chosen, options.jobs, stop_at_first=options.stop) else 1
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130


if __name__ == "__main__":
    sys.exit(main())
