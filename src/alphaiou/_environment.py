"""The device and the versions that a result may depend on."""

from __future__ import annotations

import platform
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from alphaiou._version import __version__
from alphaiou.errors import AlphaIoUError

PACKAGES = ("torch", "torchvision", "transformers", "triton", "lightning", "hotcoco", "numpy")


class DeviceError(AlphaIoUError, ValueError):
    """The device or the number of processes cannot be had; the message says what can."""


def device_kind(name: str) -> str:
    """``cpu`` or ``cuda`` for such a name or ``auto``, which is CUDA where there is a GPU.

    Raises:
        DeviceError: The name is ``cuda`` and there is no GPU.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise DeviceError("device cuda: torch finds no CUDA device here; take cpu")
    if name == "auto":
        return "cuda" if available else "cpu"
    return name


def device_name(device: torch.device) -> str:
    """The model of the GPU or of the CPU, such as ``NVIDIA H200``."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


@cache
def source_commit() -> str | None:
    """The git commit that this package runs from, with ``+`` if its files are changed.

    None if the package is installed rather than run from a checkout.
    """
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ("git", "-C", str(here), *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # else it is another project's
        changed = git("status", "--porcelain", "--", str(here))
        return git("rev-parse", "HEAD").strip() + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python, this package and the packages that results may depend on.

    Args:
        packages: Further packages to list.
    """
    found = {"alphaiou": __version__, "python": platform.python_version()}
    for package in (*PACKAGES, *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
