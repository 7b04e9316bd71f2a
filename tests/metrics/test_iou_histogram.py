"""IoU of each detection, against plain loops and torchvision."""

import numpy as np
import pytest
import torch
from torchvision.ops import box_iou

from alphaiou.metrics import counts_above, detection_ious, found_shares, matching
from alphaiou.metrics.iou_histogram import HISTOGRAM_THRESHOLDS, SURE
from tests.metrics.made_data import corners, make


def by_torchvision(data):
    """Best IoU of each detection; None where the best target is ignored."""
    pairwise = box_iou(
        torch.from_numpy(corners(data.boxes)), torch.from_numpy(corners(data.target_boxes))
    )
    found = []
    for row, image in enumerate(data.images):
        best, ignored = 0.0, False
        for target, place in enumerate(data.target_images):
            iou = float(pairwise[row, target])
            if place == image and data.target_labels[target] == data.labels[row] and iou > best:
                best, ignored = iou, bool(data.crowd[target] | data.difficult[target])
        if not ignored:
            found.append(best)
    return found


@pytest.mark.parametrize("pairs_at_once", [1, 7, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_against_torchvision(seed, pairs_at_once, monkeypatch):
    monkeypatch.setattr(matching, "_PAIRS_AT_ONCE", pairs_at_once)
    data = make(seed, kind="sizes", images=3, classes=2)
    found = detection_ious(data)
    np.testing.assert_allclose(sorted(found), sorted(by_torchvision(data)), rtol=0, atol=1e-12)
    assert 0 < (found > 0.5).sum() < len(found)


def test_scores_and_duplicates():
    data = make(0, kind="sizes", images=3, classes=2)
    strong = data.keep_detections(data.scores >= 0.6)
    np.testing.assert_array_equal(detection_ious(data, min_score=0.6), detection_ious(strong))
    once = detection_ious(data, once=True)
    countable = int((~(data.crowd | data.difficult)).sum())
    assert 0 < len(once) <= countable < len(detection_ious(data))
    assert (once > 0).all()


def test_nothing_to_compare():
    assert len(detection_ious(make(0, detections=0))) == 0
    assert (detection_ious(make(0, targets=0)) == 0).all()
    assert set(counts_above(np.empty(0)).values()) == {0}


def test_counts_fall_with_the_threshold():
    ious = detection_ious(make(1, kind="float32"))
    counts = counts_above(ious)
    assert list(counts) == list(HISTOGRAM_THRESHOLDS)
    assert list(counts.values()) == [sum(iou >= t for iou in ious) for t in HISTOGRAM_THRESHOLDS]
    assert counts[0.5] > counts[0.9] > 0


def by_loops(data, threshold):
    """The share of the objects whose surest detection has at least an IoU, one by one."""
    pairwise = box_iou(
        torch.from_numpy(corners(data.boxes)), torch.from_numpy(corners(data.target_boxes))
    ).numpy()
    surest = {}
    for row in np.argsort(-data.scores, kind="stable"):
        own = (data.target_images == data.images[row]) & (data.target_labels == data.labels[row])
        ious = np.where(own, pairwise[row], 0)
        if data.scores[row] >= SURE and ious.max() > 0:
            surest.setdefault(int(ious.argmax()), ious.max())
    objects = np.flatnonzero(~(data.crowd | data.difficult))
    return np.mean([surest.get(int(one), 0) >= threshold for one in objects])


@pytest.mark.parametrize("seed", range(4))
def test_shares_of_objects_found_against_loops(seed):
    data = make(seed, kind="sizes", images=6, classes=2).in_order()
    assert (data.scores < SURE).any()
    shares = found_shares(data)
    assert list(shares) == [50, 55, 60, 65, 70, 75, 80, 85, 90]
    assert list(shares.values()) == pytest.approx([by_loops(data, p / 100) for p in shares])
    assert 0 < shares[90] < shares[50] < 1
    assert all(np.isnan(share) for share in found_shares(make(0, targets=0)).values())
    assert set(found_shares(make(0, detections=0)).values()) == {0.0}
