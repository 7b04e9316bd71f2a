"""A loss as it is written on the command line: ``ciou``, ``ciou:3`` or ``iou+wise_v3:3``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor

from alphaiou.boxes import PairFormat, check_choice
from alphaiou.losses.functional import alpha_iou_loss, check_alphas
from alphaiou.losses.kinds import KINDS, TermsFunction, check_geometry, kind_title, resolve_kind
from alphaiou.losses.modifiers import MODIFIERS, STATEFUL_MODIFIERS
from alphaiou.losses.module import AlphaIoULoss, AlphaSchedule

#: How each modifier changes the name of a loss.
MODIFIED_NAMES = {
    "inner": "Inner-{}",
    "focaler": "Focaler-{}",
    "rectified": "Rectified-{}",
    "focal": "Focal-{}",
    "wise": "Wise-{} v1",
    "wise_v2": "Wise-{} v2",
    "wise_v3": "Wise-{} v3",
    "angle": "{} + angle",
}


@dataclass(frozen=True)
class LossSpec:
    """A kind, its powers and its modifiers; α = 1 is the loss as it was first published.

    Attributes:
        kind: The name of the loss.
        alpha: α₁, the power of the similarity.
        penalty_alpha: α₂, the power of the penalties; α₁ unless given.
        modifiers: Applied on top of the kind, such as inner, focal or wise_v3.
        shape_scale: The scale of shape_iou; 1 in runs of the first edition.
    """

    kind: str
    alpha: float = 1.0
    penalty_alpha: float | None = None
    modifiers: tuple[str, ...] = field(default=(), kw_only=True)
    shape_scale: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        # JSON has no tuples.
        object.__setattr__(self, "modifiers", tuple(self.modifiers))
        if self.shape_scale and self.kind != "shape_iou":
            raise ValueError(f"shape_scale is a setting of shape_iou, not of {self.kind}")

    @classmethod
    def parse(cls, text: str) -> LossSpec:
        """Read a kind, ``+modifier`` as often as wanted, ``:alpha`` and ``:penalty_alpha``.

        Raises:
            ValueError: The text cannot be read; the message quotes it and lists what is allowed.

        Examples:
            >>> LossSpec.parse("ciou:3:1")
            LossSpec(kind='ciou', alpha=3.0, penalty_alpha=1.0, modifiers=(), shape_scale=0.0)
            >>> LossSpec.parse("iou+wise_v3:3").display_name
            'α-WIoU v3 (α=3)'
        """
        name, *powers = text.split(":")
        kind, *modifiers = name.split("+")
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
        spec = cls(kind, *numbers, modifiers=tuple(modifiers))
        try:
            check_modifiers("modifiers", spec.modifiers)
            check_alphas(spec.alpha, spec.penalty_alpha)
        except ValueError as error:
            raise ValueError(f"loss {text!r}: {error}") from None
        return spec

    def __str__(self) -> str:
        """The text that ``parse`` reads, in its shortest form."""
        name = "+".join((self.kind, *self.modifiers))
        if self.penalty_alpha is not None:
            return f"{name}:{_number(self.alpha)}:{_number(self.penalty_alpha)}"
        return name if self.alpha == 1 else f"{name}:{_number(self.alpha)}"

    @property
    def display_name(self) -> str:
        """The name for tables and figures, such as α-CIoU (α=3)."""
        if (self.alpha, self.penalty_alpha) == (1, None):
            return self._plain_name()
        return self.named_with(f"={self.alpha:g}")

    def named_with(self, alpha: str) -> str:
        """The name of a power of this loss, with a text for α.

        Examples:
            >>> LossSpec("diou").named_with(" 1→3")
            'α-DIoU (α 1→3)'
        """
        penalty = "" if self.penalty_alpha is None else f", α₂={self.penalty_alpha:g}"
        return f"α-{self._plain_name()} (α{alpha}{penalty})"

    def _plain_name(self) -> str:
        name = kind_title(self.kind)
        if self.shape_scale:
            name += f" (scale {self.shape_scale:g})"
        for modifier in self.modifiers:
            name = MODIFIED_NAMES[modifier].format(name).replace("Wise-IoU", "WIoU")
        return name

    def _parametrised_kind(self) -> str | TermsFunction:
        if not self.shape_scale:
            return self.kind
        return partial(KINDS[self.kind], scale=self.shape_scale)

    @property
    def stateful(self) -> tuple[str, ...]:
        """The modifiers that keep a running mean over a training."""
        return tuple(one for one in self.modifiers if one in STATEFUL_MODIFIERS)

    def module(
        self, schedule: AlphaSchedule | None = None, box_format: PairFormat = "xyxy"
    ) -> AlphaIoULoss:
        """The loss as a Module, with a schedule in place of α if there is one.

        Examples:
            >>> LossSpec.parse("iou+wise_v3").module(AlphaSchedule(1.0, 3.0)).alpha
            tensor(1.)
        """
        return AlphaIoULoss(
            self._parametrised_kind(),
            schedule or self.alpha,
            penalty_alpha=self.penalty_alpha,
            modifiers=self.modifiers,
            box_format=box_format,
        )

    def function(self, box_format: PairFormat = "xyxy") -> Callable[[Tensor, Tensor], Tensor]:
        """The loss as a function of predictions and targets, with one value per pair.

        Raises:
            ValueError: A modifier keeps a running mean, which a function cannot, or the kind does
                not serve boxes in this format.
        """
        check_geometry(resolve_kind(self._parametrised_kind()), box_format)
        if self.stateful:
            raise ValueError(
                f"loss {str(self)!r}: {self.stateful[0]} keeps a running mean over a training, and "
                "this is none; take the modifier wise, which keeps none"
            )
        return partial(
            alpha_iou_loss,
            kind=self._parametrised_kind(),
            alpha=self.alpha,
            penalty_alpha=self.penalty_alpha,
            modifiers=self.modifiers,
            box_format=box_format,
        )


def check_modifiers(name: str, modifiers: tuple[str, ...]) -> None:
    """Reject unknown modifiers."""
    for modifier in modifiers:
        check_choice(name, modifier, (*MODIFIERS, *STATEFUL_MODIFIERS))


def _number(value: float) -> str:
    """A number with as few digits as possible."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
