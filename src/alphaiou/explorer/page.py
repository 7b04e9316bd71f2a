"""The explorer as one file: its parts, put together with the results it shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from alphaiou.losses.kinds import KINDS, Kind
from alphaiou.metrics.columns import PAPER_COLUMNS, column_title

PARTS = files("alphaiou.explorer") / "parts"
#: The arithmetic; it needs no page.
ARITHMETIC = ("dual.js", "geometry.js", "terms.js", "formula.js", "properties.js", "simulate.js")
#: What is drawn with it.
VIEWS = (
    "view.js",
    "chart.js",
    "descent.js",
    "stage.js",
    "losses.js",
    "surfaces.js",
    "curves.js",
    "play.js",
    "results.js",
    "main.js",
)


def explorer_page(results: Sequence[Mapping[str, Any]] | None = None) -> str:
    """The page as text: no other file, no network, no server.

    Args:
        results: Tables of trainings like those in ``results.json``; these by default.

    Examples:
        >>> explorer_page().splitlines()[0]
        '<!doctype html>'
    """
    if results is None:
        results = json.loads(part("results.json"))
    data = {
        "kinds": {name: _labels(kind) for name, kind in KINDS.items()},
        "columns": {name: column_title(name) for name in PAPER_COLUMNS},
        "results": results,
    }
    return Template(part("page.html")).substitute(
        style=part("style.css"),
        script=scripts(*ARITHMETIC, *VIEWS),
        data=_embedded(data),
    )


def scripts(*names: str) -> str:
    """Scripts of the page, one after the other; they share one scope."""
    return "\n".join(map(part, names))


def part(name: str) -> str:
    """The text of one of the files that the page is made of."""
    return (PARTS / name).read_text(encoding="utf-8")


def _labels(kind: Kind) -> dict[str, Any]:
    """What the page writes beside the numbers of a kind."""
    penalties = [", ".join(texts) for texts in kind.penalties.items()]
    return {"title": kind.title, "similarity": kind.similarity, "penalties": penalties}


def _embedded(data: object) -> str:
    """JSON as it may stand inside a script element."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
