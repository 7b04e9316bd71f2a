"""The plot of what choices give at AP50 for what they gain at higher IoU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from alphaiou._figures import CATEGORICAL, FULL_WIDTH, INK, panel_title
from alphaiou.metrics.columns import column_title
from alphaiou.study.grid import Row
from alphaiou.study.records import RowRuns
from alphaiou.study.series import Point, change_point
from alphaiou.training.recipes import gain_factor
from studies.voc320.search import BASELINES, CHOSEN_BY, WANTED, exchanges

#: The score that is given.
ACROSS = "ap50"
#: The points that are joined: plain IoU by its box gain.
JOINED = "IoU"
OTHER_GAINS = "IoU, other gains or rate"
GROUPS = (JOINED, "constant α", "rising α", "falling α", OTHER_GAINS)
#: What loses more of mAP75:95 than this part is left out: the others would be one heap.
FARTHEST = 0.1


def exchange_points(
    rows: Mapping[str, RowRuns], score: str, comparable: Mapping[str, RowRuns] | None = None
) -> dict[str, list[Point]]:
    """Changes against plain IoU at its best gain in percent, over the seeds that both have.

    Args:
        rows: Of the grid ``beyond``.
        score: What is gained; what is given at :data:`ACROSS` is the place of a point.

    Returns:
        The points of each of :data:`GROUPS` that has any; nothing where there is no candidate.
    """
    found: dict[str, list[Point]] = {group: [] for group in GROUPS}
    changes = exchanges(rows, comparable)
    for label in sorted(changes, key=lambda label: gain_factor(rows[label].row.recipe)):
        if changes[label][CHOSEN_BY].relative > -FARTHEST:
            group = _group(rows[label].row)
            across = round(100 * changes[label][ACROSS].relative, 2)
            found[group].append(change_point(across, changes[label][score], label))
    return {group: points for group, points in found.items() if points}


def _group(row: Row) -> str:
    recipe, course = row.recipe, row.recipe.alpha_schedule
    if row.label in BASELINES:
        return JOINED
    if course is None:
        return OTHER_GAINS if recipe.loss.alpha == 1 else "constant α"
    return "rising α" if course.end > course.start else "falling α"


COLOURS = dict(zip(GROUPS, (INK, *(CATEGORICAL[place] for place in (1, 0, 3, 5))), strict=True))
#: Where a name may be, in points from its mark, and the end of it that is there; the nearest first.
PLACES = tuple(
    (side * across, up, "left" if side > 0 else "right")
    for across, up in ((4, 3), (5, -2), (4, -8), (2, 7), (2, -12))
    for side in (1, -1)
)
#: To the right of the marks, in percent of AP50, for names.
ROOM = 2.9
#: Places on a line between two marks that names keep clear of.
STEPS = 60
Groups = Mapping[str, Sequence[Point]]
_GAINS = re.compile(r", box gain ×([^,]+)(?:, class gain ×([^,]+))?(?:, objectness gain ×([^,]+))?")


def exchange_figure(
    rows: Mapping[str, RowRuns], comparable: Mapping[str, RowRuns] | None = None
) -> Figure:
    """Changes against plain IoU at its best gain, over the seeds that both have.

    What nothing beats at both scores has its name, and so has IoU at box gains, or at other gains
    with several seeds; hollow marks have one seed; in the shaded corner is what is wanted.
    """
    figure = Figure(figsize=(FULL_WIDTH, 3.8), layout="constrained")
    panels = dict(zip(WANTED, figure.subplots(1, len(WANTED)), strict=True))
    groups = {score: exchange_points(rows, score, comparable) for score in WANTED}
    for letter, (score, axes) in zip("ab", panels.items(), strict=True):
        _draw(axes, groups[score], 100 * WANTED[score])
        panel_title(axes, letter, f"{column_title(score)}, change in %")
        axes.set(xlabel=f"{column_title(ACROSS)}, change in %")
    handles, names = panels[score].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    figure.draw_without_rendering()  # names are put where there is room: all else has its place
    for score, axes in panels.items():
        _name(axes, groups[score])
    return figure


def _draw(axes: Axes, groups: Groups, wanted: float) -> None:
    for draw in (axes.axhline, axes.axvline):
        draw(0, color="#8C8C8C", lw=0.6, zorder=0)
    for group, points in groups.items():
        colour = COLOURS[group]
        if group == JOINED:
            axes.plot([p.x for p in points], [p.mean for p in points], color=colour, lw=0.8)
        for point in points:
            inside = "white" if point.alone else colour
            axes.plot(point.x, point.mean, "o", ms=4.5, mec=colour, mfc=inside)
        axes.plot([], [], "o", ms=4.5, color=colour, label=group)
    across, up = axes.get_xlim(), axes.get_ylim()
    axes.add_patch(Rectangle((0, wanted), 100, 1000, color=CATEGORICAL[2], alpha=0.12, lw=0))
    axes.set(xlim=(across[0], across[1] + ROOM), ylim=(up[0], max(up[1], 1.3 * wanted)))


def _name(axes: Axes, groups: Groups) -> None:
    """Names where they cover no mark, no line and no other name; where there is no room, none."""
    marks = [(group, point) for group, points in groups.items() for point in points]
    places = axes.transData.transform([(point.x, point.mean) for _, point in marks])
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in places]
    taken += [Bbox.from_bounds(x - 1, y - 1, 2, 2) for x, y in _along(axes, groups.get(JOINED, ()))]
    for group, point in marks:
        control = group == OTHER_GAINS and not point.alone
        if not (group == JOINED or control) and any(_beats(other, point) for _, other in marks):
            continue
        for across, up, end in PLACES:
            text = axes.annotate(
                _short(point.name),
                (point.x, point.mean),
                (across, up),
                textcoords="offset points",
                ha=end,
                fontsize=6,
                color=COLOURS[group],
            )
            box = text.get_window_extent()
            within = all(map(axes.bbox.containsx, box.intervalx))
            if within and not box.count_overlaps(taken):
                taken.append(box)
                break
            text.remove()


def _along(axes: Axes, points: Sequence[Point]) -> list[tuple[float, float]]:
    """Places on the line through some points, near enough for no letter to pass between them."""
    ends = axes.transData.transform([(point.x, point.mean) for point in points]) if points else ()
    return [
        tuple(start + share * (end - start))
        for start, end in pairwise(ends)
        for share in np.linspace(0, 1, STEPS)
    ]


def _beats(one: Point, other: Point) -> bool:
    return one.x > other.x and one.mean > other.mean


def _short(label: str) -> str:
    name = _GAINS.sub(_short_gains, label)
    for long, short in ((", learning rate ", " lr "), ("(α=", "("), ("(α ", "(")):
        name = name.replace(long, short)
    return name


def _short_gains(found: re.Match[str]) -> str:
    box, *others = found.groups()
    return "/".join([f" ×{box}", *(gain or "1" for gain in others if any(others))])
