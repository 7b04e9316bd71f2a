"""The error of a loss in fp32 against its float64 reference, on adversarial boxes.

Adversarial boxes lie on kinks (shared edges, touching, identical) or have lengths that fp32 cannot
distinguish from 0. There no fp32 code can follow float64: the gradient is another subgradient, or
another convention applies. Errors are therefore measured on *comparable* pairs only. A pair is
comparable if

* along each axis, any two of the four edges coincide or are further apart than 1e-24 and than 1e-24
  of the hull's longer side, and the centres coincide or are further apart than 2⁻²² of the hull;
* the exact loss and gradient are stable (2e-6, 2e-5) under four random perturbations of the corners
  by a few fp32 roundings, up to 2⁻²² of the hull's side each.

This depends only on the exact function, never on the code under test. The record also contains the
number of comparable pairs and the results on all other pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.record import Row

PairLoss = Callable[[Tensor, Tensor], Tensor]

SHORTEST = 1e-24
MOVES = 4
MOVE = 2.0**-22
STILL_VALUE, STILL_GRADIENT = 2e-6, 2e-5
#: Gradients smaller than this, in loss units over a hull's side, are compared as if this large.
LEAST_GRADIENT = 1e-2
TOLERANCE = 1e-4
EXAMPLES = 3


@dataclass(frozen=True)
class _Chunk:
    """Values and gradients of some pairs in float64, with gradients in units of the hull."""

    pred: Tensor
    target: Tensor
    value: Tensor
    exact_value: Tensor
    gradient: Tensor
    exact_gradient: Tensor
    comparable: Tensor

    @property
    def value_error(self) -> Tensor:
        return (self.value - self.exact_value).abs() / self.exact_value.clamp(min=1.0)

    @property
    def gradient_error(self) -> Tensor:
        return relative_change(self.gradient, self.exact_gradient)


def agreement(loss: PairLoss, exact: PairLoss, pairs: Iterable[tuple[Tensor, Tensor]]) -> Row:
    """Return the errors of a loss against the exact loss, as a row of the record.

    Args:
        loss: The loss under test, on fp32 boxes.
        exact: The same loss, for float64 boxes.
        pairs: Chunks of predictions and targets.
    """
    row: Row = {"test": "agreement", "pairs": 0, "comparable": 0, "value_error": 0.0}
    row |= {"gradient_error": 0.0, "gradient_off": 0, "value_off_all": 0, "gradient_off_all": 0}
    worst: list[tuple[float, Row]] = []
    for pred, target in pairs:
        chunk = _compare(loss, exact, pred, target)
        value_error, gradient_error = chunk.value_error, chunk.gradient_error
        row["pairs"] += len(pred)
        row["comparable"] += int(chunk.comparable.sum())
        row["value_off_all"] += int((value_error > TOLERANCE).sum())
        row["gradient_off_all"] += int((gradient_error > TOLERANCE).sum())
        value_error = value_error.where(chunk.comparable, 0.0)
        gradient_error = gradient_error.where(chunk.comparable, 0.0)
        row["value_error"] = max(row["value_error"], value_error.max().item())
        row["gradient_error"] = max(row["gradient_error"], gradient_error.max().item())
        row["gradient_off"] += int((gradient_error > TOLERANCE).sum())
        worst += _examples(chunk, torch.maximum(value_error, gradient_error))
    worst.sort(key=lambda entry: entry[0], reverse=True)
    row["examples"] = [example for _, example in worst[:EXAMPLES]]
    return row


def value_and_gradient(loss: PairLoss, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss of each pair and its gradient with respect to the prediction."""
    leaf = pred.detach().clone().requires_grad_()
    value = loss(leaf, target)
    # Ones instead of a sum, in which one NaN would reach every pair.
    (gradient,) = torch.autograd.grad(value, leaf, torch.ones_like(value))
    return value.detach(), gradient


def relative_change(gradient: Tensor, exact: Tensor) -> Tensor:
    """Return the largest difference of a component over the largest component, per pair."""
    largest = exact.abs().amax(dim=-1).clamp(min=LEAST_GRADIENT)
    return (gradient - exact).abs().amax(dim=-1) / largest


def _compare(loss: PairLoss, exact: PairLoss, pred: Tensor, target: Tensor) -> _Chunk:
    value, gradient = value_and_gradient(loss, pred, target)
    wide, wide_target = pred.double(), target.double()
    exact_value, exact_gradient = value_and_gradient(exact, wide, wide_target)
    boxes, targets = _uninverted(wide), _uninverted(wide_target)
    sides = (torch.maximum(boxes, targets)[:, 2:] - torch.minimum(boxes, targets)[:, :2]).repeat(
        1, 2
    )
    comparable = _measurable(boxes, targets, sides)
    generator = torch.Generator(pred.device).manual_seed(0)
    for _ in range(MOVES):
        moved = [corners + _shift(sides, generator) for corners in (wide, wide_target)]
        near_value, near_gradient = value_and_gradient(exact, *moved)
        comparable &= (near_value - exact_value).abs() < STILL_VALUE * exact_value.clamp(min=1.0)
        change = relative_change(near_gradient * sides, exact_gradient * sides)
        comparable &= change < STILL_GRADIENT
    return _Chunk(
        pred,
        target,
        value.double(),
        exact_value,
        gradient.double() * sides,
        exact_gradient * sides,
        comparable,
    )


def _uninverted(boxes: Tensor) -> Tensor:
    """Return corners as the losses see them: an inverted side shrinks to its midpoint."""
    first, second = boxes[:, :2], boxes[:, 2:]
    middle, inverted = (first + second) / 2, second < first
    return torch.cat(
        [torch.where(inverted, middle, first), torch.where(inverted, middle, second)], dim=-1
    )


def _measurable(boxes: Tensor, targets: Tensor, sides: Tensor) -> Tensor:
    edges = torch.stack([boxes, targets], dim=1).reshape(-1, 4, 2)  # edges along x, and along y
    apart = (edges[:, :, None] - edges[:, None, :]).abs().flatten(1)
    far = (apart > SHORTEST) & (apart > SHORTEST * sides.amax(dim=-1, keepdim=True))
    centres = (edges[:, 0] + edges[:, 1] - edges[:, 2] - edges[:, 3]).abs() / 2
    off_centre = (centres == 0) | (centres > MOVE * sides[:, :2])
    return ((apart == 0) | far).all(dim=-1) & off_centre.all(dim=-1)


def _shift(sides: Tensor, generator: torch.Generator) -> Tensor:
    draw = torch.rand(sides.shape, generator=generator, dtype=sides.dtype, device=sides.device)
    return (2 * draw - 1) * MOVE * sides


def _examples(chunk: _Chunk, error: Tensor) -> list[tuple[float, Row]]:
    found = []
    for index in error.topk(min(EXAMPLES, len(error))).indices.tolist():
        if error[index] > TOLERANCE:
            example = {
                "pred": chunk.pred[index].tolist(),
                "target": chunk.target[index].tolist(),
                "value": chunk.value[index].item(),
                "exact_value": chunk.exact_value[index].item(),
                "gradient_by_hull": chunk.gradient[index].tolist(),
                "exact_gradient_by_hull": chunk.exact_gradient[index].tolist(),
            }
            found.append((error[index].item(), example))
    return found
