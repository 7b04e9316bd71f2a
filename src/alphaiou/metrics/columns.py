"""The registry of scores: their names in records, their titles in tables, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from alphaiou.metrics.coco import SIZES
from alphaiou.metrics.iou_histogram import HISTOGRAM_THRESHOLDS
from alphaiou.metrics.rules import IOU_THRESHOLDS

if TYPE_CHECKING:
    from alphaiou.metrics.scores import Scores

ColumnKind = Literal["threshold", "mean", "size", "recall", "found"]


@dataclass(frozen=True)
class Column:
    """A score as a column of tables.

    Attributes:
        name: Its key in records.
        title: Its heading, as in the paper.
        kind: Average precision at an IoU threshold, a mean over thresholds, or a mean for one
            object size; recall; or the share of the objects found.
        is_optional: Whether records of earlier versions may lack it.
    """

    name: str
    title: str
    kind: ColumnKind
    is_optional: bool = False


@dataclass(frozen=True)
class Family:
    """Columns that differ only in a threshold, a limit or a size; or a single column.

    Attributes:
        kind: The kind of its columns.
        name: Their names without the key.
        title: Their titles without the key.
        values: How the scores are read from an evaluation, by key.
        keys: The keys under the usual settings; other thresholds and limits have titles too.
        is_optional: Whether records of earlier versions may lack them.
    """

    kind: ColumnKind
    name: str
    title: str
    values: Callable[[Scores], Mapping[int, float] | Mapping[str, float]]
    keys: tuple[int | str, ...] = ("",)
    is_optional: bool = False

    def column(self, key: int | str) -> Column:
        """The column of a key."""
        return Column(f"{self.name}{key}", f"{self.title}{key}", self.kind, self.is_optional)


def _percents(thresholds: Iterable[float]) -> tuple[int, ...]:
    return tuple(round(100 * threshold) for threshold in thresholds)


#: A new score is a line here; the order is that of records and tables.
FAMILIES = (
    Family("threshold", "ap", "AP", lambda s: s.ap, _percents(IOU_THRESHOLDS)),
    Family("mean", "map", "mAP", lambda s: {"": s.map}),
    Family("mean", "map75_95", "mAP75:95", lambda s: {"": s.map75_95}),
    Family("size", "map_", "mAP ", lambda s: s.size_ap, SIZES[1:]),
    Family("recall", "ar", "AR", lambda s: s.ar, (1, 10, 100, 300)),
    Family("recall", "ar_", "AR ", lambda s: s.size_ar, SIZES[1:]),
    Family("recall", "recall", "recall .", lambda s: s.recall, _percents(IOU_THRESHOLDS), True),
    Family("found", "found", "found .", lambda s: s.found, _percents(HISTOGRAM_THRESHOLDS), True),
)
COLUMNS = tuple(family.column(key) for family in FAMILIES for key in family.keys)
_BY_NAME = {column.name: column for column in COLUMNS}


def columns_of(*kinds: ColumnKind) -> tuple[str, ...]:
    """The names of the columns of some kinds, in their order.

    Examples:
        >>> columns_of("mean", "size")
        ('map', 'map75_95', 'map_small', 'map_medium', 'map_large')
    """
    return tuple(column.name for column in COLUMNS if column.kind in kinds)


#: The columns of the paper's main table.
PAPER_COLUMNS = ("ap50", "ap75", "ap85", "ap95", "map", "map75_95")
#: The scores that are printed after an epoch.
EPOCH_COLUMNS = ("ap50", "map")


def column_title(name: str) -> str:
    """The heading of a column, as in the paper; the name itself if it is not a score of ours.

    Examples:
        >>> [column_title(name) for name in ("ap50", "map75_95", "map_small", "ar100", "found90")]
        ['AP50', 'mAP75:95', 'mAP small', 'AR100', 'found .90']
        >>> column_title("ap62"), column_title("ar500")
        ('AP62', 'AR500')
    """
    if name in _BY_NAME:
        return _BY_NAME[name].title
    for family in FAMILIES:
        key = name.removeprefix(family.name)
        if key != name and key.isdigit():
            return family.column(key).title
    return name


def optional_columns(names: Iterable[str]) -> frozenset[str]:
    """Those of some columns that records of earlier versions may lack.

    Examples:
        >>> sorted(optional_columns(["ap50", "found50", "recall75"]))
        ['found50', 'recall75']
    """
    return frozenset(name for name in names if name in _BY_NAME and _BY_NAME[name].is_optional)


def read_score(scores: Mapping[str, float | None], name: str) -> float:
    """A score of a record; NaN where it is undefined, which JSON writes as null, or absent.

    Examples:
        >>> read_score({"ap50": 0.5, "map_small": None}, "ap50")
        0.5
        >>> read_score({"ap50": 0.5, "map_small": None}, "map_small")
        nan
    """
    value = scores.get(name)
    return float("nan") if value is None else float(value)


def named_scores(scores: Scores) -> dict[str, float]:
    """Every score of an evaluation by the name of its column."""
    return {
        family.column(key).name: value
        for family in FAMILIES
        for key, value in family.values(scores).items()
    }
