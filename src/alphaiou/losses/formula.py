"""The one formula, in plain torch: ``L = weight · (1 − S^α₁ + Σᵢ Pᵢ^α₂)``.

This is the reference that the kernels are tested against. Arguments are checked in ``functional``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from alphaiou.boxes import PairFormat
from alphaiou.losses.kinds import TermsFunction
from alphaiou.losses.modifiers import Modifier
from alphaiou.numerics import Alpha, penalty_power, power_loss
from alphaiou.oriented import geometry_of


class Exponent(NamedTuple):
    """α₁ or α₂: a tensor (of one number, or one per pair) if there is one, else a number."""

    tensor: Tensor | None = None
    number: float = 0.0

    @property
    def value(self) -> Alpha:
        """The tensor or the number."""
        return self.number if self.tensor is None else self.tensor


def reference_loss(
    pred: Tensor,
    target: Tensor,
    *,
    terms_of: TermsFunction,
    modifiers: Sequence[Modifier] = (),
    alphas: tuple[Exponent, Exponent],
    box_cox: bool,
    box_format: PairFormat,
    weight: Tensor | None,
    reduce: bool,
) -> Tensor:
    """The weighted loss of each pair, or its sum over the pairs.

    Args:
        pred: Predicted boxes.
        target: Target boxes, of the same shape.
        terms_of: The kind: from the geometry of the pairs to similarity and penalties.
        modifiers: Applied to the terms, one after the other.
        alphas: α₁ and α₂; a tensor broadcasts over the pairs.
        box_cox: Whether to divide the similarity term by α₁.
        box_format: The format of the boxes.
        weight: One weight per pair; the boxes of a pair of weight 0 do not matter.
        reduce: Whether to return the sum.
    """
    valid = None
    if weight is not None:
        valid = weight != 0
        # Identical boxes in place of whatever a pair of weight 0 holds, which may be NaN.
        pred, target = (boxes.where(valid[..., None], 0) for boxes in (pred, target))
    pair = geometry_of(pred, target, box_format, valid)
    terms = terms_of(pair)
    for modify in modifiers:
        terms = modify(terms, pair)
    alpha, penalty_alpha = (_value(alpha, terms.similarity) for alpha in alphas)
    loss = power_loss(terms.similarity, alpha, box_cox=box_cox)
    for penalty in terms.penalties:
        loss = loss + penalty_power(penalty, penalty_alpha)
    if terms.weight is not None:
        loss = loss * terms.weight
    if weight is not None:
        loss = loss * weight.to(loss.dtype)
    return loss.sum() if reduce else loss


def _value(alpha: Exponent, reference: Tensor) -> Alpha:
    return alpha.number if alpha.tensor is None else alpha.tensor.to(reference)
