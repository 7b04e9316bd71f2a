"""A comparison of losses as one page that needs nothing else: table, curves, pictures, recipe."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from alphaiou.inference.tables import cell, column_title, markdown
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics import ComparisonRow, comparison_rows
from alphaiou.study.records import as_number
from alphaiou.study.report.html import (
    Axis,
    Points,
    escape,
    line_chart,
    spanning,
    steps,
    tag,
)
from alphaiou.study.report.pictures import examples_section
from alphaiou.study.statistics import paired_change
from alphaiou.study.tables import change_text
from alphaiou.training.record import loss_parts

if TYPE_CHECKING:
    from alphaiou.study.compare import ComparedRun
    from alphaiou.study.detections import Findings

LEAST_BASELINE = 0.005
SCORES = (*(f"ap{percent}" for percent in range(50, 100, 5)), "map", "map75_95")
SEED_SCORES = ("ap50", "ap75", "map", "map75_95")
BINS = np.linspace(0.5, 1.0, 21)
REACHED = np.linspace(0.5, 1.0, 51)
CAUTION = (
    "One seed each. The images, their order, the augmentation and the weights at the start are the "
    "same for every loss, yet another seed can move each number here by more than the losses "
    "differ, above all in a short training. A difference means nothing until it holds over several "
    "seeds (--seed 1, --seed 2, …), and on your own data."
)


def write_report(runs: Sequence[ComparedRun], path: Path) -> Path:
    """Write the page of a comparison, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    spare = path.with_name(f"{path.name}.part")
    spare.write_text(comparison_page(runs), encoding="utf-8")
    spare.replace(path)
    return path


def comparison_page(runs: Sequence[ComparedRun]) -> str:
    """The page: a function of what the runs left on the disk, and of nothing else."""
    named = named_runs(runs)
    template = files("alphaiou.study.report").joinpath("report_template.html")
    body = "\n".join(
        (
            _head(named),
            _scores(named),
            _curves(named),
            _distribution(named),
            examples_section(named),
            _circumstances(named),
        )
    )
    title = escape(" · ".join(named))
    return Template(template.read_text(encoding="utf-8")).substitute(title=title, body=body)


def named_runs(runs: Sequence[ComparedRun]) -> dict[str, ComparedRun]:
    """The runs by the names of their losses."""
    return {LossSpec(**run.record["recipe"]["loss"]).display_name: run for run in runs}


def score_rows(named: Mapping[str, ComparedRun], columns: Sequence[str]) -> list[ComparisonRow]:
    """The scores, and the change of each from the first; NaN for what is not defined.

    A change from next to nothing would be a large number that says nothing: it is NaN too.
    """
    scores = {
        name: {key: as_number(run.record["scores"][key]) for key in columns}
        for name, run in named.items()
    }
    rows = comparison_rows(scores, columns)
    for row in rows:
        if row.improvement:
            low = (key for key in columns if rows[0].values[key] < LEAST_BASELINE)
            row.values.update(dict.fromkeys(low, float("nan")))
    return rows


def data_line(run: ComparedRun) -> str:
    """What was trained on and scored on, in a line."""
    recipe, found = run.record["recipe"], run.findings
    return (
        f"{recipe['data']['path']}: scored on {found.images:,} images of {found.split!r} "
        f"with {found.objects:,} objects"
    )


def seeds_table(record: Mapping[str, Any]) -> str:
    """Several seeds of a comparison as Markdown: the mean of each score, lowest and highest.

    Losses after the first have what they change, marked where the seeds do not decide.

    Args:
        record: ``rows`` of ``loss``, ``seed`` and ``scores``.
    """
    by_loss: dict[str, dict[int, Mapping[str, float]]] = {}
    for row in record["rows"]:
        by_loss.setdefault(row["loss"], {})[row["seed"]] = row["scores"]
    first, *_ = by_loss.values()
    lines = []
    for loss, own in by_loss.items():
        spread = [_by_seed(own, key) for key in SEED_SCORES]
        means = [f"{cell(fmean(x.values()))} ({_range(x.values())})" for x in spread]
        lines.append([LossSpec.parse(loss).display_name, str(len(own)), *means])
        if own is not first:
            changes = [
                paired_change(_by_seed(own, key), _by_seed(first, key)) for key in SEED_SCORES
            ]
            lines.append(["– change", "", *map(change_text, changes)])
    return markdown(["loss", "seeds", *map(column_title, SEED_SCORES)], lines, left=1)


def _by_seed(runs: Mapping[int, Mapping[str, float]], key: str) -> dict[int, float]:
    return {seed: scores[key] for seed, scores in runs.items()}


def _range(values: Collection[float]) -> str:
    return f"{cell(min(values))} to {cell(max(values))}"


def _head(named: Mapping[str, ComparedRun]) -> str:
    first = next(iter(named.values()))
    recipe = first.record["recipe"]
    same = (
        f"The same {recipe['detector']} at {recipe['image_size']} pixels, the same data and seed "
        f"{recipe['seed']}, {recipe['epochs']} epochs under each loss. {data_line(first)}."
    )
    return tag("h1", escape(" against ".join(named))) + tag("p", escape(same))


def _scores(named: Mapping[str, ComparedRun]) -> str:
    """A line a score, a column a loss and one for its improvement: narrow enough for a phone."""
    columns = score_rows(named, SCORES)
    head = ["", *("change" if c.improvement else c.name for c in columns)]
    lines = [_score_line(key, columns) for key in SCORES]
    titles = tag("tr", *(tag("th", escape(name), scope="col") for name in head))
    whole = tag("table", tag("thead", titles), tag("tbody", *lines), id="scores")
    rule = next(iter(named.values())).record["recipe"]["rule"]
    note = (
        f"Average precision in percent, rule “{rule}”, weights after the last epoch. AP75: a "
        "detection counts if its IoU is at least .75. The change is relative to the first loss, "
        f"as in the paper’s tables; none is given from scores below {LEAST_BASELINE:.1%}."
    )
    return (
        tag("h2", "Scores")
        + tag("div", whole, class_="scroll")
        + tag("p", escape(note), class_="note")
        + tag("p", escape(CAUTION), class_="warning")
    )


def _score_line(key: str, columns: Sequence[ComparisonRow]) -> str:
    rows = (
        tag(
            "td",
            escape(cell(column.values[key], improvement=column.improvement)),
            class_="change" if column.improvement else "score",
        )
        for column in columns
    )
    heading = tag("th", column_title(key), scope="row")
    return tag("tr", heading, *rows, class_="means" if key.startswith("map") else "thresholds")


def _curves(named: Mapping[str, ComparedRun]) -> str:
    histories = {name: run.record["history"] for name, run in named.items()}
    last = max(len(history) for history in histories.values())
    epochs = Axis("epoch", 0 if last == 1 else 1, last, whole=True)
    others = [name for name in loss_parts(next(iter(histories.values()))[0]) if name != "box"]
    title = f"{' and '.join(others)} loss".capitalize()
    charts = [
        _chart({n: _scored(h, "ap50") for n, h in histories.items()}, epochs, "%", "AP50"),
        _chart({n: _scored(h, "map") for n, h in histories.items()}, epochs, "%", "mAP"),
        _chart({n: _parts(h, ("box",)) for n, h in histories.items()}, epochs, "", "Box loss"),
        _chart({n: _parts(h, others) for n, h in histories.items()}, epochs, "", title),
    ]
    note = (
        "Scores of the averaged weights. Box losses are drawn for their shape: a power changes the "
        "scale of a loss, so that their heights cannot be compared."
    )
    return (
        tag("h2", "Training")
        + tag("div", *charts, class_="charts")
        + tag("p", escape(note), class_="note")
    )


def _chart(series: Mapping[str, Points], x: Axis, unit: str, title: str) -> str:
    highest = (value for points in series.values() for _, value in points)
    return line_chart(series, x, spanning(unit, highest), title)


def _scored(history: Sequence[Mapping[str, Any]], key: str) -> Points:
    watched = ((entry["epoch"], entry.get("val", entry.get("test", {}))) for entry in history)
    scores = ((epoch, found.get(key)) for epoch, found in watched)
    return [(epoch, 100 * score) for epoch, score in scores if score is not None]


def _parts(history: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Points:
    return [(entry["epoch"], sum(entry[key] for key in keys)) for entry in history]


def _distribution(named: Mapping[str, ComparedRun]) -> str:
    findings = {name: run.findings for name, run in named.items()}
    iou = Axis("IoU", 0.5, 1.0)
    histogram = {
        name: steps(_shares(np.histogram(one.ious, BINS)[0], one), BINS.tolist())
        for name, one in findings.items()
    }
    reached = {
        name: list(zip(REACHED.tolist(), _shares(_reaching(one), one), strict=True))
        for name, one in findings.items()
    }
    charts = [
        _chart(histogram, iou, "% of objects, in steps of .025", "IoU of matched detections"),
        _chart(reached, iou, "% of objects", "Objects found with at least this IoU"),
    ]
    found = "; ".join(f"{name}: {_summary(one)}" for name, one in findings.items())
    least = next(iter(findings.values())).least_score
    note = f"Each object with its best detection of a score of at least {least:g}. {found}."
    return (
        tag("h2", "How well detections lie on the objects")
        + tag("div", *charts, class_="charts")
        + tag("p", escape(note), class_="note")
    )


def _reaching(findings: Findings) -> np.ndarray:
    """How many objects were found with at least each IoU."""
    ascending = np.sort(findings.ious)
    return len(ascending) - np.searchsorted(ascending, REACHED)


def _shares(counts: np.ndarray, findings: Findings) -> list[float]:
    shares: list[float] = (100 * counts / max(findings.objects, 1)).tolist()
    return shares


def _summary(findings: Findings) -> str:
    found = [iou for iou in findings.ious if iou >= 0.5]
    if not found:
        return f"none of {findings.objects:,} objects found at IoU .5"
    mean = f"{np.mean(found):.3f}".lstrip("0")
    return f"{len(found):,} of {findings.objects:,} found at IoU .5, with a mean IoU of {mean}"


def _circumstances(named: Mapping[str, ComparedRun]) -> str:
    record = next(iter(named.values())).record
    speeds = (f"{name} {run.record['throughput']:.0f}" for name, run in named.items())
    facts = {
        "data": "; ".join(record["notes"]) or record["recipe"]["data"]["path"],
        "seed": record["recipe"]["seed"],
        "images a second in training": ", ".join(speeds),
        "device": record["device"],
        "versions": ", ".join(f"{name} {value}" for name, value in record["versions"].items()),
        "runs": ", ".join(f"{name} {run.record['name']}" for name, run in named.items()),
    }
    listed = (tag("dt", escape(key)) + tag("dd", escape(value)) for key, value in facts.items())
    recipe = json.dumps({k: v for k, v in record["recipe"].items() if k != "loss"}, indent=1)
    return (
        tag("h2", "Circumstances")
        + tag("dl", *listed)
        + tag("details", tag("summary", "The recipe, but for the loss"), tag("pre", escape(recipe)))
    )
