"""The similarity of boxes, ``S − Σᵢ Pᵢ``, of aligned pairs and of all pairs of two sets."""

from __future__ import annotations

from torch import Tensor

from alphaiou._shapes import Float, Num
from alphaiou.boxes import PAIR_FORMATS, PairFormat, check_boxes, check_choice, check_pairs
from alphaiou.losses.kinds import TermsFunction, check_geometry, resolve_kind
from alphaiou.oriented import geometry_of


def box_iou(
    pred: Num[Tensor, "*batch coordinates"],
    target: Num[Tensor, "*batch coordinates"],
    *,
    kind: str | TermsFunction = "iou",
    box_format: PairFormat = "xyxy",
) -> Float[Tensor, "*batch"]:
    """The similarity of aligned pairs: IoU, GIoU, DIoU or that of another kind; differentiable.

    It is ``S − Σᵢ Pᵢ`` of the kind, whose loss is one minus that at α = 1 where it has no weight.
    With ``box_format="cxcywhr"`` boxes are oriented.

    Examples:
        >>> a, b = torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.tensor([[1.0, 0.0, 3.0, 2.0]])
        >>> box_iou(a, b), box_iou(a, b, kind="diou")
        (tensor([0.3333]), tensor([0.2564]))
    """
    check_pairs(pred, target, box_format)
    return _similarity(pred, target, kind, box_format)


def pairwise_iou(
    boxes1: Num[Tensor, "n coordinates"],
    boxes2: Num[Tensor, "m coordinates"],
    *,
    kind: str | TermsFunction = "iou",
    box_format: PairFormat = "xyxy",
) -> Float[Tensor, "n m"]:
    """The similarity of every box of one set with every box of another; differentiable.

    Examples:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 0.0, 3.0, 2.0]])
        >>> pairwise_iou(boxes, boxes)
        tensor([[1.0000, 0.3333],
                [0.3333, 1.0000]])
    """
    check_choice("box_format", box_format, PAIR_FORMATS)
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        check_boxes(name, boxes, box_format, batch="n")
    return _similarity(boxes1[:, None], boxes2[None, :], kind, box_format)


def _similarity(
    pred: Tensor, target: Tensor, kind: str | TermsFunction, box_format: PairFormat
) -> Tensor:
    resolved = resolve_kind(kind)
    check_geometry(resolved, box_format)
    terms = resolved.terms(geometry_of(pred, target, box_format))
    similarity = terms.similarity
    for penalty in terms.penalties:
        similarity = similarity - penalty
    return similarity
