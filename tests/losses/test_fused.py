"""The fused backend: Triton's kernel in its interpreter, and the CPU's own through inductor.

The kernel's tests are in `tests/losses/kernels`; on a machine with CUDA they run there as they are:

    python -m pytest tests/losses/kernels -o addopts=
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.losses.kernels.cases import check, loss_and_gradient
from tests.strategies import encode, generic_pairs

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernel_in_the_interpreter():
    """Triton reads TRITON_INTERPRET when it is imported: hence a process of its own."""
    command = [sys.executable, "-m", "pytest", "tests/losses/kernels", "-q", "-o", "addopts="]
    command += ["-p", "no:xdist", "-p", "no:cacheprovider"]
    for name in ("analytic", "plain"):  # no kernel: plain torch
        command += ["--ignore", f"tests/losses/kernels/test_{name}.py"]
    # The interpreter is numpy, which warns of log2(0) and the like; kernels do not.
    command += ["-W", "ignore::RuntimeWarning"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-5_000:]
    counts = dict(re.findall(r"(\d+) (passed|skipped)", result.stdout)[::-1])
    counts = {outcome: int(count) for count, outcome in counts.items()}
    assert counts["passed"] > 500
    assert counts.get("skipped", 0) <= 1  # the module that needs a GPU


def has_compiler():
    return any(map(shutil.which, filter(None, (os.environ.get("CXX"), "g++", "clang++"))))


@pytest.mark.slow
@pytest.mark.skipif(not has_compiler(), reason="inductor needs a C++ compiler (CXX or g++)")
@pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="then the CPU runs Triton's kernel"
)
def test_kernel_of_the_cpu():
    """Compiled by torch for the CPU from the same functions; once, since that takes a while."""
    options = {"kind": "ciou", "box_format": "cxcywh", "reduction": "mean"}
    pred, target = (encode(b, "cxcywh").float() for b in generic_pairs(133, seed=1))
    weight = torch.arange(133) % 3
    holes = pred.masked_fill((weight == 0)[:, None], torch.nan)
    for alpha in (0.0, 0.5, 3.0):
        check(holes, target, alpha=alpha, weight=weight, **options)
    check(pred[:50], target[:50], alpha=2.0, weight=weight[:50] + 1, **options)
    same = loss_and_gradient(
        target, target.clone(), alpha=0.5, weight=weight, backend="fused", **options
    )
    assert all(tensor.count_nonzero() == 0 for tensor in same)
