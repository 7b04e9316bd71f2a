"""The similarity of boxes, ``S − Σᵢ Pᵢ``, of aligned pairs and of all pairs of two sets."""

from __future__ import annotations

from torch import Tensor

from alphaiou._shapes import Float, Num
from alphaiou.boxes import BoxFormat, check_box_format, check_pairs, pair_geometry
from alphaiou.losses.kinds import TermsFunction, resolve_kind


def box_iou(
    pred: Num[Tensor, "*batch 4"],
    target: Num[Tensor, "*batch 4"],
    *,
    kind: str | TermsFunction = "iou",
    box_format: BoxFormat = "xyxy",
) -> Float[Tensor, "*batch"]:
    """The similarity of aligned pairs: IoU, GIoU, DIoU or that of another kind; differentiable.

    It is ``S − Σᵢ Pᵢ`` of the kind, whose loss is one minus that at α = 1 where it has no weight.

    Examples:
        >>> a, b = torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.tensor([[1.0, 0.0, 3.0, 2.0]])
        >>> box_iou(a, b), box_iou(a, b, kind="diou")
        (tensor([0.3333]), tensor([0.2564]))
    """
    check_pairs(pred, target)
    return _similarity(pred, target, kind, box_format)


def pairwise_iou(
    boxes1: Num[Tensor, "n 4"],
    boxes2: Num[Tensor, "m 4"],
    *,
    kind: str | TermsFunction = "iou",
    box_format: BoxFormat = "xyxy",
) -> Float[Tensor, "n m"]:
    """The similarity of every box of one set with every box of another; differentiable.

    Examples:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
        >>> pairwise_iou(boxes, boxes)
        tensor([[1.0000, 0.3333],
                [0.3333, 1.0000]])
    """
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        if boxes.ndim != 2 or boxes.shape[-1] != 4:
            raise ValueError(f"{name} must have shape (n, 4), got {tuple(boxes.shape)}")
    return _similarity(boxes1[:, None], boxes2[None, :], kind, box_format)


def _similarity(
    pred: Tensor, target: Tensor, kind: str | TermsFunction, box_format: BoxFormat
) -> Tensor:
    check_box_format(box_format)
    terms = resolve_kind(kind).terms(pair_geometry(pred, target, box_format))
    similarity = terms.similarity
    for penalty in terms.penalties:
        similarity = similarity - penalty
    return similarity
