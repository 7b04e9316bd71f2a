"""What trained detectors find: IoU with the objects, pictures, and images where two differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from alphaiou._files import working_folder, write_file
from alphaiou._shapes import Float, Int64
from alphaiou.data.dataset import DetectionDataset, Target
from alphaiou.data.index import DetectionIndex
from alphaiou.data.pipeline.cache import ImageCache, build_cache
from alphaiou.detectors import Detections, fold_batch_norm
from alphaiou.inference.evaluation import detect, ground_truth, readable
from alphaiou.inference.weights import WEIGHTS, TrainedDetector, load_weights
from alphaiou.losses.similarity import pairwise_iou
from alphaiou.metrics import DetectionScores, detection_ious
from alphaiou.metrics.iou_histogram import SURE
from alphaiou.metrics.rules import RuleName
from alphaiou.study.records import DATA_LINKS, RowRuns, RunRecord, run_folder
from alphaiou.training.record import upgraded_recipe
from alphaiou.training.setup import run_sets

FINDINGS, EXAMPLES = "findings.json", "examples"
EXAMPLE_COUNT = 6
#: A picture with more objects than this is too full to look at.
MOST_OBJECTS = 8
LONGEST_SIDE = 320  # of the pictures in the report, in pixels
#: The IoU from which on an object counts as found.
FOUND = 0.5


# What is kept of a run


@dataclass(frozen=True)
class Box:
    """A box of a picture, in pixels of the original image.

    Attributes:
        corners: x1, y1, x2, y2.
        label: The name of its class.
        score: The confidence of the detection; 1 for an object.
        iou: The IoU with the best object of its class; 1 for an object.
    """

    corners: tuple[float, float, float, float]
    label: str
    score: float = 1.0
    iou: float = 1.0

    @property
    def on_object(self) -> bool:
        """Whether it lies on an object of its class."""
        return self.iou >= FOUND


@dataclass(frozen=True)
class Example:
    """A picture with its ground truth and its detections.

    Attributes:
        picture: A PNG file, relative to the folder of the run.
        size: Width and height of the original image.
        objects: The ground truth.
        found: The detections.
    """

    picture: str
    size: tuple[int, int]
    objects: list[Box]
    found: list[Box]


@dataclass(frozen=True)
class Findings:
    """What a detector finds on the images that its run is scored on.

    Attributes:
        split: The split of these images.
        images: The number of images.
        objects: The number of objects in them.
        least_score: Detections of a lower score are left out of everything here.
        ious: The IoU of each object that was found with its best detection by score, descending.
        examples: Some of the images.
    """

    split: str
    images: int
    objects: int
    least_score: float
    ious: list[float]
    examples: list[Example]


@dataclass(frozen=True)
class PicturedRun:
    """A finished run whose findings are kept.

    Attributes:
        record: Its record.
        findings: Its findings.
        folder: The folder of its files.
    """

    record: RunRecord
    findings: Findings
    folder: Path


def findings_of(folder: Path, device: str = "cpu") -> Findings:
    """The findings of a finished run: read from its folder, or computed and written there.

    Args:
        folder: The run's folder.
        device: Where to compute them, ``cpu`` or ``cuda``.

    Raises:
        CheckpointError: The run has no weights.
        DataError: Its data set is gone.
    """
    path = folder / FINDINGS
    if not path.exists():
        _write_json(asdict(_findings(run_detections(folder, device), folder)), path)
    values = json.loads(path.read_text(encoding="utf-8"))
    examples = [_example_from(one) for one in values.pop("examples")]
    return Findings(**values, examples=examples)


def runs_with_pictures(
    rows: Mapping[str, RowRuns], paths: Mapping[str, Path]
) -> dict[str, list[PicturedRun]]:
    """The runs of every row whose findings are kept; nothing is computed.

    Args:
        rows: The runs of each row by its label.
        paths: The paths of the records, as ``record_paths`` gives them.
    """
    pictured: dict[str, list[PicturedRun]] = {}
    for label, row in rows.items():
        for _, record in sorted(row.runs.items()):
            folder = run_folder(paths[record["name"]])
            if (folder / FINDINGS).is_file():
                run = PicturedRun(record, findings_of(folder), folder)
                pictured.setdefault(label, []).append(run)
    return pictured


def on_same_images(pictured: Mapping[str, Sequence[PicturedRun]]) -> dict[str, PicturedRun]:
    """The first run of some rows that were scored on the same images, to be shown together."""
    firsts = {label: runs[0] for label, runs in pictured.items()}
    if not firsts:
        return {}
    images = _images(next(iter(firsts.values())).findings)
    return {label: run for label, run in firsts.items() if _images(run.findings) == images}


def _images(findings: Findings) -> tuple[object, ...]:
    return findings.split, *(example.picture for example in findings.examples)


def _example_from(values: Mapping[str, Any]) -> Example:
    boxes = {key: [Box(**box) for box in values[key]] for key in ("objects", "found")}
    return Example(picture=values["picture"], size=tuple(values["size"]), **boxes)


def _write_json(values: Mapping[str, Any], path: Path) -> None:
    write_file(path, json.dumps(values, indent=1) + "\n")


# Running a detector over the images of its run


@dataclass(frozen=True)
class RunDetections:
    """The detections of a run's detector on the images that the run is scored on.

    Attributes:
        rule: The rule that the run is scored by.
        index: The images that can be read.
        found: The detections in each, of a score of at least ``SURE``.
    """

    rule: RuleName
    index: DetectionIndex
    found: list[Detections]


def run_detections(folder: Path, device: str = "cpu") -> RunDetections:
    """Run the detector of a finished run over the images that the run was scored on.

    Args:
        folder: The run's folder.
        device: Where to compute, ``cpu`` or ``cuda``.

    Raises:
        CheckpointError: The run has no weights.
        DataError: Its data set is gone.
    """
    trained = load_weights(folder)
    recipe = upgraded_recipe(trained.recipe)
    sets = run_sets(recipe)
    dataset = sets.test or sets.val
    if dataset is None:
        raise ValueError("a run without val, test or hold_out has no images to detect objects on")
    cache = build_cache(dataset, recipe.image_size, device=device)
    index = readable(dataset.index, cache)
    return RunDetections(recipe.rule, index, _detect_all(trained, cache, device))


def _detect_all(trained: TrainedDetector, cache: ImageCache, device: str) -> list[Detections]:
    detector = trained.detector.to(device)
    detector.set_least_score(SURE)
    folded = fold_batch_norm(detector).to(memory_format=torch.channels_last)
    batches = torch.split(torch.arange(len(cache)), 32)
    return [
        {name: tensor.cpu() for name, tensor in one.items()}
        for rows in batches
        for one in detect(folded, cache, rows, precision="fp32")
    ]


def _findings(detections: RunDetections, folder: Path) -> Findings:
    index, found = detections.index, detections.found
    scores = DetectionScores(classes=index.classes, rule=detections.rule)
    scores.update(found, [ground_truth(index, row) for row in range(len(index))])
    ious = detection_ious(scores.data(), once=True)
    return Findings(
        split=index.split,
        images=len(index),
        objects=int((~(index.crowd | index.difficult)).sum()),
        least_score=SURE,
        ious=[round(iou, 4) for iou in sorted(ious.tolist(), reverse=True)],
        examples=[
            draw_example(index, row, found[row], folder)
            for row in choose_examples(index, EXAMPLE_COUNT)
        ],
    )


def choose_examples(index: DetectionIndex, count: int) -> list[int]:
    """Images spread evenly over those that have objects, but not too many."""
    objects = np.diff(index.offsets)
    suitable = np.flatnonzero((objects > 0) & (objects <= MOST_OBJECTS))
    places = np.linspace(0, len(suitable) - 1, min(count, len(suitable))).round().astype(int)
    chosen: list[int] = suitable[places].tolist()
    return chosen


def draw_example(index: DetectionIndex, row: int, found: Detections, folder: Path) -> Example:
    """An image with its detections; the image is saved below the folder of the run."""
    image, target = DetectionDataset(index)[row]
    picture = f"{EXAMPLES}/{row:06d}.png"
    _save_picture(image, folder / picture)
    overlap = pairwise_iou(found["boxes"], target["boxes"])
    overlap = overlap * (found["labels"][:, None] == target["labels"])
    certain = torch.ones(len(target["labels"]))
    return Example(
        picture=picture,
        size=(image.shape[2], image.shape[1]),
        objects=_boxes(target, certain, certain, index.classes),
        found=_boxes(found, found["scores"], pad(overlap, (0, 1)).amax(1), index.classes),
    )


def _boxes(
    where: Target | Detections,
    scores: Float[Tensor, " boxes"],
    ious: Float[Tensor, " boxes"],
    classes: tuple[str, ...],
) -> list[Box]:
    columns = (where["boxes"], where["labels"], scores, ious)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        Box(tuple(round(side, 2) for side in sides), classes[label], round(score, 4), round(iou, 4))
        for sides, label, score, iou in rows
    ]


def _save_picture(image: Tensor, path: Path) -> None:
    from PIL import Image

    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    picture.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, "PNG", optimize=True)


# Images where two detectors differ

#: Images of each kind.
SHOWN = 3
#: The kinds of differences, and their titles with the names of the first and the second loss.
KINDS = {
    "more": "{second} finds objects that {first} does not",
    "cleaner": "{second} has fewer boxes on the background than {first}",
    "worse": "{second} does worse than {first}",
}

#: By kind, the detections of the first and of the second detector in some images.
Differences = dict[str, list[tuple[Example, Example]]]


def difference_title(kind: str, first: str, second: str) -> str:
    """What a kind of images shows.

    Examples:
        >>> difference_title("worse", "IoU", "α-IoU")
        'α-IoU does worse than IoU'
    """
    return KINDS[kind].format(first=first, second=second)


def compared_pairs(
    rows: Mapping[str, RowRuns], paths: Mapping[str, Path]
) -> list[tuple[str, str, Path, Path]]:
    """The labels of every baseline and its row, and the folders of their first shared seed."""
    pairs = []
    for label, row in rows.items():
        baseline = rows.get(row.row.baseline or "")
        seeds = sorted(row.runs.keys() & baseline.runs.keys()) if baseline else []
        if baseline and seeds:
            runs = (one.runs[seeds[0]]["name"] for one in (baseline, row))
            first, second = (run_folder(paths[name]) for name in runs)
            pairs.append((baseline.row.label, label, first, second))
    return pairs


def differences_path(first: Path, second: Path) -> Path:
    """Where the differences of two runs are kept: in the folder of the second."""
    return second / f"differs-{first.name}.json"


def read_differences(first: Path, second: Path) -> Differences | None:
    """The differences of two runs that are kept; None without any."""
    path = differences_path(first, second)
    if not path.is_file():
        return None
    return differences_of(json.loads(path.read_text(encoding="utf-8")))


def differences_of(kept: Mapping[str, Any]) -> Differences:
    """Differences as ``compare_detections`` gives them, which are JSON."""
    return {
        kind: [(_example_from(a), _example_from(b)) for a, b in pairs]
        for kind, pairs in kept.items()
    }


def keep_differences(first: Path, second: Path) -> Path | None:
    """Find the images where two detectors differ most, and keep them beside the second.

    Args:
        first: The folder of a finished run.
        second: The folder of another one on the same images.

    Returns:
        The file; None where one of them has no weights.

    Raises:
        DataError: The data set is gone.
        ValueError: The two were not scored on the same images.
    """
    first, second = first.absolute(), second.absolute()
    path = differences_path(first, second)
    if path.is_file():
        return path
    if not all((folder / WEIGHTS).is_file() for folder in (first, second)):
        return None
    links = second.parent / DATA_LINKS  # where the names in recipes lead to data
    with working_folder(links) if links.is_dir() else nullcontext():
        detections = run_detections(first), run_detections(second)
        _write_json(compare_detections(*detections, second), path)
    return path


def compare_detections(
    first: RunDetections, second: RunDetections, folder: Path
) -> dict[str, list[list[dict[str, Any]]]]:
    """The images where two detectors differ most, by kind, as JSON; pictures go to a folder."""
    if len(first.index) != len(second.index):
        raise ValueError("two runs can be compared on the same images only")
    suitable = np.flatnonzero(np.diff(second.index.offsets) <= MOST_OBJECTS)
    chosen = choose_differing(tallies(first), tallies(second), suitable)
    return {
        kind: [
            [
                asdict(draw_example(one.index, row, one.found[row], folder))
                for one in (first, second)
            ]
            for row in rows
        ]
        for kind, rows in chosen.items()
    }


def choose_differing(
    first: Int64[np.ndarray, "images 2"],
    second: Int64[np.ndarray, "images 2"],
    suitable: Int64[np.ndarray, " some"],
) -> dict[str, list[int]]:
    """Images of each kind, those that differ most first; no image is of two kinds.

    Objects that cost more boxes on the background count neither as a gain nor as a loss.
    """
    more, false = (second - first)[suitable].T
    of_kind = {
        "more": ((more > 0) & (false <= 0), -more),
        "cleaner": ((more == 0) & (false < 0), false),
        "worse": ((more < 0) | ((more == 0) & (false > 0)), more - false),
    }
    chosen = {}
    for kind, (belongs, order) in of_kind.items():
        ranked = np.argsort(order, kind="stable")
        chosen[kind] = suitable[ranked[belongs[ranked]]][:SHOWN].tolist()
    return chosen


def tallies(detections: RunDetections) -> Int64[np.ndarray, "images 2"]:
    """The objects found in each image, and the boxes on the background."""
    index, found = detections.index, detections.found
    counts = [tally(one, index, row) for row, one in enumerate(found)]
    return np.array(counts, dtype=np.int64).reshape(-1, 2)


def tally(found: Detections, index: DetectionIndex, row: int) -> tuple[int, int]:
    """The objects found in an image and the boxes on the background, best detections first.

    A box on a crowd or on a difficult object counts neither way.
    """
    rows = index.rows(row)
    labels = torch.as_tensor(index.labels[rows])
    ignored = index.crowd[rows] | index.difficult[rows]
    overlap = pairwise_iou(found["boxes"].double(), torch.as_tensor(index.boxes[rows]).double())
    overlap = overlap * (found["labels"][:, None] == labels)
    taken = np.zeros(len(labels), dtype=bool)
    for detection in found["scores"].argsort(descending=True).tolist():
        free = np.where(taken, 0.0, overlap[detection].numpy())
        if free.size and free.max() >= FOUND:
            taken[free.argmax()] = True
    return int((taken & ~ignored).sum()), len(found["scores"]) - int(taken.sum())
