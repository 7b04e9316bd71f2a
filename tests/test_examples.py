"""Every example runs as a user would run it, and stays short."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "examples"
NOTEBOOK = FOLDER / "quickstart.ipynb"
#: tests/inference/test_export.py runs the one that needs an exported detector.
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.stem != "onnx_numpy")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert len(path.read_text().splitlines()) <= 60


def test_the_notebook_runs(tmp_path, monkeypatch):
    """All cells in a kernel of their own; the trainings have one epoch of few images."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("QUICKSTART_EPOCHS", "1")
    monkeypatch.setenv("QUICKSTART_IMAGES", "0.004")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    text = "".join(
        output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
        for output in outputs
    )
    assert "best.onnx: " in text
    assert "mAP75:95" in text
    assert " detections: " in text
    assert len(list(tmp_path.glob("runs/quickstart/*/best.onnx"))) == 1


def test_there_are_examples():
    assert EXAMPLES
