"""Benchmark records: description of the machine, writing, reading, and common options."""

from __future__ import annotations

import argparse
import csv
import datetime
import json
from pathlib import Path
from typing import Any

import torch

from alphaiou._environment import device_name, versions
from alphaiou._files import write_file
from alphaiou.training.record import read_record

Record = dict[str, Any]
Row = dict[str, Any]
FOLDER = Path(__file__).parent


def conditions(device: torch.device, *packages: str) -> Record:
    """Return date, device, threads and versions, the head of every record.

    Args:
        device: The device of the benchmark.
        packages: Further packages whose versions to record.
    """
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "device": device_name(device),
        "device_type": device.type,
        "threads": torch.get_num_threads(),
        "versions": versions(*packages),
    }


def write_record(record: Record, path: Path) -> Path:
    """Write a record as JSON with one line per row, so that diffs are readable.

    The file is replaced atomically.
    """
    head = {key: value for key, value in record.items() if key != "rows"}
    text = json.dumps(head, indent=1, ensure_ascii=False)
    if "rows" in record:
        lines = [f" {json.dumps(row, ensure_ascii=False)}" for row in record["rows"]]
        text = text.removesuffix("\n}") + ',\n "rows": [\n' + ",\n".join(lines) + "\n ]\n}"
    write_file(path, text + "\n")
    return path


def load_record(path: Path) -> Record:
    """Read a record: JSON, the rows of a CSV file, or a folder with tables, runs and folders."""
    if path.is_dir():
        return {
            "folders": {part.name: load_record(part) for part in path.iterdir() if part.is_dir()},
            "tables": {part.stem: load_record(part)["rows"] for part in path.glob("*.csv")},
            "runs": [load_record(part) for part in sorted(path.glob("*.json"))],
        }
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return {"rows": list(csv.DictReader(file))}
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return read_record(path) if record.get("record") == "run" else record


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--device``, ``--seed``, ``--quick`` and ``--out`` to the options of a benchmark."""
    parser.add_argument("--device", type=_device, default="auto", help="auto, cpu or cuda")
    parser.add_argument("--seed", type=int, default=0, help="seed of the boxes")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, as a smoke test")
    parser.add_argument(
        "--out", type=Path, help="path of the record; by default benchmarks/NAME-DEVICE.json"
    )


def positive(text: str) -> int:
    """Parse a positive integer option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def settings_of(options: argparse.Namespace) -> Record:
    """Return the options in the format of a record."""
    settings = {name: value for name, value in vars(options).items() if name != "out"}
    return settings | {"device": options.device.type}


def _device(name: str) -> torch.device:
    available = torch.cuda.is_available()
    if name not in ("auto", "cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"must be auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not available:
        raise argparse.ArgumentTypeError("torch finds no CUDA device; use --device cpu")
    return torch.device(("cuda" if available else "cpu") if name == "auto" else name)
