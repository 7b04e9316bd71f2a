"""What the seeds of docs/protocol.md can show, from the variance between seeds in our records.

    python -m studies.voc320.power

The variance is that of the runs of YOLOv5s on voc320 with 60 epochs. The study scores half of the
test images and trains longer, so every number is also given with twice this variance. Writes
``power.csv`` beside this file.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.stats import nct, t

from alphaiou._files import write_file
from alphaiou.study.records import RunRecord, load_records
from alphaiou.study.statistics import LEVEL, fit
from alphaiou.training.recipe import recipe_from, recipe_hash
from studies.voc320.protocol import MARGIN, NON_INFERIOR, ROWS, SUPERIOR

RECORDS, OUT = Path(__file__).parent / "records", Path(__file__).parent / "power.csv"
EPOCHS, LEAST_SEEDS = 60, 3
#: The probability with which a change is to be found.
POWER = 0.8
SEEDS, VARIANCES = (3, 5, 10), (1, 2)


def seed_variance(records: Mapping[str, RunRecord], column: str) -> tuple[float, float, int]:
    """φ of a score in rows with several seeds, the mean score, and the number of runs."""
    runs = []
    for record in records.values():
        recipe = recipe_from(record["recipe"])
        where = recipe.detector.name, recipe.epochs, recipe.data.path
        if where == ("yolov5s", EPOCHS, "voc320") and column in record["scores"]:
            row = recipe_hash(replace(recipe, seed=0, evaluate_every=0))
            runs.append((row, recipe.seed, float(record["scores"][column])))
    counts = Counter(row for row, _, _ in runs)
    several = [run for run in runs if counts[run[0]] >= LEAST_SEEDS]
    return fit(several).variance, float(np.mean([score for *_, score in several])), len(several)


def detectable(error: float, freedom: int) -> float:
    """The change that a two-sided test finds with the wanted power."""
    least = t.ppf(1 - LEVEL / 2, freedom)
    return error * float(brentq(lambda d: nct.sf(least, freedom, d) - POWER, 0, 50))


def chance(error: float, freedom: int, change: float) -> float:
    """The chance that the interval of a true change lies above the margin."""
    least = t.ppf(1 - LEVEL / 2, freedom)
    return float(nct.sf(least, freedom, (change + MARGIN) / error))


def rows_of(records: Mapping[str, RunRecord]) -> list[dict[str, object]]:
    """By score, number of seeds and variance; changes are relative to the mean score."""
    found: list[dict[str, object]] = []
    for column in (SUPERIOR, NON_INFERIOR):
        variance, mean, runs = seed_variance(records, column)
        for seeds in SEEDS:
            freedom = (len(ROWS) - 1) * (seeds - 1)
            for factor in VARIANCES:
                error = math.sqrt(factor * variance * mean * (1 - mean) * 2 / seeds) / mean
                values = {"error": error, "detectable": detectable(error, freedom)}
                if column == NON_INFERIOR:
                    values["shown_at_0"] = chance(error, freedom, 0.0)
                    values["shown_at_half"] = chance(error, freedom, -MARGIN / 2)
                row = {"score": column, "seeds": seeds, "variance": factor, "runs": runs}
                found.append(row | {name: f"{value:.4f}" for name, value in values.items()})
    return found


def main() -> None:
    """Write the table."""
    rows = rows_of(load_records([RECORDS]))
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[-1], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(OUT, text.getvalue())


if __name__ == "__main__":
    main()
