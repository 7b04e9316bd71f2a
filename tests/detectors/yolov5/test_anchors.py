"""Whether anchors fit, and anchors made to fit."""

import pytest
import torch

from alphaiou.detectors.yolov5.anchors import best_possible_recall, cluster_anchors, fit_anchors
from alphaiou.detectors.yolov5.network import ANCHORS

YOLO = torch.tensor(ANCHORS, dtype=torch.float32)


def test_recall_is_that_of_a_loop():
    sizes = 2 ** (torch.rand(300, 2, generator=torch.Generator().manual_seed(0)) * 10)
    anchors = [anchor for layer in ANCHORS for anchor in layer]
    fitted = sum(
        any(max(w / a, a / w, h / b, b / h) < 4 for a, b in anchors) for w, h in sizes.tolist()
    )
    assert best_possible_recall(sizes, YOLO) == pytest.approx(fitted / 300)
    assert 0.3 < fitted / 300 < 0.95


def test_clusters_are_found():
    """Nine groups of sizes, far from one another by ratio, are the nine anchors."""
    generator = torch.Generator().manual_seed(1)
    groups = torch.tensor([(2.0**k, 3.0 * 2.0**k) for k in range(9)]) * 2
    sizes = groups.repeat(60, 1) * (1 + 0.05 * torch.randn(540, 2, generator=generator))
    found = cluster_anchors(sizes)
    assert found.shape == (3, 3, 2)
    torch.testing.assert_close(found.view(9, 2), groups, rtol=0.05, atol=0)
    assert torch.equal(found, cluster_anchors(sizes))


def test_anchors_that_fit_stay():
    sizes = torch.rand(500, 2, generator=torch.Generator().manual_seed(2)) * 200 + 20
    assert best_possible_recall(sizes, YOLO) >= 0.98
    assert torch.equal(fit_anchors(sizes, YOLO), YOLO)


def test_anchors_that_do_not_fit_are_made_anew():
    sizes = torch.rand(500, 2, generator=torch.Generator().manual_seed(3)) * 6 + 1
    assert best_possible_recall(sizes, YOLO) < 0.8
    fitted = fit_anchors(sizes, YOLO)
    assert best_possible_recall(sizes, fitted) > 0.99
    areas = fitted.prod(-1).flatten()
    assert (areas.diff() > 0).all()


def test_few_equal_or_no_boxes():
    assert best_possible_recall(torch.zeros(0, 2), YOLO) == 1.0
    assert torch.equal(fit_anchors(torch.ones(3, 2), YOLO), YOLO)
    assert cluster_anchors(torch.full((20, 2), 5.0)).unique().tolist() == pytest.approx([5.0])
    with pytest.raises(ValueError, match="9 anchors need as many boxes; there are 4"):
        cluster_anchors(torch.ones(4, 2))
