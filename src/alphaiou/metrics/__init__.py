"""Detection metrics: average precision by the rules of COCO, VOC, YOLOv5 and the paper."""

from alphaiou.metrics.comparison import ComparisonRow, comparison_rows, relative_improvement
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.iou_histogram import counts_above, detection_ious, found_shares
from alphaiou.metrics.rules import IOU_THRESHOLDS, RULES, Rule
from alphaiou.metrics.scores import DetectionScores, Scores, score

__all__ = [
    "IOU_THRESHOLDS",
    "RULES",
    "ComparisonRow",
    "DetectionScores",
    "Rule",
    "Scores",
    "ScoringData",
    "comparison_rows",
    "counts_above",
    "detection_ious",
    "found_shares",
    "relative_improvement",
    "score",
]
