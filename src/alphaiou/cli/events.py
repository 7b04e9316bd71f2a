"""Event files for TensorBoard, which is an extra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alphaiou.training.loop import Report


def with_events(report: Report, folder: Path) -> Report:
    """A report that also writes losses, pace and scores of every epoch.

    Raises:
        UsageError: TensorBoard is not installed.
    """
    from alphaiou.cli import UsageError

    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "--tensorboard needs tensorboard, which is missing: pip install 'alphaiou[tensorboard]'"
        ) from None
    writer: Callable[[], Any] = cache(partial(SummaryWriter, str(folder)))  # a file, if needed

    def epoch_done(entry: dict[str, Any]) -> None:
        report.epoch_done(entry)
        for name, value in scalars(entry).items():
            writer().add_scalar(name, value, entry["epoch"])
        writer().flush()

    return replace(report, epoch_done=epoch_done)


def scalars(entry: dict[str, Any]) -> dict[str, float]:
    """The numbers of an epoch by the names of their curves.

    Examples:
        >>> scalars({"epoch": 1, "box": 0.5, "val": {"map": 0.25}})
        {'train/box': 0.5, 'val/map': 0.25}
    """
    found: dict[str, float] = {}
    for name, value in entry.items():
        if isinstance(value, dict):
            found |= {f"{name}/{inner}": number for inner, number in value.items()}
        elif name != "epoch":
            found[f"train/{name}"] = value
    return found
