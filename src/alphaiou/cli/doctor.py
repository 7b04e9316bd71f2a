"""``alphaiou doctor``. It needs only torch, so that it runs when other packages are missing."""

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from alphaiou import __version__
from alphaiou.errors import install_hint

#: For each part of the package: the extra that installs it, and the packages it needs.
PARTS = {
    "losses": ("", ("torch",)),
    "commands": ("cli", ("tyro", "rich", "matplotlib", "numpy")),
    "data sets, scores": ("data", ("torchvision", "pillow", "pyyaml", "msgspec", "hotcoco")),
    "training": ("train", ("lightning", "safetensors", "scipy")),
    "DETR": ("detr", ("transformers",)),
    "export": ("export", ("onnx", "onnxscript", "onnxruntime")),
    "video": ("video", ("av",)),
    "TensorBoard": ("tensorboard", ("tensorboard",)),
    "Weights & Biases": ("wandb", ("wandb",)),
    "MLflow": ("mlflow", ("mlflow-skinny",)),
}
#: The frameworks that the losses integrate with.
FRAMEWORKS = ("torchvision", "transformers", "ultralytics", "mmengine", "rfdetr")


@dataclass(frozen=True)
class Doctor:
    """Report installed packages and devices, and check the losses."""


def run_doctor(_: Doctor) -> int:
    """Print the state of the installation; return 1 if a loss value is wrong."""
    lines = [
        f"alphaiou {__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}",
        *_section("parts", _parts()),
        *_section("frameworks", _frameworks()),
        *_section("devices", _devices()),
        *_section("kernels", _kernels()),
    ]
    checks = _checks()
    lines += _section("checks", checks)
    sys.stdout.write("\n".join(lines) + "\n")
    return int(any(not verdict.startswith("ok") for verdict in checks.values()))


def _section(title: str, rows: dict[str, str]) -> list[str]:
    return ["", title, *(f"  {name:18} {text}" for name, text in rows.items())]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _parts() -> dict[str, str]:
    versions = {}
    for part, (extra, packages) in PARTS.items():
        missing = [name for name in packages if _version(name) is None]
        versions[part] = (
            f"missing {', '.join(missing)}: {install_hint(extra)}"
            if missing
            else ", ".join(f"{name} {_version(name)}" for name in packages)
        )
    return versions


def _frameworks() -> dict[str, str]:
    return {name: _version(name) or "not installed" for name in FRAMEWORKS}


def _devices() -> dict[str, str]:
    import torch

    devices = {"cpu": f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"}
    for number in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(number)
        memory = f"{card.total_memory / 2**30:.0f} GiB"
        devices[f"cuda:{number}"] = f"{card.name}, {memory}, capability {card.major}.{card.minor}"
    if len(devices) == 1:
        devices["cuda"] = f"not available to torch (built for CUDA {torch.version.cuda})"
    return devices


def _kernels() -> dict[str, str]:
    from alphaiou.losses.kernels import fused

    triton = f"Triton {_version('triton')}" if _version("triton") else None
    compiler = "torch's compiler" if fused._HAS_COMPILER else None
    return {
        "on CUDA": f"{triton}: loss, NMS, assignment"
        if triton
        else "plain torch: pip install triton",
        "on the CPU": f"{compiler}, with backend='fused'"
        if compiler
        else "plain torch: the fused loss needs a C++ compiler such as g++",
    }


def _checks() -> dict[str, str]:
    """Compare the α-CIoU loss of two boxes on every device with its closed form."""
    import torch

    devices = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return {f"loss on {device}": _check(device) for device in devices}


def _check(device: str) -> str:
    import torch

    from alphaiou import alpha_iou_loss

    # IoU 1/3; centre distance 1, hull diagonal √(9 + 4); equal aspect ratios.
    expected = 1.0 - (1 / 3) ** 3 + (1 / 13) ** 3
    try:
        pred = torch.tensor([[0.0, 0.0, 2.0, 2.0]], device=device, requires_grad=True)
        target = torch.tensor([[1.0, 0.0, 3.0, 2.0]], device=device)
        loss = alpha_iou_loss(pred, target, kind="ciou", alpha=3.0, reduction="sum")
        loss.backward()
    except RuntimeError as error:
        return f"failed: {str(error).splitlines()[0]}"
    difference = abs(loss.item() - expected)
    return "ok" if difference < 1e-6 else f"wrong by {difference:.1e}"
