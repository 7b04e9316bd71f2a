"""The evaluation rules, by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from alphaiou.metrics.inputs import ScoringData

RuleName = Literal["coco", "paper", "voc", "voc07"]

#: IoU .50, .55, ... .95, computed as in COCO's evaluator so that ties are broken equally.
IOU_THRESHOLDS: tuple[float, ...] = tuple(np.linspace(0.5, 0.95, 10).tolist())


@dataclass(frozen=True)
class Rule:
    """An evaluation rule.

    Attributes:
        description: The rule in one line.
        precision_at: The recalls at which precision is averaged: 101, 11, or all.
        drop_difficult: Whether difficult boxes are removed from the ground truth, so that detecting
            one is a false positive; otherwise they are ignored.
        max_detections: The maximum number of detections per class and image; None is unlimited.
    """

    description: str
    precision_at: Literal["101 recalls", "11 recalls", "all recalls"]
    drop_difficult: bool
    max_detections: int | None

    def ground_truth(self, data: ScoringData) -> ScoringData:
        """Return the data without the targets that the rule drops."""
        return data.keep_targets(~data.difficult) if self.drop_difficult else data


RULES: dict[RuleName, Rule] = {
    "coco": Rule("COCO: crowds and difficult boxes ignored", "101 recalls", False, 100),
    "paper": Rule("the paper's: as COCO, difficult boxes dropped", "101 recalls", True, 300),
    "voc": Rule("VOC since 2010: area under the curve", "all recalls", False, None),
    "voc07": Rule("VOC 2007: mean of eleven recalls", "11 recalls", False, None),
}


def find_rule(name: str) -> Rule:
    """Return a rule by name.

    Raises:
        ValueError: If the rule does not exist; the message lists all rules.
    """
    for known, rule in RULES.items():
        if known == name:
            return rule
    raise ValueError(f"rule={name!r} is not known; use one of {', '.join(RULES)}")
