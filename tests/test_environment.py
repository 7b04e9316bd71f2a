"""Devices and versions, as records name them."""

import platform
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from alphaiou._environment import DeviceError, device_kind, device_name, versions


def test_without_a_gpu_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_kind("cpu") == device_kind("auto") == "cpu"
    with pytest.raises(DeviceError, match="no CUDA device here; take cpu"):
        device_kind("cuda")


def test_the_model_of_the_processor():
    name = device_name(torch.device("cpu"))
    assert name == name.strip() != ""
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        with Path("/proc/cpuinfo").open() as file:
            assert name in {line.partition(": ")[2].strip() for line in file}


def test_versions():
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["torch"] == version("torch")
    assert None not in found.values()
