"""Numbers in sentences: tokens in Markdown that ``python -m tools.render`` fills from records.

A token is ``<!-- n: PATH PLACE FORMAT -->text<!-- /n -->``; readers see the text alone.

``PATH`` is a record, as :func:`benchmarks.record.load_record` reads it: a JSON file, a CSV file
(its ``rows``) or a folder (``runs``, ``tables``, ``folders``). ``PLACE`` leads to the number in
steps separated by ``/``: a field, the number of a row, ``field=value,field=value`` for the ``rows``
with these values (a space is written ``_``), and ``#`` at the end for how many there are.
``FORMAT`` is a format of Python, such as ``.1f``, ``,d`` or ``+.1%``; one that begins with ``-``
prints the number with the other sign, for "falls by". A row with ``value``, ``low`` and ``high``
prints as a number and its interval.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.record import Record, load_record

TOKEN = re.compile(
    r"(?P<start><!-- n: (?P<path>\S+) (?P<place>\S+)(?: (?P<format>\S+))? -->)"
    r"(?P<old>(?:(?!<!--).)*)(?P<end><!-- /n -->)"
)
_MARK = re.compile(r"<!-- n:.*?-->|<!-- /n -->")
#: Markdown takes a comment at the start of a line or of a list item for a block of HTML.
_AT_START = re.compile(r"^[\s>]*(?:(?:[-*+]|\d+[.)])\s+)?<!-- n: .*", re.MULTILINE)


def with_numbers(text: str, root: Path) -> str:
    """A document with the numbers of its sentences taken from the records.

    Args:
        text: The document.
        root: The folder that the paths of the records start from.

    Raises:
        ValueError: A token is malformed, or leads to no number; the message quotes it.
    """
    tokens = list(TOKEN.finditer(text))
    whole = {place for t in tokens for place in (t.start("start"), t.start("end"))}
    if stray := [mark for mark in _MARK.finditer(text) if mark.start() not in whole]:
        raise ValueError(
            f"{stray[0][0]!r}: write <!-- n: PATH PLACE FORMAT -->number<!-- /n --> in one line"
        )
    if (first := _AT_START.search(text)) is not None:
        raise ValueError(f"{first[0]!r}: put a word before the number, or Markdown hides the line")
    load = cache(load_record)
    return TOKEN.sub(lambda token: _filled(token, load(root / token["path"])), text)


def number_at(record: Any, place: str) -> Any:
    """What a place of a record holds.

    Examples:
        >>> record = {"rows": [{"kind": "iou", "ms": 2.5}, {"kind": "giou", "ms": 3.5}]}
        >>> number_at(record, "kind=giou/ms"), number_at(record, "rows/#")
        (3.5, 2)
    """
    found = record
    for step in place.split("/"):
        if step == "#":
            found = len(found)
        elif "=" in step:
            wanted = [part.split("=", 1) for part in step.split(",")]
            rows = found["rows"] if isinstance(found, dict) else found
            found = [row for row in rows if all(_is(row.get(k), v) for k, v in wanted)]
        else:
            found = _field(found, step)
    return _only(found)


def formatted(value: Any, spec: str = "") -> str:
    """A number in the way of a sentence, or a row with its interval.

    Examples:
        >>> formatted(-0.0123, "-.1%"), formatted(-0.0123, "+.1%"), formatted(1200, ",d")
        ('1.2 %', '−1.2 %', '1,200')
        >>> formatted({"value": "0.12", "low": "0.11", "high": "0.14"}, ".0%")
        '12 % (11 to 14)'
    """
    if isinstance(value, dict):
        ends = ("high", "low") if spec.startswith("-") else ("low", "high")
        middle, low, high = (formatted(value[name], spec) for name in ("value", *ends))
        return f"{middle} ({low.removesuffix(' %')} to {high.removesuffix(' %')})"
    if not spec:
        return str(value)
    number = value if isinstance(value, int) else float(value)
    text = format(-number, spec[1:]) if spec.startswith("-") else format(number, spec)
    if not re.search("[1-9]", text):  # zero has no sign
        text = text.lstrip("+-")
    return text.replace("-", "−").replace("%", " %")


def _filled(token: re.Match[str], record: Record) -> str:
    try:
        text = formatted(number_at(record, token["place"]), token["format"] or "")
        return f"{token['start']}{text}{token['end']}"
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{token['start']!r}: {error}") from error


def _field(found: Any, step: str) -> Any:
    if isinstance(found, list) and step.isdigit():
        return found[int(step)]
    row = _only(found)
    if step not in row:
        raise ValueError(f"no {step!r} among {', '.join(map(str, row))}")
    return row[step]


def _only(found: Any) -> Any:
    """The one row of a list, or what is no list."""
    if not isinstance(found, list):
        return found
    if len(found) != 1:
        raise ValueError(f"{len(found)} rows fit; name one")
    return found[0]


def _is(value: Any, text: str) -> bool:
    """Whether a field has a value, as text or as a number: 3 is 3.0."""
    if str(value).replace(" ", "_") == text:
        return True
    try:
        return float(value) == float(text)
    except (TypeError, ValueError):
        return False
