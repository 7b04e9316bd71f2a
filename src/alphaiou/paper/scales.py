"""The scale of the paper's experiments: as printed, or small enough to be run often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import SHAPES_WORD
from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.detectors.yolov5.config import YOLOv5xConfig
from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import DRAWN, CompareSettings, compare_recipes
from alphaiou.training.recipe import AUTO, DataRecipe, Recipe, Selection
from alphaiou.training.recipes import (
    detr,
    faster_rcnn,
    paper,
    voc320,
    voc320_detr,
    voc320_faster_rcnn,
)
from alphaiou.training.setup import resolve_splits

#: Epochs of every quick table of YOLOv5 on photographs; the grid ``length`` has other lengths.
BUDGET = 60
VOC, COCO = "voc", "coco"
#: The names of PASCAL VOC and MS COCO in recipes, whatever their paths.
VOC_DATA = DataRecipe(VOC, train="trainval", test="2007-test")
COCO_DATA = DataRecipe(COCO, train="train2017", test="val2017")
VOC320_DATA = DataRecipe("voc320", train="train", test="test")
DRAWN_DATA = DataRecipe(DRAWN, train="train", val="val")

LAST_EPOCH = (
    "The weights after the last epoch are scored; the paper's code kept those that scored best on "
    "the test set."
)
BEST_ON_VAL = (
    "The weights that score best on val are scored on test, or on val without a test split; the "
    "paper's code kept those that scored best on the test set."
)
NMS = "NMS removes boxes above an IoU of 0.6, as YOLOv5 does; the paper's evaluation took 0.5."
OBJECTNESS = (
    "The objectness of YOLOv5 learns the plain IoU; in the paper's code it learnt the powered, "
    "penalised one (grid objectness)."
)


@dataclass(frozen=True)
class Scale:
    """The detectors, data sets and settings that all grids are made of.

    Attributes:
        name: Its name.
        detectors: A recipe for each detector of the paper that this scale includes.
        benchmarks: The data sets that stand for the paper's, by the paper's names.
        lengths: The epochs of the grid ``length``.
        table1: The detectors of Table 1; the others have grids of their own.
        swept_kinds: The losses whose α is swept.
        swept_noise: The rates of noise of the sweep.
        differs: The differences from the paper, in sentences.
        pictures: Whether Table 1 shows detections, which takes as long as scoring.
        places: The paths of the data sets by their names in recipes, without drawn sets and sets
            that are not available.
        select: The weights to score.
    """

    name: str
    detectors: Mapping[str, Recipe]
    benchmarks: Mapping[str, DataRecipe]
    lengths: tuple[int, ...]
    table1: tuple[str, ...] = ("yolov5s",)
    swept_kinds: tuple[str, ...] = ("iou",)
    swept_noise: tuple[float, ...] = (0.0, 0.3)
    differs: tuple[str, ...] = ()
    pictures: bool = False
    places: Mapping[str, Path] = field(default_factory=dict)
    select: Selection = "last"

    def recipe(self, detector: str = "yolov5s", benchmark: str = VOC) -> Recipe:
        """How a detector is trained on a data set."""
        recipe, data = self.detectors[detector], self.benchmarks[benchmark]
        return replace(recipe, data=data, select=self.select)

    def place(self, name: str) -> Path | None:
        """The path of a data set, or the word for a drawn one; None if it is not available."""
        drawn = SHAPES_WORD.fullmatch(name)
        return Path(name) if drawn else self.places.get(name)


def paper_scale(voc: Path | None = None, coco: Path | None = None) -> Scale:
    """As the paper trains: VOC 2007+2012 and COCO, 640 pixels, 300 epochs.

    Args:
        voc: The VOC devkit, with the years 2007 and 2012.
        coco: The folder of MS COCO 2017.
    """
    given = {VOC: voc, COCO: coco}
    yolo = replace(paper(), precision="bf16", evaluate_every=10)
    return Scale(
        name="paper",
        detectors={
            "yolov5s": yolo,
            "yolov5x": replace(yolo, detector=YOLOv5xConfig()),
            DETR: replace(detr(), precision="bf16", evaluate_every=10),
            FASTER_RCNN: replace(faster_rcnn(), precision="bf16", evaluate_every=1),
        },
        benchmarks={VOC: VOC_DATA, COCO: COCO_DATA},
        lengths=(90, 180, 300),
        table1=("yolov5s", "yolov5x", DETR),
        swept_kinds=("iou", "diou"),
        swept_noise=(0.0, 0.1, 0.2, 0.3),
        differs=(LAST_EPOCH, NMS, OBJECTNESS),
        places={name: path.absolute() for name, path in given.items() if path is not None},
    )


def budgets(lengths: Iterable[int]) -> list[int]:
    """The distinct epochs of some runs: the usual budget first, then by the number of runs.

    Examples:
        >>> budgets([100, 30, 30, 60]), budgets([100, 30, 30])
        ([60, 30, 100], [30, 100])
    """
    counts = Counter(lengths)
    return sorted(counts, key=lambda epochs: (epochs != BUDGET, -counts[epochs], epochs))


def quick_scale(
    data: Path | None = None, epochs: int = BUDGET, select: Selection = "last"
) -> Scale:
    """Half the size and a fifth of the epochs on photographs, or minutes on drawn shapes.

    Args:
        data: voc320, or any other data set; drawn shapes by default.
        epochs: The budget of every run of YOLOv5 on photographs.
        select: The weights to score: ``last``, or ``best`` on ``val``.

    Raises:
        DataError: The data set does not exist, or has no split to score or to select on.

    Example:
        >>> quick_scale().recipe().data.path, quick_scale(Path("voc320")).recipe().epochs
        ('shapes-discs-64', 60)
    """
    if data is None:
        return _drawn_scale(select)
    yolo = replace(voc320(), precision="bf16", epochs=epochs, evaluate_every=max(1, epochs // 5))
    two_stages, queries = voc320_faster_rcnn(), voc320_detr()
    splits = _splits(data)
    if select == "best" and splits.val is None:
        raise DataError(
            f"{data}: there is no val split to select the best weights on; alphaiou data subset "
            "makes one"
        )
    return Scale(
        name=splits.path,
        detectors={
            "yolov5s": yolo,
            "yolov5x": replace(yolo, detector=YOLOv5xConfig()),
            DETR: replace(queries, precision="bf16", evaluate_every=queries.epochs // 5),
            FASTER_RCNN: replace(two_stages, precision="bf16", evaluate_every=3),
        },
        benchmarks={VOC: splits},
        lengths=(30, 60, 100),
        differs=(
            *_photographs(splits, yolo),
            LAST_EPOCH if select == "last" else BEST_ON_VAL,
            *(NMS, OBJECTNESS),
        ),
        places={splits.path: data.absolute()},
        select=select,
    )


def _drawn_scale(select: Selection) -> Scale:
    """The training of ``alphaiou compare``, which takes a CPU a minute or two."""
    (recipe,) = compare_recipes([LossSpec("iou")], CompareSettings())
    recipe = replace(recipe, precision="fp32")
    return Scale(
        name="shapes",
        detectors={"yolov5s": recipe},
        benchmarks={VOC: DRAWN_DATA},
        lengths=(5, 10, 16),
        pictures=True,
        differs=(
            f"A small detector (YOLOv5n) learns drawn shapes of {recipe.image_size} pixels in "
            f"{recipe.epochs} epochs: this shows that everything runs, and says nothing about the "
            "paper.",
        ),
        select=select,
    )


def _splits(data: Path) -> DataRecipe:
    """The splits of a data set, whose name in recipes is the last part of its path."""
    if data.name == VOC320_DATA.path:
        return VOC320_DATA  # known, so that tables can be made without the images
    if SHAPES_WORD.fullmatch(str(data)):
        raise DataError(f"{data}: drawn shapes are what --quick takes without data")
    splits = resolve_splits(DataRecipe(str(data), train=AUTO, val=AUTO, test=AUTO))
    if splits.val is None and splits.test is None:
        raise DataError(
            f"{data}: there is no split to score on beside {splits.train!r}; alphaiou data subset "
            "makes one"
        )
    return replace(splits, path=data.name)


def _photographs(data: DataRecipe, recipe: Recipe) -> tuple[str, ...]:
    size = (
        f"Images of {recipe.image_size} pixels, YOLOv5 from scratch in {recipe.epochs} epochs; the "
        "paper has 640 pixels and 300 epochs."
    )
    where = f"Trained on {data.train} and scored on {data.test or data.val} of {data.path}"
    if data == VOC320_DATA:
        where = (
            "Trained on VOC2012 trainval (11,538 images) and scored on VOC2007 trainval (5,008); "
            "the paper trains on both (16,551) and scores on VOC2007 test (4,952)"
        )
    return f"{where}.", size
