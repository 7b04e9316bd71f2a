"""α over the course of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from alphaiou.boxes import check_choice

ScheduleShape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class AlphaSchedule:
    """α from ``start`` to ``end`` by training progress.

    Example:
        >>> schedule = AlphaSchedule(1.0, 3.0, "cosine")
        >>> schedule(0.0), schedule(0.5), schedule(1.0)
        (1.0, 2.0, 3.0)
    """

    start: float
    end: float
    shape: ScheduleShape = "linear"

    def __post_init__(self) -> None:
        check_choice("shape", self.shape, get_args(ScheduleShape))
        for name, value in (("start", self.start), ("end", self.end)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
        if self.shape == "constant" and self.start != self.end:
            raise ValueError(
                f"end must equal start in a constant schedule, got {self.start!r} and {self.end!r}"
            )

    def __call__(self, progress: float) -> float:
        """α at a progress between 0 (the start of training) and 1 (its end)."""
        if not 0.0 <= progress <= 1.0:
            raise ValueError(f"progress must lie in [0, 1], got {progress!r}")
        if self.shape == "cosine":
            progress = 0.5 * (1.0 - math.cos(math.pi * progress))
        return self.start + (self.end - self.start) * progress
