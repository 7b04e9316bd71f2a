"""The compared implementations: our backends, the textbook formula (eager, compiled), torchvision.

Every contender is a function of predictions and targets that returns the mean loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from alphaiou.losses import alpha_iou_loss

MeanLoss = Callable[[Tensor, Tensor], Tensor]
PLAIN_KINDS = ("iou", "giou", "diou", "ciou")
TORCHVISION_KINDS = {
    "giou": "generalized_box_iou_loss",
    "diou": "distance_box_iou_loss",
    "ciou": "complete_box_iou_loss",
}


@dataclass(frozen=True)
class Contender:
    """One implementation of a loss."""

    name: str
    ours: bool
    loss: MeanLoss
    #: torchvision indexes with a boolean mask, which synchronises and cannot be captured.
    capturable: bool = True


def contenders(
    kind: str, alpha: float, *, backends: Sequence[str], compiled: bool
) -> list[Contender]:
    """Return every implementation of a kind; torchvision has no α and computes α = 1."""
    found = [Contender(backend, True, _ours(kind, alpha, backend)) for backend in backends]
    if kind in PLAIN_KINDS:
        found.append(Contender("eager", False, _plain(kind, alpha)))
        if compiled:
            loss = torch.compile(_plain(kind, alpha), dynamic=False)
            found.append(Contender("compiled", False, loss))
    torchvision = torchvision_loss(kind)
    if torchvision is not None:
        mean = partial(torchvision, reduction="mean")
        found.append(Contender("torchvision", False, mean, capturable=False))
    return found


def torchvision_loss(kind: str) -> Callable[..., Tensor] | None:
    """Return the loss of a kind in torchvision, or None if it is not available."""
    if kind not in TORCHVISION_KINDS:
        return None
    try:
        from torchvision import ops
    except ModuleNotFoundError:
        return None
    loss: Callable[..., Tensor] = getattr(ops, TORCHVISION_KINDS[kind])
    return loss


def _ours(kind: str, alpha: float, backend: Any) -> MeanLoss:
    return partial(alpha_iou_loss, kind=kind, alpha=alpha, reduction="mean", backend=backend)


def _plain(kind: str, alpha: float) -> MeanLoss:
    def loss(pred: Tensor, target: Tensor) -> Tensor:
        return plain_loss(pred, target, kind, alpha).mean()

    # A separate code object: torch.compile counts recompilations by code object and, past a
    # limit, quietly runs eagerly.
    code = loss.__code__.replace(co_name=f"plain_{kind}")
    return FunctionType(code, globals(), code.co_name, None, loss.__closure__)


def plain_loss(pred: Tensor, target: Tensor, kind: str, alpha: float, eps: float = 1e-7) -> Tensor:
    """Return the textbook α-loss: the plain formula, an ε in every denominator, and ``pow``.

    Half precision is converted to fp32 first, as in torchvision; otherwise it overflows at 600
    pixels.
    """
    px1, py1, px2, py2 = pred.float().unbind(-1)
    tx1, ty1, tx2, ty2 = target.float().unbind(-1)
    pw, ph, tw, th = px2 - px1, py2 - py1, tx2 - tx1, ty2 - ty1
    width = (torch.min(px2, tx2) - torch.max(px1, tx1)).clamp(min=0)
    height = (torch.min(py2, ty2) - torch.max(py1, ty1)).clamp(min=0)
    intersection = width * height
    union = pw * ph + tw * th - intersection + eps
    iou = intersection / union
    loss = 1 - iou.pow(alpha)
    if kind == "iou":
        return loss
    hull_width = torch.max(px2, tx2) - torch.min(px1, tx1)
    hull_height = torch.max(py2, ty2) - torch.min(py1, ty1)
    if kind == "giou":
        hull = hull_width * hull_height + eps
        return loss + ((hull - union) / hull).pow(alpha)
    diagonal = hull_width**2 + hull_height**2 + eps
    distance = ((px1 + px2 - tx1 - tx2) ** 2 + (py1 + py2 - ty1 - ty2) ** 2) / 4
    loss = loss + (distance / diagonal).pow(alpha)
    if kind == "diou":
        return loss
    angles = torch.atan(tw / (th + eps)) - torch.atan(pw / (ph + eps))
    v = (4 / math.pi**2) * angles**2
    with torch.no_grad():
        beta = v / (1 - iou + v + eps)
    return loss + (beta * v).pow(alpha)
