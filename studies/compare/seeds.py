"""The default comparison of ``alphaiou compare`` with five seeds.

    python -m studies.compare.seeds

Runs on the CPU in ``runs/compare``, where finished runs are reused. Writes ``seeds.json`` beside
this file, which docs/compare.md shows.
"""

from dataclasses import replace
from pathlib import Path

import torch

from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import CompareSettings, compare_recipes, run_comparison
from alphaiou.training.loop import Execution
from benchmarks.record import conditions, write_record

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
    record = {"record": "compare", **conditions(torch.device("cpu")), "rows": rows}
    print(f"wrote {write_record(record, Path(__file__).with_suffix('.json'))}")


if __name__ == "__main__":
    main()
