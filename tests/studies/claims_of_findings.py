"""What ``docs/findings.md`` claims: pieces of its text with places for numbers, and these."""

import re
from statistics import fmean

from alphaiou.metrics.comparison import PAPER_COLUMNS
from alphaiou.study.records import load_records
from alphaiou.study.statistics import paired_change
from studies.voc320.beyond import beyond_sentences
from studies.voc320.search import THRESHOLDS
from tests.studies.claims import (
    BEST_IOU,
    CONTROL,
    FASTER,
    FOUND,
    OTHER_GAINS,
    POWERED,
    RECORDS,
    alone,
    best_against_best,
    cells,
    change,
    counted_change,
    ends,
    in_search,
    level,
    mean_change,
    of_control,
    of_each,
    published,
    run_twice,
    share,
    shares,
    size,
    sure,
    unsure,
)
from tools.repeats import other_seed_scatter, seed_scatter


def headline():
    three = [
        shares(of_each("table1", POWERED, column, kind), digits)
        for column, digits, kind in (
            *(("map75_95", 0, sure), ("ap95", 0, sure), ("map", 1, sure)),
            ("ap50", 1, unsure),
        )
    ]
    there = [
        shares([published("table1", label, column) for label in POWERED], digits)
        for column, digits in (("map75_95", 0), ("ap50", 1))
    ]
    closer, ninety_five, mean, fifty = three
    yield (
        "mAP75:95 changes by {} and {} % with IoU and DIoU ({} and {} % in the paper), "
        "AP95 by {} and {} %, mAP by {} and {} %.",
        (*closer, *there[0], *ninety_five, *mean),
    )
    more = {
        column: of_each("distribution", POWERED, column, sure) for column in ("found75", "found90")
    }
    fewer = sure(change("distribution", POWERED[0], "found50"))
    other = unsure(change("distribution", POWERED[1], "found50"))
    assert max(fewer, other) < 0 < min(*more["found75"], *more["found90"])
    yield (
        "finds {} and {} % more objects with an IoU of at least .75, {} and {} % more with .9 and "
        "{} and {} % fewer with .5, the last not decided.",
        (
            *(size(value, 1) for value in more["found75"]),
            *(size(value) for value in more["found90"]),
            *(size(value, 1) for value in (fewer, other)),
        ),
    )
    later = of_each("table1", POWERED, "ap50", alone, epochs=100)
    yield (
        "which the paper does not see: {} and {} % ({} and {} % there), not decided by three runs "
        "and decided by six, {} and {} % with the means of two for each seed. Short trainings pay "
        "more: {} % after 30 epochs; after 100 it is {} and {} % (one seed).",
        (
            *fifty,
            *there[1],
            *shares((sure(mean_change(label, "ap50")) for label in POWERED), 1),
            share(sure(change("length", "α-IoU (α=3), 30 epochs", "ap50")), 1),
            *shares(later, 1),
        ),
    )


def gains():
    yield (
        "Twice the gain without a power brings IoU {} % at mAP75:95 and, not decided, {} % at "
        "AP95, DIoU {} and {} %.",
        shares(
            kind(change(grid, label, column))
            for grid, label, column, kind in (
                ("gains", "IoU, gain ×2", "map75_95", sure),
                ("gains", "IoU, gain ×2", "ap95", unsure),
                ("gains-elsewhere", "DIoU, gain ×2", "map75_95", sure),
                ("gains-elsewhere", "DIoU, gain ×2", "ap95", sure),
            )
        ),
    )
    iou, diou = ("gains", "IoU"), ("gains-elsewhere", "DIoU")
    for own in (iou, diou):
        unsure(best_against_best("ap50", *own))
    yield (
        "Best against best, α = 3 keeps {} % at AP95 with IoU; its {} % at AP95 with DIoU, its {} "
        "and {} % at mAP75:95 and all that differs at AP50 are not decided.",
        (
            share(sure(best_against_best("ap95", *iou))),
            share(unsure(best_against_best("ap95", *diou))),
            share(unsure(best_against_best("map75_95", *iou)), 1),
            share(unsure(best_against_best("map75_95", *diou)), 1),
        ),
    )
    yield (
        "α = 3 at twice the gain has {} and {} % AP50.",
        shares(
            (
                sure(change("gains", "α-IoU (α=3), gain ×2", "ap50")),
                sure(change("gains-elsewhere", "α-DIoU (α=3), gain ×2", "ap50")),
            ),
            1,
        ),
    )


def twice():
    found = run_twice()
    changes = [
        [
            paired_change(rows[label].scores(c), rows[rows[label].row.baseline].scores(c))
            for label in POWERED
            for c in PAPER_COLUMNS
        ]
        for rows in (found.first, found.again)
    ]
    first, again = changes
    assert len(first) == 12
    assert all(one.decided for one in first)
    assert all(a.difference * b.difference > 0 for a, b in zip(first, again, strict=True))
    yield ("of which the first runs decide, the second decide {}:", [sum(c.decided for c in again)])
    columns = ("ap50", "map75_95", "ap95")
    yield (
        "scatter by {:.2f} points at AP50, runs of two seeds by {:.2f}; by {:.2f} and {:.2f} at "
        "mAP75:95, and by {:.2f} and {:.2f} at AP95.",
        [
            100 * scatter(found, c)
            for c in columns
            for scatter in (seed_scatter, other_seed_scatter)
        ],
    )


def search():
    found, plain = cells("beyond")[FOUND], cells("beyond")[BEST_IOU]
    assert len(found.runs) == 5
    for column in THRESHOLDS:
        sure(change("beyond", FOUND, column, BEST_IOU))
        assert all(
            value > plain.scores(column)[seed] for seed, value in found.scores(column).items()
        )
    yield (
        "has {} % AP50, {} % mAP75:95 and {} % AP95; five seeds, each of them ahead at each "
        "threshold, all intervals clear of zero.",
        in_search(FOUND, sure),
    )
    usual = {c: change("beyond", "α-DIoU (α 1→5), gain ×1", c, BEST_IOU) for c in THRESHOLDS}
    assert {found.seeds for found in usual.values()} == {2}
    assert min(found.difference for found in usual.values()) > 0
    assert [column for column, found in usual.items() if found.decided] == ["ap75", "ap90"]
    for gain in ("×3", "×6"):
        other = change("beyond", f"IoU, gain {gain}{OTHER_GAINS}", "map75_95", CONTROL)
        assert alone(other) < 0
    yield (
        "four times the box gain, has {}, {} and {} %, the first and the last not decided (at "
        "three and at six times",
        of_control(),
    )
    yield ("but the box gain, has {}, {} and {} % (one seed).", in_search(FASTER, alone))
    yield (
        "the power keeps {} % at AP85 and {} % at AP90; its {} % at AP50, {} % at mAP75:95 and "
        "{} % at AP95 are not decided.",
        (
            *in_search(FOUND, sure, CONTROL, ("ap85", "ap90")),
            *in_search(FOUND, unsure, CONTROL),
        ),
    )


def powers():
    def at(power, column):
        return alone(change("alpha", f"α-IoU (α={power})", column))

    for column in THRESHOLDS:
        assert at(0.5, column) < 0
        assert (at(10, column) < 0) == (column <= "ap80")
    assert share(at(2, "map75_95")) == share(at(5, "map75_95"))
    rows = ["IoU", *(f"α-IoU (α={power})" for power in (2, 3, 4, 5, 10))]
    falling = [cells("alpha")[label].scores("ap50")[0] for label in rows]
    assert falling == sorted(falling, reverse=True)
    yield (
        "AP50 falls with every larger α ({} % at 2, {} % at 5, {} % at 10), mAP75:95 is highest "
        "at 4 ({} %; {} % at 2 and at 5), AP95 at 5 ({} %).",
        (
            *shares((at(2, "ap50"), at(5, "ap50"), at(10, "ap50")), 1),
            *shares((at(4, "map75_95"), at(2, "map75_95"), at(5, "ap95"))),
        ),
    )
    noisy = {power: f"α-IoU (α={power}), η=0.3" for power in (2, 4, 5, 10)}
    found = {p: alone(change("alpha", label, "map75_95")) for p, label in noisy.items()}
    yield (
        "(one seed each: {} and {} %), 5 and 10 have {} and {} %.",
        (*shares((found[2], found[4]), 1), *shares((found[5], found[10]))),
    )


def kinds():
    family = [own for own in cells("family").values() if own.runs]
    powered = [own.row.label for own in family if own.row.baseline]
    assert len(powered) == 5
    iou = cells("table1")["IoU"].scores("map75_95")
    plain = {
        own.row.label: alone(paired_change(own.scores("map75_95"), iou))
        for own in family
        if not own.row.baseline
    }
    wise = plain.pop("WIoU v3")
    yield (
        "{} to {} % at mAP75:95 (one seed each), as it does IoU and DIoU; without it, all of these "
        "but the last are within {} and {} % of IoU. Wise-IoU v3 has {} %",
        (
            *ends(of_each("family", powered, "map75_95", alone), 1),
            *ends(list(plain.values()), 1),
            share(wise),
        ),
    )
    rows = [label for label, own in cells("penalty-alpha").items() if own.row.baseline]
    yield (
        "moves mAP75:95 by {} to {} % beside α₁ = 3, and not the same way for all kinds (one seed "
        "each; {} to {} % in the paper).",
        (
            *ends(of_each("penalty-alpha", rows, "map75_95", alone), 1),
            *ends([published("penalty-alpha", label, "map75_95") for label in rows], 1),
        ),
    )


def objectness():
    rows = [f"{label}, objectness as the loss" for label in POWERED]
    iou, diou = of_each("objectness", rows, "ap50", unsure)
    assert max(iou, diou) < 0
    own = cells("objectness")[rows[0]]
    yield (
        "has {} and {} % less AP50 with α-IoU and α-DIoU, not decided; against the means of two "
        "runs of α-IoU its {} % less are.",
        (size(iou, 1), size(diou, 1), size(sure(mean_change(POWERED[0], "ap50", own)), 1)),
    )


def noise():
    def at(rate, kind):
        labels = [f"{label}, η={rate}" for label in POWERED]
        ours = of_each("table3", labels, "map75_95", kind)
        return ours, shares([published("table3", label, "map75_95") for label in labels])

    (low, low_there), (middle, middle_there), (high, high_there) = (
        at(rate, kind) for rate, kind in ((0.1, alone), (0.2, alone), (0.3, unsure))
    )
    yield (
        "mAP75:95 changes by {} and {} % at η = 0.1 ({} and {} % in the paper), by {} and {} % at "
        "0.2 ({} and {} %; one seed each so far), and at 0.3 nothing of it is decided ({} and {} "
        "%; {} and {} % in the paper",
        (
            *(*shares(low), *low_there),
            *(share(middle[0], 1), share(middle[1]), *middle_there),
            *(*shares(high), *high_there),
        ),
    )
    yield (
        "after five times as many epochs), while DIoU loses {} % of mAP.",
        [size(sure(change("table3", "α-DIoU (α=3), η=0.3", "map")), 1)],
    )
    larger = {
        (kind, column): change("gains-elsewhere", f"{kind}, η=0.3, gain ×2", column)
        for kind in ("IoU", "DIoU")
        for column in (*THRESHOLDS, "map", "map75_95")
    }
    decided = {name: found.relative for name, found in larger.items() if found.decided}
    assert list(decided) == [("DIoU", "ap55"), ("DIoU", "ap60")]
    yield (
        "anything that is decided there, but for {} and {} % at AP55 and AP60 with DIoU,",
        shares(decided.values(), 1),
    )
    both = [f"{label}, η=0.3, gain ×2" for label in POWERED]
    yield (
        "α = 3 with it loses {} and {} % of AP50.",
        [size(value, 1) for value in of_each("gains-elsewhere", both, "ap50", sure)],
    )


def small_sets():
    def at(part, column):
        labels = [f"α-{kind} (α=3), {part}" for kind in ("IoU", "DIoU", "GIoU")]
        return of_each("small", labels, column, alone), labels

    (half, labels), (quarter, others) = at("50%", "ap50"), at("25%", "ap50")
    there = [abs(published("small", label, "ap50")) for label in (*labels, *others)]
    better = (*at("50%", "map75_95")[0], *at("25%", "map75_95")[0])
    assert max(*half, *quarter) < 0 < min(better)
    yield (
        "{}, {} and {} % of AP50 with half of the images, {}, {} and {} % with a quarter (at most "
        "{} % in the paper); mAP75:95 rises in all six, by {} to {} % (one seed each).",
        (
            *(size(value, 1) for value in half),
            *(size(quarter[0]), size(quarter[1], 1), size(quarter[2], 1)),
            *(size(max(there), 1), size(min(better)), size(max(better))),
        ),
    )


def reasons():
    records = load_records([RECORDS]).values()
    counted = [
        run["scores"]
        for run in records
        if "recall50" in run["scores"] and not run["recipe"]["noise"]
    ]
    recall, precision = ([run[name] for run in counted] for name in ("recall50", "ap50"))
    yield (
        "{:.0f} to {:.0f} % of the objects have a detection with an IoU of .5 and the right class, "
        "however unsure, whether AP50 is {:.0f} or {:.0f} %.",
        [100 * end(values) for values in (recall, precision) for end in (min, max)],
    )
    rows = [f"{loss}, gain {gain}" for loss in ("IoU", POWERED[0]) for gain in ("×3", "×1")]
    classes = [
        fmean(run["history"][-1]["class"] for run in cells("gains")[label].runs.values())
        for label in rows
    ]
    yield (
        "the loss of the classes ends at {:.2f} in place of {:.2f} with IoU, at {:.2f} in place of "
        "{:.2f} with α-IoU, and AP50 falls to {:.1f} from {:.1f} % and to {:.1f} from {:.1f} %.",
        (*classes, *(100 * level("gains", label, "ap50") for label in rows)),
    )
    both = "IoU, gain ×2, class gain ×2"
    neither = cells("beyond")["IoU, gain ×1"]
    yield (
        "has {:.1f} % AP50 and {:.1f} % mAP75:95, with neither {:.1f} and {:.1f} % (one seed).",
        (
            *(100 * level("beyond", both, column) for column in ("ap50", "map75_95")),
            *(100 * neither.scores(column)[0] for column in ("ap50", "map75_95")),
        ),
    )
    pairs = (
        ("α-DIoU (α 1→5), gain ×1.5, class gain ×2", ", objectness gain ×2"),
        (both, ", objectness gain ×2"),
        ("IoU, gain ×2", ", objectness gain ×2"),
        ("α-DIoU (α 1→5), gain ×1.5", ", objectness gain ×2"),
    )
    yield (
        "twice its gain brings {}, {}, {} and {} % at mAP75:95 and {}, {}, {} and {} % at AP50",
        [
            share(alone(change("beyond", before + more, column, before)), 1)
            for column in ("map75_95", "ap50")
            for before, more in pairs
        ],
    )
    moved = [counted_change(before + more, "recall75", before) for before, more in pairs]
    counted = [abs(found.difference) for found in moved if found is not None]
    assert len(counted) == 2
    assert max(counted) < 0.001
    more75, more90, fewer75, higher95 = (
        sure(counted_change(FOUND, column, base))
        for column, base in (
            *(("found75", BEST_IOU), ("found90", BEST_IOU)),
            *(("found75", CONTROL), ("recall95", CONTROL)),
        )
    )
    assert fewer75 < 0 < min(more75, more90, higher95)
    yield (
        "finds {} % more objects with an IoU of at least .75 and {} % more with .9 (two seeds; "
        "what `distribution` counts). Beside IoU with the same gains it finds {} % fewer with .75; "
        "its {} % more with .9 are not decided, and its recall at .95 is {} % higher.",
        (
            *(size(more75, 1), size(more90), size(fewer75, 1)),
            *(size(unsure(counted_change(FOUND, "found90", CONTROL)), 1), size(higher95)),
        ),
    )
    rising = change("beyond", "IoU, gain ×1→3", "map75_95", BEST_IOU)
    yield ("rises to three times has {} % at mAP75:95", [share(alone(rising), 1)])
    for column in THRESHOLDS:
        assert alone(change("beyond", "α-IoU (α 3→1), gain ×1", column, BEST_IOU)) < 0


def luck():
    (said,) = (one for one in beyond_sentences(cells("beyond")) if one.startswith("Luck"))
    scatter, scatter95, best, best95 = map(float, re.findall(r"([\d.]+) % at", said))
    (count,) = re.findall(r"all (\d+) that", said)
    yield (
        "scatters by {:.1f} % at mAP75:95 and by {:.0f} % at AP95, so that the best of {} single "
        "seeds would be ahead by {:.1f} and {:.0f} %",
        (scatter, scatter95, count, best, best95),
    )
    later = {
        column: [
            value / cells("beyond")[BEST_IOU].scores(column)[seed] - 1
            for seed, value in cells("beyond")[FOUND].scores(column).items()
            if seed > 0
        ]
        for column in ("map75_95", "ap95")
    }
    yield (
        "are ahead by {} to {} % at mAP75:95 and by {} to {} % at AP95.",
        [
            size(end(values), 1 if column == "map75_95" else 0)
            for column, values in later.items()
            for end in (min, max)
        ],
    )


FINDINGS = (
    *(headline, gains, search, powers, kinds, objectness, noise, small_sets),
    *(reasons, luck, twice),
)
