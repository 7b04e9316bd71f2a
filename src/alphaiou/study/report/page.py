"""Grids and their records as one page that needs nothing else: tables, charts, pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from alphaiou._files import write_file
from alphaiou.inference.tables import column_title
from alphaiou.metrics.iou_histogram import SURE
from alphaiou.study.detections import Differences, read_differences, said_of
from alphaiou.study.grid import Grid
from alphaiou.study.records import (
    RowRuns,
    RunRecord,
    drawn_runs,
    grid_runs,
    load_records,
    record_paths,
)
from alphaiou.study.report.charts import grid_charts
from alphaiou.study.report.html import escape, table, tag
from alphaiou.study.report.pictures import (
    alike,
    compared_pairs,
    drawn_note,
    example_row,
    examples_grid,
    seen_runs,
)
from alphaiou.study.tables import Line, StudyTable, study_table, table_lines


def environment(records: Sequence[RunRecord]) -> str:
    """The devices, versions and data of all runs, as a part of a page."""
    versions: dict[str, set[str]] = {}
    for record in records:
        for package, version in record["versions"].items():
            versions.setdefault(package, set()).add(version)
    facts = {
        "devices": _counted([record["device"] for record in records]),
        "versions": ", ".join(
            f"{name} {' / '.join(sorted(own))}" for name, own in versions.items()
        ),
        "data": "; ".join(dict.fromkeys(note for record in records for note in record["notes"])),
        "scored on": _counted([f"{r['recipe']['data']['path']} {r['scored_on']}" for r in records]),
        "runs": ", ".join(record["name"] for record in records),
    }
    listed = (tag("dt", escape(key)) + tag("dd", escape(value)) for key, value in facts.items())
    return tag("section", tag("h2", "Environment"), tag("dl", *listed), id="environment")


def recipes_of(grid: Grid) -> str:
    """What all rows of a grid have in common, and in what they differ."""
    flat = {row.label: flattened(asdict(row.recipe)) for row in grid.rows}
    keys = list(dict.fromkeys(key for own in flat.values() for key in own))
    varied = [key for key in keys if len({_text(own.get(key)) for own in flat.values()}) > 1]
    rows = [[label, *(_text(own.get(key)) for key in varied)] for label, own in flat.items()]
    first = next(iter(flat.values()))
    common = {key: first.get(key) for key in keys if key not in (*varied, "seed")}
    parts = [tag("pre", escape(json.dumps(common, indent=1, ensure_ascii=False)), tabindex=0)]
    if varied:
        differing = table(["", *varied], rows).replace("<table>", '<table class="recipes">', 1)
        parts.insert(0, tag("div", differing, class_="scroll", tabindex=0))
    seeds = ", ".join(map(str, grid.seeds))
    return tag("details", tag("summary", escape(f"The recipes (seeds {seeds})")), *parts)


def flattened(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested values under dotted names.

    Examples:
        >>> flattened({"loss": {"kind": "iou"}, "epochs": 60})
        {'loss.kind': 'iou', 'epochs': 60}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    return flat


def _counted(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return "; ".join(f"{name} ({count} run{'s' * (count != 1)})" for name, count in counts.items())


def _text(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


PAGE = "report.html"
TITLE = "The paper, run again"
#: Losses that are shown side by side in pictures.
MOST_PICTURED = 4


def write_paper_report(grids: Iterable[Grid], folders: Iterable[Path], out: Path) -> Path:
    """Write the page of some grids, whole or not at all.

    Args:
        grids: What to show; those without any record are named at the end.
        folders: Where the records are; pictures are shown where they lie beside them.
        out: The folder to write ``report.html`` to, or a file that ends in ``.html``.

    Returns:
        The file.

    Raises:
        RecordError: A record is damaged.
    """
    folders = list(folders)
    path = out if out.suffix == ".html" else out / PAGE
    path.parent.mkdir(parents=True, exist_ok=True)
    page = paper_page(grids, load_records(folders), record_paths(folders))
    write_file(path, page)
    return path


def paper_page(
    grids: Iterable[Grid], records: Mapping[str, RunRecord], paths: Mapping[str, Path]
) -> str:
    """The page: a function of the grids and of what the runs left, and of nothing else.

    Args:
        grids: What to show.
        records: By the names of their runs.
        paths: Where these are.
    """
    found = [(grid, grid_runs(grid, records)) for grid in grids if grid.rows]
    shown = [(grid, rows) for grid, rows in found if _runs(rows)]
    absent = [grid.name for grid, rows in found if not _runs(rows)]
    names = {record["name"] for _, rows in shown for record in _runs(rows)}
    body = "\n".join(
        (
            _head([grid for grid, _ in shown], len(names)),
            *(
                _section(grid, rows, records, paths, shown_in=_earlier(place, shown))
                for place, (grid, rows) in enumerate(shown)
            ),
            environment([records[name] for name in sorted(names)]),
            _absent(absent),
        )
    )
    return _framed(body)


def _earlier(place: int, shown: Sequence[tuple[Grid, Mapping[str, RowRuns]]]) -> Grid | None:
    """The first grid that says all of a later one; none where there is no such grid."""
    later, its_cells = shown[place]
    own = {record["name"] for record in _runs(its_cells)}
    for grid, rows in shown[:place]:
        same_scores = grid.found_shares == later.found_shares
        if same_scores and own <= {record["name"] for record in _runs(rows)}:
            return grid
    return None


def _runs(rows: Mapping[str, RowRuns]) -> list[RunRecord]:
    return [record for own in rows.values() for record in own.runs.values()]


def _framed(body: str) -> str:
    """The body within the frame that all pages have, with the style and the script of this one."""
    here = files("alphaiou.study.report")
    style, script = (
        here.joinpath(f"paper_report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
    )
    frame = here.joinpath("report_template.html").read_text(encoding="utf-8")
    page = Template(frame).substitute(title=TITLE, body=f"{body}\n{tag('script', script)}")
    return page.replace("</head>", f"{tag('style', style)}\n</head>", 1)


def _head(grids: Sequence[Grid], runs: int) -> str:
    counted = (
        f"{runs} finished run{'s' * (runs != 1)}, which {len(grids)} of the paper’s tables and "
        "figures and of the controls beside them need."
    )
    how = (
        "Each row is the mean over its seeds; each change is paired by seed and has its 95 % "
        "interval; what the seeds do not decide is marked °. Where scores are drawn against what "
        "is varied, the points of a line have the same seeds; hollow marks have one seed. Charts "
        "can be read with a pointer, a finger, or the arrow keys."
    )
    links = (tag("a", escape(grid.name), href=f"#{grid.name}") for grid in grids)
    return tag("h1", TITLE) + tag("p", escape(f"{counted} {how}")) + tag("nav", *links)


def _section(
    grid: Grid,
    rows: Mapping[str, RowRuns],
    records: Mapping[str, RunRecord],
    paths: Mapping[str, Path],
    shown_in: Grid | None,
) -> str:
    heading = tag("h2", escape(grid.title))
    heading += tag("p", escape(f"In the paper: {grid.place}"), class_="place") * bool(grid.place)
    if shown_in is not None:
        link = tag("a", escape(shown_in.title), href=f"#{shown_in.name}")
        same = tag("p", f"Its runs so far are all among those of {link}.")
        return tag("section", heading, same, id=grid.name)
    table = study_table(grid, records)
    return tag(
        "section",
        heading,
        _table(table),
        tag("div", *(tag("p", escape(note), class_="note") for note in table.notes)),
        grid_charts(grid, rows, drawn_runs(grid, records)),
        "" if grid.found_shares else _gallery(grid, rows, paths),
        recipes_of(grid),
        id=grid.name,
    )


def _table(table: StudyTable) -> str:
    titles = ["loss", *map(column_title, table.columns)]
    head = tag("tr", *(tag("th", escape(title), scope="col") for title in titles))
    body = (_table_line(line) for line in table_lines(table))
    whole = tag("table", tag("thead", head), tag("tbody", *body), class_="paper")
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=table.title)


def _table_line(line: Line) -> str:
    """A line; an interval stands under its change, so that columns stay narrow."""
    rows = []
    for text in line.cells:
        number, _, interval = text.partition(" (")
        under = tag("small", escape(interval.removesuffix(")"))) if interval else ""
        rows.append(tag("td", escape(number), under))
    name = tag("th", tag("span", escape(line.name)), scope="row")
    return tag("tr", name, *rows, class_=line.kind)


def _gallery(grid: Grid, rows: Mapping[str, RowRuns], paths: Mapping[str, Path]) -> str:
    """Images spread over the data, and those where two losses differ, as far as they were kept."""
    named = alike(seen_runs(rows, paths), MOST_PICTURED)
    parts = []
    if named:
        spread = examples_grid(named, f"{grid.name}-picture")
        parts.append(tag("details", tag("summary", "Pictures"), spread))
    for number, (first, second, *folders) in enumerate(compared_pairs(rows, paths)):
        differences = read_differences(*folders)
        if differences is not None:
            mark = f"{grid.name}-differs{number}"
            inside = _differing(differences, {"first": first, "second": second}, folders[1], mark)
            title = f"Pictures where {first} and {second} differ"
            parts.append(tag("details", tag("summary", escape(title)), inside))
    return "".join(parts)


def _differing(differences: Differences, names: Mapping[str, str], folder: Path, mark: str) -> str:
    """The images of each kind; none is hidden, those where the second loss does worse neither."""
    parts = [tag("p", escape(drawn_note(SURE)), class_="note")]
    for kind, pairs in differences.items():
        rows = [
            example_row(
                f"{mark}-{kind}{place}", dict(zip(names.values(), pair, strict=True)), folder
            )
            for place, pair in enumerate(pairs)
        ]
        shown = tag("div", *rows, class_="examples", style="--columns: 3")
        said = said_of(kind, names)
        parts.append(tag("h3", escape(said)) + (shown if rows else tag("p", "In no image.")))
    return "".join(parts)


def _absent(names: Sequence[str]) -> str:
    if not names:
        return ""
    note = f"Without any run so far, and so not on this page: {', '.join(names)}."
    return tag("p", escape(note), class_="note")
