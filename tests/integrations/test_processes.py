"""What importing needs, and models that go to another process."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from alphaiou.integrations import torchvision as for_torchvision
from alphaiou.integrations import transformers as for_transformers
from tests.integrations import detr_family, torchvision_models

ROOT = Path(__file__).parents[2]


def run(code):
    """Run Python in a process of its own; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_framework_is_imported_by_its_own_module_and_missed_with_the_line_that_installs_it():
    out = run(
        """
        import sys
        from importlib import import_module
        import alphaiou, alphaiou.integrations, alphaiou.losses
        names = ("torchvision", "transformers", "ultralytics", "mmengine", "rfdetr")
        for name in (*names, "yolov5", "libreyolo"):
            assert name not in sys.modules
            sys.modules[name] = None
            try:
                import_module(f"alphaiou.integrations.{name}")
            except ImportError as error:
                print(error)
        """
    )
    installs = (line.split(": ")[-1] for line in out.splitlines())
    assert list(installs) == [
        "pip install 'torchvision>=0.24'",
        "pip install 'transformers>=4.57' scipy",
        "pip install 'ultralytics>=8.3'",
        "pip install 'mmengine>=0.10'",
        "pip install 'rfdetr>=1.11'",
        "pip install 'yolov5>=7.0'",
        "pip install 'libreyolo>=1.6'",
    ]


@pytest.mark.slow
def test_changed_models_work_in_a_fresh_process(tmp_path):
    """As in workers that are spawned: nothing is imported there but what the pickle names."""
    detector, inputs = torchvision_models.build("FasterRCNN"), torchvision_models.batch(3, 1)
    for_torchvision.use_box_loss(detector, "ciou:3", weight=10.0)
    detr, own_inputs = detr_family.build("RTDetr"), detr_family.batch(3, 1)
    for_transformers.use_box_loss(detr, "ciou:3", matcher_loss="giou:2")
    torch.save((detector, inputs, detr, own_inputs), tmp_path / "models.pt")
    torch.manual_seed(1)
    expected = [detector(*inputs)["loss_box_reg"].item(), detr(**own_inputs).loss.item()]
    out = run(
        f"""
        import torch
        torch.set_num_threads(1)
        path = {str(tmp_path / "models.pt")!r}
        detector, inputs, detr, own_inputs = torch.load(path, weights_only=False)
        torch.manual_seed(1)
        print(repr(detector(*inputs)["loss_box_reg"].item()), repr(detr(**own_inputs).loss.item()))
        """
    )
    assert [float(number) for number in out.split()] == expected
