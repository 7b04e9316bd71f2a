"""Any box loss in the DETR family of transformers, in the place of its GIoU."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    InstalledLoss,
    Rewired,
    UnsupportedVersionError,
    install,
    restore_box_loss,
)
from alphaiou.integrations._quality import LabelLoss, Matches
from alphaiou.losses.module import check_stateless
from alphaiou.losses.pair_loss import BoxLoss, PairLoss
from alphaiou.losses.quality import QualityLoss

try:
    from transformers import PreTrainedModel
    from transformers.loss.loss_utils import LOSS_MAPPING
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.transformers needs transformers and SciPy: "
        "pip install 'transformers>=4.57' scipy"
    ) from error

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss", "use_quality_loss"]

KNOWN = "transformers 4.57 to 5.22"
CAUSE = "the model was called without labels, or its outputs went to a loss of your own"


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
    criteria, pair_loss = _criteria(own), InstalledLoss(loss, weight)
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
    handle = install(model, pair_loss, [change], cause=CAUSE, description=description)
    if detector.loss_function is not change.replacement:
        handle.restore()
        raise UnsupportedVersionError(
            f"{type(detector).__name__} does not take the loss it is given as _loss_function; "
            f"this version of alphaiou knows {KNOWN}"
        )
    return handle


def use_quality_loss(
    model: nn.Module,
    loss: QualityLoss | str,
    *,
    weight: float = 1.0,
    box_loss: BoxLoss | None = None,
) -> BoxLossHandle:
    """Train the scores of a detector of transformers with a quality loss.

    It goes wherever the model's classification loss went, keeps its name (``loss_vfl``,
    ``loss_mal`` or ``loss_ce``) and the factor that the configuration gives it, and is divided by
    the number of objects as that was. The matching stays.

    Args:
        model: A model whose scores are sigmoids of classes: RT-DETR, D-FINE, DEIMv2, LW-DETR,
            RF-DETR, Deformable, Conditional and DAB-DETR.
        loss: A ``QualityLoss``, or a text such as ``mal`` or ``vfl:2``. Settings of the
            configuration such as ``focal_loss_gamma`` are not read.
        weight: The factor of the loss, beside that of the configuration.
        box_loss: Likewise another box loss, as in ``use_box_loss``, with the same handle.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the losses.

    Raises:
        ValueError: The scores of the model are no sigmoids of classes (DETR, YOLOS, Table
            Transformer and Grounding DINO), or it has a loss of alphaiou already.

    Examples:
        >>> from transformers import ConditionalDetrConfig, ConditionalDetrForObjectDetection
        >>> from transformers import ResNetConfig
        >>> config = ConditionalDetrConfig(backbone_config=ResNetConfig(), encoder_layers=1)
        >>> use_quality_loss(ConditionalDetrForObjectDetection(config), "vfl:2")
        <QualityLoss(kind='vfl', alpha=2.0, gamma=2.0) in \
ConditionalDetrForObjectDetection._loss_function>
    """
    detector, own = _detector(model)
    label_loss, criteria = LabelLoss(loss, weight), _criteria(own)
    for criterion in criteria.values():
        _check_labels(type(detector), criterion)
    description, build = repr(label_loss), dict[str, Any](criteria)
    if box_loss is not None:
        pair_loss = PairLoss(box_loss)
        description += f" and {pair_loss!r}"
        build = {name: partial(_build, kind, pair_loss, {}) for name, kind in criteria.items()}
    builders = {name: partial(_build_labels, make, label_loss) for name, make in build.items()}
    change = Change(detector, "_loss_function", Rewired(own, builders, known=KNOWN))
    return install(model, label_loss, [change], cause=CAUSE, description=description)


#: The methods of a criterion that compute the classification loss: by the name in its ``losses``,
#: the method, and the name of the value.
_LABELS = {
    "mal": ("loss_labels_mal", "loss_mal"),
    "vfl": ("loss_labels_vfl", "loss_vfl"),
    "labels": ("loss_labels", "loss_ce"),
}


def _check_labels(model: type, criterion: type[nn.Module]) -> None:
    """Refuse a softmax over the classes and "no object", and scores of words."""
    if hasattr(criterion, "loss_labels_vfl"):
        return
    method: Any = inspect.getattr_static(criterion, "loss_labels")
    names = method.__code__.co_names
    if "cross_entropy" in names or "_get_source_permutation_idx" not in names:
        raise ValueError(
            f"{model.__name__} has no classification loss that a quality loss can stand for: its "
            "scores are no sigmoids of classes"
        )


def _build_labels(
    make: Callable[..., Any],
    loss: LabelLoss,
    *args: Any,  # noqa: ANN401
    **kwargs: Any,  # noqa: ANN401
) -> nn.Module:
    """In the place of a criterion's class: the criterion, with a quality loss of its labels."""
    criterion: Any = make(*args, **kwargs)
    found = [name for name in _LABELS if name in criterion.losses]
    if len(found) != 1:
        raise UnsupportedVersionError(
            f"{type(criterion).__name__} computes {', '.join(criterion.losses)}, not one of "
            f"{', '.join(_LABELS)}; this version of alphaiou knows {KNOWN}"
        )
    method, value = _LABELS[found[0]]
    setattr(criterion, method, partial(_loss_labels, loss, value))
    return criterion  # type: ignore[no-any-return]


def _loss_labels(  # noqa: PLR0917
    loss: LabelLoss,
    value: str,
    outputs: Mapping[str, Tensor],
    targets: Sequence[Mapping[str, Tensor]],
    indices: Matches,
    num_boxes: float,
    *_: object,
) -> dict[str, Tensor]:
    """In the place of a criterion's ``loss_labels``."""
    logits, boxes = outputs["logits"], outputs["pred_boxes"]
    total = loss.of_matches(logits, boxes, targets, indices, labels="class_labels")
    return {value: total / num_boxes}


def _detector(model: nn.Module) -> tuple[PreTrainedModel, FunctionType]:
    """The model, or the outermost one inside it, whose loss has boxes; and that loss."""
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            function = _loss_function(module)
            if isinstance(function, FunctionType) and _criteria(function):
                _check_forward(module)
                return module, function
    losses: dict[str, Any] = LOSS_MAPPING
    known = ", ".join(name for name, function in losses.items() if _criteria(function))
    raise ValueError(
        f"{type(model).__name__} has no box loss that can be exchanged: this works for models of "
        f"transformers with one of the losses {known}"
    )


def _check_forward(model: PreTrainedModel) -> None:
    """Refuse a model that has a loss but does not compute it."""
    forwards = [vars(base)["forward"] for base in type(model).__mro__ if "forward" in vars(base)]
    names = (getattr(inspect.unwrap(forward), "__code__", None) for forward in forwards)
    if not any(code is not None and "loss_function" in code.co_names for code in names):
        raise ValueError(
            f"{type(model).__name__} has no box loss that can be exchanged: its forward does not "
            "compute a loss, so another one would have no effect. Compute the loss of its outputs "
            "in your own code, with alphaiou.AlphaIoULoss"
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
