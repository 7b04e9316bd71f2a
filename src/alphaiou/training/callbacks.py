"""Code of one's own beside a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from alphaiou.training.recipe import Recipe


class Callback(Protocol):
    """What a training calls; methods that a subclass does not define do nothing.

    With several processes, the first one calls. An exception ends the training, which resumes from
    its last checkpoint when it is started again.

    Examples:
        >>> class Watch(Callback):
        ...     def on_epoch(self, entry):
        ...         print(entry["epoch"], entry["box"])
    """

    def on_start(self, recipe: Recipe, folder: Path, history: Sequence[Mapping[str, Any]]) -> None:
        """Begin, before the first step.

        Args:
            recipe: The recipe of the run.
            folder: The folder of the run.
            history: The epochs before an interruption.
        """

    def on_epoch(self, entry: Mapping[str, Any]) -> None:
        """Take an epoch: its number, losses, speed, memory, and scores if it was scored."""

    def on_end(self, record: Mapping[str, Any]) -> None:
        """Take the record of the finished run."""
