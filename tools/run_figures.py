"""``python -m tools.run_figures``: figures in docs/images of the records of runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from alphaiou._figures import save_figure
from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.study.comparable import plain_runs
from alphaiou.study.figures import PANELS, change_figure, curves_figure, found_figure, sweep_figure
from alphaiou.study.series import curves
from benchmarks.record import read_record
from studies.voc320.exchange import exchange_figure
from tools.findings import Drawing, drawn

#: What is drawn of each detector: its runs of so many epochs, or its largest table.
FIGURES: dict[str, tuple[str, int | None]] = {
    "voc320_curves": ("yolov5s", 100),
    "voc320_faster_rcnn_curves": (FASTER_RCNN, None),
    "voc320_detr_curves": (DETR, None),
}


def main(root: Path | None = None) -> int:
    """Draw the figures that there are runs for."""
    root = root or Path.cwd()
    record = read_record(root / "results/voc320")
    drawings: dict[str, Callable[[], Figure]] = {}
    for name, (detector, epochs) in FIGURES.items():
        table = plain_runs(record["runs"], detector, epochs)
        if table is not None and any(curves(table.rows, PANELS[0]).values()):
            drawings[name] = partial(curves_figure, table.rows)
    for name, own in drawn(record).items():
        drawings[name] = partial(_figure, own)
    for name, draw in drawings.items():
        for path in save_figure(draw, root / "docs/images" / name, ("svg",)):
            sys.stdout.write(f"wrote {path}\n")
    return 0


def _figure(drawing: Drawing) -> Figure:
    if drawing.sweep is None:
        return (found_figure if drawing.shows == "found" else exchange_figure)(drawing.rows)
    draw = change_figure if drawing.shows == "changes" else sweep_figure
    return draw(drawing.rows, drawing.sweep)


if __name__ == "__main__":
    sys.exit(main())
