"""What α does to each type of error: small trainings that two cores can run.

    python -m studies.understand.study pack PATH/voc320 understand-data
    python -m studies.understand.study run --data-root understand-data --out runs/understand
    python -m studies.understand.study analyse --out runs/understand

Two data sets with 500 training and 500 test images each: photographs of voc320 with the one class
"object", since a small detector hardly learns twenty classes from 500 images, and drawn shapes of
four classes. YOLOv5n is trained on each for 512 steps with CIoU, with CIoU at twice the box gain,
and with CIoU and α = 3, five seeds each, with the recipe of ``alphaiou compare``. A run that is
finished is not repeated, and a stopped one continues. ``analyse`` analyses the errors of the
finished runs and writes ``studies/understand/errors.json``, which keeps the measures of the runs
that it has already: further seeds need no old run folders.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from alphaiou._files import working_folder, write_file
from alphaiou.data.convert import convert_splits
from alphaiou.data.dataset import load_dataset
from alphaiou.data.index import DetectionIndex
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.data.subset import subset_index
from alphaiou.inference.kept_detections import DETECTIONS, KeptDetections, read_kept
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics import score
from alphaiou.metrics.error_analysis import analyse_errors
from alphaiou.study.compare import CompareSettings, compare_recipes
from alphaiou.study.grid import Grid, Row
from alphaiou.study.kept import keep_detections
from alphaiou.study.records import DATA_LINKS, grid_runs, load_records
from alphaiou.study.runner import GridReport, PlannedRun, run_grid
from alphaiou.study.statistics import fit
from alphaiou.training.recipe import DataRecipe
from alphaiou.training.setup import Execution, Report

IMAGES, SEEDS = 500, (0, 1, 2, 3, 4)
SPLITS = ("train", "test")
#: The data sets and the longer side of their images.
SETS = {"voc320-objects": 96, "shapes-plain": 64}
#: The rows: the loss and the factor of its box gain; the first is the baseline.
ROWS = {"CIoU": ("ciou", 1.0), "CIoU, box gain ×2": ("ciou", 2.0), "α-CIoU (α=3)": ("ciou:3", 1.0)}
EPOCHS = 16

#: Data set, row and seed of a run, and what was measured on its detections.
RunKey = tuple[str, str, int]
Measures = Mapping[str, float]


def pack(voc320: Path, out: Path) -> None:
    """Write both data sets in YOLO layout."""
    photos = [load_dataset(voc320, split).index for split in SPLITS]
    photos = [subset_index(index, IMAGES / len(index), 0) for index in photos]
    photos = [as_objects(index.drop_boxes(index.difficult)) for index in photos]
    drawn = [
        shapes_index(split, size=SETS["shapes-plain"], length=IMAGES, level="plain")
        for split in SPLITS
    ]
    for name, indices in zip(SETS, (photos, drawn), strict=True):
        convert_splits(indices, "yolo", out / name, images="copy")


def as_objects(index: DetectionIndex) -> DetectionIndex:
    """The same boxes, all of the class "object"."""
    return replace(
        index,
        classes=("object",),
        category_ids=np.array([1]),
        labels=np.zeros_like(index.labels),
    )


def study_grid(name: str, root: Path, seeds: Sequence[int] = SEEDS) -> Grid:
    """The rows of one data set."""
    data = DataRecipe(str(root / name), train="train", val=None, test="test")
    settings = CompareSettings(str(root / name), image_size=SETS[name], epochs=EPOCHS)
    rows = []
    for label, (loss, factor) in ROWS.items():
        (recipe,) = compare_recipes([LossSpec.parse(loss)], settings)
        detector = replace(recipe.detector, box_gain=factor * recipe.detector.box_gain)
        recipe = replace(recipe, detector=detector, data=replace(data, path=name))
        recipe = replace(recipe, evaluate_every=0)
        rows.append(Row(label, recipe, None if not rows else next(iter(ROWS))))
    return Grid(name, f"What α does on {name}", tuple(rows), tuple(seeds))


def run(root: Path, out: Path, seeds: Sequence[int], workers: int) -> int:
    """Compute the runs that are not finished; return the number of failures."""
    grids = [study_grid(name, root, seeds) for name in SETS]

    def ended(one: PlannedRun, error: Exception | None) -> None:
        print(f"{one.recipe.data.path}: {one.label}: {error or 'finished'}", flush=True)

    def planned(runs: Sequence[PlannedRun], finished: int) -> None:
        print(f"{finished} runs are finished, {len(runs)} to compute", flush=True)

    result = run_grid(
        grids,
        out,
        data={name: (root / name).resolve() for name in SETS},
        keep=out / "records",
        execution=Execution(device="cpu", workers=1),  # one thread per run
        workers=workers,
        keep_detections=True,
        report=GridReport(planned, lambda _: Report(), ended),
    )
    return len(result.failed)


def analyse(out: Path, path: Path) -> None:
    """Write the measures of all finished runs, and their changes with intervals over seeds."""
    records, runs = load_records([out / "records"]), _measured(path)
    for name in SETS:
        grid = study_grid(name, out / DATA_LINKS)
        for label, row in grid_runs(grid, records).items():
            for seed, record in sorted(row.runs.items()):
                folder = (out / record["name"]).absolute()
                with working_folder(out / DATA_LINKS):
                    if not (folder / DETECTIONS).exists():
                        keep_detections(folder)
                measures = _measures(read_kept(folder / DETECTIONS))
                runs[name, label, seed] = measures
    first = next(iter(records.values()))
    content = {
        "device": first["device"],
        "versions": first["versions"],
        "date": max(record["made"]["date"] for record in records.values()),
        "epochs": EPOCHS,
        "images": IMAGES,
        "sizes": SETS,
        "seeds": {n: min(_seeds(runs, n, label) for label in ROWS) for n in SETS},
        "rows": _changes(runs),
        "runs": [
            {"set": name, "row": row, "seed": seed, "measures": runs[name, row, seed]}
            for name in SETS
            for row in ROWS
            for seed in sorted(SEEDS)
            if (name, row, seed) in runs
        ],
    }
    write_file(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _measured(path: Path) -> dict[RunKey, Measures]:
    """The runs of a record that is there already."""
    if not path.exists():
        return {}
    return {
        (run["set"], run["row"], run["seed"]): run["measures"]
        for run in json.loads(path.read_text())["runs"]
    }


def _seeds(runs: Mapping[RunKey, Measures], name: str, label: str) -> int:
    return sum((key[0], key[1]) == (name, label) for key in runs)


def _measures(kept: KeptDetections) -> dict[str, float]:
    """The numbers of a run by name, all of them shares."""
    scores = score(kept.data, kept.classes, rule=kept.rule).as_dict()
    analysis = analyse_errors(kept.data, kept.classes, rule=kept.rule)
    measures = {name: scores[name] for name in ("ap50", "ap75", "map75_95")}
    for table in analysis.tables:
        percent = round(100 * table.iou)
        measures |= {f"{kind}_{percent}": gain for kind, gain in table.delta_ap.items()}
    right = analysis.tables[0].right
    measures |= {"box_error": right.error} | {f"box_{k}": v for k, v in right.parts.items()}
    measures["calibration_50"] = analysis.calibration.errors[50]
    return {name: round(value, 6) for name, value in measures.items()}


def _changes(runs: Mapping[RunKey, Measures]) -> list[dict[str, Any]]:
    """The change of every measure between two rows, with its 95 % interval over seeds."""
    baseline, gain, power = ROWS
    rows: list[dict[str, Any]] = []
    for name in SETS:
        some = {key: measures for key, measures in runs.items() if key[0] == name}
        for measure in next(iter(some.values()), {}):
            model = fit((row, seed, one[measure]) for (_, row, seed), one in some.items())
            for row, against in ((gain, baseline), (power, baseline), (power, gain)):
                change = model.change(row, against)
                if change is None:
                    continue
                line = {"set": name, "measure": measure, "row": row, "against": against}
                line |= {"baseline": change.baseline, "value": change.difference}
                interval = change.interval
                known = interval is not None and math.isfinite(interval.low)
                if interval is not None and known:
                    line |= {"low": interval.low, "high": interval.high}
                rows.append(line)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write both data sets")
    packing.add_argument("voc320", type=Path)
    packing.add_argument("out", type=Path)
    running = commands.add_parser("run", help="compute the runs that are not finished")
    running.add_argument("--data-root", type=Path, required=True)
    running.add_argument("--out", type=Path, default=Path("runs/understand"))
    running.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    running.add_argument("--workers", type=int, default=1)
    analysing = commands.add_parser("analyse", help="write the errors of the finished runs")
    analysing.add_argument("--out", type=Path, default=Path("runs/understand"))
    analysing.add_argument("--record", type=Path, default=Path("studies/understand/errors.json"))
    options = parser.parse_args()
    if options.command == "analyse":
        analyse(options.out, options.record)
        return 0
    if options.command == "pack":
        pack(options.voc320, options.out)
        return 0
    return run(options.data_root, options.out, options.seeds, options.workers)


if __name__ == "__main__":
    sys.exit(main())
