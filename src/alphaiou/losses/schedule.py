"""α over the course of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from alphaiou.boxes import check_choice
from alphaiou.numerics import check_number

ScheduleShape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class AlphaSchedule:
    """α from ``start`` to ``end`` by training progress.

    Examples:
        >>> schedule = AlphaSchedule(1.0, 3.0, "cosine")
        >>> schedule(0.0), schedule(0.5), schedule(1.0)
        (1.0, 2.0, 3.0)
    """

    start: float
    end: float
    shape: ScheduleShape = "linear"

    def __post_init__(self) -> None:
        check_choice("shape", self.shape, get_args(ScheduleShape))
        check_number("start", self.start, strict=False)
        check_number("end", self.end, strict=False)
        if self.shape == "constant" and self.start != self.end:
            raise ValueError(
                f"end must equal start in a constant schedule, got {self.start!r} and {self.end!r}"
            )

    def __call__(self, progress: float) -> float:
        """α at a progress between 0 (the start of training) and 1 (its end)."""
        check_progress(progress)
        if self.shape == "cosine":
            progress = 0.5 * (1.0 - math.cos(math.pi * progress))
        return self.start + (self.end - self.start) * progress


def check_progress(progress: float) -> None:
    """Refuse a progress outside a training."""
    if not 0.0 <= progress <= 1.0:
        raise ValueError(f"progress must lie in [0, 1], got {progress!r}")
