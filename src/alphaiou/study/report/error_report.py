"""The error analysis of detection files: a JSON file, a page, and lines to print."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich import box
from rich.table import Table

from alphaiou import __version__
from alphaiou._files import write_file
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError
from alphaiou.detectors import Detections
from alphaiou.metrics import ScoringData
from alphaiou.metrics.columns import column_title
from alphaiou.metrics.error_analysis import (
    ErrorAnalysis,
    ErrorComparison,
    analyse_errors,
    compare_errors,
)
from alphaiou.metrics.errors import ERROR_TYPES
from alphaiou.metrics.iou_histogram import SURE
from alphaiou.metrics.rules import RuleName
from alphaiou.study.detections import RunDetections, compare_detections, differences_of
from alphaiou.study.report.errors import comparison_part, errors_part, image_files
from alphaiou.study.report.html import escape, tag, whole_page
from alphaiou.study.report.pictures import differing_images


@dataclass(frozen=True, eq=False)
class ErrorReport:
    """The error analysis of some detectors on the same images.

    Attributes:
        index: The images.
        rule: The evaluation rule.
        data: The detections of each detector by its name, the baseline first.
        analyses: The analysis of each.
        comparisons: The comparison of each other one with the first.
    """

    index: DetectionIndex
    rule: RuleName
    data: Mapping[str, ScoringData]
    analyses: Mapping[str, ErrorAnalysis]
    comparisons: Mapping[str, ErrorComparison]

    def write(self, out: Path) -> list[Path]:
        """Write ``errors.json`` and ``errors.html``."""
        paths = [out / "errors.json", out / "errors.html"]
        content = {
            "alphaiou": __version__,
            "data": {"path": str(self.index.root), "split": self.index.split},
            "rule": self.rule,
            "errors": {name: one.as_dict() for name, one in self.analyses.items()},
            "against_first": {name: one.as_dict() for name, one in self.comparisons.items()},
        }
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
        write_file(paths[0], f"{text}\n")
        write_file(paths[1], self.page())
        return paths

    def page(self) -> str:
        """The page."""
        baseline = next(iter(self.analyses))
        title = "Errors of " + " and ".join(self.analyses)
        lead = f"{self.index}, rule {self.rule}."
        parts = [tag("h1", escape(title)), tag("p", escape(lead))]
        parts.append(errors_part({n: [one] for n, one in self.analyses.items()}, "errors"))
        files = image_files(self.index.files, self.index.image_ids.tolist())
        for number, (name, comparison) in enumerate(self.comparisons.items()):
            parts.append(comparison_part(baseline, name, comparison, files))
            parts.append(self._pictures(baseline, name, f"differs{number}"))
        return whole_page(title, tag("section", *parts))

    def _pictures(self, first: str, second: str, mark: str) -> str:
        """The images where two detectors differ; nothing if they cannot be read."""
        one, other = (confident(self.data[name], self.index, self.rule) for name in (first, second))
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = compare_detections(one, other, Path(folder))
            except (DataError, OSError):  # the annotations alone are enough for all numbers
                return ""
            shown = differing_images(differences_of(found), first, second, Path(folder), mark)
        title = f"Pictures where {first} and {second} differ"
        return tag("details", tag("summary", escape(title)), shown)

    def lines(self) -> Iterator[Table | str]:
        """What to print: the types of errors, and the differences to the first."""
        first = next(iter(self.analyses.values()))
        for place, shown in enumerate(first.tables):
            title = f"errors at IoU {shown.iou:g}: AP points that fixing them would add, and number"
            table = Table(box=box.SIMPLE_HEAD, title=title)
            table.add_column("")
            for name in self.analyses:
                table.add_column(name, justify="right", overflow="fold")
            tables = [analysis.tables[place] for analysis in self.analyses.values()]
            table.add_row("AP", *(f"{100 * one.ap:.2f}        " for one in tables))
            for kind in ERROR_TYPES:
                gains = ((100 * one.delta_ap[kind], one.counts[kind]) for one in tables)
                table.add_row(kind, *(f"{gain:.2f} {count:>7,}" for gain, count in gains))
            yield table
        for name, comparison in self.comparisons.items():
            changes = (
                f"{column_title(column)} {100 * one.difference:+.2f} "
                f"({100 * one.low:+.2f} to {100 * one.high:+.2f})"
                for column, one in comparison.ap.items()
            )
            yield f"{name}: {', '.join(changes)}; 95 % intervals over images"


def error_report(
    data: Mapping[str, ScoringData],
    index: DetectionIndex,
    *,
    rule: RuleName,
    max_detections: int | None = None,
) -> ErrorReport:
    """Analyse the errors of some detectors on the same images.

    Args:
        data: The detections of each detector by its name, the baseline first.
        index: The images.
        rule: The evaluation rule.
        max_detections: The maximum number of detections per class and image; by default that of
            the rule.
    """
    analyses = {
        name: analyse_errors(one, index.classes, rule=rule, max_detections=max_detections)
        for name, one in data.items()
    }
    first, *others = data.items()
    comparisons = {
        name: compare_errors(first[1], one, index.classes, rule=rule, max_detections=max_detections)
        for name, one in others
    }
    return ErrorReport(index, rule, data, analyses, comparisons)


def confident(data: ScoringData, index: DetectionIndex, rule: RuleName) -> RunDetections:
    """The detections of a high score in each image, in the order of an index."""
    data = data.keep_detections(data.scores >= SURE)
    place = {number: row for row, number in enumerate(data.image_ids.tolist())}
    rows = [place.get(number, -1) for number in index.image_ids.tolist()]
    return RunDetections(rule, index, [_of_image(data, row) for row in rows])


def _of_image(data: ScoringData, row: int) -> Detections:
    chosen = np.flatnonzero(data.images == row)
    chosen = chosen[np.argsort(-data.scores[chosen], kind="stable")]
    corners = data.boxes[chosen].copy()
    corners[:, 2:] += corners[:, :2]
    return {
        "boxes": torch.from_numpy(corners).float(),
        "labels": torch.from_numpy(data.labels[chosen]),
        "scores": torch.from_numpy(data.scores[chosen]).float(),
    }
