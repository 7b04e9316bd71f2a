"""What ``alphaiou compare`` finds with one seed and another.

    python benchmarks/compare_seeds.py

Runs the default comparison with each of the seeds, on the processor and in ``runs/compare``, where
what is finished is not computed again. Writes studies/compare/seeds.json, which docs/compare.md
shows.
"""

from dataclasses import replace
from pathlib import Path

import torch

from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import CompareSettings, compare_recipes, run_comparison
from alphaiou.training.loop import Execution
from benchmarks.record import surroundings, write_record

LOSSES = ("iou", "iou:3")
SEEDS = range(5)


def main() -> None:
    recipes = compare_recipes([LossSpec.parse(text) for text in LOSSES], CompareSettings())
    rows = []
    for seed in SEEDS:
        runs = run_comparison(
            [replace(recipe, seed=seed) for recipe in recipes],
            Path("runs/compare"),
            execution=Execution(device="cpu"),
            side_by_side=True,
        )
        rows += [
            {"loss": loss, "seed": seed, "name": run.record["name"], "scores": run.record["scores"]}
            for loss, run in zip(LOSSES, runs, strict=True)
        ]
        print(f"seed {seed}: mAP", *(f"{row['scores']['map']:.4f}" for row in rows[-2:]))
    record = {"record": "compare", **surroundings(torch.device("cpu"))}
    print(f"wrote {write_record(record | {'rows': rows}, Path('studies/compare/seeds.json'))}")


if __name__ == "__main__":
    main()
