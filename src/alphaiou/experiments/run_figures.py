"""``python -m alphaiou.experiments.run_figures``: figures in docs/images of the records of runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alphaiou.experiments.bench.record import read_record
from alphaiou.experiments.run_tables import RunRecord, in_order, run_name
from alphaiou.experiments.score_figures import looks
from alphaiou.experiments.score_tables import column_title
from alphaiou.experiments.style import FULL_WIDTH, panel_title, save_figure

CURVES = ("ap50", "map75_95", "ap95")


def curves_figure(record: Mapping[str, Any]) -> Figure:
    """Three scores over the epochs, a line a run."""
    runs = in_order(record["runs"])
    figure = Figure(figsize=(FULL_WIDTH, 2.7), layout="constrained")
    panels = figure.subplots(1, len(CURVES))
    for letter, axes, score in zip("abc", panels, CURVES, strict=True):
        _draw(axes, runs, score)
        panel_title(axes, letter, f"{column_title(score)}, %")
        axes.set(xlabel="epoch")
        axes.set_ylim(bottom=0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _draw(axes: Axes, runs: Sequence[RunRecord], score: str) -> None:
    for run, look in zip(runs, looks(len(runs)), strict=True):
        scored = [entry for entry in run["history"] if "test" in entry]
        values = [100 * entry["test"][score] for entry in scored]
        axes.plot(
            [e["epoch"] for e in scored], values, marker=".", ms=4, label=run_name(run), **look
        )


def main(root: Path | None = None) -> int:
    """Draw the figures."""
    root = root or Path.cwd()
    record = read_record(root / "results/voc320")
    for path in save_figure(lambda: curves_figure(record), root / "docs/images/voc320_curves"):
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
