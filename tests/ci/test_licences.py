"""Licences that the package cannot use are noticed."""

import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/licences.py"
LICENCES = runpy.run_path(str(SCRIPT))
AGPL = "Classifier: License :: OSI Approved :: GNU Affero General Public License v3"


@pytest.fixture
def installed(tmp_path):
    """Packages by their names, installed with some lines of metadata."""

    def install(**packages):
        for name, lines in packages.items():
            folder = tmp_path / f"{name}-1.0.dist-info"
            folder.mkdir()
            head = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n"
            (folder / "METADATA").write_text(head + "\n".join(lines) + "\n")
        return {one.metadata["Name"]: one for one in distributions(path=[str(tmp_path)])}

    return install


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("License-Expression: MIT", None),
        ("License-Expression: LGPL-3.0-or-later", None),
        ("License-Expression: MIT OR GPL-2.0-only", None),
        ("License-Expression: MIT AND GPL-2.0-only", "not permitted"),
        ("License: GPLv3", "not permitted"),
        ("License: AGPL-3.0", "not permitted"),
        ("License: GNU Lesser General Public License", None),
        (AGPL, "GNU Affero General Public License v3 is not permitted"),
        ("Classifier: License :: OSI Approved :: BSD License", None),
        ("Classifier: License :: OSI Approved", "name no licence"),
        ("License: UNKNOWN", "name no licence"),
        ("Summary: a package", "name no licence"),
    ],
)
def test_one_package(line, problem, installed):
    problems = list(LICENCES["problems_of"](installed(some=[line]), set()))
    assert len(problems) == (problem is not None)
    assert all(problem in text and text.startswith("some: ") for text in problems)


def test_an_exception_is_for_the_tests_alone(installed):
    packages = installed(
        ultralytics=[AGPL],
        direct=["License-Expression: MIT", "Requires-Dist: ultralytics"],
        optional=[
            "License-Expression: MIT",
            'Requires-Dist: ultralytics>=8; extra == "yolo"',
            "Provides-Extra: yolo",
        ],
    )
    pyproject = {
        "project": {"dependencies": ["optional"], "optional-dependencies": {}},
        "dependency-groups": {"test": ["ultralytics"]},
    }

    def problems():
        needed = LICENCES["needed_by"](LICENCES["roots_of"](pyproject), packages)
        return list(LICENCES["problems_of"](packages, needed))

    assert problems() == []
    for line in ("optional[yolo]", "direct>=1", "ultralytics"):
        pyproject["dependency-groups"]["docs"] = [line]
        (problem,) = problems()
        assert "permitted in the group test alone" in problem


def test_exceptions_are_no_requirement_of_the_package():
    content = tomllib.loads((SCRIPT.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert "ultralytics>=8.4" in content["dependency-groups"]["test"]
    packages = {one.metadata["Name"].lower(): one for one in distributions()}
    needed = LICENCES["needed_by"](LICENCES["roots_of"](content), packages)
    # The README's test command installs no mkdocs, CI does.
    assert {"torch", "numpy", *({"mkdocs"} & packages.keys())} <= needed
    assert needed.isdisjoint(LICENCES["TEST_ONLY"])


def test_this_environment():
    ended = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert any(line.startswith("torch ") for line in ended.stdout.splitlines())
