"""With what the runs of a page were made: devices, versions, data and recipes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from alphaiou.experiments.grid import Grid
from alphaiou.experiments.html import escape, table, tag
from alphaiou.experiments.paper_records import RunRecord


def environment(records: Sequence[RunRecord]) -> str:
    """The devices, versions and data of all runs, as a part of a page."""
    versions: dict[str, set[str]] = {}
    for record in records:
        for package, version in record["versions"].items():
            versions.setdefault(package, set()).add(version)
    facts = {
        "devices": _counted([record["device"] for record in records]),
        "versions": ", ".join(
            f"{name} {' / '.join(sorted(own))}" for name, own in versions.items()
        ),
        "data": "; ".join(dict.fromkeys(note for record in records for note in record["notes"])),
        "scored on": _counted([f"{r['recipe']['data']['path']} {r['scored_on']}" for r in records]),
        "runs": ", ".join(record["name"] for record in records),
    }
    listed = (tag("dt", escape(key)) + tag("dd", escape(value)) for key, value in facts.items())
    return tag("section", tag("h2", "Environment"), tag("dl", *listed), id="environment")


def recipes_of(grid: Grid) -> str:
    """What all cells of a grid have in common, and in what they differ."""
    flat = {cell.label: flattened(asdict(cell.recipe)) for cell in grid.cells}
    keys = list(dict.fromkeys(key for own in flat.values() for key in own))
    varied = [key for key in keys if len({_text(own.get(key)) for own in flat.values()}) > 1]
    rows = [[label, *(_text(own.get(key)) for key in varied)] for label, own in flat.items()]
    first = next(iter(flat.values()))
    common = {key: first.get(key) for key in keys if key not in (*varied, "seed")}
    parts = [tag("pre", escape(json.dumps(common, indent=1, ensure_ascii=False)), tabindex=0)]
    if varied:
        differing = table(["", *varied], rows).replace("<table>", '<table class="recipes">', 1)
        parts.insert(0, tag("div", differing, class_="scroll", tabindex=0))
    seeds = ", ".join(map(str, grid.seeds))
    return tag("details", tag("summary", escape(f"The recipes (seeds {seeds})")), *parts)


def flattened(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested values under dotted names.

    Examples:
        >>> flattened({"loss": {"kind": "iou"}, "epochs": 60})
        {'loss.kind': 'iou', 'epochs': 60}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{before}{key}.")
        else:
            flat[f"{before}{key}"] = value
    return flat


def _counted(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return "; ".join(f"{name} ({count} run{'s' * (count != 1)})" for name, count in counts.items())


def _text(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
