"""A loss as it is written on the command line: ``ciou``, ``ciou:3`` or ``ciou:3:1``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from alphaiou.boxes import BoxFormat
from alphaiou.losses import KINDS, alpha_iou_loss
from alphaiou.losses.formula import check_alphas

DISPLAY_NAMES = {
    "iou": "IoU",
    "giou": "GIoU",
    "diou": "DIoU",
    "ciou": "CIoU",
    "eiou": "EIoU",
    "siou": "SIoU",
    "mpdiou": "MPDIoU",
    "shape_iou": "Shape-IoU",
    "piou": "PIoU",
    "nwd": "NWD",
    "biou": "BIoU",
}


@dataclass(frozen=True)
class LossSpec:
    """A kind and its powers; α = 1 is the loss as it was first published."""

    kind: str
    alpha: float = 1.0
    penalty_alpha: float | None = None

    @classmethod
    def parse(cls, text: str) -> LossSpec:
        """Read ``kind``, ``kind:alpha`` or ``kind:alpha:penalty_alpha``.

        Raises:
            ValueError: It is none of these; the message quotes it and says what is allowed.

        Examples:
            >>> LossSpec.parse("ciou:3:1")
            LossSpec(kind='ciou', alpha=3.0, penalty_alpha=1.0)
        """
        kind, *powers = text.split(":")
        if kind not in KINDS:
            raise ValueError(f"loss {text!r}: kind must be one of {', '.join(KINDS)}, got {kind!r}")
        try:
            if len(powers) > 2:
                raise ValueError("too many parts")
            numbers = [float(power) for power in powers]
        except ValueError:
            raise ValueError(
                f"loss {text!r}: write kind, kind:alpha or kind:alpha:penalty_alpha with numbers, "
                "such as ciou, ciou:3 or ciou:3:1"
            ) from None
        spec = cls(kind, *numbers)
        try:
            check_alphas(spec.alpha, spec.penalty_alpha)
        except ValueError as error:
            raise ValueError(f"loss {text!r}: {error}") from None
        return spec

    def __str__(self) -> str:
        """The text that ``parse`` reads, in its shortest form."""
        if self.penalty_alpha is not None:
            return f"{self.kind}:{self.alpha:g}:{self.penalty_alpha:g}"
        return self.kind if self.alpha == 1 else f"{self.kind}:{self.alpha:g}"

    @property
    def display_name(self) -> str:
        """The name for tables and figures, such as α-CIoU (α=3)."""
        name = DISPLAY_NAMES.get(self.kind, self.kind)
        if self.penalty_alpha is not None:
            return f"α-{name} (α={self.alpha:g}, α₂={self.penalty_alpha:g})"
        return name if self.alpha == 1 else f"α-{name} (α={self.alpha:g})"

    def function(self, box_format: BoxFormat = "xyxy") -> Callable[[Tensor, Tensor], Tensor]:
        """The loss as a function of predictions and targets, one value a pair."""
        return partial(
            alpha_iou_loss,
            kind=self.kind,
            alpha=self.alpha,
            penalty_alpha=self.penalty_alpha,
            box_format=box_format,
        )
