"""What needs a newer torch than the core says so. `.ci/versions` runs the core on old ones."""

import runpy
from pathlib import Path

import pytest
import torch

from alphaiou import alpha_iou_loss, numerics
from alphaiou.losses.kernels import fused

OPS = Path(numerics.__file__).parent / "detectors/ops/__init__.py"


def test_the_detectors_name_the_torch_that_they_need(monkeypatch):
    monkeypatch.setattr(numerics, "TORCH", (2, 8))
    with pytest.raises(ImportError, match=r"need torch 2\.9 .*'\.\[train\]'.*losses"):
        runpy.run_path(str(OPS))


def test_without_operators_the_fused_backend_says_why_and_auto_serves(monkeypatch):
    monkeypatch.setattr(fused, "_HAS_OPERATORS", False)
    pred, target = torch.rand(5, 4), torch.rand(5, 4)
    with pytest.raises(ValueError, match=rf"need torch 2\.5 .*{torch.__version__.split('+')[0]}"):
        alpha_iou_loss(pred, target, backend="fused")
    reference = alpha_iou_loss(pred, target, backend="reference")
    assert torch.allclose(alpha_iou_loss(pred, target), reference)
