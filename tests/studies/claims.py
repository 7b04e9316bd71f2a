"""Numbers of the committed runs as pages write them, with whether the seeds decide them."""

from functools import cache
from pathlib import Path
from statistics import fmean

from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.study.records import grid_runs, load_records
from alphaiou.study.statistics import paired_change
from benchmarks.record import read_record
from tools.repeats import repeats

RECORDS = Path(__file__).parents[2] / "results" / "voc320"
OTHER_GAINS = ", class gain ×2, objectness gain ×4"
FOUND = "α-DIoU (α 1→5), gain ×2" + OTHER_GAINS
CONTROL = "IoU, gain ×4" + OTHER_GAINS
BEST_IOU = "IoU, gain ×2"
FASTER = "IoU, gain ×2, learning rate ×2"
POWERED = ("α-IoU (α=3)", "α-DIoU (α=3)")


@cache
def rows(grid, epochs=60):
    grids = paper_grids(quick_scale(Path("voc320"), epochs), range(5))
    return grid_runs(grids[grid], load_records([RECORDS]))


def change(grid, label, column, base=None, epochs=60):
    """Of a row against its baseline, or another row."""
    found = rows(grid, epochs)
    base = found[base or found[label].row.baseline]
    return paired_change(found[label].scores(column), base.scores(column))


def counted_change(label, column, base):
    """Of a row of the search, over the runs whose records have the score."""
    own, other = (rows("beyond")[name].with_scores([column]) for name in (label, base))
    return paired_change(own.scores(column), other.scores(column))


def published(grid, label, column):
    found = rows(grid)
    own = found[label].row
    return own.published[column] / found[own.baseline].row.published[column] - 1


def share(value, digits=0):
    """As pages write it: +12, −0.8, ±0."""
    text = f"{100 * value:+.{digits}f}"
    return "±0" if float(text) == 0 else text.replace("-", "−")


def size(value, digits=0):
    """Without its sign."""
    return share(value, digits)[1:]


def sure(found):
    assert found.decided
    return found.relative


def unsure(found):
    assert found.seeds > 1
    assert not found.decided
    return found.relative


def alone(found):
    assert found.seeds == 1
    return found.relative


def of_each(grid, labels, column, kind, **options):
    return [kind(change(grid, label, column, **options)) for label in labels]


def shares(values, digits=0):
    return [share(value, digits) for value in values]


def ends(values, digits=0):
    return shares((min(values), max(values)), digits)


def level(grid, label, column):
    return fmean(rows(grid)[label].scores(column).values())


def best_against_best(column, grid, loss):
    """α = 3 at the usual gain, which is its best, against the loss at twice the gain."""
    powered, plain = f"α-{loss} (α=3), gain ×1", f"{loss}, gain ×2"
    return change(grid, powered, column, plain)


@cache
def run_twice():
    """The runs of Table 1 that were made twice."""
    return repeats(read_record(RECORDS), "yolov5s", 60)


def mean_change(label, column, own=None):
    """Of a loss against its baseline, means of two runs a seed; or of another row against it."""
    both = run_twice().both
    if own:
        return paired_change(own.scores(column), both[label].scores(column))
    base = both[both[label].row.baseline]
    return paired_change(both[label].scores(column), base.scores(column))


def in_search(label, kind, base=BEST_IOU, columns=("ap50", "map75_95", "ap95")):
    """What pages say of a choice: at AP50, at mAP75:95 and, without decimals, at AP95."""
    found = [kind(change("beyond", label, column, base)) for column in columns]
    return [
        share(value, 0 if column == "ap95" else 1)
        for column, value in zip(columns, found, strict=True)
    ]


def of_control():
    """IoU with the gains of the choice: what it has at AP50 and AP95 is not decided."""
    (closer,) = in_search(CONTROL, sure, columns=("map75_95",))
    fifty, ninety_five = in_search(CONTROL, unsure, columns=("ap50", "ap95"))
    return fifty, closer, ninety_five
