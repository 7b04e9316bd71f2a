"""Grids and their records as one HTML page that loads nothing: tables, charts, pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from alphaiou._config import to_plain
from alphaiou._files import write_file
from alphaiou.metrics.columns import column_title
from alphaiou.metrics.error_analysis import analyse_errors, compare_errors
from alphaiou.study.detections import (
    FOUND,
    Findings,
    compared_pairs,
    on_same_images,
    read_differences,
    runs_with_pictures,
)
from alphaiou.study.figures import distribution_chart, grid_figures
from alphaiou.study.grid import Grid
from alphaiou.study.kept import kept_runs
from alphaiou.study.records import RowRuns, RunRecord, grid_runs
from alphaiou.study.report.errors import comparison_part, errors_part
from alphaiou.study.report.html import chart_figure, escape, scrolling, table, tag, whole_page
from alphaiou.study.report.pictures import differing_images, examples_grid
from alphaiou.study.series import MOST_ROWS
from alphaiou.study.tables import Line, StudyTable, study_table, table_lines

ONE_SEED = (
    "One seed per row. All rows share the images, their order, the augmentation and the initial "
    "weights, yet another seed can move every number here by more than the losses differ, above "
    "all in a short training. Repeat with several seeds, and on your own data, before you draw "
    "conclusions."
)


def write_report(
    path: Path,
    grids: Iterable[Grid],
    records: Mapping[str, RunRecord],
    paths: Mapping[str, Path],
    *,
    title: str,
    lead: str = "",
) -> Path:
    """Write the page of some grids; arguments are those of :func:`report_page`."""
    page = report_page(grids, records, paths, title=title, lead=lead)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page)
    return path


def report_page(
    grids: Iterable[Grid],
    records: Mapping[str, RunRecord],
    paths: Mapping[str, Path],
    *,
    title: str,
    lead: str = "",
) -> str:
    """The page of some grids: a function of the grids and of the files of the runs alone.

    Args:
        grids: The grids; those without any run are named at the end.
        records: The records by the names of their runs.
        paths: The paths of the records; pictures beside them are shown.
        title: The title of the page.
        lead: What the page shows, in sentences.
    """
    every = [(grid, grid_runs(grid, records)) for grid in grids if grid.rows]
    shown = [(grid, rows) for grid, rows in every if _runs(rows)]
    absent = [grid.name for grid, rows in every if not _runs(rows)]
    names = {run["name"] for _, rows in shown for run in _runs(rows)}
    sections = (
        _section(grid, rows, records, paths, _earlier(place, shown), alone=len(shown) == 1)
        for place, (grid, rows) in enumerate(shown)
    )
    body = "\n".join(
        (
            _head(title, lead, shown),
            *sections,
            _environment([records[name] for name in sorted(names)]),
            _absent(absent),
        )
    )
    return whole_page(title, body)


def _runs(rows: Mapping[str, RowRuns]) -> list[RunRecord]:
    return [record for row in rows.values() for record in row.runs.values()]


def _earlier(place: int, shown: Sequence[tuple[Grid, Mapping[str, RowRuns]]]) -> Grid | None:
    """The first grid that has all runs and scores of a later one; None without such a grid."""
    later, its_rows = shown[place]
    names = {record["name"] for record in _runs(its_rows)}
    for grid, rows in shown[:place]:
        same_scores = grid.found_shares == later.found_shares
        if same_scores and names <= {record["name"] for record in _runs(rows)}:
            return grid
    return None


# The head and the foot


def _head(title: str, lead: str, shown: Sequence[tuple[Grid, Mapping[str, RowRuns]]]) -> str:
    seeds = max((len(row.runs) for _, rows in shown for row in rows.values()), default=0)
    parts = [tag("h1", escape(title))]
    if lead:
        parts.append(tag("p", escape(lead)))
    if seeds == 1:
        parts.append(tag("p", escape(ONE_SEED), class_="warning"))
    if len(shown) > 1:
        links = (tag("a", escape(grid.name), href=f"#{grid.name}") for grid, _ in shown)
        parts.append(tag("nav", *links, aria_label="Tables and figures"))
    return "".join(parts)


def _environment(records: Sequence[RunRecord]) -> str:
    """The devices, versions and data of all runs."""
    versions: dict[str, set[str]] = {}
    for record in records:
        for package, version in record["versions"].items():
            versions.setdefault(package, set()).add(version)
    facts = {
        "devices": _counted([record["device"] for record in records]),
        "versions": ", ".join(
            f"{name} {' / '.join(sorted(several))}" for name, several in versions.items()
        ),
        "data": "; ".join(dict.fromkeys(note for record in records for note in record["notes"])),
        "scored on": _counted([f"{r['recipe']['data']['path']} {r['scored_on']}" for r in records]),
        "runs": ", ".join(record["name"] for record in records),
    }
    listed = (tag("dt", escape(key)) + tag("dd", escape(value)) for key, value in facts.items())
    return tag("section", tag("h2", "Environment"), tag("dl", *listed), id="environment")


def _counted(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return "; ".join(f"{name} ({count} run{'s' * (count != 1)})" for name, count in counts.items())


def _absent(names: Sequence[str]) -> str:
    if not names:
        return ""
    return tag("p", escape(f"Without finished runs: {', '.join(names)}."), class_="note")


# One section per grid


def _section(
    grid: Grid,
    rows: Mapping[str, RowRuns],
    records: Mapping[str, RunRecord],
    paths: Mapping[str, Path],
    shown_in: Grid | None,
    *,
    alone: bool,
) -> str:
    heading = tag("h2", escape(grid.title))
    heading += tag("p", escape(f"In the paper: {grid.place}"), class_="place") * bool(grid.place)
    if shown_in is not None:
        link = tag("a", escape(shown_in.title), href=f"#{shown_in.name}")
        same = tag("p", f"All its finished runs are among those of {link}.")
        return tag("section", heading, same, id=grid.name)
    numbers = study_table(grid, records)
    charts = (
        chart_figure(chart, f"{grid.name}-{name}")
        for name, chart in grid_figures(grid, records).items()
    )
    return tag(
        "section",
        heading,
        _table(numbers),
        *(tag("p", escape(note), class_="note") for note in (*numbers.notes, *_speed(rows))),
        *charts,
        "" if grid.found_shares else _detections(grid, rows, paths, is_open=alone),
        "" if grid.found_shares else _errors(grid, rows, paths),
        _recipes(grid),
        id=grid.name,
    )


def _table(numbers: StudyTable) -> str:
    titles = ["loss", *map(column_title, numbers.columns)]
    head = tag("tr", *(tag("th", escape(title), scope="col") for title in titles))
    body = (_table_line(line) for line in table_lines(numbers))
    whole = tag("table", tag("thead", head), tag("tbody", *body), class_="study")
    return scrolling(numbers.title, whole)


def _table_line(line: Line) -> str:
    """A line; an interval stands under its change, so that columns stay narrow."""
    cells = []
    for text in line.cells:
        number, _, interval = text.partition(" (")
        under = tag("small", escape(interval.removesuffix(")"))) if interval else ""
        cells.append(tag("td", escape(number), under))
    name = tag("th", tag("span", escape(line.name)), scope="row")
    return tag("tr", name, *cells, class_=line.kind)


def _speed(rows: Mapping[str, RowRuns]) -> list[str]:
    """The speed of training, unless there are too many rows for a sentence."""
    speeds = [
        f"{label} {fmean(run['throughput'] for run in row.runs.values()):.0f}"
        for label, row in rows.items()
        if row.runs and all("throughput" in run for run in row.runs.values())
    ]
    if not 0 < len(speeds) <= MOST_ROWS:
        return []
    return [f"Training speed in images per second: {', '.join(speeds)}."]


def _detections(
    grid: Grid, rows: Mapping[str, RowRuns], paths: Mapping[str, Path], *, is_open: bool
) -> str:
    """The findings that are kept beside the records: IoU, images, and where two losses differ."""
    named = on_same_images(runs_with_pictures(rows, paths))
    parts = []
    if named:
        findings = {label: run.findings for label, run in named.items()}
        parts.append(chart_figure(distribution_chart(findings), f"{grid.name}-distribution"))
        counted = "; ".join(f"{label}: {_found(one)}" for label, one in findings.items())
        parts.append(tag("p", escape(f"{counted}."), class_="note"))
        images = examples_grid(named, f"{grid.name}-picture")
        state = {"open": "open"} if is_open else {}
        parts.append(tag("details", tag("summary", "Pictures"), images, **state))
    for number, (first, second, *folders) in enumerate(compared_pairs(rows, paths)):
        differences = read_differences(*folders)
        if differences is not None:
            mark = f"{grid.name}-differs{number}"
            images = differing_images(differences, first, second, folders[1], mark)
            title = f"Pictures where {first} and {second} differ"
            parts.append(tag("details", tag("summary", escape(title)), images))
    return "".join(parts)


def _errors(grid: Grid, rows: Mapping[str, RowRuns], paths: Mapping[str, Path]) -> str:
    """The error analysis of the runs whose detections are kept, on the images of the first."""
    kept = kept_runs(rows, paths)
    if not kept:
        return ""
    analyses = {
        label: [analyse_errors(run.data, run.classes, rule=run.rule) for run in runs.values()]
        for label, runs in kept.items()
    }
    parts = [errors_part(analyses, f"{grid.name}-errors")]
    for label, runs in kept.items():
        baseline = rows[label].row.baseline or ""
        seeds = sorted(runs.keys() & kept.get(baseline, {}).keys())
        if seeds:
            first, second = kept[baseline][seeds[0]], runs[seeds[0]]
            comparison = compare_errors(first.data, second.data, first.classes, rule=first.rule)
            parts.append(comparison_part(baseline, label, comparison, {}))
    title = f"Errors of {len(kept)} losses" if len(kept) > 1 else "Errors"
    return tag("details", tag("summary", escape(title)), *parts, open="open")


def _found(findings: Findings) -> str:
    ious = [iou for iou in findings.ious if iou >= FOUND]
    if not ious:
        return f"none of {findings.objects:,} objects found at IoU .5"
    mean, found = f"{fmean(ious):.3f}".lstrip("0"), f"{len(ious):,} of {findings.objects:,}"
    return f"{found} objects found at IoU .5, with a mean IoU of {mean}"


def _recipes(grid: Grid) -> str:
    """The settings that differ between the rows of a grid, and those that all share."""
    flat = {row.label: _flattened(to_plain(row.recipe)) for row in grid.rows}
    keys = list(dict.fromkeys(key for recipe in flat.values() for key in recipe))
    varied = [key for key in keys if len({_text(row.get(key)) for row in flat.values()}) > 1]
    rows = [[label, *(_text(row.get(key)) for key in varied)] for label, row in flat.items()]
    first = next(iter(flat.values()))
    common = {key: first.get(key) for key in keys if key not in (*varied, "seed")}
    seeds = ", ".join(map(str, grid.seeds))
    parts = [tag("summary", escape(f"Recipes (seeds {seeds})"))]
    if varied:
        parts.append(
            scrolling("Settings that differ", table(["", *varied], rows, class_="recipes"))
        )
    shared = json.dumps(common, indent=1, ensure_ascii=False)
    return tag("details", *parts, tag("pre", escape(shared), tabindex=0))


def _flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values under dotted names, such as ``loss.kind``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _text(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
