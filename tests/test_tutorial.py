"""The commands of the tutorial, in order, from an empty folder."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs/your-data.md"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="the commands are written for a POSIX shell"),
]


def commands():
    """The lines that are indented as code."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.startswith("    ")]


def test_the_tutorial_from_an_empty_folder(tmp_path):
    # The command line of this environment, whatever else is installed.
    script = f'set -e\nalphaiou() {{ {shlex.quote(sys.executable)} -m alphaiou "$@"; }}\n'
    script += "\n".join(commands())
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        ("bash", "-c", script),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    (run,) = (path.parent for path in (tmp_path / "runs").glob("*/record.json"))
    for name in ("batch.jpg", "training.html", "best.safetensors", "recipe.yaml"):
        assert (run / name).stat().st_size > 0
        assert name in PAGE.read_text(encoding="utf-8") or name in ("recipe.yaml",)
    assert any((tmp_path / "predictions").rglob("*.json"))
    pictures = [path for path in (tmp_path / "predictions").rglob("*") if path.suffix != ".json"]
    assert len([path for path in pictures if path.is_file()]) >= 50
