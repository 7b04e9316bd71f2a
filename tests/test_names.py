"""Functions use names that their modules have.

ruff and mypy leave undefined names alone in this project, since shape strings look like them.
"""

import builtins
import dis
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tools", "benchmarks", "studies", "examples", "tests", ".ci")
MODULE = {*dir(builtins), "__file__", "__path__"}


def with_inner(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from with_inner(constant)


def undefined(source, name="module.py"):
    """The global names that functions read and nothing in the module defines."""
    module = compile(source, name, "exec")
    instructions = [
        (code, one) for code in with_inner(module) for one in dis.get_instructions(code)
    ]
    stored = {
        one.argval
        for code, one in instructions
        if one.opname == "STORE_GLOBAL" or (one.opname == "STORE_NAME" and code is module)
    }
    read = {one.argval for _, one in instructions if one.opname == "LOAD_GLOBAL"}
    return read - stored - MODULE


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_reads_an_undefined_name(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    found = {str(path): undefined(path.read_text(), str(path)) for path in paths}
    assert found
    assert {path: names for path, names in found.items() if names} == {}


def test_undefined_names_are_found():
    source = """
from __future__ import annotations
from math import pi
def area(box: Float[Tensor, "N 4"]) -> float:
    return [pi * scale(side) for side in box if len(box)]
"""
    assert undefined(source) == {"scale"}
