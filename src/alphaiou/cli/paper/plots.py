"""``alphaiou paper plots``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alphaiou.cli.paper.reading import RecordOptions, study_of


@dataclass(frozen=True)
class PaperPlots(RecordOptions):
    """Draw finished runs: curves, sweeps of α and gain, IoU of boxes.

    As far as the records allow, for each grid, as PNG and SVG in --out:
    - GRID-curves   scores by epoch, with bands where there are several seeds
    - GRID-alpha    scores against α; GRID-gain, -noise, -subset, -epochs likewise
    - GRID-ious     objects found with at least an IoU, where findings were kept
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs/paper/plots")
    """Folder to write to."""


def run_paper_plots(command: PaperPlots) -> int:
    """Draw everything that there are records for."""
    from alphaiou.experiments.paper_plots import save_plots

    study = study_of(command)
    for grid in study.grids:
        for path in save_plots(grid, study.records, study.paths, command.out):
            sys.stdout.write(f"wrote {path}\n")
    return 0
