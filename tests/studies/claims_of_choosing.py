"""What ``docs/choosing.md`` claims: pieces of its text with places for numbers, and these."""

from alphaiou.study.statistics import paired_change
from studies.voc320.search import THRESHOLDS
from tests.studies.claims import (
    BEST_IOU,
    FASTER,
    FOUND,
    POWERED,
    alone,
    rows,
    change,
    in_search,
    mean_change,
    of_control,
    of_each,
    shares,
    size,
    sure,
    unsure,
)


def advice():
    def power(alpha, column):
        """With the seed that all powers were run with."""
        plain, own = (rows("alpha")[label] for label in ("IoU", f"α-IoU (α={alpha})"))
        return own.scores(column)[0] / plain.scores(column)[0] - 1

    yield (
        "2, 3 and 4 change AP50 by {}, {} and {} % and mAP75:95 by {}, {} and {} %. At 5 mAP75:95 "
        "falls again and AP50 has lost {} %, at 10",
        (
            *shares([power(alpha, "ap50") for alpha in (2, 3, 4)], 1),
            *shares([power(alpha, "map75_95") for alpha in (2, 3, 4)], 1),
            size(power(5, "ap50"), 1),
        ),
    )
    assert power(5, "map75_95") < power(4, "map75_95")
    assert max(power(10, "ap50"), power(10, "map75_95")) < 0
    powered = [own.row.label for own in rows("family").values() if own.runs and own.row.baseline]
    rises = of_each("family", powered, "map75_95", alone)
    rises += of_each("table1", POWERED, "map75_95", sure)
    iou = rows("table1")["IoU"].scores("map75_95")
    plain = [
        abs(paired_change(own.scores("map75_95"), iou).relative)
        for own in (*rows("family").values(), rows("table1")["DIoU"])
        if own.runs and not own.row.baseline and own.row.label != "WIoU v3"
    ]
    yield (
        "{} to {} % at mAP75:95 each (the first and the third with three seeds, the others with "
        "one), and without it all but the last are within {} % of IoU.",
        (size(min(rises)), size(max(rises)), size(max(plain), 1)),
    )
    usual = "α-IoU (α=3), gain ×1"
    rises = [
        kind(change("gains", label, column))
        for label, column, kind in (
            *((BEST_IOU, "map75_95", sure), (usual, "map75_95", sure)),
            *((BEST_IOU, "ap95", unsure), (usual, "ap95", sure)),
        )
    ]
    yield (
        "brings IoU {} % at mAP75:95, where α = 3 brings {} %, {} % at AP95 (not decided), where "
        "α = 3 brings {} %, and costs as much at AP50.",
        shares(rises),
    )
    costs = [change("gains", label, "ap50") for label in (BEST_IOU, usual)]
    assert abs(costs[0].relative - costs[1].relative) < 0.002
    half, twice, thrice = (f"α-IoU (α=3), gain {gain}" for gain in ("×0.5", "×2", "×3"))
    for column in THRESHOLDS:
        gained = change("gains", thrice, column, usual)
        assert gained.difference < 0 or not gained.decided
        left = change("gains", half, column)
        assert left.difference < 0 or not left.decided
    yield (
        "loses {} % of IoU's AP50 for {} % more AP90 than at the usual gain, at three times the "
        "gain {} % for nothing;",
        (
            size(sure(change("gains", twice, "ap50"))),
            size(sure(change("gains", twice, "ap90", usual))),
            size(sure(change("gains", thrice, "ap50"))),
        ),
    )
    yield (
        "has {} % AP50, {} % mAP75:95 and {} % AP95, the first and the last not decided; IoU at "
        "twice the learning rate, and nothing else, {}, {} and {} % (one seed).",
        (*of_control(), *in_search(FASTER, alone)),
    )
    yield (
        "{}, {} and {} %, better at every threshold with five seeds",
        in_search(FOUND, sure),
    )
    own = rows("objectness")["α-IoU (α=3), objectness as the loss"]
    costs = mean_change(POWERED[0], "ap50", own)
    yield ("costs α-IoU {} % of AP50;", [size(sure(costs), 1)])
    noisy = change("table3", "α-DIoU (α=3), η=0.3", "map")
    yield ("nothing that is decided and DIoU {} % less mAP", [size(sure(noisy))])
    half, quarter = (
        of_each("small", [f"α-{k} (α=3), {part}" for k in ("IoU", "DIoU", "GIoU")], "ap50", alone)
        for part in ("50%", "25%")
    )
    yield (
        "AP50 loses {} to {} %, with a quarter {} to {} %.",
        [size(end(values)) for values in (half, quarter) for end in (max, min)],
    )
