"""Figures of data sets: statistics, and noisy boxes next to clean ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from alphaiou._figures import CATEGORICAL, FULL_WIDTH, INK, palette, panel_title, save_figure
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.index import DetectionIndex
from alphaiou.data.stats import MEDIUM_SIDE, SMALL_SIDE, DatasetStats, SizeCounts, centre_map

#: The maximum number of class bars; rarer classes share one bar.
MOST_CLASSES = 100
CLASSES_PER_COLUMN = 40
#: The lower limit of a logarithmic count axis.
LOG_START = 0.7
LEGEND_COLUMNS = 7
TIGHT: dict[str, Any] = {"w_pad": 0.02, "h_pad": 0.02, "wspace": 0.0, "hspace": 0.0}
BLUE = CATEGORICAL[0]
RULE: dict[str, Any] = {"color": CATEGORICAL[1], "lw": 1, "ls": (0, (3, 2))}


def save_stats_figures(index: DetectionIndex, stats: DatasetStats, out: Path) -> list[Path]:
    """Write ``boxes.png`` and ``classes.png`` (and ``.svg``) of a data set into a folder."""
    figures: dict[str, Callable[[], Figure]] = {
        "boxes": partial(boxes_figure, index),
        "classes": partial(classes_figure, stats),
    }
    return [path for name, draw in figures.items() for path in save_figure(draw, out / name)]


def boxes_figure(index: DetectionIndex) -> Figure:
    """Draw sizes, aspect ratios, centres and number per image of the boxes."""
    figure = Figure(figsize=(FULL_WIDTH, 5.2), layout="constrained")
    (a, b), (c, d) = figure.subplots(2, 2)
    for axes in (a, b, c):
        axes.yaxis.set_major_formatter(_thousands)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    _draw_sizes(a, index)
    _draw_aspect_ratios(b, index)
    _draw_boxes_per_image(c, index)
    _draw_centres(d, index)
    return figure


def classes_figure(stats: DatasetStats) -> Figure:
    """Draw the number of boxes of each class as bars, the most frequent on top."""
    names, boxes = _largest_classes(stats)
    columns = max(1, -(-len(names) // CLASSES_PER_COLUMN))
    rows = max(1, -(-len(names) // columns))
    figure = Figure(figsize=(FULL_WIDTH, 0.65 + 0.135 * max(rows, 6)), layout="constrained")
    panels = figure.subplots(1, columns, sharex=True, squeeze=False)[0]
    most = max(boxes, default=1)
    if columns == 1:
        panels[0].set_xlim(0, 1.14 * max(most, 1))
    else:  # with more columns, the bars of rare classes would be too short to compare
        panels[0].set(xscale="log", xlim=(LOG_START, 3 * max(most, 1)))
    for column, axes in enumerate(panels):
        part = slice(column * rows, (column + 1) * rows)
        _draw_classes(axes, names[part], boxes[part], rows)
    panels[0].set_title(f"Boxes of each class ({len(stats.classes)} classes)", color=INK)
    return figure


def noise_figure(
    pictures: Sequence[np.ndarray], clean: DetectionIndex, noisy: DetectionIndex, rate: float
) -> Figure:
    """Draw images with clean boxes above and noisy boxes below, coloured by class.

    This is the last figure of the paper.

    Args:
        pictures: The images as uint8 arrays (height, width, 3).
        clean: The images with clean boxes.
        noisy: The same images with noisy boxes.
        rate: The noise rate, for the labels.
    """
    return _pictures_figure(pictures, {"η = 0": clean, f"η = {rate:g}": noisy})


def labels_figure(pictures: Sequence[np.ndarray], index: DetectionIndex) -> Figure:
    """Draw images with their boxes, coloured by class; oriented boxes are drawn as they are turned.

    Args:
        pictures: The images as uint8 arrays (height, width, 3).
        index: The same images with their boxes.
    """
    return _pictures_figure(pictures, {"": index})


def _pictures_figure(
    pictures: Sequence[np.ndarray], indexes: Mapping[str, DetectionIndex]
) -> Figure:
    """Draw the same images in a row for each index, with a title at its left."""
    first, *_ = indexes.values()
    labels = np.unique(first.labels).tolist()
    colours = dict(zip(labels, palette(len(labels)), strict=True))
    # Widths that give all images of a row the same height.
    shapes = [picture.shape[1] / picture.shape[0] for picture in pictures] or [1.0]
    legend_rows = -(-len(colours) // LEGEND_COLUMNS)
    rows = len(indexes)
    height = rows * min((FULL_WIDTH - 0.3) / sum(shapes), 3.0) + 0.2 * legend_rows + 0.1
    figure = Figure(figsize=(FULL_WIDTH, height), layout=ConstrainedLayoutEngine(**TIGHT))
    grid = figure.subplots(rows, len(shapes), squeeze=False, width_ratios=shapes)
    for row, (title, index) in enumerate(indexes.items()):
        for axes in grid[row]:
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        grid[row, 0].set_ylabel(title, color=INK)
        for image, picture in enumerate(pictures):
            _draw_picture(grid[row, image], picture, index, image, colours)
    if colours:
        handles = [Line2D([], [], color=colour, lw=2) for colour in colours.values()]
        names = [_shortened(first.classes[label]) for label in colours]
        figure.legend(handles, names, loc="outside lower center", ncols=LEGEND_COLUMNS)
    return figure


def save_noise_figure(
    clean: DetectionIndex, noisy: DetectionIndex, rate: float, count: int, stem: Path
) -> list[Path]:
    """Draw some images with their clean and their noisy boxes, as PNG and SVG."""
    chosen = picture_choice(clean, count)
    clean, noisy = clean.take(chosen), noisy.take(chosen)
    pixels = _pixels(clean)
    return save_figure(lambda: noise_figure(pixels, clean, noisy, rate), stem)


def save_labels_figure(index: DetectionIndex, count: int, stem: Path) -> list[Path]:
    """Draw some images with their boxes, as PNG and SVG."""
    chosen = index.take(picture_choice(index, count))
    pixels = _pixels(chosen)
    return save_figure(lambda: labels_figure(pixels, chosen), stem)


def _pixels(index: DetectionIndex) -> list[np.ndarray]:
    dataset = DetectionDataset(index)
    return [dataset[image][0].permute(1, 2, 0).numpy() for image in range(len(index))]


def picture_choice(index: DetectionIndex, count: int, most_boxes: int = 8) -> list[int]:
    """Choose images to draw, evenly spaced among those with a moderate number of boxes."""
    boxes = np.diff(index.offsets)
    suitable = np.flatnonzero((boxes > 0) & (boxes <= most_boxes))
    places = np.linspace(0, len(suitable) - 1, min(count, len(suitable))).round().astype(int)
    chosen: list[int] = suitable[places].tolist()
    return chosen


def _draw_sizes(axes: Axes, index: DetectionIndex) -> None:
    sides = np.sqrt(index.areas)
    panel_title(axes, "a", "Size, √area")
    axes.set(xscale="log", xlabel="pixels", ylabel="boxes")
    if not len(sides):
        return _say_empty(axes, "no boxes")
    axes.hist(sides, bins=_log_bins(sides), color=BLUE)
    axes.set_ylim(top=1.22 * axes.get_ylim()[1])
    _plain_log_ticks(axes)
    return _label_sizes(axes, SizeCounts.of(index.areas))


def _label_sizes(axes: Axes, sizes: SizeCounts) -> None:
    """Write the shares of small, medium and large boxes along the upper edge."""
    low, high = axes.get_xlim()
    edges = np.log(np.clip((low, SMALL_SIDE, MEDIUM_SIDE, high), low, high))
    counts = asdict(sizes)
    for place, (name, count) in enumerate(counts.items()):
        left, right = edges[place], edges[place + 1]
        if right - left > 0.12 * (edges[-1] - edges[0]):  # otherwise there is no room
            text = f"{name}\n{count / sum(counts.values()):.0%}"
            _write(axes, float(np.exp((left + right) / 2)), text, align="center")
    for side in (SMALL_SIDE, MEDIUM_SIDE):
        if low < side < high:
            axes.axvline(side, **RULE)


def _draw_aspect_ratios(axes: Axes, index: DetectionIndex) -> None:
    width, height = (index.boxes[:, 2:] - index.boxes[:, :2]).T
    panel_title(axes, "b", "Aspect ratio, width / height")
    axes.set(xscale="log", xlabel="← tall          wide →", ylabel="boxes")
    if not len(width):
        return _say_empty(axes, "no boxes")
    ratios = width / height
    reach = max(1.1 * float(np.exp(np.abs(np.log(ratios)).max())), 2.0)
    axes.hist(ratios, bins=_log_bins(ratios), color=BLUE)
    axes.set_xlim(1 / reach, reach)
    axes.axvline(1, **RULE)
    return _plain_log_ticks(axes)


def _draw_boxes_per_image(axes: Axes, index: DetectionIndex) -> None:
    counts = np.diff(index.offsets)
    panel_title(axes, "c", "Boxes in an image")
    axes.set(xlabel="boxes", ylabel="images")
    if not len(counts):
        return _say_empty(axes, "no images")
    mean, most = float(counts.mean()), int(counts.max())
    shown = int(
        np.quantile(counts, 0.998)
    )  # clip the axis: a few crowded images would compress the rest
    step = max(1, -(-shown // 60))
    axes.hist(counts, bins=list(np.arange(-0.5, shown + step, step)), color=BLUE)
    axes.set_ylim(top=1.12 * axes.get_ylim()[1])
    axes.axvline(mean, **RULE)
    _write(axes, mean, f" mean {mean:.1f}, most {most}", align="left")
    return axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_centres(axes: Axes, index: DetectionIndex) -> None:
    panel_title(axes, "d", "Centres in the image")
    # An odd number of bins, since many boxes are centred.
    cells = 33 if index.num_boxes > 5000 else 15
    density = centre_map(index, cells) * cells**2 / max(index.num_boxes, 1)
    norm = PowerNorm(0.5, vmin=0, vmax=max(float(density.max()), 1.0))
    image = axes.imshow(density, extent=(0, 1, 1, 0), cmap="Blues", norm=norm, aspect=0.75)
    axes.grid(visible=False)
    axes.set(xlabel="x / width", ylabel="y / height")
    bar = axes.figure.colorbar(image, ax=axes, shrink=0.9, pad=0.03)
    bar.outline.set_visible(False)
    bar.set_label("density (1 = even)")


def _write(axes: Axes, x: float, text: str, *, align: str) -> None:
    """Write a text at a position on the x axis, along the upper edge."""
    place = axes.get_xaxis_transform()
    axes.text(x, 0.98, text, transform=place, ha=align, va="top", fontsize=7, color=INK)


def _say_empty(axes: Axes, text: str) -> None:
    axes.set(xticks=[], yticks=[])
    axes.minorticks_off()
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=INK)


def _draw_classes(axes: Axes, names: Sequence[str], boxes: Sequence[int], rows: int) -> None:
    start = LOG_START if axes.get_xscale() == "log" else 0
    bars = axes.barh(range(len(names)), np.maximum(boxes, start), color=BLUE, height=0.75)
    axes.bar_label(bars, labels=[f"{count:,}" for count in boxes], padding=2, fontsize=6, color=INK)
    axes.set_yticks(range(len(names)), [_shortened(name) for name in names], fontsize=6.5)
    axes.set_ylim(rows - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("boxes")
    axes.xaxis.set_major_formatter(_thousands)


def _draw_picture(
    axes: Axes, picture: np.ndarray, index: DetectionIndex, image: int, colours: dict[int, str]
) -> None:
    height, width = picture.shape[:2]
    axes.imshow(picture, extent=(0, width, height, 0), interpolation="lanczos")
    axes.grid(visible=False)
    rows = index.rows(image)
    for corners, label in zip(index.corners(image), index.labels[rows], strict=True):
        for colour, line in (("white", 2.0), (colours[int(label)], 1.1)):
            axes.add_patch(Polygon(corners, fill=False, ec=colour, lw=line, joinstyle="miter"))
    axes.set(xlim=(0, width), ylim=(height, 0))


def _largest_classes(stats: DatasetStats) -> tuple[list[str], list[int]]:
    ranked = sorted(stats.classes, key=lambda one: -one.boxes)
    names = [one.name for one in ranked[:MOST_CLASSES]]
    boxes = [one.boxes for one in ranked[:MOST_CLASSES]]
    rest = ranked[MOST_CLASSES:]
    if rest:
        names.append(f"{len(rest)} rarer classes")
        boxes.append(sum(one.boxes for one in rest))
    return names, boxes


def _shortened(name: str, longest: int = 22) -> str:
    # A dollar sign would start math text.
    name = name.replace("$", r"\$")
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _log_bins(values: np.ndarray, bins: int = 50) -> list[float]:
    edges: list[float] = np.geomspace(values.min() / 1.05, values.max() * 1.05, bins + 1).tolist()
    return edges


def _thousands(value: float, _: float) -> str:
    return f"{value:,.0f}"


def _plain_log_ticks(axes: Axes) -> None:
    low, high = axes.get_xlim()
    steps = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)  # more would not fit
    axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
