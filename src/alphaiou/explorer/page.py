"""Build the explorer page: its parts and the committed results, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from alphaiou.losses.kinds import KINDS, Kind
from alphaiou.metrics.columns import PAPER_COLUMNS, column_title

PARTS = files("alphaiou.explorer") / "parts"
#: The arithmetic, which runs without a page.
ARITHMETIC = (
    "dual.js",
    "geometry.js",
    "oriented.js",
    "gaussians.js",
    "terms.js",
    "formula.js",
    "properties.js",
    "simulate.js",
)
#: The views, which draw with it.
VIEWS = (
    "view.js",
    "chart.js",
    "descent.js",
    "stage.js",
    "losses.js",
    "angles.js",
    "surfaces.js",
    "curves.js",
    "play.js",
    "results.js",
    "main.js",
)


def explorer_page(results: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Return the page as HTML text that needs no other file, network or server.

    Args:
        results: Tables of trainings in the format of ``results.json``; that file by default.

    Examples:
        >>> explorer_page().splitlines()[0]
        '<!doctype html>'
    """
    if results is None:
        results = json.loads(part("results.json"))
    data = {
        "kinds": {name: _labels(kind) for name, kind in KINDS.items() if isinstance(kind, Kind)},
        "columns": {name: column_title(name) for name in PAPER_COLUMNS},
        "results": results,
    }
    return Template(part("page.html")).substitute(
        style=part("style.css"),
        script=scripts(*ARITHMETIC, *VIEWS),
        data=_embedded(data),
    )


def scripts(*names: str) -> str:
    """Return the scripts of the page joined into one; they share one scope."""
    return "\n".join(map(part, names))


def part(name: str) -> str:
    """Return the text of one of the files in ``parts``."""
    return (PARTS / name).read_text(encoding="utf-8")


def _labels(kind: Kind) -> dict[str, Any]:
    """What the page writes beside the numbers of a kind."""
    penalties = [", ".join(texts) for texts in kind.penalties.items()]
    return {"title": kind.title, "similarity": kind.similarity, "penalties": penalties}


def _embedded(data: object) -> str:
    """Return JSON that is safe inside a script element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
