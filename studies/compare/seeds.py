"""The default comparison of ``alphaiou compare`` with five seeds.

    python -m studies.compare.seeds

Runs on the CPU in ``runs/compare``, where finished runs are reused. Writes ``seeds.json`` beside
this file, which docs/compare.md shows.
"""

from dataclasses import replace
from pathlib import Path

import torch

from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import CompareSettings, compare_grid
from alphaiou.study.records import grid_runs, read_record
from alphaiou.study.runner import run_grid
from alphaiou.training.loop import Execution
from benchmarks.record import conditions, write_record

LOSSES = ("iou", "iou:3")
SEEDS = range(5)


def main() -> None:
    specs = [LossSpec.parse(text) for text in LOSSES]
    grid = replace(compare_grid(specs, CompareSettings()), seeds=tuple(SEEDS))
    result = run_grid([grid], Path("runs/compare"), execution=Execution(device="cpu"))
    for _, error in result.failed:
        raise error
    by_label = grid_runs(grid, {name: read_record(path) for name, path in result.records.items()})
    rows = [
        {"loss": loss, "seed": seed, "name": run["name"], "scores": run["scores"]}
        for seed in SEEDS
        for loss, spec in zip(LOSSES, specs, strict=True)
        for run in [by_label[spec.display_name].runs[seed]]
    ]
    record = {"record": "compare", **conditions(torch.device("cpu")), "rows": rows}
    print(f"wrote {write_record(record, Path(__file__).with_suffix('.json'))}")


if __name__ == "__main__":
    main()
