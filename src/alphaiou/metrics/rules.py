"""The rules by which detections are scored, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from alphaiou.metrics.inputs import ScoringData

RuleName = Literal["coco", "paper", "voc", "voc07"]

#: IoU .50, .55, ... .95; made as COCO's evaluator makes them, so that ties fall the same way.
IOU_THRESHOLDS: tuple[float, ...] = tuple(np.linspace(0.5, 0.95, 10).tolist())


@dataclass(frozen=True)
class Rule:
    """How detections are scored.

    Attributes:
        description: The rule in one line.
        precision_at: Where precision is averaged: at 101 recalls, at eleven, or at every one.
        drop_difficult: Whether difficult boxes are taken out of the ground truth, so that finding
            one is a mistake; otherwise they are ignored, whether found or not.
        max_detections: How many detections of a class count in an image, best first; None is all.
    """

    description: str
    precision_at: Literal["101 recalls", "11 recalls", "all recalls"]
    drop_difficult: bool
    max_detections: int | None

    def ground_truth(self, data: ScoringData) -> ScoringData:
        """The data without the targets that the rule drops."""
        return data.keep_targets(~data.difficult) if self.drop_difficult else data


RULES: dict[RuleName, Rule] = {
    "coco": Rule("COCO: crowds and difficult boxes ignored", "101 recalls", False, 100),
    "paper": Rule("the paper's: as COCO, difficult boxes dropped", "101 recalls", True, 300),
    "voc": Rule("VOC since 2010: area under the curve", "all recalls", False, None),
    "voc07": Rule("VOC 2007: mean of eleven recalls", "11 recalls", False, None),
}


def find_rule(name: str) -> Rule:
    """The rule of that name.

    Raises:
        ValueError: There is no such rule; the message lists the rules.
    """
    for known, rule in RULES.items():
        if known == name:
            return rule
    raise ValueError(f"rule={name!r} is not known; use one of {', '.join(RULES)}")
