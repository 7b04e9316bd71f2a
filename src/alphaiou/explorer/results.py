"""The records of trainings as the explorer shows them: means over seeds, changes, intervals."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from alphaiou.experiments.run_tables import in_order, run_name
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import Recipe

RunRecord = Mapping[str, Any]

SCORES = (*(f"ap{threshold}" for threshold in range(50, 100, 5)), "map", "map75_95")
#: 97.5 % points of Student's t by the degrees of freedom, from 1.
T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
#: What of a recipe a table compares; runs that differ in anything else stand in other tables.
COMPARED = ("loss", "box_gain", "alpha_schedule", "seed")


def read_runs(folder: Path) -> list[RunRecord]:
    """The records of finished runs in a folder, by name."""
    records = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    return [record for record in records if record.get("record") == "run" and record["scores"]]


def summarise(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Trainings that differ in loss and gain alone, as the tables of the page.

    Returns:
        For each setting its ``title`` and its ``runs``, each with ``name``, the number of
        ``seeds``, mean ``scores``, and ``changes`` against the same kind with α = 1 at the plain
        gain (``None`` for that one itself): ``mean``, and ``low`` to ``high`` over paired seeds.
    """
    settings: dict[str, list[RunRecord]] = {}
    for record in records:
        same = {key: value for key, value in record["recipe"].items() if key not in COMPARED}
        settings.setdefault(json.dumps(same, sort_keys=True), []).append(record)
    tables = [_table(runs) for runs in settings.values()]
    return sorted(tables, key=lambda table: (-len(table["runs"]), table["title"]))


def interval(differences: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """The 95 % interval of a mean by Student's t; none from a single number.

    Example:
        >>> low, high = interval([1.0, 2.0, 3.0])
        >>> round(low, 3), round(high, 3)
        (-0.484, 4.484)
    """
    count = len(differences)
    if count < 2:
        return None, None
    quantile = T_975[min(count - 1, len(T_975)) - 1]
    half = quantile * statistics.stdev(differences) / math.sqrt(count)
    mean = statistics.fmean(differences)
    return mean - half, mean + half


def _table(runs: Sequence[RunRecord]) -> dict[str, Any]:
    by_name: dict[str, list[RunRecord]] = {}
    for run in in_order(runs):
        by_name.setdefault(_name(run), []).append(run)
    lines = [_line(name, seeds, by_name) for name, seeds in by_name.items()]
    return {"title": _title(runs[0]["recipe"]), "runs": lines}


def _line(
    name: str, runs: Sequence[RunRecord], by_name: Mapping[str, Sequence[RunRecord]]
) -> dict[str, Any]:
    plain = LossSpec(runs[0]["recipe"]["loss"]["kind"]).display_name
    base = () if name == plain else by_name.get(plain, ())
    pairs = _paired(runs, base)
    return {
        "name": name,
        "seeds": len(runs),
        "scores": {s: _rounded(statistics.fmean(r["scores"][s] for r in runs)) for s in SCORES},
        "changes": {score: _change(pairs, score) for score in SCORES} if pairs else None,
    }


def _name(run: RunRecord) -> str:
    schedule = run["recipe"].get("alpha_schedule")
    return run_name(run) + (", α scheduled" if schedule else "")


def _paired(
    runs: Sequence[RunRecord], base: Sequence[RunRecord]
) -> list[tuple[RunRecord, RunRecord]]:
    before = {run["recipe"]["seed"]: run for run in base}
    seeds = ((run, before.get(run["recipe"]["seed"])) for run in runs)
    return [(run, other) for run, other in seeds if other is not None]


def _change(pairs: Sequence[tuple[RunRecord, RunRecord]], score: str) -> dict[str, float | None]:
    differences = [run["scores"][score] - other["scores"][score] for run, other in pairs]
    low, high = interval(differences)
    mean = statistics.fmean(differences)
    return {"mean": _rounded(mean), "low": _rounded(low), "high": _rounded(high)}


def _rounded(value: float | None) -> float | None:
    """Six digits: more than the page shows, and the same on every machine."""
    return None if value is None else round(value, 6)


def _title(recipe: Mapping[str, Any]) -> str:
    parts = [
        f"{recipe['detector']} on {recipe['data']['path']}",
        f"{recipe['image_size']} px",
        f"{recipe['epochs']} epochs",
    ]
    if recipe["noise"]:
        parts.append(f"noise {recipe['noise']:g}")
    if recipe["subset"] != Recipe.subset:
        parts.append(f"{recipe['subset']:.0%} of the images")
    if recipe["objectness"] != Recipe.objectness:
        parts.append(f"objectness by {recipe['objectness']}")
    return ", ".join(parts)
