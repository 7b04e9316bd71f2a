"""What the tests of the detectors' Triton kernels share: where these run, and the interpreter."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

from tests.losses.kernels.cases import kernel_device

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

#: For the test that runs the others of its module in the interpreter.
in_the_interpreter = pytest.mark.skipif(
    kernel_device() is not None or find_spec("triton") is None,
    reason="the kernel runs here itself, or there is no Triton",
)


def kernel(name):
    """The entry of a kernel where it can run: on CUDA, or in Triton's interpreter."""
    if kernel_device() is None:
        pytest.skip("needs Triton, and CUDA or TRITON_INTERPRET=1, which the last test sets")
    return import_module(f"alphaiou.detectors.ops.kernels.{name}").launch


def check_in_the_interpreter(file, words, passed):
    """Run some tests of a file in a process of its own: Triton reads the variable once."""
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", file, "-k", words]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{passed} passed" in done.stdout, done.stdout
