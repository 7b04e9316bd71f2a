"""What ``alphaiou compare`` finds with one seed and another.

    python benchmarks/compare_seeds.py

Runs the default comparison with each of the seeds, on the processor and in ``runs/compare``, where
what is finished is not computed again. Writes results/compare/seeds.json, which docs/compare.md
shows.
"""

from dataclasses import replace
from pathlib import Path

import torch

from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import CompareSettings, compare_grid
from alphaiou.study.records import grid_runs, read_record
from alphaiou.study.runner import run_grid
from alphaiou.training.loop import Execution
from benchmarks.record import surroundings, write_record

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
    record = {"record": "compare", **surroundings(torch.device("cpu"))}
    print(f"wrote {write_record(record | {'rows': rows}, Path('results/compare/seeds.json'))}")


if __name__ == "__main__":
    main()
