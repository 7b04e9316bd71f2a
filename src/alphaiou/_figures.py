"""The style of all figures: fonts, lines and a palette for colour-blind readers."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

FULL_WIDTH = 7.0  # inches: the text width of a two-column page
INK = "#262626"

# Okabe and Ito's palette without its yellow, which is too light for a line on white.
CATEGORICAL = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES: tuple[tuple[float, ...], ...] = ((), (3, 2.2), (1, 1.4), (5, 1.5, 1, 1.5))

_BELOW_ONE = LinearSegmentedColormap.from_list("below", ["#F0A35E", "#B8470B"])
_ABOVE_ONE = LinearSegmentedColormap.from_list("above", ["#7FB8E6", "#2171B5", "#08264F"])
_ONE = "#6B6B6B"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on every machine
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 5,
    "axes.labelsize": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#8C8C8C",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.color": "#8C8C8C",
    "ytick.color": "#8C8C8C",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "ytick.minor.size": 0,
    "lines.linewidth": 1.4,
    "lines.solid_capstyle": "round",
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "legend.handlelength": 2.0,
    "savefig.dpi": 300,
    "svg.hashsalt": "alphaiou",  # together with no date, equal figures give equal bytes
}


def save_figure(
    draw: Callable[[], Figure], stem: Path, suffixes: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Draw a figure in the style of this module and write it as ``stem.png`` and ``stem.svg``."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in suffixes]
    with mpl.rc_context(STYLE):
        figure = draw()
        for path in paths:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def figure_svg(draw: Callable[[], Figure]) -> str:
    """A figure in the house style as SVG on a transparent ground, with its text as text."""
    text = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.fonttype": "none"}):
        draw().savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    return text.getvalue()


def palette(count: int) -> list[str]:
    """Return one colour per class, for boxes in images: that of figures, or a rainbow for many."""
    # Black, the last colour, is hard to see in photographs.
    if count < len(CATEGORICAL):
        return list(CATEGORICAL[:count])
    rainbow = mpl.colormaps["turbo"]
    # Steps of the golden ratio give neighbouring classes distant colours.
    return [to_hex(rainbow((0.1 + 0.618034 * label) % 1.0)) for label in range(count)]


def alpha_colours(alphas: Sequence[float]) -> dict[float, str]:
    """Return a colour per α: orange below 1, grey at 1, blue above, darker farther from 1."""
    below = sorted((a for a in alphas if a < 1), reverse=True)
    above = sorted(a for a in alphas if a > 1)
    return {1.0: _ONE} | _ramp(_BELOW_ONE, below) | _ramp(_ABOVE_ONE, above)


def panel_title(axes: Axes, letter: str, text: str) -> None:
    """Set the title of a panel to ``(a) text``."""
    axes.set_title(f"({letter}) {text}", color=INK)


def _ramp(colours: LinearSegmentedColormap, alphas: Sequence[float]) -> dict[float, str]:
    places = [0.6] if len(alphas) == 1 else [i / (len(alphas) - 1) for i in range(len(alphas))]
    return {alpha: to_hex(colours(place)) for alpha, place in zip(alphas, places, strict=True)}


def values_only(axes: Axes, values: Sequence[float]) -> None:
    """Put ticks on the x axis at the given values only."""
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
