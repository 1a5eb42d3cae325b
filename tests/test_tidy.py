"""The rules of the house, on every file that git knows or would take.

EXCEPTIONS can only shrink: an entry says how large a thing is that breaks a rule, and both a
larger thing and an entry that is no longer needed fail.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST_FUNCTION_LINES = 70
MOST_FILE_LINES = 500
MOST_COLUMNS = 100
ASSERTS_PER_1000_LINES = 20
ROOMS = ("engine", "host", "tier", "media", "ring", "sched", "hints", "orders", "replay", "reactor")
PACKAGES = ("target", "ext", "host_client")

EXCEPTIONS: dict[str, int] = {
    # "function FILE:NAME": lines, "file FILE": lines, "column FILE": its longest line
}

# Marks of unfinished work, and folders of somebody's machine. The brackets keep this file clean.
FORBIDDEN = re.compile(
    r"\bTOD[O]\b|\bFIXM[E]\b|\bXX[X]\b"
    r"|(?<![\w./-])(?<!\w\")/(?:wor[k]|roo[t]|hom[e]/\w+)/"
)
TEXT_SUFFIXES = {".c", ".h", ".md", ".py", ".pyi", ".service", ".sh", ".toml", ".yml", ".json", ""}
CODE_SUFFIXES = {".c", ".h", ".py", ".pyi"}


def listed_files() -> list[Path]:
    """Return what git tracks, or would add, relative to the checkout; links are left out."""
    # A checkout may belong to another user than the one who tests it.
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    names = sorted(name for name in output.decode().split("\0") if name)
    paths = [Path(name) for name in names]
    return [path for path in paths if (ROOT / path).is_file() and not (ROOT / path).is_symlink()]


def text_of(path: Path) -> str:
    """Return the contents of a file of the checkout."""
    return (ROOT / path).read_text("utf-8")


FILES = listed_files()
C_FILES = [path for path in FILES if path.suffix in {".c", ".h"}]
PYTHON_FILES = [path for path in FILES if path.suffix == ".py"] + [
    path
    for path in FILES
    if path.suffix == "" and path.parts[0] == "scripts" and "python" in text_of(path)[:40]
]
GENERATED = {Path("csrc/pax.h")}
"""Nobody writes these by hand; what makes them is looked at instead."""
CODE_FILES = sorted(
    {*PYTHON_FILES, *(path for path in FILES if path.suffix in CODE_SUFFIXES)} - GENERATED
)
SCRIPT_FILES = [path for path in FILES if (ROOT / path).read_bytes().startswith(b"#!")]


C_FUNCTION = re.compile(
    r"^[A-Za-z_][^;{}=]*?\b(\w+)\([^;{}]*\)\s*\{\n.*?^\}", re.MULTILINE | re.DOTALL
)


class Exceptions:
    """What was over a rule, compared with the list of known exceptions."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.found: dict[str, int] = {}

    def note(self, what: str, size: int) -> None:
        """Remember something that is over its limit."""
        self.found[f"{self.kind} {what}"] = size

    def check(self, rule: str) -> None:
        """Fail unless what was found is what is listed, exactly."""
        known = {key: size for key, size in EXCEPTIONS.items() if key.split()[0] == self.kind}
        worse = {key: size for key, size in self.found.items() if size > known.get(key, 0)}
        better = {key: size for key, size in known.items() if size > self.found.get(key, 0)}
        assert not worse, f"{rule}: {worse}"
        assert not better, f"lower or remove these entries of EXCEPTIONS: {better}"


def c_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield name and number of lines of each function definition, as clang-format lays them out."""
    for found in C_FUNCTION.finditer(text):
        yield found[1], found[0].count("\n") + 1


def python_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield name and number of lines of each function, decorators and docstring included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            yield node.name, node.end_lineno - first + 1


def test_the_measure_of_functions_is_right() -> None:
    source = (
        "int f(int a,\n      int b);\n\nstatic int *g(void) {\n  f(1,\n    2);\n  return 0;\n}\n"
    )
    assert list(c_functions(source)) == [("g", 5)]
    assert list(
        python_functions("def f():\n    pass\n\n\nclass A:\n    def g(self):\n        x = 1\n")
    )


def test_functions_fit_a_screen() -> None:
    exceptions = Exceptions("function")
    for path in CODE_FILES:
        measure = c_functions if path in C_FILES else python_functions
        for name, lines in measure(text_of(path)):
            if lines > MOST_FUNCTION_LINES:
                exceptions.note(f"{path}:{name}", lines)
    exceptions.check(f"functions of more than {MOST_FUNCTION_LINES} lines")


def test_files_have_one_subject() -> None:
    exceptions = Exceptions("file")
    for path in [*CODE_FILES, *(path for path in SCRIPT_FILES if path not in CODE_FILES)]:
        lines = len(text_of(path).splitlines())
        if lines > MOST_FILE_LINES:
            exceptions.note(str(path), lines)
    exceptions.check(f"files of more than {MOST_FILE_LINES} lines")


def test_lines_fit_beside_each_other() -> None:
    exceptions = Exceptions("column")
    for path in sorted({*CODE_FILES, *SCRIPT_FILES}):
        longest = max((len(line) for line in text_of(path).splitlines()), default=0)
        if longest > MOST_COLUMNS:
            exceptions.note(str(path), longest)
    exceptions.check(f"lines of more than {MOST_COLUMNS} columns")


def test_text_is_clean() -> None:
    problems = []
    for path in FILES:
        if path.suffix not in TEXT_SUFFIXES or path.name == "LICENSE":
            continue
        text = text_of(path)
        if text and not text.endswith("\n"):
            problems.append(f"{path}: no end of line at its end")
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                problems.append(f"{path}:{number}: space at the end")
            if "\t" in line and path.name != "Makefile":
                problems.append(f"{path}:{number}: tab")
            if (found := FORBIDDEN.search(line)) is not None:
                problems.append(f"{path}:{number}: {found[0]!r}")
    assert not problems, "\n".join(problems)


def test_c_files_are_built() -> None:
    """Each .c lies where setup.py, csrc/Makefile or a test takes it from; each .h is included."""
    places = {f"csrc/{room}" for room in (*ROOMS, "tests", "bench")} | {"host_client/examples"}
    includes = set(re.findall(r'#include "([^"]+)"', "".join(text_of(path) for path in C_FILES)))
    includes |= set(re.findall(r'"(\w+\.h)"', text_of(Path("csrc/build_ffi.py"))))
    names = {Path(include).name for include in includes}
    stray = [p for p in C_FILES if p.suffix == ".c" and str(p.parent) not in places]
    unused = [p for p in C_FILES if p.suffix == ".h" and p.name not in names]
    assert not stray, f"not built by anything: {stray}"
    assert not unused, f"included by nothing: {unused}"


def module_names(path: Path) -> set[str]:
    """Return the names by which a Python file may be imported."""
    parts = list(path.with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    if parts[0] in PACKAGES:
        return {".".join(["prestage", *parts])}
    if parts[:2] == ["src", "prestage"]:
        return {".".join(parts[1:])}
    return {".".join(parts), ".".join(parts[1:]), parts[-1]}


def imported_names(path: Path) -> set[str]:
    """Return every module that a file imports, and every name that may be one."""
    names: set[str] = set()
    own = max(module_names(path), key=len).split(".")
    base = own if path.name == "__init__.py" else own[:-1]
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = base[: len(base) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return names


def is_entry(path: Path) -> bool:
    """Return whether a Python file is started by somebody else than another Python file."""
    named = path.name.startswith("test_") or path.name in {"conftest.py", "setup.py", "__main__.py"}
    return named or path.suffix == "" or path.name == "__init__.py"


def test_python_files_are_used() -> None:
    """Each .py is imported, a test, a script, or named by one (a program that a test starts)."""
    imported = set().union(*(imported_names(path) for path in PYTHON_FILES))
    mentions = "\n".join(
        text_of(path)
        for path in FILES
        if path.suffix in {".py", ".sh", ".toml", ""} and path.name != "LICENSE"
    )
    dead = [
        path
        for path in PYTHON_FILES
        if not is_entry(path)
        and not module_names(path) & imported
        and not re.search(rf"(?<![\w]){re.escape(path.name)}\b", mentions)
        and not any(re.search(rf"\b{re.escape(name)}[:\"']", mentions) for name in dotted(path))
    ]
    assert not dead, f"imported by nothing and started by nothing: {dead}"


def dotted(path: Path) -> set[str]:
    """Return the module names that are unmistakable in a text."""
    return {name for name in module_names(path) if "." in name}


# Who may import an extension module; import-linter cannot see modules without source.
EXTENSION_USERS = {
    "prestage._core": {
        "prestage.target.core",
        "prestage.replay.machine",
        "prestage.testing_media",
    },
    "prestage._engine": {"prestage.target.core", "prestage.host_client.engine"},
}


@pytest.mark.parametrize("extension", sorted(EXTENSION_USERS))
def test_extension_modules_have_one_door_for_each_side(extension: str) -> None:
    for path in PYTHON_FILES:
        if path.parts[0] in (*PACKAGES, "src") and extension in imported_names(path):
            assert module_names(path) <= EXTENSION_USERS[extension], f"{path} imports {extension}"


def test_the_memory_is_asked_in_one_way() -> None:
    """By ps_prefetch: the compiler drops functions that do no more than the builtin."""
    users = [path for path in C_FILES if "__builtin_prefetch" in text_of(path)]
    assert users == [Path("csrc/prefetch.h")]


def test_c_states_what_it_relies_on() -> None:
    """At least 20 asserts per 1,000 lines of the data path; static ones count too."""
    sources = [path for path in C_FILES if path.suffix == ".c" and path.parts[1] in ROOMS]
    lines = sum(len(text_of(path).splitlines()) for path in sources)
    asserts = sum(
        len(
            re.findall(
                r"^\s*(?:assert|_Static_assert|static_assert)\(", text_of(path), re.MULTILINE
            )
        )
        for path in sources
    )
    assert asserts * 1000 >= lines * ASSERTS_PER_1000_LINES, f"{asserts} asserts in {lines} lines"


def test_protocol_constants_name_their_clause() -> None:
    """A comment above constants in nvme.h cites a clause or figure of a specification."""
    groups = [g for g in re.split(r"\n\s*\n", text_of(Path("csrc/nvme.h"))) if g.startswith("/*")]
    constants = [g for g in groups if re.search(r"^(?:#define PS_|enum )", g, re.MULTILINE)]
    assert constants
    bare = [g.splitlines()[0] for g in constants if not re.search(r"\d+(\.\d+){2}|figure \d", g)]
    assert not bare, f"groups of csrc/nvme.h that cite no clause of a specification: {bare}"


def test_links_of_the_package_lead_to_the_rooms() -> None:
    for name in PACKAGES:
        link = ROOT / "src" / "prestage" / name
        assert link.is_symlink(), f"{link} is no link (a checkout without symbolic links?)"
        assert link.resolve() == ROOT / name


def test_programs_may_be_run() -> None:
    """What starts with #! has the bit, and what has it starts so."""
    for path in FILES:
        executable = bool((ROOT / path).stat().st_mode & 0o100)
        assert executable == (path in SCRIPT_FILES), f"{path}: mode and first line disagree"
