"""The detections of a detector in one compact file, so that they can be scored again.

The file holds the detections that count in the scores and, unless it is kept small, the objects of
the same images, so that it can be analysed without the data set. Boxes of detections are rounded
to 1/64 pixel of the stored image, so that the file compresses well.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from alphaiou._files import write_file
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError
from alphaiou.inference.detection_files import load_detections, targets_of
from alphaiou.metrics import ScoringData
from alphaiou.metrics.rules import RuleName

#: The file in the folder of a run.
DETECTIONS = "detections.npz"
#: Boxes are rounded to this part of a pixel.
STEP = 1 / 64
_ABOUT = "about"
_OBJECTS = {
    "target_images": np.int32,
    "target_boxes": np.float64,
    "target_labels": np.int32,
    "target_areas": np.float64,
    "crowd": np.bool_,
    "difficult": np.bool_,
}
_FOUND = {"images": np.int32, "boxes": np.float32, "labels": np.uint16, "scores": np.float32}


@dataclass(frozen=True, eq=False)
class KeptDetections:
    """The detections of a file on one split.

    Attributes:
        data: The detections and the objects.
        classes: The name of each label.
        rule: The rule that the detector was scored by.
        split: The split.
    """

    data: ScoringData
    classes: tuple[str, ...]
    rule: RuleName
    split: str


def open_detections(path: Path, index: DetectionIndex) -> ScoringData:
    """Read the detections of a run, of a file of kept detections, or of a file in COCO format.

    Args:
        path: The folder of a run, which has ``detections.npz``; such a file; or a JSON file.
        index: The data set of the detections.

    Raises:
        DataError: The detections cannot be used; the message names the file and the remedy.
    """
    if path.is_dir():
        path = path / DETECTIONS
        if not path.is_file():
            raise DataError(
                f"{path}: the detections of this run were not kept; train with --keep-detections, "
                f"or score its weights: alphaiou eval --weights {path.parent}"
            )
    if path.suffix == ".npz":
        return read_kept(path, index=index).data
    return load_detections(path, index)


def write_kept(
    path: Path,
    splits: Mapping[str, ScoringData],
    *,
    classes: tuple[str, ...],
    rule: RuleName,
    with_objects: bool = True,
) -> None:
    """Write the detections on some splits to a file.

    Args:
        path: The file to write.
        splits: The detections and objects of each split.
        classes: The name of each label.
        rule: The rule that the detector is scored by.
        with_objects: Whether to keep the objects too; without them, the data set is needed.

    Examples:
        >>> from alphaiou.metrics import DetectionScores
        >>> scores = DetectionScores(classes=("cat",))
        >>> box = np.array([[0, 0, 10, 10.0]])
        >>> found = {"boxes": box, "scores": np.array([0.5]), "labels": np.array([0])}
        >>> scores.update([found], [{"boxes": box, "labels": np.array([0])}])
        >>> write_kept(Path("d.npz"), {"val": scores.data()}, classes=("cat",), rule="coco")
        >>> read_kept(Path("d.npz")).data.boxes
        array([[ 0.,  0., 10., 10.]])
    """
    about = {"classes": classes, "rule": rule, "splits": list(splits)}
    arrays = {_ABOUT: np.array(json.dumps(about))}
    for split, data in splits.items():
        kept = data.keep_detections(np.lexsort((-data.scores, data.labels, data.images)))
        kept = replace(kept, boxes=np.round(kept.boxes / STEP) * STEP)
        kinds = {"image_ids": np.int64} | _FOUND | (_OBJECTS if with_objects else {})
        arrays |= {f"{split}/{name}": getattr(kept, name).astype(k) for name, k in kinds.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_file(path, buffer.getvalue())


def read_kept(
    path: Path, split: str | None = None, index: DetectionIndex | None = None
) -> KeptDetections:
    """Read the detections of a file on one split.

    Args:
        path: The file.
        split: The split; by default that of the index, or the last in the file.
        index: The images of the split, which give the objects; by default those of the file.

    Raises:
        DataError: The file is damaged or has no detections on these images.
    """
    try:
        with path.open("rb") as handle, np.load(handle) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop(_ABOUT).item())
        classes, rule, splits = tuple(about["classes"]), about["rule"], about["splits"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: this is no file of kept detections ({error}); give one that was written "
            "with --keep-detections, or detections as JSON"
        ) from None
    split = split or (index.split if index is not None else splits[-1])
    if split not in splits:
        raise DataError(
            f"{path}: there are no detections on the split {split!r}; it has {', '.join(splits)}"
        )
    columns = {
        name.partition("/")[2]: a for name, a in arrays.items() if name.startswith(f"{split}/")
    }
    found = {name: columns[name].astype(np.int64) for name in ("image_ids", "images", "labels")}
    found |= {name: columns[name].astype(np.float64) for name in ("boxes", "scores")}
    if index is not None:
        return KeptDetections(_on(path, found, classes, index), classes, rule, split)
    if "target_boxes" not in columns:
        raise DataError(
            f"{path}: it was kept without the objects; give the data set with --data and --split"
        )
    integers = {name: columns[name].astype(np.int64) for name in ("target_images", "target_labels")}
    others = {name: columns[name] for name in _OBJECTS if name not in integers}
    return KeptDetections(ScoringData(**found, **integers, **others), classes, rule, split)


def _on(
    path: Path,
    found: Mapping[str, np.ndarray],
    classes: tuple[str, ...],
    index: DetectionIndex,
) -> ScoringData:
    """The detections on the images of a data set, with its objects."""
    if classes != tuple(index.classes):
        raise DataError(
            f"{path}: its classes are not those of {index.root}; choose the data set of its run"
        )
    if not np.isin(found["image_ids"], index.image_ids).all():
        raise DataError(
            f"{path}: the detections are on other images than those of the split "
            f"{index.split!r} of {index.root}"
        )
    # Images that could not be read when the file was written are left out.
    index = index.take(np.flatnonzero(np.isin(index.image_ids, found["image_ids"])))
    place = {int(number): row for row, number in enumerate(index.image_ids)}
    rows = np.array([place[int(number)] for number in found["image_ids"]], dtype=np.int64)
    kept = {name: found[name] for name in ("boxes", "labels", "scores")}
    return replace(targets_of(index), images=rows[found["images"]], **kept)
