"""``alphaiou eval``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from alphaiou.cli.options import NewFolder

if TYPE_CHECKING:
    from rich.console import Console

    from alphaiou.inference.detection_files import ScoredFile


@dataclass(frozen=True)
class Evaluate:
    """Score detection files in COCO format and compare them.

    Format: [{"image_id", "category_id", "bbox": [x, y, w, h], "score"}, ...]:
    - image_id: the number or the file name of an image
    - category_id: the number or the name of a class
    - the first file is the baseline of the others

    Prints a table and writes to --out:
    - scores.json                  all scores, also per class
    - precision_recall.png, .svg   precision against recall
    - iou_distribution.png, .svg   IoU of detections with ground truth
    """

    predictions: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="PREDICTIONS.json ...", help_behavior_hint="(required)"),
    ]
    """Detection files, the baseline first."""

    data: Annotated[str, tyro.conf.arg(metavar="PATH")]
    """Data set of the detections: a folder, an annotation file, or shapes."""

    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "val"
    """Split of the data set."""

    rule: Literal["coco", "paper", "voc", "voc07"] = "coco"
    """paper: coco without difficult boxes, 300 detections; voc: VOC since 2010; voc07: VOC 2007."""

    max_detections: Annotated[
        int | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(
            metavar="INT",
            help_behavior_hint="(default: coco 100, paper 300, voc and voc07 all)",
        ),
    ] = None
    """Maximum number of detections per class and image."""

    min_score: Annotated[
        float | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: no limit)"),
    ] = None
    """Minimum score of a detection in the IoU distribution."""

    per_class: bool = False
    """Also print the mAP of each class."""

    json: bool = False
    """Print scores.json instead of the tables."""

    out: NewFolder = Path("runs/eval")


def run_eval(command: Evaluate) -> int:
    """Score every file, print the tables, and write the scores and figures."""
    from rich.console import Console

    from alphaiou.cli.options import make_folder
    from alphaiou.data.dataset import load_dataset
    from alphaiou.inference.detection_files import score_files, summary, write_results

    _check_arguments(command)
    index = load_dataset(command.data, command.split).index
    make_folder(command.out)
    evaluations = score_files(
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


def _check_arguments(command: Evaluate) -> None:
    import math

    from alphaiou.cli import UsageError

    if not command.predictions:
        raise UsageError("eval: give at least one detection file")
    for path in command.predictions:
        if not path.is_file():
            raise UsageError(f"{path}: this detection file does not exist")
    if command.max_detections is not None and command.max_detections < 1:
        raise UsageError(f"--max-detections {command.max_detections}: must be at least 1")
    if command.min_score is not None and math.isnan(command.min_score):
        raise UsageError("--min-score nan: must be a number")


def _print_tables(
    evaluations: Sequence[ScoredFile], console: Console, title: str, per_class: bool
) -> None:
    from alphaiou.inference.tables import class_table, comparison_table, number_table
    from alphaiou.metrics import comparison_rows

    console.print(title, highlight=False, soft_wrap=True)
    for evaluation in evaluations:
        text = f"{evaluation.name}: {evaluation.scores.num_detections:,} detections"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    scores = {evaluation.name: evaluation.scores for evaluation in evaluations}
    rows = comparison_rows({name: score.as_dict() for name, score in scores.items()})
    console.print(comparison_table(rows, "average precision, %"))
    console.print(number_table(scores, "every score, %"))
    if per_class:
        console.print(class_table(scores, "mAP of each class, %"))
