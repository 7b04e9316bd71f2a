"""What every record holds beside its figures: when, where and with what they were taken."""

from __future__ import annotations

import csv
import datetime
import json
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

Record = dict[str, Any]
Row = dict[str, Any]
FOLDER = Path("benchmarks")


def surroundings(device: torch.device) -> Record:
    """Versions, device, threads and date."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device_name(device),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in ("alphaiou", "torch", "torchvision", "triton")},
    }


def device_name(device: torch.device) -> str:
    """The name of the device, such as NVIDIA H200, or the model of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def default_path(stem: str, device: torch.device) -> Path:
    """``benchmarks/STEM-cpu.json`` or ``benchmarks/STEM-cuda.json``."""
    return FOLDER / f"{stem}-{device.type}.json"


def write_record(record: Record, path: Path) -> Path:
    """Write a record, one row a line; an interruption leaves the one before."""
    head = {key: value for key, value in record.items() if key != "rows"}
    lines = [f" {json.dumps(row, ensure_ascii=False)}" for row in record["rows"]]
    text = json.dumps(head, indent=1, ensure_ascii=False).removesuffix("\n}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_suffix(".partial")
    partial_path.write_text(f'{text},\n "rows": [\n' + ",\n".join(lines) + "\n ]\n}\n")
    partial_path.replace(path)
    return path


def read_record(path: Path) -> Record:
    """Read a record: JSON, a CSV as its rows, or a folder of such: tables, runs and folders."""
    if path.is_dir():
        return {
            "folders": {part.name: read_record(part) for part in path.iterdir() if part.is_dir()},
            "tables": {part.stem: read_record(part)["rows"] for part in path.glob("*.csv")},
            "runs": [read_record(part) for part in sorted(path.glob("*.json"))],
        }
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return {"rows": list(csv.DictReader(file))}
    record: Record = json.loads(path.read_text())
    return record


def choose_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is CUDA where there is one.

    Raises:
        ValueError: There is no such device here.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError("--device cuda: torch finds no CUDA device here; use --device cpu")
    return torch.device(("cuda" if available else "cpu") if name == "auto" else name)


def _version(name: str) -> str | None:
    if name == "alphaiou":
        from alphaiou import __version__

        return __version__
    if name == "torch":
        return str(torch.__version__)
    try:
        return version(name)
    except PackageNotFoundError:
        return None
