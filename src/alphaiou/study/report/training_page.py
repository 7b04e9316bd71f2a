"""The page and the pictures of one training: its curves, scores, classes and confusions."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from alphaiou._config import to_plain
from alphaiou._environment import device_kind
from alphaiou._figures import palette
from alphaiou._files import write_file
from alphaiou._shapes import Float64, Int64
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.index import DetectionIndex
from alphaiou.data.pipeline.stream import StreamedImages
from alphaiou.inference.drawing import LabelledBox, as_picture, draw_boxes, fitted, sheet
from alphaiou.inference.evaluation import collect
from alphaiou.inference.figures import precision_recall_figure
from alphaiou.inference.predictor import worker_count
from alphaiou.inference.tables import cell
from alphaiou.inference.weights import load_weights
from alphaiou.metrics import Scores, ScoringData
from alphaiou.metrics.columns import PAPER_COLUMNS, column_title, columns_of, read_score
from alphaiou.metrics.confusion import (
    MATCH_IOU,
    OperatingPoint,
    assign,
    best_point,
    best_points,
    confusion_matrix,
)
from alphaiou.metrics.error_analysis import analyse_errors
from alphaiou.metrics.iou_histogram import SURE
from alphaiou.metrics.rules import find_rule
from alphaiou.study.detections import choose_examples
from alphaiou.study.figures import Chart, Panel
from alphaiou.study.records import RunRecord
from alphaiou.study.report.errors import errors_part
from alphaiou.study.report.html import chart_figure, escape, scrolling, table, tag, whole_page
from alphaiou.study.series import Point, mean_point
from alphaiou.training.batches import first_batch
from alphaiou.training.record import loss_parts, upgraded_recipe
from alphaiou.training.setup import run_sets

if TYPE_CHECKING:
    from PIL.Image import Image

    from alphaiou.training.recipe import Recipe
    from alphaiou.training.step import Batches

PAGE, BATCH, PREDICTIONS = "training.html", "batch.jpg", "predictions.jpg"
PRECISION_RECALL = "precision_recall.png"
#: Scores that are drawn by epoch.
CURVES = ("ap50", "map", "map75_95")
#: The most images of a picture, and the longer side of each in pixels.
MOST_PICTURES, TILE = 16, 320
#: The most detections in an image of a picture.
MOST_DRAWN = 20
#: The most images on which the tables of classes are computed, by device.
MOST_IMAGES = {"cpu": 500, "cuda": 5000}
#: The most classes of a matrix; with more, the most frequent confusions are listed.
MOST_CLASSES, MOST_CONFUSIONS = 40, 30
BACKGROUND = "background"


# The first batch


def save_batch(folder: Path, batches: Batches, classes: Sequence[str]) -> None:
    """Draw the first batch of a training with its boxes, unless there is a picture of it.

    Args:
        folder: The folder of the run.
        batches: The batches of the training, whose state is left as it is.
        classes: The name of each label.
    """
    path = folder / BATCH
    if path.exists():
        return
    batch = first_batch(batches)
    images, targets, colours = batch.images.cpu(), batch.targets, palette(len(classes))
    boxes = [
        (image, box, label)
        for image, box, label, valid in zip(
            targets.image_of_box.tolist(),
            targets.boxes.tolist(),
            targets.labels.tolist(),
            targets.valid.tolist(),
            strict=True,
        )
        if valid
    ]
    tiles = [
        _tile(pixels, [(box, classes[label], colours[label]) for i, box, label in boxes if i == n])
        for n, pixels in enumerate(images[:MOST_PICTURES])
    ]
    _save(sheet(tiles, 4), path)


def _tile(pixels: torch.Tensor, boxes: Sequence[tuple[Sequence[float], str, str]]) -> Image:
    """An image with boxes, drawn after it has its size so that texts are legible."""
    picture, factor = fitted(as_picture(pixels), TILE)
    scaled = [
        LabelledBox((x1 * factor, y1 * factor, x2 * factor, y2 * factor), text, colour)
        for (x1, y1, x2, y2), text, colour in boxes
    ]
    draw_boxes(picture, scaled)
    return picture


def _save(picture: Image, path: Path) -> None:
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=88)
    write_file(path, data.getvalue())


# The page


def write_training_page(
    folder: Path, record: RunRecord, *, device: str = "cpu", workers: int | None = None
) -> Path:
    """Write ``training.html`` and pictures of a finished run into its folder.

    Objects are detected once, in the images that the run was scored on or in some of them.

    Args:
        folder: The folder of the run.
        record: Its record.
        device: Where to detect objects, ``auto``, ``cpu`` or ``cuda``.
        workers: The number of processes that decode images.

    Raises:
        CheckpointError: If the run has no weights.
        DataError: If its data set cannot be opened.
    """
    detected = _detect(folder, device_kind(device), workers)
    if detected is not None:
        _save(_predictions(detected), folder / PREDICTIONS)
        content = io.BytesIO()
        precision_recall_figure({folder.name: detected.scores}).savefig(content, dpi=150)
        write_file(folder / PRECISION_RECALL, content.getvalue())
    path = folder / PAGE
    write_file(path, training_page(folder, record, detected))
    return path


@dataclass(frozen=True, eq=False)
class Detected:
    """What a detector finds in the images that its run is scored on.

    Attributes:
        index: The images, all of the split or some of them.
        split_images: The number of images in the split.
        data: The detections and the objects that count by the rule of the run.
        scores: The scores on these images.
        points: The best operating point of each class.
        min_score: The minimum score of the detections in pictures and in the confusion matrix.
        is_best: Whether it is the score of the highest F1; otherwise no detection is right.
        confusion: The confusion matrix.
    """

    index: DetectionIndex
    split_images: int
    data: ScoringData
    scores: Scores
    points: list[OperatingPoint]
    min_score: float
    is_best: bool
    confusion: Int64[np.ndarray, "classes+1 classes+1"]


def _detect(folder: Path, device: str, workers: int | None) -> Detected | None:
    """Detect objects in the scored images of a run; None if it has none."""
    trained = load_weights(folder)
    recipe = upgraded_recipe(trained.recipe)
    sets = run_sets(recipe)
    dataset = sets.test or sets.val
    if dataset is None:
        return None
    every = len(dataset)
    index = dataset.index.take(_spread(every, MOST_IMAGES[device]))
    workers = worker_count(len(index)) if workers is None else workers
    collected = collect(
        trained.detector.to(device),
        index,
        StreamedImages(DetectionDataset(index), trained.image_size, workers),
        rule=recipe.rule,
        precision=trained.precision if device == "cuda" else "fp32",
    )
    data = find_rule(recipe.rule).ground_truth(collected.data())
    assignments, classes = assign(data), len(index.classes)
    best = best_point(assignments)
    is_best = best.recall > 0
    min_score = best.score if is_best else SURE
    return Detected(
        index=index,
        split_images=every,
        data=data,
        scores=collected.compute(),
        points=best_points(assignments, classes),
        min_score=min_score,
        is_best=is_best,
        confusion=confusion_matrix(assignments, classes, min_score=min_score),
    )


def _spread(count: int, most: int) -> Int64[np.ndarray, " some"]:
    """Places spread evenly over some images."""
    places: Int64[np.ndarray, " some"]
    places = np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)
    return places


def _predictions(detected: Detected) -> Image:
    """Images with their ground truth, and beside it the predictions."""
    index, data = detected.index, detected.data
    colours = palette(len(index.classes))
    tiles = []
    dataset = DetectionDataset(index)
    rows = choose_examples(index, MOST_PICTURES) or _spread(len(index), MOST_PICTURES).tolist()
    place_of = {number: place for place, number in enumerate(data.image_ids.tolist())}
    for row in rows:
        place = place_of.get(int(index.image_ids[row]))
        if place is None:  # it cannot be read
            continue
        pixels, target = dataset[row]
        truth = [
            (box, index.classes[label], colours[label])
            for box, label in zip(target["boxes"].tolist(), target["labels"].tolist(), strict=True)
        ]
        kept = np.flatnonzero((data.images == place) & (data.scores >= detected.min_score))
        found = [
            (
                [x, y, x + width, y + height],
                f"{index.classes[label]} {score:.2f}",
                colours[label],
            )
            for (x, y, width, height), label, score in (
                (data.boxes[i].tolist(), int(data.labels[i]), float(data.scores[i]))
                for i in kept[np.argsort(-data.scores[kept], kind="stable")][:MOST_DRAWN]
            )
        ]
        tiles += [_tile(pixels, truth), _tile(pixels, found)]
    return sheet(tiles, 4, ("ground truth", "predictions") * 2)


def training_page(folder: Path, record: RunRecord, detected: Detected | None) -> str:
    """The page of a run: a function of its record, its pictures and what its detector finds.

    Args:
        folder: The folder of the run, with its pictures.
        record: Its record.
        detected: What its detector finds; None if the run has no images to score.
    """
    recipe = upgraded_recipe(record["recipe"])
    title = f"{recipe.detector.name}, {recipe.loss_name}"
    body = "\n".join(
        (
            tag("h1", escape(title)),
            tag("p", escape(_lead(recipe, record))),
            _final_scores(recipe, record),
            _curves(record),
            *(_classes(detected) if detected else ()),
            _errors(recipe, detected) if detected else "",
            _picture(
                "Predictions",
                folder / PREDICTIONS,
                f"Detections of a score of at least {detected.min_score:.2g}, beside the ground "
                f"truth, at most {MOST_DRAWN} per image. The images are spread over the split."
                if detected
                else "",
            ),
            _picture(
                "First batch",
                folder / BATCH,
                "Augmented images of the first batch of the training, with the boxes that are "
                "trained on.",
            ),
            _recipe_and_notes(recipe, record),
        )
    )
    return whole_page(title, body)


def _errors(recipe: Recipe, detected: Detected) -> str:
    analysis = analyse_errors(detected.data, detected.index.classes, rule=recipe.rule)
    return _section("errors", "Errors", errors_part({recipe.loss_name: [analysis]}, "errors"))


def _lead(recipe: Recipe, record: RunRecord) -> str:
    selected = record["selected"]
    weights = (
        f"the weights of epoch {selected['epoch']}, the best on {selected['on']}"
        if isinstance(selected, dict)
        else "the weights after the last epoch"
    )
    epochs = len(record["history"])
    return (
        f"Trained on {recipe.data.path} for {epochs:,} epoch{'s' * (epochs != 1)} at "
        f"{recipe.image_size} pixels, seed {recipe.seed}, on {record['device']}. Scores are those "
        f"of {weights}."
    )


def _final_scores(recipe: Recipe, record: RunRecord) -> str:
    scores = record["scores"]
    if not scores:
        text = "The run has no images to score on: give --data.val, --data.test or --data.hold-out."
        return _section("scores", "Scores", tag("p", text))
    note = f"On {record['scored_on']} of {recipe.data.path}, rule {recipe.rule}, in percent."
    main = [*PAPER_COLUMNS, *(name for name in columns_of("size") if name in scores)]
    others = [[column_title(name), cell(read_score(scores, name))] for name in scores]
    return _section(
        "scores",
        "Scores",
        tag("p", escape(note), class_="note"),
        scrolling(
            "Scores",
            table(
                ["", *map(column_title, main)],
                [[recipe.loss_name, *(cell(read_score(scores, name)) for name in main)]],
            ),
        ),
        tag("details", tag("summary", "Every score"), table(["score", "%"], others)),
    )


def _curves(record: RunRecord) -> str:
    history: Sequence[Mapping[str, Any]] = record["history"]
    losses = {
        name.replace("_", " "): [
            mean_point(entry["epoch"], [entry[name]], unit=1)
            for entry in history
            if entry[name] is not None
        ]
        for name in loss_parts(history[0])
    }
    panels = [Panel("Training losses", "epoch", losses, digits=4)]
    for split in ("val", "test"):
        lines = {column_title(name): list(_scored_epochs(history, split, name)) for name in CURVES}
        if any(len(points) > 1 for points in lines.values()):
            panels.append(Panel(f"Scores on {split}, %", "epoch", lines))
    chart = Chart("By epoch", tuple(panels))
    return _section("curves", "Curves", chart_figure(chart, "curves"))


def _scored_epochs(history: Sequence[Mapping[str, Any]], split: str, name: str) -> Iterator[Point]:
    for entry in history:
        if split in entry and entry[split].get(name) is not None:
            yield mean_point(entry["epoch"], [entry[split][name]])


# Classes


def _classes(detected: Detected) -> tuple[str, str]:
    images = detected.scores.num_images
    whole = images == detected.split_images
    where = (
        f"On the {images:,} images of {detected.index.split}."
        if whole
        else f"On {images:,} of the {detected.split_images:,} images of {detected.index.split}, "
        "spread evenly; the scores above are of all."
    )
    return _class_table(detected, where), _confusion(detected, where)


def _class_table(detected: Detected, where: str) -> str:
    scores = detected.scores
    ap50 = scores.class_ap[scores.iou_thresholds.index(MATCH_IOU)]
    means = scores.per_class.values()
    rows = [
        [
            name,
            f"{point.objects:,}",
            cell(float(ap)),
            cell(mean),
            *_operating_point(point),
        ]
        for name, point, ap, mean in zip(scores.classes, detected.points, ap50, means, strict=True)
    ]
    head = ["class", "objects", "AP50, %", "mAP, %", "score", "precision, %", "recall, %"]
    note = (
        f"{where} Precision and recall are those at IoU .5 of the detections of at least the score "
        "at which the F1 of the class is highest."
    )
    return _section(
        "classes",
        "Classes",
        tag("p", escape(note), class_="note"),
        scrolling("Scores of each class", table(head, rows, class_="classes")),
    )


def _operating_point(point: OperatingPoint) -> list[str]:
    if not point.recall > 0:
        return ["–", "–", cell(point.recall)]
    return [f"{point.score:.2g}", cell(point.precision), cell(point.recall)]


def _confusion(detected: Detected, where: str) -> str:
    how = "where the F1 over all classes is highest" if detected.is_best else "none is right"
    note = (
        f"{where} Detections of a score of at least {detected.min_score:.2g} ({how}), matched to "
        "objects at IoU .5: first to those of their class, then to others. Rows are the classes of "
        f"objects, columns those of detections. The column {BACKGROUND} counts objects without a "
        f"detection, the row {BACKGROUND} detections without an object."
    )
    names = [*detected.index.classes, BACKGROUND]
    if len(names) - 1 <= MOST_CLASSES:
        shown = _matrix(detected.confusion, names)
    else:
        note += f" The {MOST_CONFUSIONS} most frequent confusions are listed."
        shown = _most_confused(detected.confusion, names)
    return _section(
        "confusion",
        "Confusion matrix",
        tag("p", escape(note), class_="note"),
        scrolling("Confusion matrix", shown),
    )


def _matrix(counts: Int64[np.ndarray, "classes+1 classes+1"], names: Sequence[str]) -> str:
    shares: Float64[np.ndarray, "classes+1 classes+1"] = counts / counts.sum(1, keepdims=True).clip(
        1
    )
    head = (tag("th", tag("span", escape(name)), scope="col") for name in names)
    rows = []
    for row, name in enumerate(names):
        cells = (
            tag(
                "td",
                f"{count:,}" if count else "",
                class_="right" if row == column else "wrong",
                style=f"--share: {shares[row, column]:.2f}",
                title=f"{name} detected as {names[column]}: {count:,}, {shares[row, column]:.0%}",
            )
            for column, count in enumerate(counts[row].tolist())
        )
        rows.append(tag("tr", tag("th", tag("span", escape(name)), scope="row"), *cells))
    return tag(
        "table",
        tag("thead", tag("tr", "<td></td>", *head)),
        tag("tbody", *rows),
        class_="confusion",
    )


def _most_confused(counts: Int64[np.ndarray, "classes+1 classes+1"], names: Sequence[str]) -> str:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    places = (np.unravel_index(place, wrong.shape) for place in order)
    rows = [
        [names[row], names[column], f"{wrong[row, column]:,}"]
        for row, column in places
        if wrong[row, column]
    ]
    return table(["object", "detected as", "count"], rows)


# Pictures, recipe and notes


def _picture(title: str, path: Path, note: str) -> str:
    if not path.is_file():
        return ""
    data = base64.b64encode(path.read_bytes()).decode()
    image = f'<img src="data:image/jpeg;base64,{data}" alt="{escape(title)}">'
    return _section(
        path.stem,
        title,
        tag("p", escape(note), class_="note"),
        scrolling(title, tag("div", image, class_="picture")),
    )


def _recipe_and_notes(recipe: Recipe, record: RunRecord) -> str:
    import yaml

    text = yaml.safe_dump(to_plain(recipe), sort_keys=False, allow_unicode=True)
    made = record["made"]
    facts = {
        "run": record["name"],
        "date": made["date"] or "–",
        "device": record["device"],
        "speed": f"{record['throughput']:,.0f} images per second",
        "memory": f"{record['memory_bytes'] / 2**30:.1f} GiB at the peak",
        "versions": ", ".join(f"{name} {value}" for name, value in record["versions"].items()),
        "commit": made["commit"] or "–",
    }
    listed = (tag("dt", escape(key)) + tag("dd", escape(value)) for key, value in facts.items())
    notes = tag("ul", *(tag("li", escape(note)) for note in record["notes"]))
    return _section(
        "run",
        "Run",
        tag("dl", *listed),
        tag("h3", "Notes") + notes if record["notes"] else "",
        tag("details", tag("summary", "Recipe"), tag("pre", escape(text), tabindex=0)),
    )


def _section(mark: str, title: str, *parts: str) -> str:
    return tag("section", tag("h2", escape(title)), *parts, id=mark)
