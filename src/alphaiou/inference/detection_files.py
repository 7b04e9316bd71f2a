"""Detection files in COCO format: reading, matching to a data set; scoring and reporting."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np

from alphaiou import __version__
from alphaiou._files import write_file
from alphaiou._shapes import Float64
from alphaiou.data.formats.registry import get_format
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError, left_out
from alphaiou.metrics import (
    RULES,
    Scores,
    ScoringData,
    counts_above,
    detection_ious,
    relative_improvement,
    score,
)
from alphaiou.metrics.rules import DEFAULT_RULE, RuleName

Key = int | float | str
FORM = '[{"image_id": 1, "category_id": 1, "bbox": [x, y, width, height], "score": 0.9}, ...]'


# --- reading --------------------------------------------------------------------------------------


class Detection(msgspec.Struct, gc=False):
    """One detection; ``bbox`` is x y width height in pixels."""

    image_id: Key
    category_id: Key
    bbox: tuple[float, float, float, float]
    score: float


class _Document(msgspec.Struct):
    annotations: list[Detection]


def load_detections(path: Path, index: DetectionIndex) -> ScoringData:
    """Read detections and combine them with the ground truth of a data set.

    Images are identified by their number in the data set, or by file name with or without folder
    and extension. Categories are identified by number or name.

    Args:
        path: A JSON file: a list of detections, or an object with such a list as ``annotations``.
        index: The data set of the detections.

    Raises:
        DataError: If the detections cannot be used; the message names the file, the entry and the
            remedy.
    """
    predictions = read_detections(path)
    images = _places(path, "image_id", predictions, _image_keys(path, predictions, index), index)
    labels = _places(path, "category_id", predictions, _category_keys(index), index)
    boxes = np.array([detection.bbox for detection in predictions], dtype=np.float64).reshape(-1, 4)
    scores = np.array([detection.score for detection in predictions], dtype=np.float64)
    _refuse(path, "bbox", ~np.isfinite(boxes), boxes, "every number must be finite")
    _refuse(path, "bbox", boxes[:, 2:] < 0, boxes, "width and height must not be negative")
    _refuse(path, "score", ~np.isfinite(scores), scores, "it must be finite")
    return replace(targets_of(index), images=images, boxes=boxes, labels=labels, scores=scores)


def targets_of(index: DetectionIndex) -> ScoringData:
    """Return the ground truth of a data set, without detections."""
    sizes = index.boxes[:, 2:] - index.boxes[:, :2]
    return replace(
        ScoringData.empty(),
        image_ids=index.image_ids,
        target_images=index.image_of_box(),
        target_boxes=np.concatenate([index.boxes[:, :2], sizes], axis=1),
        target_labels=index.labels.astype(np.int64),
        target_areas=index.areas,
        crowd=index.crowd,
        difficult=index.difficult,
    )


def read_detections(path: Path) -> list[Detection]:
    """Read the entries of a detection file.

    Raises:
        DataError: If the file is not valid JSON or an entry is incomplete; the message says where.
    """
    raw = path.read_bytes()
    wrapped = raw.lstrip()[:1] == b"{"
    try:
        if wrapped:
            return msgspec.json.decode(raw, type=_Document).annotations
        return msgspec.json.decode(raw, type=list[Detection])
    except msgspec.ValidationError as error:
        raise DataError(_explain(path, str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}{_malformed(raw, str(error))}") from None


def _explain(path: Path, message: str) -> str:
    """Rewrite a message of the decoder, naming the entry."""
    what, _, place = message.partition(" - at ")
    match = re.fullmatch(r"`\$(?:\.annotations)?\[(\d+)\](?:\.(\w+))?.*`", place)
    if match is None:
        return f"{path}: {what[:1].lower()}{what[1:]}; it must be a list: {FORM}"
    field = f", {match[2]}" if match[2] else ""
    return (
        f"{path}, {entry(int(match[1]))}{field}: {what[:1].lower()}{what[1:]}; write it as {FORM}"
    )


def _malformed(raw: bytes, message: str) -> str:
    place = re.search(r"\(byte (\d+)\)", message)
    before = raw[: int(place[1]) if place else len(raw)].count(b'"image_id"')
    where = f", {entry(before - 1)}" if before else ""
    remedy = "write the file again as JSON"
    if re.search(rb"[\[:,]\s*-?(NaN|Infinity)", raw):
        remedy = (
            "NaN and Infinity are not valid JSON: write the file again without those detections"
        )
    return f"{where}: {message}; {remedy}"


def entry(number: int) -> str:
    """Return the name of an entry in messages."""
    return f"entry {number} (the first is 0)"


def _image_keys(
    path: Path, predictions: Sequence[Detection], index: DetectionIndex
) -> dict[Key, int]:
    """Return all names and numbers of images, each with the position of its image."""
    files = [PurePosixPath(name) for name in index.files]
    names: dict[Key, int] = {}
    for called in ("stem", "name"):
        unique = Counter(getattr(file, called) for file in files)
        names |= {
            getattr(file, called): i
            for i, file in enumerate(files)
            if unique[getattr(file, called)] == 1
        }
    names |= {str(file.with_suffix("")): i for i, file in enumerate(files)}
    names |= {str(file): i for i, file in enumerate(files)}
    numbers = {
        detection.image_id for detection in predictions if not isinstance(detection.image_id, str)
    }
    return names | _image_numbers(path, numbers, index, [file.stem for file in files])


def _image_numbers(
    path: Path, numbers: set[int | float], index: DetectionIndex, stems: Sequence[str]
) -> dict[Key, int]:
    """Return images by number: that of the format, else of the file name or the position."""
    by_number: dict[Key, int] = {number: i for i, number in enumerate(index.image_ids.tolist())}
    if "image_ids" not in get_format(index.layout).lacks:
        return by_number
    by_name: dict[Key, int] = {int(s): i for i, s in enumerate(stems) if re.fullmatch("[0-9]+", s)}
    fitting = [table for table in (by_name, by_number) if numbers <= table.keys()]
    if len(fitting) > 1 and any(by_name[n] != by_number[n] for n in numbers):
        number = min(n for n in numbers if by_name[n] != by_number[n])
        raise DataError(
            f"{path}: image_id {number} may be the file {stems[by_name[number]]} or image {number} "
            f"of the set, {stems[by_number[number]]}; write file names as image_id"
        )
    return fitting[0] if fitting else by_name or by_number


def _category_keys(index: DetectionIndex) -> dict[Key, int]:
    names: dict[Key, int] = {name: label for label, name in enumerate(index.classes)}
    return names | {number: label for label, number in enumerate(index.category_ids.tolist())}


def _places(
    path: Path,
    field: str,
    predictions: Sequence[Detection],
    places: Mapping[Key, int],
    index: DetectionIndex,
) -> np.ndarray:
    given = [getattr(detection, field) for detection in predictions]
    positions = np.array([places.get(key, -1) for key in given], dtype=np.int64)
    unknown = np.flatnonzero(positions < 0)
    if len(unknown) == 0:
        return positions
    what = "images" if field == "image_id" else "categories"
    known = [key for key in places if isinstance(key, int)]
    examples = [*sorted(known)[:3], *[key for key in places if isinstance(key, str)][:2]]
    listed = ", ".join(map(repr, examples))
    if len(unknown) == len(given):
        which = f"none of its {len(set(given)):,} {what} is in the data set"
    else:
        strangers = len({given[row] for row in unknown})
        which = f"{strangers:,} of its {len(set(given)):,} {what} are not in the data set"
    raise DataError(
        f"{path}, {entry(int(unknown[0]))}: {field} {given[unknown[0]]!r} is unknown; {which} "
        f"{index.root}, split {index.split}, which has {listed}, ...; choose the data set "
        "and split of the detections"
    )


def _refuse(path: Path, field: str, wrong: np.ndarray, values: np.ndarray, rule: str) -> None:
    if wrong.any():
        row = int(np.nonzero(wrong)[0][0])
        raise DataError(
            f"{path}, {entry(row)}: {field} is {values[row].tolist()}; {rule}: leave it out"
        )


# --- scores ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScoredFile:
    """The scores of one file of detections, or of weights.

    Attributes:
        name: The name in tables: the file name, with the folder if several files have that name.
        file: The path of the file.
        data: The detections and the objects.
        scores: The scores.
        ious: The IoU of each detection with the best object of its class.
        objects: The same, with each object counted once.
    """

    name: str
    file: Path
    data: ScoringData
    scores: Scores
    ious: Float64[np.ndarray, " detections"]
    objects: Float64[np.ndarray, " objects"]


def score_files(
    files: Sequence[Path],
    index: DetectionIndex,
    *,
    rule: RuleName = DEFAULT_RULE,
    max_detections: int | None = None,
    min_score: float | None = None,
    load: Callable[[Path, DetectionIndex], ScoringData] = load_detections,
) -> list[ScoredFile]:
    """Score several detection files with the same rule.

    Args:
        files: JSON files in COCO format, or what ``load`` reads.
        index: The data set of the detections.
        rule: The evaluation rule.
        max_detections: The maximum number of detections per class and image; None uses the rule's.
        min_score: The minimum score of a detection in the IoU distribution.
        load: Reads a file.

    Raises:
        DataError: If a file cannot be used; the message names the entry and the remedy.
    """
    options: dict[str, Any] = {
        "rule": rule,
        "max_detections": max_detections,
        "min_score": min_score,
    }
    return [
        scored_file(name, file, load(file, index), index.classes, **options)
        for name, file in zip(_names(files), files, strict=True)
    ]


def scored_file(
    name: str,
    file: Path,
    data: ScoringData,
    classes: Sequence[str],
    *,
    rule: RuleName,
    max_detections: int | None = None,
    min_score: float | None = None,
) -> ScoredFile:
    """Score the detections of a file, or of the weights in it; arguments as ``score_files``."""
    scores = score(data, classes, rule=rule, max_detections=max_detections)
    truth = RULES[rule].ground_truth(data)
    ious = detection_ious(truth, min_score=min_score)
    objects = detection_ious(truth, min_score=min_score, once=True)
    return ScoredFile(name, file, data, scores, ious, objects)


def summary(evaluations: Sequence[ScoredFile], index: DetectionIndex) -> dict[str, Any]:
    """Return all scores as a JSON document; undefined scores are null."""
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
                "name": evaluation.name,
                "file": str(evaluation.file),
                "detections": evaluation.scores.num_detections,
                "scores": _defined(evaluation.scores.as_dict()),
                "relative_improvement": _improvement(evaluation.scores.as_dict(), baseline),
                "per_class": _defined(evaluation.scores.per_class),
                "detections_with_iou": _counts(evaluation.ious),
                "objects_with_iou": _counts(evaluation.objects),
            }
            for evaluation in evaluations
        ],
    }


def summary_text(evaluations: Sequence[ScoredFile], index: DetectionIndex) -> str:
    """Return the content of ``scores.json``."""
    text = json.dumps(summary(evaluations, index), indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n"


def write_results(
    evaluations: Sequence[ScoredFile], index: DetectionIndex, out: Path
) -> list[Path]:
    """Write ``scores.json`` and the figures."""
    from alphaiou._figures import save_figure
    from alphaiou.inference.figures import iou_figure, precision_recall_figure

    path = out / "scores.json"
    write_file(path, summary_text(evaluations, index))
    scores = {evaluation.name: evaluation.scores for evaluation in evaluations}
    ious = {evaluation.name: evaluation.ious for evaluation in evaluations}
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


def _improvement(scores: Mapping[str, float], baseline: Mapping[str, float]) -> dict[str, Any]:
    return _defined({key: relative_improvement(scores[key], baseline[key]) for key in scores})


def _defined(values: Mapping[str, float]) -> dict[str, float | None]:
    return {key: None if math.isnan(value) else value for key, value in values.items()}


def _counts(ious: Float64[np.ndarray, " detections"]) -> dict[str, int]:
    return {f"{threshold:g}": count for threshold, count in counts_above(ious).items()}
