"""Numbers as text, and lines of text as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]], *, left: int) -> str:
    """A Markdown table; columns after the first ``left`` are aligned to the right."""
    rules = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rules, *lines))


def figures(value: float) -> str:
    """A positive number with three figures, without powers of ten."""
    decimals = next((d for d, limit in enumerate((100, 10, 1, 0.1, 0.01)) if value >= limit), 5)
    return f"{value:,.{decimals}f}"


def times(value: float | None) -> str:
    """A ratio, such as 8.7×."""
    if value is None:
        return "–"
    return f"{value:.{2 if value < 1 else 1 if value < 20 else 0}f}×"


def share(value: float | None) -> str:
    """A share in percent."""
    return "–" if value is None else f"{value:.0%}"


def small_number(value: float | None) -> str:
    """A number far below 1."""
    return "–" if value is None else f"{value:.0e}" if value else "0"


def plain_number(value: float) -> str:
    """A positive number: with its digits up to a million, as a power of ten above."""
    return f"{value:.1e}" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
