"""Files of detections scored on a data set, and what is written about them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from alphaiou import __version__
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import left_out
from alphaiou.experiments.predictions import load_predictions
from alphaiou.metrics import (
    RULES,
    Scores,
    counts_above,
    detection_ious,
    relative_improvement,
    score,
)
from alphaiou.metrics.rules import RuleName


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One file of detections, scored.

    Attributes:
        name: What tables call it: the name of its file, with the folder where two have the same.
        file: The file.
        scores: Its scores.
        ious: The IoU of each detection with the best object of its class.
        objects: The same, each object once.
    """

    name: str
    file: Path
    scores: Scores
    ious: Float64[np.ndarray, " detections"]
    objects: Float64[np.ndarray, " objects"]


def evaluate_files(
    files: Sequence[Path],
    index: DetectionIndex,
    *,
    rule: RuleName = "coco",
    max_detections: int | None = None,
    min_score: float | None = None,
) -> list[Evaluation]:
    """Score files of detections, all by the same rule.

    Args:
        files: JSON files in COCO's format.
        index: The data set they were made on.
        rule: How to score.
        max_detections: How many detections of a class count in an image; None is the rule's own.
        min_score: The lowest score that counts in the IoU distribution.

    Raises:
        DataError: A file cannot be used; the message names the entry and the remedy.
    """
    evaluations = []
    for name, file in zip(_names(files), files, strict=True):
        data = load_predictions(file, index)
        scores = score(data, index.classes, rule=rule, max_detections=max_detections)
        truth = RULES[rule].ground_truth(data)
        ious = detection_ious(truth, min_score=min_score)
        objects = detection_ious(truth, min_score=min_score, once=True)
        evaluations.append(Evaluation(name, file, scores, ious, objects))
    return evaluations


def summary(evaluations: Sequence[Evaluation], index: DetectionIndex) -> dict[str, Any]:
    """All numbers, ready for JSON: what is not defined is null."""
    baseline = evaluations[0].scores.as_dict()
    first = evaluations[0].scores
    return {
        "alphaiou": __version__,
        "data": {
            "path": str(index.root),
            "layout": index.layout,
            "split": index.split,
            "images": first.num_images,
            "boxes": first.num_targets,
            "left_out": left_out(index.problems),
        },
        "rule": first.rule,
        "predictions": [
            {
                "name": one.name,
                "file": str(one.file),
                "detections": one.scores.num_detections,
                "scores": _defined(one.scores.as_dict()),
                "relative_improvement": _improvement(one.scores.as_dict(), baseline),
                "per_class": _defined(one.scores.per_class),
                "detections_with_iou": _counts(one.ious),
                "objects_with_iou": _counts(one.objects),
            }
            for one in evaluations
        ],
    }


def write_results(
    evaluations: Sequence[Evaluation], index: DetectionIndex, out: Path
) -> list[Path]:
    """Write ``scores.json`` and the figures."""
    from alphaiou.experiments.score_figures import iou_figure, precision_recall_figure
    from alphaiou.experiments.style import save_figure

    path, partial_path = out / "scores.json", out / "scores.json.partial"
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary(evaluations, index), indent=1, ensure_ascii=False, allow_nan=False)
    partial_path.write_text(f"{text}\n", encoding="utf-8")
    partial_path.replace(path)
    scores = {one.name: one.scores for one in evaluations}
    ious = {one.name: one.ious for one in evaluations}
    return [
        path,
        *save_figure(lambda: precision_recall_figure(scores), out / "precision_recall"),
        *save_figure(lambda: iou_figure(ious), out / "iou_distribution"),
    ]


def _names(files: Sequence[Path]) -> list[str]:
    stems = Counter(file.stem for file in files)
    names = [file.stem if stems[file.stem] == 1 else str(file) for file in files]
    repeated = Counter(names)
    return [
        name if repeated[name] == 1 else f"{name} ({number})" for number, name in enumerate(names)
    ]


def _improvement(own: Mapping[str, float], baseline: Mapping[str, float]) -> dict[str, Any]:
    return _defined({key: relative_improvement(own[key], baseline[key]) for key in own})


def _defined(values: Mapping[str, float]) -> dict[str, float | None]:
    return {key: None if math.isnan(value) else value for key, value in values.items()}


def _counts(ious: Float64[np.ndarray, " detections"]) -> dict[str, int]:
    return {f"{threshold:g}": count for threshold, count in counts_above(ious).items()}
