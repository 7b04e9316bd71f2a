"""Frameworks that change other packages as they are imported, each tested in its own process.

Ultralytics sets how arrays are printed and puts a function of its own in the place of Pillow's.
"""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["ultralytics", "rfdetr"])
def test_in_a_process_of_its_own(framework):
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    tests = Path(__file__).with_name(f"alone_{framework}.py")
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=--strict-markers", str(tests)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert " passed" in done.stdout
