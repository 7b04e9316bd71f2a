"""The examples in docstrings, in README.md and in docs: each is run."""

import doctest
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages

import numpy as np
import pytest
import torch

import alphaiou
import tools

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if "```python" in page.read_text(encoding="utf-8")
]
MODULES = sorted(
    module.name
    for package in (alphaiou, tools)
    for module in walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.endswith("__main__")
)
# Importing these needs Triton, and they have no examples.
KERNELS = "losses.kernels.triton", "detectors.ops.kernels.nms", "detectors.ops.kernels.assignment"
for kernel in KERNELS:
    MODULES.remove(f"alphaiou.{kernel}")
# Frameworks that change other packages as they are imported: in a process of their own.
FRAMEWORKS = ("libreyolo", "mmengine", "rfdetr", "ultralytics", "yolov5")
ALONE = [f"alphaiou.integrations.{name}" for name in FRAMEWORKS]
MODULES = [name for name in MODULES if name not in ALONE]


@pytest.fixture(autouse=True)
def usual_printing():
    """Other tests import packages that change how arrays are printed, such as Ultralytics."""
    torch.set_printoptions(profile="default")
    with np.printoptions(precision=8, linewidth=75, formatter=None, suppress=False):
        yield


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(import_module(name), extraglobs={"torch": torch})
    assert result.failed == 0


@pytest.mark.parametrize("name", ALONE)
def test_docstrings_of_frameworks(name, tmp_path):
    if find_spec(name.rpartition(".")[2]) is None:
        pytest.skip(f"{name.rpartition('.')[2]} is not installed")
    code = f"import doctest, torch, {name} as m; exit(doctest.testmod(m).failed)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_public_functions_have_examples():
    """The main ones: what somebody looks up first."""
    finder = doctest.DocTestFinder()
    for name in ("alpha_iou_loss", "AlphaIoULoss", "AlphaSchedule", "box_iou", "pairwise_iou"):
        found = finder.find(getattr(alphaiou, name), name, globs={})
        assert sum(len(test.examples) for test in found) > 0, name


def python_blocks(page):
    """The fenced Python of a page, every other line blank so that line numbers hold."""
    kept, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = line.startswith("```")
        kept.append(line if inside and not fence else "")
        if fence:
            inside = not inside and line == "```python"
    return "\n".join(kept)


def test_the_readme_shows_code():
    assert "alpha_iou_loss(" in python_blocks(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages(page, tmp_path):
    """All blocks of a page share a namespace; shell blocks are not run."""
    script = tmp_path / f"{page.stem}.py"
    script.write_text(python_blocks(page), encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env=os.environ | {"MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
