"""What a choice gives up at AP50 for what it gains at higher IoU, as points of a plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from alphaiou.experiments.paper_best import CHOSEN_BY
from alphaiou.experiments.paper_beyond import WANTED, exchanges, is_plain
from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.recipes import gain_factor
from alphaiou.experiments.score_tables import column_title
from alphaiou.experiments.style import CATEGORICAL, FULL_WIDTH, INK, panel_title
from alphaiou.training.recipe import Recipe

ACROSS = "ap50"
#: What loses more of mAP75:95 than this part is not drawn: the others would be one heap.
FARTHEST = 0.1
#: Where a name may be, in points from its mark, and the end of it that is there; the nearest first.
PLACES = tuple(
    (side * across, up, "left" if side > 0 else "right")
    for across, up in ((4, 3), (5, -2), (4, -8), (2, 7), (2, -12))
    for side in (1, -1)
)
#: To the right of the marks, in percent of AP50, for names.
ROOM = 2.9
GROUPS = {
    "no power": INK,
    "constant α": CATEGORICAL[1],
    "rising α": CATEGORICAL[0],
    "falling α": CATEGORICAL[3],
}


@dataclass(frozen=True)
class _Mark:
    """A row in the plane.

    Attributes:
        name: Its loss and gain, in few letters.
        group: One of :data:`GROUPS`.
        place: Its changes in percent: at AP50, and at what the panel is about.
        gain: Times the usual, where it is plain IoU and so on its line.
        sure: Whether it has the seeds to decide anything.
    """

    name: str
    group: str
    place: tuple[float, float]
    gain: float | None
    sure: bool


def exchange_figure(cells: Mapping[str, CellRuns]) -> Figure:
    """Changes against plain IoU at its best gain, over the seeds that both have.

    What nothing beats at both scores has its name, and so has plain IoU; hollow marks have fewer
    than three seeds; in the shaded corner is what is wanted.
    """
    figure = Figure(figsize=(FULL_WIDTH, 3.8), layout="constrained")
    panels = dict(zip(WANTED, figure.subplots(1, len(WANTED)), strict=True))
    marks = {score: _marks(cells, score) for score in WANTED}
    for letter, (score, axes) in zip("ab", panels.items(), strict=True):
        _draw(axes, marks[score], 100 * WANTED[score])
        panel_title(axes, letter, f"{column_title(score)}, change in %")
        axes.set(xlabel=f"{column_title(ACROSS)}, change in %")
    handles, names = panels[score].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    figure.draw_without_rendering()  # names are put where there is room: all else has its place
    for score, axes in panels.items():
        _name(axes, marks[score])
    return figure


def _marks(cells: Mapping[str, CellRuns], score: str) -> list[_Mark]:
    recipes = {label: own.cell.recipe for label, own in cells.items()}
    return [
        _Mark(
            name=label.replace(", gain ", " ").replace("(α=", "(").replace("(α ", "("),
            group=_group(recipes[label]),
            place=(100 * own[ACROSS].relative, 100 * own[score].relative),
            gain=gain_factor(recipes[label]) if is_plain(recipes[label]) else None,
            sure=own[ACROSS].seeds > 2,
        )
        for label, own in exchanges(cells).items()
        if own[CHOSEN_BY].relative > -FARTHEST
    ]


def _group(recipe: Recipe) -> str:
    course = recipe.alpha_schedule
    if course is None:
        return "no power" if recipe.loss.alpha == 1 else "constant α"
    return "rising α" if course.end > course.start else "falling α"


def _draw(axes: Axes, marks: Sequence[_Mark], wanted: float) -> None:
    for draw in (axes.axhline, axes.axvline):
        draw(0, color="#8C8C8C", lw=0.6, zorder=0)
    line = sorted((mark.gain, mark.place) for mark in marks if mark.gain is not None)
    axes.plot(*zip(*(place for _, place in line), strict=True), color=INK, lw=0.8, zorder=1)
    for group, colour in GROUPS.items():
        own = [mark for mark in marks if mark.group == group]
        for mark in own:
            inside = colour if mark.sure else "white"
            axes.plot(*mark.place, "o", ms=4.5, mec=colour, mfc=inside)
        if own:
            axes.plot([], [], "o", ms=4.5, color=colour, label=group)
    across, up = axes.get_xlim(), axes.get_ylim()
    axes.add_patch(Rectangle((0, wanted), 100, 1000, color=CATEGORICAL[2], alpha=0.12, lw=0))
    axes.set(xlim=(across[0], across[1] + ROOM), ylim=(up[0], max(up[1], 1.3 * wanted)))


def _name(axes: Axes, marks: Sequence[_Mark]) -> None:
    """Names where they cover no mark and no other name; where there is no room, none."""
    taken = [
        Bbox.from_bounds(x - 4, y - 4, 8, 8)
        for x, y in axes.transData.transform([m.place for m in marks])
    ]
    for mark in marks:
        if mark.gain is None and any(_beats(other, mark) for other in marks):
            continue
        for across, up, end in PLACES:
            text = axes.annotate(
                mark.name,
                mark.place,
                (across, up),
                textcoords="offset points",
                ha=end,
                fontsize=6,
                color=GROUPS[mark.group],
            )
            box = text.get_window_extent()
            if (
                axes.bbox.containsx(box.x0)
                and axes.bbox.containsx(box.x1)
                and not box.count_overlaps(taken)
            ):
                taken.append(box)
                break
            text.remove()


def _beats(one: _Mark, other: _Mark) -> bool:
    return one.place[0] > other.place[0] and one.place[1] > other.place[1]
