"""Any box loss in the DETR family of transformers, in the place of its GIoU."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import l1_loss

from alphaiou.boxes import convert_boxes
from alphaiou.integrations._patching import (
    BoxLossHandle,
    Change,
    Rewired,
    UnsupportedVersionError,
    install,
    restore_box_loss,
)
from alphaiou.losses.module import check_stateless
from alphaiou.losses.pair_loss import BoxLoss, PairLoss

try:
    from transformers import PreTrainedModel
    from transformers.loss.loss_utils import LOSS_MAPPING
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.transformers needs transformers and SciPy: "
        "pip install 'transformers>=4.57' scipy"
    ) from error

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss"]

KNOWN = "transformers 4.57 to 5.22"


def use_box_loss(
    model: nn.Module,
    loss: BoxLoss,
    *,
    weight: float = 1.0,
    matcher_loss: BoxLoss | None = None,
) -> BoxLossHandle:
    """Train a detector of transformers with another loss in the place of its GIoU loss.

    It goes wherever the GIoU loss went: the last layer, the auxiliary outputs, the encoder's, the
    denoising groups. It keeps the name ``loss_giou`` and the factor the configuration gives that;
    the ℓ1 loss of the boxes stays. Boxes are in units of the image, from 0 to 1.

    Args:
        model: A model for object detection (or, where it has boxes, segmentation): DETR,
            Conditional, DAB, Deformable and LW-DETR, RT-DETR, D-FINE, YOLOS, Table Transformer,
            Grounding DINO and what else the installed version has of this family.
        loss: An ``AlphaIoULoss``, a text such as ``diou`` or ``diou:3``, or a function from
            predicted and target boxes in ``xyxy`` to one value per pair.
        weight: The factor of the loss, beside that of the configuration.
        matcher_loss: Likewise, in the place of ``−GIoU`` in the cost of the matching, with the
            configuration's factor of that; ``None`` leaves the matching as it is.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the loss.

    Raises:
        ValueError: The model is none of these, or has such a loss already.
        UnsupportedVersionError: This version of transformers has no place for the loss.

    Examples:
        >>> from transformers import YolosConfig, YolosForObjectDetection
        >>> config = YolosConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1)
        >>> use_box_loss(YolosForObjectDetection(config), "giou:3")
        <AlphaIoULoss(kind='giou', alpha=3.0, penalty_alpha=None) in \
YolosForObjectDetection._loss_function>
    """
    detector, own = _detector(model)
    criteria, pair_loss = _criteria(own), PairLoss(loss, weight)
    for criterion in criteria.values():
        _check_box_losses(criterion)
    matchings, description = {}, repr(pair_loss)
    if matcher_loss is not None:
        cost = PairLoss(matcher_loss)
        check_stateless("matcher_loss", cost.function)
        matchings = _matchings(own, criteria.values(), cost)
        description += f", matched by {cost!r},"
    builders = {
        name: partial(_build, kind, pair_loss, matchings) for name, kind in criteria.items()
    }
    change = Change(detector, "_loss_function", Rewired(own, builders, known=KNOWN))
    handle = install(model, description, [change])
    if detector.loss_function is not change.replacement:
        handle.restore()
        raise UnsupportedVersionError(
            f"{type(detector).__name__} does not take the loss it is given as _loss_function; "
            f"this version of alphaiou knows {KNOWN}"
        )
    return handle


def _detector(model: nn.Module) -> tuple[PreTrainedModel, FunctionType]:
    """The model, or the outermost one inside it, whose loss has boxes; and that loss."""
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            function = _loss_function(module)
            if isinstance(function, FunctionType) and _criteria(function):
                return module, function
    losses: dict[str, Any] = LOSS_MAPPING
    known = ", ".join(name for name, function in losses.items() if _criteria(function))
    raise ValueError(
        f"{type(model).__name__} has no box loss that can be exchanged: this works for models of "
        f"transformers with one of the losses {known}"
    )


def _loss_function(model: PreTrainedModel) -> object:
    """Its own loss, if any: a model without one warns and names another as ``loss_function``."""
    own = vars(model).get("_loss_function")
    if own is None:
        return LOSS_MAPPING.get(str(model.loss_type))
    return own.function if isinstance(own, Rewired) else own


def _criteria(function: FunctionType) -> dict[str, type[nn.Module]]:
    """The modules a loss function builds that have a loss of boxes, by the names it uses."""
    named = _modules_named_in(function)
    return {name: kind for name, kind in named.items() if hasattr(kind, "loss_boxes")}


def _modules_named_in(function: FunctionType) -> dict[str, type[nn.Module]]:
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    return {
        name: kind
        for name, kind in named.items()
        if isinstance(kind, type) and issubclass(kind, nn.Module)
    }


def _check_box_losses(criterion: type[nn.Module]) -> None:
    """Refuse a criterion with another loss of boxes than the two that ``_loss_boxes`` gives."""
    loss_boxes: Any = inspect.getattr_static(criterion, "loss_boxes")
    constants = loss_boxes.__code__.co_consts
    names = {text for text in constants if isinstance(text, str) and text.startswith("loss_")}
    if names != {"loss_bbox", "loss_giou"}:
        raise UnsupportedVersionError(
            f"{criterion.__name__}.loss_boxes gives {', '.join(sorted(names))} where loss_bbox and "
            f"loss_giou were expected; this version of alphaiou knows {KNOWN}"
        )


def _matchings(
    function: FunctionType, criteria: Iterable[type[nn.Module]], cost: PairLoss
) -> dict[type[nn.Module], Rewired]:
    """For each matcher that the loss function or its criteria build, its matching by the cost."""
    bases = [base for kind in criteria for base in kind.__mro__ if base is not nn.Module]
    builders = [function, *(vars(base).get("__init__") for base in bases)]
    named = [_modules_named_in(b) for b in builders if isinstance(b, FunctionType)]
    matchers = {kind for modules in named for kind in modules.values() if _is_matcher(kind)}
    if not matchers:
        raise UnsupportedVersionError(
            f"{function.__name__} builds no matcher with a GIoU in its cost, the place where "
            f"matcher_loss goes in; this version of alphaiou knows {KNOWN}"
        )
    names = {"generalized_box_iou": partial(_negative_cost, cost)}
    return {matcher: Rewired(matcher.forward, names, known=KNOWN) for matcher in matchers}


def _is_matcher(kind: type[nn.Module]) -> bool:
    forward: Any = inspect.unwrap(kind.forward)
    return "generalized_box_iou" in forward.__code__.co_names


def _build(
    kind: type[nn.Module],
    loss: PairLoss,
    matchings: Mapping[type[nn.Module], Rewired],
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> nn.Module:
    """In the place of a criterion's class: the criterion, with our box loss and matching cost."""
    criterion: Any = kind(*args, **kwargs)
    criterion.loss_boxes = partial(_loss_boxes, loss)
    if matchings:
        matcher = criterion.matcher
        matcher.forward = partial(_match, matchings[type(matcher)], matcher)
    return criterion  # type: ignore[no-any-return]


def _loss_boxes(
    loss: PairLoss,
    outputs: Mapping[str, Tensor],
    targets: Sequence[Mapping[str, Tensor]],
    indices: Sequence[tuple[Tensor, Tensor]],
    num_boxes: float,
) -> dict[str, Tensor]:
    """In the place of a criterion's ``loss_boxes``: pair by pair, not the diagonal of all pairs."""
    matched = list(zip(outputs["pred_boxes"], targets, indices, strict=True))
    pred = torch.cat([boxes[source] for boxes, _, (source, _) in matched])
    target = torch.cat([boxes["boxes"][chosen] for _, boxes, (_, chosen) in matched])
    corners = (convert_boxes(boxes, "cxcywh", "xyxy") for boxes in (pred, target))
    return {
        "loss_bbox": l1_loss(pred, target, reduction="sum") / num_boxes,
        "loss_giou": loss(*corners).sum() / num_boxes,
    }


@torch.no_grad()
def _match(matching: Rewired, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
    """In the place of a matcher's ``forward``, which has no gradient either."""
    return matching(*args, **kwargs)


def _negative_cost(cost: PairLoss, pred: Tensor, target: Tensor) -> Tensor:
    """In the place of ``generalized_box_iou`` in a matcher, which takes the negative as a cost."""
    every = pred.repeat_interleave(len(target), dim=0), target.repeat(len(pred), 1)
    return -cost(*every).reshape(len(pred), len(target))
