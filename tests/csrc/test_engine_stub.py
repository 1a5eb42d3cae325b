"""The stub says what the header says, and the module has it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from prestage._engine import lib

ROOT = Path(__file__).resolve().parents[2]


def header_text() -> str:
    """What the module is declared by: see csrc/build_ffi.py."""
    names = ("digest.h", "engine.h", "host.h")
    text = "".join((ROOT / "csrc" / name).read_text("utf-8") for name in names)
    marked = "".join(re.findall(r"/\* cffi: begin \*/(.*?)/\* cffi: end \*/", text, re.DOTALL))
    return re.sub(r"/\*.*?\*/", "", marked, flags=re.DOTALL)


def header_functions() -> dict[str, list[str]]:
    """The name of each function, and the names of its arguments."""
    found = {}
    for name, text in re.findall(r"(ps_\w+)\(([^)]*)\);", header_text()):
        arguments = [re.split(r"[ *]+", argument.strip())[-1] for argument in text.split(",")]
        # "bytes" is a type in Python: the stub calls such an argument "data".
        found[name] = ["data" if argument == "bytes" else argument for argument in arguments]
    return found


def header_constants() -> set[str]:
    bodies = re.findall(r"enum \w+ \{([^}]*)\}", header_text())
    return {name for body in bodies for name in re.findall(r"PS_\w+", body)}


def stub_class() -> ast.ClassDef:
    tree = ast.parse((ROOT / "src/prestage/_engine.pyi").read_text("utf-8"))
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return found


def test_functions_and_their_arguments() -> None:
    stubbed = {
        node.name: [argument.arg for argument in node.args.posonlyargs][1:]
        for node in stub_class().body
        if isinstance(node, ast.FunctionDef)
    }
    assert len(stubbed) > 15
    assert stubbed == header_functions()
    assert all(hasattr(lib, name) for name in stubbed)


def test_constants() -> None:
    stubbed = {
        node.target.id
        for node in stub_class().body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert stubbed == header_constants()
    assert all(isinstance(getattr(lib, name), int) for name in stubbed)
