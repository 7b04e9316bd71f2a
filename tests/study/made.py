"""Made-up records, whose scores a formula gives, for tests of tables, charts and pages."""

import json
from dataclasses import asdict, replace

import numpy as np
from PIL import Image

from alphaiou._config import to_plain
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import columns_of
from alphaiou.study.detections import Box, Example, Findings
from alphaiou.study.grid import Grid, Row
from alphaiou.training.recipe import SCHEMA, DataRecipe, Recipe, recipe_hash
from alphaiou.training.recipes import gain_factor, quick
from alphaiou.training.record import record_digest

THRESHOLDS = tuple(range(50, 100, 5))
RECIPE = replace(
    quick(), precision="fp32", data=DataRecipe("shapes-plain-96", train="train", val="val")
)


def made_scores(level: float) -> dict[str, float]:
    """Average precision, and objects found, that fall with the IoU asked for."""
    found = {f"found{t}": 1.2 * level * (1 - (t - 50) / 50) for t in THRESHOLDS[:-1]}
    ap = {f"ap{t}": level * (1 - (t - 50) / 50) for t in THRESHOLDS}
    high = [ap[f"ap{t}"] for t in THRESHOLDS if t >= 75]
    means = dict.fromkeys(columns_of("mean"), sum(ap.values()) / 10)
    return ap | means | {"map75_95": sum(high) / len(high)} | found


def made_record(recipe: Recipe, level: float, epochs: int = 6) -> dict:
    history = [
        {"epoch": e, "box": 2 / e, "objectness": 1 / e, "class": 1.0}
        | ({"val": made_scores(level * e / epochs)} if e % 2 == 0 else {})
        for e in range(1, epochs + 1)
    ]
    record = {
        "record": "run",
        "schema": SCHEMA,
        "name": recipe_hash(recipe),
        "recipe": to_plain(recipe),
        "scores": made_scores(level),
        "scored_on": "val",
        "selected": "last",
        "throughput": 123.4,
        "memory_bytes": 3 << 30,
        "device": "a device",
        "versions": {"alphaiou": "1.2.3", "torch": "9.9"},
        "made": {"version": "1.2.3", "commit": None, "date": None},
        "data": None,
        "weights": None,
        "notes": ["a note about the data"],
        "history": history,
    }
    return json.loads(json.dumps(record))


def split_run(run, val, test, epochs=4):
    """A record with scores on both splits by epoch, as a run that keeps the last weights."""
    history = [
        {"epoch": epoch, "val": made_scores(val[epoch - 1]), "test": made_scores(test[epoch - 1])}
        for epoch in range(1, epochs + 1)
    ]
    recipe = run["recipe"] | {"epochs": epochs}
    recipe["data"] = recipe["data"] | {"val": "val", "test": "test"}
    facts = {"recipe": recipe, "history": history, "scored_on": "test", "selected": "last"}
    return {**run, **facts, "scores": history[-1]["test"]}


def made_level(recipe: Recipe) -> float:
    """Better with α up to 3 and with the gain up to twice, worse with noise; seeds differ."""
    alpha, gain = recipe.loss.alpha, gain_factor(recipe)
    luck = 0.01 * np.sin(7 * recipe.seed + 1) + 0.004 * np.sin(5 * recipe.seed + alpha)
    shape = 0.05 * min(alpha, 3) - 0.01 * alpha + 0.02 * min(gain, 2)
    return float(0.5 + shape - 0.4 * recipe.noise + luck)


def cell(loss: str, baseline: str | None = None, label: str = "", published=None, **changes) -> Row:
    spec = LossSpec.parse(loss)
    recipe = replace(RECIPE, loss=spec, **changes)
    return Row(label or spec.display_name, recipe, baseline, published or {})


def table1(seeds=(0, 1, 2)) -> Grid:
    paper = {"ap50": 0.7881, "map75_95": 0.3245}
    powered = {"ap50": 0.7862, "map75_95": 0.3446}
    rows = (cell("iou", published=paper), cell("iou:3", "IoU", published=powered))
    return Grid("table1", "Table 1: IoU <and> α-IoU", rows, seeds, ("Drawn shapes & few epochs.",))


def alpha_grid(seeds=(0, 1, 2)) -> Grid:
    rows = tuple(
        cell(f"iou:{alpha:g}", label=f"α = {alpha:g}, noise {noise:g}", noise=noise)
        for noise in (0.0, 0.3)
        for alpha in (0.5, 1, 2, 3, 5, 10)
    )
    return Grid("alpha", "Sensitivity to α", rows, seeds)


def gain_grid(seeds=(0, 1)) -> Grid:
    rows = tuple(
        cell(
            loss,
            label=f"{LossSpec.parse(loss).display_name}, box gain ×{times:g}",
            box_gain=0.05 * times,
        )
        for loss in ("iou", "iou:3")
        for times in (0.5, 1, 2, 3)
    )
    return Grid("gains", "The gain control", rows, seeds)


PRINTED = {0.1: (0.20, 0.22), 0.2: (0.10, 0.12), 0.3: (0.04, 0.05)}


def noise_grid(seeds=(0, 1, 2)) -> Grid:
    rows = tuple(
        cell(
            loss,
            f"IoU, η={rate:g}" if loss == "iou:3" else None,
            f"{'α-' * (loss == 'iou:3')}IoU, η={rate:g}",
            {"map75_95": printed},
            noise=rate,
        )
        for rate, row in PRINTED.items()
        for loss, printed in zip(("iou", "iou:3"), row, strict=True)
    )
    return Grid("table3", "Noise", rows, seeds, beside=table1().rows)


def records_of(*grids: Grid) -> dict:
    recipes = [recipe for grid in grids for _, recipe in grid.recipes()]
    return {recipe_hash(r): made_record(r, made_level(r)) for r in recipes}


def write_record(record, path):
    """A record with the digest of its content."""
    path.write_text(json.dumps(record | {"digest": record_digest(record)}))


def write_runs(records, folder, *, pictures: bool = False):
    """Runs as trainings leave them, with what their detectors find."""
    for name, record in records.items():
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        write_record(record, own / "record.json")
        if pictures:
            _write_findings(own, record["scores"]["ap50"])
    return folder


def _write_findings(folder, level):
    (folder / "examples").mkdir(exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "examples/000000.png")
    there = Box((4, 4, 30, 40), "star")
    found = Box((5, 4, 30, 40), "star", 0.9, 0.96)
    example = Example("examples/000000.png", (64, 48), [there], [found])
    ious = np.linspace(0.97, 0.3, round(200 * level)).round(4).tolist()
    findings = Findings("val", 10, 200, 0.25, ious, [example])
    (folder / "findings.json").write_text(json.dumps(asdict(findings)))
