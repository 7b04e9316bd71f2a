"""``alphaiou eval``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from rich.console import Console

    from alphaiou.experiments.evaluation import Evaluation


@dataclass(frozen=True)
class Evaluate:
    """Score detections in COCO's format, several files side by side.

    PREDICTIONS.json is [{"image_id", "category_id", "bbox": [x, y, w, h], "score"}, ...]. Images
    are named by their number or their file name, categories by number or name. Of several files
    the first is the baseline, and the table shows the improvement of the others over it.

    Prints a table and writes to --out:
    - scores.json                  all numbers, class by class too
    - precision_recall.png, .svg   precision against recall
    - iou_distribution.png, .svg   how well the detections lie on the objects
    """

    predictions: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PREDICTIONS.json ...")
    ]
    """Files of detections, the baseline first."""

    data: Path
    """The data set they were made on: a VOC devkit, COCO JSON or YOLO layout."""

    split: str = "val"
    """Its split."""

    rule: Literal["coco", "paper", "voc", "voc07"] = "coco"
    """coco; paper: as coco, difficult boxes dropped, 300 detections; voc: since 2010; voc07."""

    max_detections: int | None = None
    """Detections of a class that count in an image: 100 (coco), 300 (paper) or all (voc)."""

    min_score: float | None = None
    """Leave lower scores out of the IoU distribution."""

    per_class: bool = False
    """Print the mAP of each class as well."""

    json: bool = False
    """Print scores.json instead of the tables."""

    out: Path = Path("runs/eval")
    """Folder to write to."""


def run_eval(command: Evaluate) -> int:
    """Score every file, then print the tables and write the numbers and the figures."""
    from rich.console import Console

    from alphaiou.cli import UsageError
    from alphaiou.data.layouts import load_dataset
    from alphaiou.experiments.evaluation import evaluate_files, summary, write_results

    if not command.predictions:
        raise UsageError("alphaiou eval: give a file of detections, or several")
    if command.max_detections is not None and command.max_detections < 1:
        raise UsageError(f"--max-detections {command.max_detections}: must be at least 1")
    command.out.mkdir(parents=True, exist_ok=True)  # if it cannot be, better now than later
    index = load_dataset(command.data, command.split).index
    evaluations = evaluate_files(
        command.predictions,
        index,
        rule=command.rule,
        max_detections=command.max_detections,
        min_score=command.min_score,
    )
    paths = write_results(evaluations, index, command.out)
    if command.json:
        Console(soft_wrap=True).print_json(data=summary(evaluations, index))
        return 0
    console = Console()
    _print_tables(evaluations, console, f"{index}, rule {command.rule}", command.per_class)
    for path in paths:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _print_tables(
    evaluations: Sequence[Evaluation], console: Console, title: str, per_class: bool
) -> None:
    from alphaiou.experiments.score_tables import class_table, comparison_table, number_table
    from alphaiou.metrics import comparison_rows

    console.print(title, highlight=False, soft_wrap=True)
    scores = {one.name: one.scores for one in evaluations}
    rows = comparison_rows({name: one.as_dict() for name, one in scores.items()})
    console.print(comparison_table(rows, "average precision, %"))
    console.print(number_table(scores, "every score, %"))
    if per_class:
        console.print(class_table(scores, "mAP of each class, %"))
