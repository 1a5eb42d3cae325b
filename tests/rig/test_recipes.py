"""The recipes of docs/hosts.md, as the rig takes them: each is run, and what fails is named."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from rig import recipes

HERE = Path(__file__).parent
PRESTAGE = str(Path(sys.executable).with_name("prestage"))


def test_every_recipe_of_the_page_is_run() -> None:
    names = re.findall(r"^```sh run=(\w+)$", recipes.PAGE.read_text("utf-8"), re.MULTILINE)
    code = "".join((HERE / name).read_text("utf-8") for name in ("pax.py", "host.py"))
    assert len(names) == len(set(names)) > 10
    assert [name for name in names if f'"{name}"' not in code] == []


def test_a_recipe_that_is_not_there_is_named() -> None:
    with pytest.raises(recipes.RecipeError, match="0 blocks `sh run=nothing`, expected one"):
        recipes.recipe("nothing")


def test_a_recipe_stops_at_its_first_line_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh run=bad\necho one\nfalse\necho two\n```\n")
    monkeypatch.setattr(recipes, "PAGE", page)
    with pytest.raises(recipes.RecipeError, match=r"exit 1: one\n$"):
        recipes.run_here(recipes.shell("bad"), tmp_path / "work")
    with pytest.raises(recipes.RecipeError, match="cannot start /nonexistent/python"):
        recipes.run_here(recipes.in_one_process("bad", "/nonexistent/prestage"), tmp_path)


def test_lines_of_other_programs_are_not_run_as_prestage(tmp_path: Path) -> None:
    with pytest.raises(recipes.RecipeError, match="found 'cc .*', expected lines of `prestage`"):
        recipes.run_here(recipes.in_one_process("cc", PRESTAGE), tmp_path)


def test_pages_are_made_and_read_in_a_folder_that_looks_like_a_checkout(tmp_path: Path) -> None:
    recipes.run_here(recipes.in_one_process("make", PRESTAGE), tmp_path)
    recipes.run_here(recipes.shell("cc"), tmp_path)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {
        *("csrc", "host_client", "intend"),
        *("set.bin", "ask.bin", "intend.bin", "batch.bin"),
    }
    with pytest.raises(recipes.RecipeError, match=r"before\.bin"):
        recipes.run_here(recipes.in_one_process("decode", PRESTAGE), tmp_path)
