"""Every table and figure of the paper as a grid of runs, and controls that it lacks.

A run that several grids need has the same recipe in each, and so is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.iou_histogram import SURE
from alphaiou.paper.published import (
    ALL_COLUMNS,
    PENALTY_POWERS,
    SIZE_COLUMNS,
    SMALL_SETS,
    TABLE_1_COCO,
    TABLE_1_VOC,
    TABLE_2,
    TABLE_2_REPORTED,
    TABLE_3,
    as_fractions,
    loss_key,
)
from alphaiou.paper.scales import COCO, VOC, Scale
from alphaiou.study.grid import Grid, Row
from alphaiou.study.series import FOUND
from alphaiou.training.recipe import Recipe
from alphaiou.training.recipes import (
    gain_name,
    is_constant,
    learns_similarity,
    with_box_gain,
    with_settings,
)

#: The α of the paper's tables.
POWER = 3.0
ALPHAS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)
NOISE = (0.1, 0.2, 0.3)
SHARES = (0.25, 0.5, 1.0)
TARGET_ALPHAS = (0.5, 1.0, 2.0, 3.0)
GAINS = (0.5, 1.0, 2.0, 3.0)
PENALTY_ALPHAS = (0.5, 1.0, 3.0)
DETECTOR_NAMES = {"yolov5s": "YOLOv5s", "yolov5x": "YOLOv5x", DETR: "DETR"}
BENCHMARK_NAMES = {VOC: "VOC", COCO: "COCO"}
NOISY_BOXES = "noisy-boxes"
#: The label of runs whose objectness learns the powered and penalised IoU.
SIMILARITY = "objectness as the loss"
TABLE_1 = {VOC: TABLE_1_VOC, COCO: TABLE_1_COCO}

Published = Callable[[LossSpec], Mapping[str, float]]


def paper_grids(scale: Scale, seeds: Sequence[int] = (0,)) -> dict[str, Grid]:
    """All grids by name, all with the same seeds.

    Args:
        scale: :func:`paper_scale` or :func:`quick_scale`.
        seeds: The seeds of every row.

    Example:
        >>> from pathlib import Path
        >>> from alphaiou.paper.scales import quick_scale
        >>> grid = paper_grids(quick_scale(Path("voc320")), seeds=(0, 1, 2))["table1"]
        >>> [row.label for row in grid.rows], len(list(grid.recipes()))
        (['IoU', 'α-IoU (α=3)', 'DIoU', 'α-DIoU (α=3)'], 12)
    """
    made = (make(scale) for make in MAKERS)
    return {
        grid.name: replace(grid, seeds=tuple(seeds), differs=(*scale.differs, *grid.differs))
        for grid in made
    }


def plain_and_powered(
    names: Iterable[str], recipe: Recipe, published: Published, where: str = ""
) -> list[Row]:
    """A row for each loss as first published, and one for its α version against it."""
    rows = []
    for name in names:
        losses = LossSpec.parse(name), LossSpec.parse(f"{name}:{POWER}")
        plain = losses[0].display_name + where
        for loss, baseline in zip(losses, (None, plain), strict=True):
            label = loss.display_name + where
            rows.append(Row(label, replace(recipe, loss=loss), baseline, published(loss)))
    return rows


def table1(
    scale: Scale, detectors: Sequence[str] | None = None, name: str = "table1", title: str = ""
) -> Grid:
    """IoU and DIoU with their α versions, for every detector and data set."""
    settings = list(product(detectors or scale.table1, scale.benchmarks))
    rows: list[Row] = []
    for detector, benchmark in settings:
        if detector not in scale.detectors:
            continue
        parts = (DETECTOR_NAMES[detector], BENCHMARK_NAMES[benchmark])
        where = f", {' on '.join(parts)}" if len(settings) > 1 else ""
        recipe = scale.recipe(detector, benchmark)
        published = partial(_row, TABLE_1[benchmark][detector])
        rows += plain_and_powered(("iou", "diou"), recipe, published, where)
    title = title or "IoU and DIoU against their α versions"
    differs, pictures = _matching(rows), scale.pictures
    return Grid(name, title, tuple(rows), place="Table 1", differs=differs, pictures=pictures)


def table2(scale: Scale) -> Grid:
    """Faster R-CNN under eleven of the paper's twelve losses."""
    benchmark = COCO if COCO in scale.benchmarks else VOC
    detector = FASTER_RCNN if FASTER_RCNN in scale.detectors else "yolov5s"
    recipe = scale.recipe(detector, benchmark)
    published = partial(_row, {**TABLE_2_REPORTED, **TABLE_2}, columns=SIZE_COLUMNS)
    rows: list[Row] = []
    if detector == FASTER_RCNN:
        deltas = with_box_gain(replace(recipe, loss=LossSpec("l1")), 1.0)
        rows.append(Row("ℓ₁", deltas, published=published(LossSpec("l1"))))
    for loss in map(LossSpec.parse, ("biou", "eiou+focal")):
        row = Row(loss.display_name, replace(recipe, loss=loss), published=published(loss))
        rows.append(row)
    rows += plain_and_powered(("iou", "giou", "diou", "ciou"), recipe, published)
    title = "The losses of Faster R-CNN"
    return Grid("table2", title, tuple(rows), place="Table 2", differs=_table2_differs(recipe))


def table3(scale: Scale) -> Grid:
    """The losses of Table 1 with noisy boxes."""
    rows: list[Row] = []
    for rate in NOISE:
        recipe = replace(scale.recipe(), noise=rate)
        published = partial(_row, TABLE_3[rate], columns=ALL_COLUMNS)
        rows += plain_and_powered(("iou", "diou"), recipe, published, f", η={rate:g}")
    title, clean = "Training boxes with noise", _on_voc(scale)
    return Grid("table3", title, tuple(rows), place="Table 3", beside=clean)


def alpha(scale: Scale) -> Grid:
    """Scores against α, on clean and on noisy boxes."""
    rows: list[Row] = []
    for rate, kind in product(scale.swept_noise, scale.swept_kinds):
        where = f", η={rate:g}" if rate else ""
        printed = TABLE_3[rate] if rate else TABLE_1_VOC["yolov5s"]
        columns = ALL_COLUMNS if rate else None
        for power in ALPHAS:
            loss = LossSpec(kind, power)
            recipe = replace(scale.recipe(), loss=loss, noise=rate)
            baseline = None if power == 1 else LossSpec(kind).display_name + where
            label = loss.display_name + where
            rows.append(Row(label, recipe, baseline, _row(printed, loss, columns)))
    return Grid("alpha", "Which α, clean and noisy", tuple(rows), place="figure of α")


def penalty_alpha(scale: Scale) -> Grid:
    """α₂, the power of the penalty, beside α₁ = 3."""
    rows = []
    for kind, power in product(("giou", "diou", "ciou"), PENALTY_ALPHAS):
        name = f"α-{LossSpec(kind).display_name}"
        # The same loss as in the other tables, and so the same run.
        loss = LossSpec(kind, POWER, None if power == POWER else power)
        published = as_fractions(PENALTY_POWERS[f"{kind}:3:{power:g}"], ALL_COLUMNS)
        baseline = None if power == POWER else f"{name} 3-3"
        recipe = replace(scale.recipe(), loss=loss)
        rows.append(Row(f"{name} 3-{power:g}", recipe, baseline, published))
    title = "The power of the penalty beside that of IoU"
    return Grid("penalty-alpha", title, tuple(rows), place="table of α₂")


def small(scale: Scale) -> Grid:
    """A quarter, a half and all of the training images."""
    rows: list[Row] = []
    for share in SHARES:
        recipe = scale.recipe()
        recipe = replace(recipe, subset=share * recipe.subset)
        printed = SMALL_SETS.get(share, TABLE_1_VOC["yolov5s"])
        where = f", {share:.0%}"
        rows += plain_and_powered(("iou", "diou", "giou"), recipe, partial(_row, printed), where)
    title = "A quarter, a half and all of the images"
    return Grid("small", title, tuple(rows), place="table and figure of small sets")


def distribution(scale: Scale) -> Grid:
    """How well detections fit their objects."""
    title = "How well detections fit their objects"
    meant = (
        "found .50: the share of the objects that are found with an IoU of at least .50, by the "
        f"best-scoring detection of each, if its score is at least {SURE:g}."
    )
    return Grid(
        "distribution",
        title,
        _on_voc(scale),
        place="figure of IoU distributions",
        differs=(meant,),
        found_shares=tuple(FOUND),
    )


def curves(scale: Scale) -> Grid:
    """Scores over the epochs."""
    title, place = "Scores over the epochs", "figure of validation mAPs"
    return Grid("curves", title, _on_voc(scale), place=place)


def examples(scale: Scale) -> Grid:
    """Images where two losses differ: objects found and missed, and failures."""
    grid = table1(scale, ("yolov5s",), "examples", "Images where the losses find different objects")
    rows = tuple(row for row in grid.rows if row.recipe.loss.kind == "iou")
    place = "figures of examples and of failures"
    return replace(grid, rows=rows, place=place, pictures=True)


def noisy_boxes(_: Scale) -> Grid:
    """Pictures of noisy boxes, without any training."""
    return Grid(NOISY_BOXES, "Boxes with noise, drawn", (), place="figure of noisy boxes")


def gains(scale: Scale) -> Grid:
    """α beside a larger box gain, since a power also scales the gradient."""
    rows = _gain_rows(replace(scale.recipe(), loss=LossSpec("iou")), GAINS)
    return Grid("gains", "α against a larger box gain", rows)


def gains_elsewhere(scale: Scale) -> Grid:
    """A larger gain in the other comparisons of Tables 1 and 3 that have several seeds."""
    rows = (
        row
        for kind, noise in (("diou", 0.0), ("iou", max(NOISE)), ("diou", max(NOISE)))
        for row in _gain_rows(replace(scale.recipe(), loss=LossSpec(kind), noise=noise), (1.0, 2.0))
    )
    title = "A larger box gain with DIoU, and with noisy boxes"
    return Grid("gains-elsewhere", title, tuple(rows))


def objectness(scale: Scale) -> Grid:
    """The target of YOLOv5's objectness: the plain IoU, or the powered and penalised one."""
    rows = []
    for kind, power in product(("iou", "diou"), (1.0, POWER)):
        loss = LossSpec(kind, power)
        recipe = replace(scale.recipe(), loss=loss)
        plain = loss.display_name
        rows.append(Row(plain, recipe, published=_row(TABLE_1_VOC["yolov5s"], loss)))
        if (kind, power) != ("iou", 1.0):  # for which both targets are the same
            learnt = with_settings(recipe, objectness="similarity")
            rows.append(Row(f"{plain}, {SIMILARITY}", learnt, plain))
    return Grid("objectness", "What objectness learns", tuple(rows))


def target_alpha(scale: Scale) -> Grid:
    """α of the box loss against γ, the power of the IoU that YOLOv5's objectness learns."""
    baseline = f"{LossSpec('iou').display_name}, target γ=1"
    rows = []
    for power, target in product((1.0, 2.0, POWER), TARGET_ALPHAS):
        loss = LossSpec("iou", power)
        label = f"{loss.display_name}, target γ={target:g}"
        recipe = with_settings(replace(scale.recipe(), loss=loss), objectness_alpha=target)
        rows.append(Row(label, recipe, None if label == baseline else baseline))
    meant = "Objectness learns IoU^γ here; with γ = 1 that is the plain IoU."
    title = "α in the box loss against γ in the target of objectness"
    return Grid("target-alpha", title, tuple(rows), differs=(meant,))


def family(scale: Scale) -> Grid:
    """Later losses of the family, and their α versions."""
    penalties = {"giou:3": PENALTY_POWERS["giou:3:3"], "ciou:3": PENALTY_POWERS["ciou:3:3"]}
    published = partial(_row, penalties, columns=ALL_COLUMNS)
    names = ("giou", "ciou", "eiou", "siou", "iou+wise", "iou+wise_v3", "eiou+focal")
    rows = plain_and_powered(names, scale.recipe(), published)
    return Grid("family", "Other losses and their α versions", tuple(rows))


def length(scale: Scale) -> Grid:
    """The gap between α = 1 and α = 3 by the length of training."""
    rows: list[Row] = []
    for epochs in scale.lengths:
        recipe = scale.recipe()
        often = max(1, recipe.evaluate_every * epochs // recipe.epochs)
        recipe = replace(recipe, epochs=epochs, evaluate_every=often)
        rows += plain_and_powered(("iou",), recipe, lambda _: {}, f", {epochs} epochs")
    return Grid("length", "α = 1 and α = 3 by the length of training", tuple(rows))


#: The grids, the paper's first.
MAKERS: tuple[Callable[[Scale], Grid], ...] = (
    table1,
    partial(table1, detectors=("yolov5x",), name="table1-yolov5x", title="YOLOv5x of Table 1"),
    partial(table1, detectors=(DETR,), name="table1-detr", title="DETR of Table 1"),
    *(table2, table3, alpha, penalty_alpha, small),
    *(distribution, curves, examples, noisy_boxes),
    *(length, gains, gains_elsewhere, objectness, target_alpha, family),
)


def _row(
    rows: Mapping[str, tuple[float | None, ...]],
    loss: LossSpec,
    columns: tuple[str, ...] | None = None,
) -> dict[str, float]:
    """The published scores of a loss; empty if the table has no such row."""
    row = rows.get(loss_key(loss))
    return as_fractions(row) if columns is None else as_fractions(row, columns)


def _gain_rows(plain: Recipe, gains: Sequence[float]) -> tuple[Row, ...]:
    """A loss and its α version at several box gains, against the loss at the usual gain."""
    powered = replace(plain, loss=replace(plain.loss, alpha=POWER))
    baseline = row_at_gain(plain, 1.0).label
    return tuple(row_at_gain(one, gain, baseline) for one in (plain, powered) for gain in gains)


def row_at_gain(recipe: Recipe, gain: float, baseline: str | None = None) -> Row:
    """A row at a multiple of the usual box gain."""
    noise = f", η={recipe.noise:g}" if recipe.noise else ""
    scaled = with_box_gain(recipe, gain * recipe.box_gain, recipe.final_box_gain)
    label = f"{recipe.loss_name}{noise}, box gain {gain_name(scaled)}"
    if learns_similarity(recipe):
        label += f", {SIMILARITY}"
    is_published = gain == 1 and is_constant(recipe) and not noise
    return Row(
        label,
        scaled,
        baseline if label != baseline else None,
        _row(TABLE_1_VOC["yolov5s"], recipe.loss) if is_published else {},
    )


def _on_voc(scale: Scale) -> tuple[Row, ...]:
    """The runs of YOLOv5s on VOC in Table 1."""
    published = partial(_row, TABLE_1_VOC["yolov5s"])
    return tuple(plain_and_powered(("iou", "diou"), scale.recipe(), published))


def _matching(rows: Iterable[Row]) -> tuple[str, ...]:
    """A remark about DETR, if it is among the rows."""
    if not any(row.recipe.detector.name == DETR for row in rows):
        return ()
    return ("DETR matches objects and queries by GIoU, whatever the loss.",)


def _table2_differs(recipe: Recipe) -> tuple[str, ...]:
    reported = (
        "The paper takes its numbers of DIoU, CIoU, Focal-EIoU and Autoloss from other papers; "
        f"the last (mAP {TABLE_2_REPORTED['autoloss'][6]}) is not run here."
    )
    if recipe.detector.name != FASTER_RCNN:
        return (reported, "A detector without ℓ₁ stands for Faster R-CNN.")
    gains = (
        f"Every IoU loss counts {recipe.box_gain:g} times; in the paper's code plain ones counted "
        "10 times and α versions once, and its IoU was −log IoU."
    )
    return (reported, gains)
