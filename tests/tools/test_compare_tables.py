"""Several seeds of a comparison as a table."""

from dataclasses import astuple

from alphaiou.study.statistics import fit
from tools.compare_tables import seeds_table


def rows(loss, values):
    scores = [dict.fromkeys(("ap50", "ap75", "map", "map75_95"), value) for value in values]
    return [{"loss": loss, "seed": seed, "scores": one} for seed, one in enumerate(scores)]


def test_seeds_as_a_table():
    alone = seeds_table({"rows": rows("iou:3", (0.5, 0.7))}).splitlines()
    assert len(alone) == 3
    assert alone[-1].startswith("| α-IoU (α=3) | 2 | 60.00 (50.00 to 70.00) |")
    both = {"rows": [*rows("iou", (0.4, 0.5)), *rows("iou:3", (0.5, 0.61))]}
    *_, first, second, change = seeds_table(both).splitlines()
    assert first.startswith("| IoU | 2 | 45.00 (40.00 to 50.00) |")
    assert second.startswith("| α-IoU (α=3) | 2 | 55.50 (50.00 to 61.00) |")
    change_of = fit([("a", 0, 0.4), ("a", 1, 0.5), ("b", 0, 0.5), ("b", 1, 0.61)]).change("b", "a")
    low, high = (100 * end for end in astuple(change_of.relative_interval))
    assert change.startswith(f"| – change |  | +23.33% ({low:+.1f} to {high:+.1f}) |")
