"""What might be better than IoU at its own best gain at every threshold: the grid ``beyond``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import Objectness, Recipe


@dataclass(frozen=True)
class Candidate:
    """A choice of loss, α and its course, and gains.

    Attributes:
        loss: As ``LossSpec.parse`` reads it.
        gain: Times the usual box gain.
        to_alpha: What α moves to during the training.
        to_gain: What the box gain moves to, times the usual one.
        class_gain: Times the usual gain of the classes.
        objectness_gain: Times the usual gain of objectness.
        lr: Times the usual learning rate.
        objectness: What objectness learns.
    """

    loss: str
    gain: float = 1.0
    to_alpha: float | None = None
    to_gain: float | None = None
    class_gain: float = 1.0
    objectness_gain: float = 1.0
    lr: float = 1.0
    objectness: Objectness = "iou"

    def recipe(self, usual: Recipe) -> Recipe:
        """The usual recipe with this choice, at the usual box gain still."""
        loss, end = LossSpec.parse(self.loss), self.to_alpha
        return replace(
            usual,
            loss=loss,
            alpha_schedule=None if end is None else AlphaSchedule(loss.alpha, end),
            final_box_gain=None if self.to_gain is None else self.to_gain * usual.box_gain,
            class_gain=self.class_gain * usual.class_gain,
            objectness_gain=self.objectness_gain * usual.objectness_gain,
            optimisation=replace(usual.optimisation, lr=self.lr * usual.optimisation.lr),
            objectness=self.objectness,
        )


#: The likeliest come first, as a grid is run in order for as long as there is time.
CANDIDATES: tuple[Candidate, ...] = (
    # Classes and objectness that count more, since a larger box gain takes from both; IoU with the
    # same gains is the control.
    Candidate("diou", 2.0, to_alpha=5.0, class_gain=2.0, objectness_gain=4.0),
    *(Candidate("iou", gain, class_gain=2.0, objectness_gain=4.0) for gain in (4.0, 3.0, 6.0)),
    Candidate("iou:3", 2.0, class_gain=2.0, objectness_gain=4.0),
    # All gains at twice their size are nearly twice the learning rate.
    Candidate("iou", 2.0, lr=2.0),
    Candidate("diou", 1.5, to_alpha=5.0, lr=2.0),
    Candidate("diou", 2.5, to_alpha=5.0, class_gain=2.0, objectness_gain=3.0),
    Candidate("diou", 1.5, to_alpha=5.0, class_gain=1.5, objectness_gain=3.0),
    *(
        Candidate(loss, gain, to_alpha, class_gain=classes, objectness_gain=objects)
        for classes, objects in ((1.0, 2.0), (2.0, 2.0), (2.0, 1.0))
        for loss, gain, to_alpha in (("diou", 1.5, 5.0), ("iou", 2.0, None))
    ),
    # Or either grows late, or α goes with a smaller gain. IoU with a gain that grows is the
    # control: what the rise does without a power.
    Candidate("iou", to_alpha=5.0),
    Candidate("iou", to_alpha=3.0),
    Candidate("iou", 1.5, to_alpha=3.0),
    Candidate("iou:5", 0.75),
    Candidate("iou", 0.75, to_alpha=10.0),
    Candidate("diou", to_alpha=5.0),
    Candidate("diou", to_alpha=5.0, to_gain=2.0),
    Candidate("iou", to_gain=3.0),
    Candidate("iou", to_alpha=3.0, to_gain=2.0),
    Candidate("diou", 1.5, to_alpha=5.0),
    # The gain falls as α rises: the gradient at an IoU of .8 stays about the same.
    Candidate("diou", 2.0, to_alpha=5.0, to_gain=1.0),
    # A penalty whose power stays small, so that boxes that lie badly still learn.
    *(Candidate("ciou:1:0.5", gain, to_alpha=5.0) for gain in (1.0, 1.5)),
    *(Candidate("eiou", gain, to_alpha=5.0) for gain in (1.0, 1.5)),
    Candidate("iou:2", 1.5),
    Candidate("iou:10", 0.5),
    Candidate("iou", 2.0, to_alpha=3.0),
    Candidate("iou:3", to_alpha=1.0),
    Candidate("iou:3", objectness="similarity"),
    # What other grids have anyway.
    *(Candidate(f"iou:{alpha}") for alpha in (2, 3, 4, 5, 10)),
    *(Candidate(f"{kind}:3") for kind in ("diou", "giou", "ciou", "eiou", "siou", "iou+wise_v3")),
    *(Candidate(f"{kind}:3:{power}") for kind in ("giou", "diou", "ciou") for power in (0.5, 1)),
    *(Candidate(f"{kind}:3", 2.0) for kind in ("iou", "diou")),
)
