"""Any box loss in a training of Ultralytics: YOLO from YOLOv5u to YOLO26, OBB, and RT-DETR.

On the command line: ``python -m alphaiou.integrations.ultralytics detect train model=yolo11n.yaml
data=coco8.yaml box_loss=ciou:3``, and everything else as ``yolo`` has it.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from alphaiou._files import write_file
from alphaiou.boxes import PairGeometry, check_choice, convert_boxes
from alphaiou.integrations._patching import (
    BoxLossHandle,
    Change,
    InstalledLoss,
    Replacement,
    _apply,
    check_name,
    install_process_wide,
    restore_names,
)
from alphaiou.integrations._quality import LabelLoss
from alphaiou.losses.kinds import resolve_kind
from alphaiou.losses.module import AlphaIoULoss
from alphaiou.losses.pair_loss import Boxes, BoxLoss, PairLoss
from alphaiou.losses.quality import QualityLoss
from alphaiou.losses.spec import LossSpec

try:
    from ultralytics.engine import trainer
    from ultralytics.models.utils import loss as rtdetr_loss
    from ultralytics.utils import loss as yolo_loss
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.ultralytics needs Ultralytics: pip install 'ultralytics>=8.3'"
    ) from error

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss", "use_quality_loss"]

KNOWN = "ultralytics 8.3 to 8.4"
CAUSE = (
    "the model has no boxes (classification), every batch so far had no objects, or the training "
    "runs in other processes that did not run this line"
)
#: Where the losses of YOLO and RT-DETR look the IoU up.
BOX_NAMES = ((yolo_loss, "bbox_iou"), (rtdetr_loss, "bbox_iou"))
#: Where the losses of the models for oriented boxes look theirs up.
ORIENTED_NAME = (yolo_loss, "probiou")
#: Where a trainer looks up how processes are launched.
LAUNCH_NAME = (trainer, "generate_ddp_command")
#: What a trainer calls at its start and after it saved weights: to write the loss beside them.
RECORD_NAME = (trainer.BaseTrainer, "run_callbacks")
#: Where RT-DETR looks up the loss of its classes.
QUALITY_NAME = (rtdetr_loss, "VarifocalLoss")
NAMES: tuple[tuple[Any, str], ...] = (
    *BOX_NAMES,
    ORIENTED_NAME,
    LAUNCH_NAME,
    RECORD_NAME,
    QUALITY_NAME,
)
FIELD = "box_loss"


def use_box_loss(
    loss: BoxLoss,
    *,
    weight: float = 1.0,
    box_format: Literal["xyxy", "cxcywhr"] | None = None,
) -> BoxLossHandle:
    """Train every model of this process, and of those Ultralytics launches, with another box loss.

    It stands for the CIoU of the YOLO models that detect, segment or find poses, with boxes in
    cells of the grid, and for the GIoU of RT-DETR, with boxes in units of the image. What the loss
    is called and weighted by (``box=7.5``) stays; so do the assigner, the matching, the other
    losses and the scores. A model with oriented boxes (OBB) is refused when it computes its loss.

    A loss for oriented boxes stands for the ProbIoU of the OBB models instead, and leaves the
    others as they are: a kind for oriented boxes alone, such as ``probiou:3``, or any with
    ``box_format="cxcywhr"``.

    Args:
        loss: An ``AlphaIoULoss``, a text such as ``ciou`` or ``ciou:3``, or a function from
            predicted and target boxes in ``box_format`` to one value per pair.
        weight: The factor of the loss, beside those of Ultralytics.
        box_format: ``cxcywhr`` for the OBB models, ``xyxy`` for the others; by default what the
            loss is for.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the loss.

    Raises:
        ValueError: There is such a loss already.
        UnsupportedVersionError: This version of Ultralytics has no place for the loss.

    Examples:
        >>> with use_box_loss("ciou:3") as handle:
        ...     print(handle)  # then train: YOLO("yolo11n.yaml").train(...)
        <AlphaIoULoss(kind='ciou', alpha=3.0, penalty_alpha=None) in \
ultralytics.utils.loss.bbox_iou, ultralytics.models.utils.loss.bbox_iou, \
ultralytics.utils.loss.probiou, ultralytics.engine.trainer.generate_ddp_command, \
BaseTrainer.run_callbacks>
        >>> with use_box_loss("giou:3", box_format="cxcywhr"):
        ...     pass  # train: YOLO("yolo11n-obb.yaml").train(...)
    """
    format_ = _format_of(loss) if box_format is None else box_format
    check_choice("box_format", format_, ("xyxy", "cxcywhr"))
    pair_loss = InstalledLoss(loss, weight, box_format=format_)
    launch = _Launch(pair_loss, partial(use_box_loss, pair_loss, box_format=format_))
    changes = _oriented_changes(pair_loss) if format_ == "cxcywhr" else _box_changes(pair_loss)
    changes += _run_changes(launch, pair_loss)
    return install_process_wide(pair_loss, changes, cause=CAUSE)


def _box_changes(loss: PairLoss) -> list[Change]:
    for module, name in (*BOX_NAMES, ORIENTED_NAME):
        check_name(module, name, module, known=KNOWN)
    changes = [Change(module, name, _BoxIoU(loss)) for module, name in BOX_NAMES]
    return [*changes, Change(*ORIENTED_NAME, _NoOrientedBoxes(repr(loss)))]


def _oriented_changes(loss: PairLoss) -> list[Change]:
    module, name = ORIENTED_NAME
    check_name(module, name, module, known=KNOWN)
    return [Change(module, name, _OrientedIoU(loss))]


def _run_changes(launch: _Launch, box_loss: PairLoss | None) -> list[Change]:
    module, name = LAUNCH_NAME
    check_name(module, name, module, known=KNOWN)
    record = [] if box_loss is None else [Change(*RECORD_NAME, _RunRecord(repr(box_loss)))]
    return [Change(module, name, launch), *record]


def use_quality_loss(
    loss: QualityLoss | str, *, weight: float = 1.0, box_loss: BoxLoss | None = None
) -> BoxLossHandle:
    """Train the scores of every RT-DETR of this process, and of those it launches, otherwise.

    It stands for RT-DETR's varifocal loss in models whose training starts from now on. YOLO models
    learn a target of their assigner in place of an IoU and have no place for it; they do not
    change. In batches without objects RT-DETR takes its focal loss.

    Args:
        loss: A ``QualityLoss``, or a text such as ``mal`` or ``vfl:2``.
        weight: The factor of the loss, beside that of Ultralytics.
        box_loss: Likewise another box loss, as in ``use_box_loss``, with the same handle.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the losses.

    Raises:
        ValueError: There is such a loss already.
        UnsupportedVersionError: This version of Ultralytics has no place for the loss.

    Examples:
        >>> with use_quality_loss("mal:2") as handle:
        ...     print(handle)  # then train: RTDETR("rtdetr-l.yaml").train(...)
        <QualityLoss(kind='mal', alpha=2.0, gamma=1.5) in \
ultralytics.models.utils.loss.VarifocalLoss, ultralytics.engine.trainer.generate_ddp_command>
    """
    module, name = QUALITY_NAME
    check_name(yolo_loss, name, module, known=KNOWN)
    label_loss = LabelLoss(loss, weight)
    again = partial(use_quality_loss, loss, weight=weight, box_loss=box_loss)
    description, launch = repr(label_loss), _Launch(label_loss, again)
    changes = [Change(module, name, _Varifocal(label_loss))]
    pair_loss = None
    if box_loss is not None:
        pair_loss = InstalledLoss(box_loss)
        description += f" and {pair_loss!r}"
        changes += _box_changes(pair_loss)
    changes += _run_changes(launch, pair_loss)
    return install_process_wide(label_loss, changes, cause=CAUSE, description=description)


def restore_box_loss() -> None:
    """Put back Ultralytics' own losses, without the handle."""
    restore_names(NAMES)


def _format_of(loss: BoxLoss) -> Literal["xyxy", "cxcywhr"]:
    """The boxes that a loss is for, as far as it says that."""
    if isinstance(loss, str):
        loss = LossSpec.parse(loss).module()
    if not isinstance(loss, AlphaIoULoss):
        return "xyxy"
    is_oriented = PairGeometry not in resolve_kind(loss.kind).geometries
    return "cxcywhr" if is_oriented or loss.box_format == "cxcywhr" else "xyxy"


class _BoxIoU(Replacement):
    """In the place of ``bbox_iou``: ``1 − loss`` where that is used as a loss."""

    def __init__(self, loss: PairLoss) -> None:
        self.loss = loss

    def __call__(  # noqa: PLR0917
        self,
        pred: Boxes,
        target: Boxes,
        xywh: bool = True,
        GIoU: bool = False,
        DIoU: bool = False,
        CIoU: bool = False,
        eps: float = 1e-7,
    ) -> Tensor:
        """A column of values; the plain IoU, which RT-DETR teaches its classes, is its own."""
        if not (GIoU or DIoU or CIoU):
            (own,) = self.previous
            return own(pred, target, xywh=xywh, eps=eps)  # type: ignore[operator, no-any-return]
        if xywh:
            pred, target = (convert_boxes(boxes, "cxcywh", "xyxy") for boxes in (pred, target))
        return 1 - self.loss(pred, target)[..., None]


class _OrientedIoU(Replacement):
    """In the place of ``probiou``, with boxes as ``cxcywhr``."""

    def __init__(self, loss: PairLoss) -> None:
        self.loss = loss

    def __call__(
        self,
        obb1: Boxes,
        obb2: Boxes,
        CIoU: bool = False,
        eps: float = 1e-7,
        floor: float = 0.0,
    ) -> Tensor:
        """A column of values.

        Newer versions give a ``floor``, which is added to the variances of both boxes. It belongs
        to ProbIoU, and other kinds do without.
        """
        if floor and getattr(self.loss.function, "kind", None) == "probiou":
            obb1, obb2 = (_with_variance(boxes, floor) for boxes in (obb1, obb2))
        return 1 - self.loss(obb1, obb2)[..., None]


def _with_variance(boxes: Boxes, variance: float) -> Boxes:
    """Boxes whose Gaussians, of variance side²/12, have more of it in every direction."""
    sides = (boxes[:, 2:4].square() + 12.0 * variance).sqrt()
    return torch.cat((boxes[:, :2], sides, boxes[:, 4:]), dim=-1)


class _Varifocal(Replacement):
    """In the place of the class ``VarifocalLoss``, where RT-DETR makes one."""

    def __init__(self, loss: LabelLoss) -> None:
        self.loss = loss

    def __call__(self, *_: object, **__: object) -> _LabelsOfRTDETR:
        """The loss; the settings that Ultralytics has for its own do not matter."""
        return _LabelsOfRTDETR(self.loss)


class _LabelsOfRTDETR(nn.Module):
    """Called as ``VarifocalLoss``: the sum over images and classes of the mean over queries."""

    def __init__(self, loss: LabelLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, pred_score: Tensor, gt_score: Tensor, label: Tensor) -> Tensor:
        """The loss of scores (images, queries, classes)."""
        total: Tensor = self.loss(pred_score, gt_score, label > 0)
        return total / pred_score.shape[1]


class _NoOrientedBoxes(Replacement):
    """In the place of ``probiou``: refuses the loss of oriented boxes, which would not change."""

    def __init__(self, loss: str) -> None:
        self.loss = loss

    def __call__(self, *_: object, **__: object) -> Tensor:
        raise ValueError(
            f"{self.loss} is installed, and has no effect on oriented boxes (OBB): train this "
            "model with a loss for them (probiou:3, or box_format='cxcywhr'), or without one, "
            "after restore_box_loss()"
        )


class _RunRecord(Replacement):
    """In the place of ``run_callbacks``: writes the loss into ``args.yaml`` and the checkpoints.

    Args:
        loss: The loss in words; ``None`` is the framework's own.
    """

    def __init__(self, loss: str | None) -> None:
        self.loss = loss

    def __get__(self, instance: Any, owner: type | None = None) -> Any:  # noqa: ANN401
        return self if instance is None else partial(self, instance)

    def __call__(self, run: Any, event: str) -> None:  # noqa: ANN401
        """First what stood here, then the record."""
        (own,) = self.previous
        own(run, event)  # type: ignore[operator]
        if os.environ.get("RANK", "-1") not in ("-1", "0"):
            return
        if event == "on_train_start":
            self._check_resumed(run)
            self._write_arguments(Path(run.save_dir) / "args.yaml")
        elif event == "on_model_save" and self.loss is not None:
            for path in {Path(run.last), Path(run.best)}:
                self._write_checkpoint(path)

    def _check_resumed(self, run: Any) -> None:  # noqa: ANN401
        """Warn if a run goes on with another loss than it began with."""
        if not getattr(run.args, "resume", False) or not Path(run.last).is_file():
            return
        before = torch.load(run.last, map_location="cpu", weights_only=False).get(FIELD)
        if before != self.loss:
            now = self.loss or "the box loss of Ultralytics"
            warnings.warn(
                f"{run.last} was trained with {before or 'the box loss of Ultralytics'}; the "
                f"training goes on with {now}. Install the same loss before you resume",
                stacklevel=2,
            )

    def _write_arguments(self, path: Path) -> None:
        if self.loss is None or not path.is_file():
            return
        lines = path.read_text(encoding="utf-8").splitlines()
        lines = [line for line in lines if not line.startswith(f"{FIELD}:")]
        lines.append(f"{FIELD}: {json.dumps(self.loss, ensure_ascii=False)}")
        write_file(path, "\n".join(lines) + "\n")

    def _write_checkpoint(self, path: Path) -> None:
        if path.is_file():
            checkpoint = torch.load(path, map_location="cpu", weights_only=False)
            if checkpoint.get(FIELD) != self.loss:
                checkpoint[FIELD] = self.loss
                part = path.with_suffix(".part")
                torch.save(checkpoint, part)
                part.replace(path)


class _Launch(Replacement):
    """In the place of ``generate_ddp_command``: its script puts the loss in before it trains."""

    def __init__(self, loss: nn.Module, install: Callable[[], object]) -> None:
        self.loss, self.install = loss, install

    def __call__(self, *args: Any) -> tuple[list[str], str]:  # noqa: ANN401
        """The command and the script, which every process runs."""
        first = f"import pickle; pickle.loads({self._pickled()!r})()\n"
        (own,) = self.previous
        command, file = own(*args)  # type: ignore[operator]
        script = Path(file)
        script.write_text(first + script.read_text(encoding="utf-8"), encoding="utf-8")
        return command, file

    def _pickled(self) -> bytes:
        try:
            return pickle.dumps(self.install)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"the loss {self.loss!r} cannot go to the processes of a training on several "
                f"devices: {error}; give a text, an AlphaIoULoss, or a function of a module"
            ) from error


def main() -> None:
    """The command line of Ultralytics, with ``box_loss`` and ``box_loss_weight`` as well."""
    from ultralytics.cfg import entrypoint

    settings = {"box_loss": "", "box_loss_weight": "1"}
    rest = []
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        if name in settings:
            settings[name] = value
        else:
            rest.append(argument)
    sys.argv[:] = ["yolo", *rest]  # the list itself, which Ultralytics reads
    if settings["box_loss"]:
        print(use_box_loss(settings["box_loss"], weight=float(settings["box_loss_weight"])))  # noqa: T201
    else:
        _apply([Change(trainer.BaseTrainer, "run_callbacks", _RunRecord(None))])
    entrypoint()


if __name__ == "__main__":
    # By its name: what is defined in __main__ cannot be sent to other processes.
    import_module("alphaiou.integrations.ultralytics").main()
