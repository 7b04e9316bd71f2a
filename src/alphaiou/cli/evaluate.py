"""``alphaiou eval``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from alphaiou.cli.options import NewFolder, Workers

if TYPE_CHECKING:
    from rich.console import Console

    from alphaiou.data.dataset import DetectionDataset
    from alphaiou.inference.detection_files import ScoredFile
    from alphaiou.inference.weights import TrainedDetector
    from alphaiou.metrics.rules import RuleName
    from alphaiou.study.report.error_report import ErrorReport

#: ``--json`` without a file prints the scores.
PRINT = "-"
#: An option with a value or without; tyro has no such type.
OptionalFile = Annotated[
    str | None,
    PrimitiveConstructorSpec(
        nargs=(0, 1),
        metavar="[FILE]",
        instance_from_str=lambda values: values[0] if values else PRINT,
        is_instance=lambda value: value is None or isinstance(value, str),
        str_from_instance=lambda value: [str(value)],
    ),
    tyro.conf.arg(help_behavior_hint=""),
]


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Score trained weights or COCO detection files, and compare them.

    Weights: alphaiou eval --weights FILE --data PATH --split test.

    Detections: [{"image_id", "category_id", "bbox": [x, y, w, h], "score"}, ...]:
    - image_id: the number or the file name of an image
    - category_id: the number or the name of a class
    - or the folder of a run that kept its detections, or its detections.npz
    - the first file is the baseline of the others

    Prints a table and writes to --out:
    - scores.json                  all scores, also per class
    - precision_recall.png, .svg   precision against recall
    - iou_distribution.png, .svg   IoU of detections with ground truth
    - errors.json, errors.html     with --errors
    """

    predictions: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[PREDICTIONS ...]", help_behavior_hint=""),
    ] = ()
    """Detection files or folders of runs, the baseline first."""

    weights: Annotated[
        Path | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="FILE", help_behavior_hint=""),
    ] = None
    """Weights to score instead: best.safetensors of a run, or the folder of the run."""

    data: Annotated[str, tyro.conf.arg(metavar="PATH")]
    """Data set to score on: a folder, an annotation file, or shapes."""

    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "val"
    """Split of the data set."""

    rule: Annotated[
        Literal["coco", "paper", "voc", "voc07", "yolov5"] | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(help_behavior_hint="(default: that of the weights, else paper)"),
    ] = None
    """paper: coco without difficult boxes, 300 detections; voc: VOC since 2010; voc07: VOC 2007;
    yolov5: YOLOv5's test program."""

    max_detections: Annotated[
        int | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(
            metavar="INT",
            help_behavior_hint="(default: coco 100, paper and yolov5 300, voc and voc07 all)",
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

    errors: bool = False
    """Also analyse the errors: types, places, calibration, and the differences to the baseline."""

    json: OptionalFile = None
    """Also write scores.json to FILE; without FILE, print it instead of the tables."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device for --weights."""

    workers: Workers = None
    """Number of processes that decode images for --weights."""

    out: NewFolder = Path("runs/eval")


def run_eval(command: Evaluate) -> int:
    """Score the files or weights, print the tables, and write the scores and figures."""
    from rich.console import Console

    from alphaiou._files import write_file
    from alphaiou.cli.options import make_folder
    from alphaiou.data.dataset import load_dataset
    from alphaiou.inference.detection_files import score_files, summary_text, write_results
    from alphaiou.inference.kept_detections import open_detections
    from alphaiou.inference.weights import load_weights
    from alphaiou.metrics.rules import DEFAULT_RULE, RULES

    _check_arguments(command)
    trained = None if command.weights is None else load_weights(command.weights)
    dataset = load_dataset(command.data, command.split)
    index = dataset.index
    make_folder(command.out)
    console = Console(quiet=command.json == PRINT)
    rule = command.rule or DEFAULT_RULE
    if trained is None:
        evaluations = score_files(
            command.predictions,
            index,
            rule=rule,
            max_detections=command.max_detections,
            min_score=command.min_score,
            load=open_detections,
        )
    else:
        rule = command.rule or trained.recipe.get("rule", DEFAULT_RULE)
        evaluations = [_score_weights(command, trained, dataset, rule, console)]
    paths = write_results(evaluations, index, command.out)
    found = _errors(command, evaluations, dataset) if command.errors else None
    if found is not None:
        paths += found.write(command.out)
    if command.json == PRINT:
        Console(soft_wrap=True).print_json(summary_text(evaluations, index))
        return 0
    if command.json is not None:
        paths.append(Path(command.json))
        write_file(paths[-1], summary_text(evaluations, index))
    title = f"{index}, rule {rule} ({RULES[rule].description})"
    console.print(title, highlight=False, soft_wrap=True)
    _print_tables(evaluations, command, trained, console)
    if found is not None:
        for line in found.lines():
            console.print(line, highlight=False, soft_wrap=True)
    for path in paths:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _errors(
    command: Evaluate, evaluations: Sequence[ScoredFile], dataset: DetectionDataset
) -> ErrorReport:
    from alphaiou.study.report.error_report import error_report

    return error_report(
        {evaluation.name: evaluation.data for evaluation in evaluations},
        dataset.index,
        rule=evaluations[0].scores.rule,
        max_detections=command.max_detections,
    )


def _check_arguments(command: Evaluate) -> None:
    import math

    from alphaiou.cli import UsageError

    if bool(command.predictions) == (command.weights is not None):
        raise UsageError("eval: give detection files, or --weights FILE")
    for path in command.predictions:
        if not path.exists():
            raise UsageError(f"{path}: this detection file does not exist")
    if command.max_detections is not None and command.max_detections < 1:
        raise UsageError(f"--max-detections {command.max_detections}: must be at least 1")
    if command.min_score is not None and math.isnan(command.min_score):
        raise UsageError("--min-score nan: must be a number")
    if command.json is not None and command.json != PRINT:
        path = Path(command.json)
        if path.exists() and b'"alphaiou"' not in path.read_bytes()[:100]:
            raise UsageError(
                f"--json {path}: this file exists and has no scores of alphaiou eval; write "
                "detection files before the options, or choose another name"
            )


def _score_weights(
    command: Evaluate,
    trained: TrainedDetector,
    dataset: DetectionDataset,
    rule: RuleName,
    console: Console,
) -> ScoredFile:
    """Score the weights as their training does."""
    from alphaiou._environment import device_kind
    from alphaiou.inference.detection_files import scored_file
    from alphaiou.inference.evaluation import weights_detections
    from alphaiou.training.record import upgraded_recipe

    recipe = upgraded_recipe(trained.recipe)
    collected = weights_detections(
        trained,
        dataset,
        rule=rule,
        device=device_kind(command.device),
        workers=command.workers,
        note=lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True),
    )
    return scored_file(
        f"{recipe.detector.name}, {recipe.loss_name}",
        Path(str(command.weights)),
        collected.data(),
        dataset.index.classes,
        rule=rule,
        max_detections=command.max_detections,
        min_score=command.min_score,
    )


def _print_tables(
    evaluations: Sequence[ScoredFile],
    command: Evaluate,
    trained: TrainedDetector | None,
    console: Console,
) -> None:
    from alphaiou.cli.training_progress import scores_title
    from alphaiou.inference.tables import class_table, comparison_table, number_table
    from alphaiou.metrics import comparison_rows

    for evaluation in evaluations:
        text = f"{evaluation.name}: {evaluation.scores.num_detections:,} detections"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    scores = {evaluation.name: evaluation.scores for evaluation in evaluations}
    rows = comparison_rows({name: score.as_dict() for name, score in scores.items()})
    if trained is None:
        console.print(comparison_table(rows, "average precision, %"))
        console.print(number_table(scores, "every score, %"))
    else:
        rule = evaluations[0].scores.rule
        title = scores_title(command.data, command.split, rule, _epoch(trained))
        console.print(comparison_table(rows, title))
    if command.per_class:
        console.print(class_table(scores, "mAP of each class, %"))


def _epoch(trained: TrainedDetector) -> str:
    """The epoch of some weights, as the table at the end of their training has it."""
    select = trained.recipe.get("select", "last")
    if select == "last":
        return "last epoch"
    on = "val" if select == "best" else "test"
    return f"epoch {trained.epochs}, best on {on}" if trained.images else f"best on {on}"
