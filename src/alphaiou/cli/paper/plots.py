"""``alphaiou paper plots``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from alphaiou.cli.paper.options import RecordOptions, study_of

if TYPE_CHECKING:
    from alphaiou.paper.study import Study
    from alphaiou.study.grid import Grid


@dataclass(frozen=True)
class PaperPlots(RecordOptions):
    """Draw finished runs: curves, sweeps of α and gain, IoU of boxes.

    As far as the records allow, for each grid, as PNG and SVG in --out:
    - GRID-gain     scores against the gain; GRID-alpha, -noise, -subset, -epochs
                    likewise, with -change as changes against the baselines
    - GRID-curves, -losses   scores and losses by epoch, where no setting varies
    - GRID-ious     objects found with at least an IoU, where records count them

    For the grid examples: images where two detectors differ, from their weights.
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/paper/plots")
    """Folder to write to."""


def run_paper_plots(command: PaperPlots) -> int:
    """Draw the charts that the records allow."""
    from alphaiou.study.figures import save_plots

    study = study_of(command)
    for grid in study.grids:
        paths = save_plots(grid, study.records, command.out)
        if grid.pictures and command.grids:
            paths += differences_of(grid, study)
        for path in paths:
            sys.stdout.write(f"wrote {path}\n")
    return 0


def differences_of(grid: Grid, study: Study) -> list[Path]:
    """Find images where a loss and its baseline differ, and keep them beside the loss's run."""
    from alphaiou.study.detections import compared_pairs, keep_differences
    from alphaiou.study.records import grid_runs

    pairs = compared_pairs(grid_runs(grid, study.records), study.paths)
    kept = [keep_differences(first, second) for _, _, first, second in pairs]
    return [path for path in kept if path is not None]
