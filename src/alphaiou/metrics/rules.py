"""The evaluation rules, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from alphaiou.metrics.inputs import ScoringData

RuleName = Literal["coco", "paper", "voc", "voc07", "yolov5"]

#: IoU .50, .55, ... .95, computed as in COCO's evaluator so that ties are broken equally.
IOU_THRESHOLDS: tuple[float, ...] = tuple(np.linspace(0.5, 0.95, 10).tolist())


@dataclass(frozen=True)
class Rule:
    """An evaluation rule.

    Attributes:
        description: The rule in one line.
        tables: Whose matching and average precision: COCO's, VOC's since 2010 (the area under the
            curve) or of 2007 (eleven recalls), or those of YOLOv5's test program.
        drop_difficult: Whether difficult boxes are removed from the ground truth, so that detecting
            one is a false positive; otherwise they are ignored.
        max_detections: The maximum number of detections per class and image; None is unlimited.
        ignore_crowds: Whether crowds are ignored; otherwise they are targets like all others.
    """

    description: str
    tables: Literal["coco", "voc", "voc07", "yolov5"]
    drop_difficult: bool
    max_detections: int | None
    ignore_crowds: bool = True

    def ground_truth(self, data: ScoringData) -> ScoringData:
        """Return the data without the targets that the rule drops."""
        if self.drop_difficult:
            data = data.keep_targets(~data.difficult)
        return data if self.ignore_crowds else replace(data, crowd=np.zeros_like(data.crowd))


RULES: dict[RuleName, Rule] = {
    "coco": Rule("COCO: crowds and difficult boxes ignored", "coco", False, 100),
    "paper": Rule("the paper's: as COCO, difficult boxes dropped", "coco", True, 300),
    "voc": Rule("VOC since 2010: area under the curve", "voc", False, None),
    "voc07": Rule("VOC 2007: mean of eleven recalls", "voc07", False, None),
    "yolov5": Rule("YOLOv5's test program: the best IoU wins", "yolov5", True, 300, False),
}
#: The rule of ``alphaiou train`` and ``alphaiou eval`` unless another is asked for.
DEFAULT_RULE: RuleName = "paper"


def find_rule(name: str) -> Rule:
    """Return a rule by name.

    Raises:
        ValueError: If the rule does not exist; the message lists all rules.
    """
    for known, rule in RULES.items():
        if known == name:
            return rule
    raise ValueError(f"rule={name!r} is not known; use one of {', '.join(RULES)}")
