"""The claims about the runs on voc320: from made records, and the committed file."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import PAPER_COLUMNS
from alphaiou.paper.scales import quick_scale
from benchmarks.record import load_record
from tests.study.made import made_record
from tools.claims import CLAIMS, COLUMNS, Claim, claims_csv, claims_table

ROOT = Path(__file__).parents[2]
USUAL = quick_scale(Path("voc320")).recipe()
#: Scores by loss and box gain, seed by seed.
SCORES = {
    ("iou", 0.05): [0.40, 0.42, 0.41],
    ("iou", 0.10): [0.44, 0.47, 0.43],
    ("iou:3", 0.05): [0.48, 0.49, 0.47],
}


def records(scores=SCORES):
    made = []
    for (loss, gain), row in scores.items():
        for seed, score in enumerate(row):
            recipe = replace(USUAL, loss=LossSpec.parse(loss), seed=seed, box_gain=gain)
            columns = dict.fromkeys((*PAPER_COLUMNS, *COLUMNS), score)
            made.append(made_record(recipe, score) | {"scores": columns})
    return {"runs": made}


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_changes_and_shares_are_those_of_the_means():
    found = {row["claim"]: row for row in rows_of(claims_csv(records())) if row["score"] == "map"}
    base, gain, power = (np.mean(row) for row in SCORES.values())
    expected = {
        "alpha3": power / base - 1,
        "gain2": gain / base - 1,
        "share": (gain - base) / (power - base),
        "best": power / gain - 1,
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float(found[name]["value"]) == pytest.approx(value, abs=6e-5)
        assert float(found[name]["low"]) < value < float(found[name]["high"])
        assert (found[name]["runs"], found[name]["baseline_runs"]) == ("3", "3")
    assert found["best"]["baseline"] == "IoU, box gain ×2"
    assert found["share"]["p"] == ""
    assert float(found["alpha3"]["paper"]) == pytest.approx(53.61 / 52.74 - 1, abs=6e-5)


def test_the_interval_of_two_rows_is_that_of_the_paired_t_test():
    """Rows with one level of variance and every seed: the model is the paired test."""
    two = {("iou", 0.05): [0.49, 0.51, 0.50, 0.50], ("iou:3", 0.05): [0.50, 0.51, 0.52, 0.51]}
    record = records(two)
    (row,) = (r for r in rows_of(claims_csv(record, CLAIMS[:1])) if r["score"] == "map")
    first, second = two.values()
    assert float(row["p"]) == pytest.approx(stats.ttest_rel(second, first).pvalue, abs=2e-3)


def test_what_was_not_run_is_no_claim_and_low_scores_have_no_relative_change():
    assert rows_of(claims_csv(records(), [Claim("x", "α-GIoU (α=3)", "GIoU")])) == []
    low = {key: [score / 100 for score in row] for key, row in SCORES.items()}
    assert [row for row in rows_of(claims_csv(records(low))) if row["claim"] == "alpha3"] == []


def test_significance_in_a_table_is_adjusted_for_its_columns():
    row = {"row": "A", "baseline": "B", "score": "map", "value": "0.1", "low": "0.0", "high": "0.2"}
    row |= {"runs": "3", "baseline_runs": "1", "paper": "0.05"}
    rows = [row | {"claim": name, "p": p} for name, p in (("one", "0.03"), ("two", "0.04"))]
    alone = claims_table({"rows": rows}, ("one",), ("map", "ap50")).splitlines()[2:]
    assert alone == [
        "| A against B | +10.00%† (+0.0 to +20.0) | – |",
        "| – in the paper | +5.00% | – |",
    ]
    both = claims_table({"rows": rows}, ("one", "two"), ("map",)).splitlines()[2::2]
    assert all("°†" in line for line in both)


def test_every_claim_is_in_the_committed_file():
    rows = load_record(ROOT / "studies/voc320/claims.csv")["rows"]
    assert {row["claim"] for row in rows} == {claim.name for claim in CLAIMS}
