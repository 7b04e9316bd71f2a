"""The set loss: against transformers', against a loop, at its edges, and its gradient."""

from functools import partial

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.batch import Targets
from alphaiou.boxes import convert_boxes
from alphaiou.detectors.base import batch_targets
from alphaiou.detectors.detr.loss import DETRLoss
from alphaiou.detectors.detr.targets import targets_by_image
from tests import oracle
from tests.detectors.detr.models import CLASSES, SIZE, as_labels, random_target, small_model

HEIGHT, WIDTH = SIZE
LAYERS, QUERIES = 3, 7


def scale(images, dtype=torch.float32):
    return torch.tensor([[WIDTH, HEIGHT, WIDTH, HEIGHT]], dtype=dtype).repeat(images, 1)


def example(counts, *, seed=0, dtype=torch.float64, queries=QUERIES):
    """Outputs of a network, of chance, and targets of so many boxes."""
    generator = torch.Generator().manual_seed(seed)
    shape = (LAYERS, len(counts), queries)
    logits = 2 * torch.randn(*shape, CLASSES + 1, generator=generator, dtype=dtype)
    boxes = torch.randn(*shape, 4, generator=generator, dtype=dtype).sigmoid()
    targets = [random_target(count, generator=generator) for count in counts]
    return logits.requires_grad_(), boxes.requires_grad_(), targets


def giou(**options):
    return DETRLoss(AlphaIoULoss("giou", 1.0), **options)


def total(loss, logits, boxes, targets):
    if not isinstance(targets, Targets):
        targets = batch_targets(targets)
    return loss(logits, boxes, targets, scale(logits.shape[1]))


def by_transformers(logits, boxes, targets, *, auxiliary):
    config = small_model(auxiliary_loss=auxiliary).config
    loss, parts, _ = ForObjectDetectionLoss(
        logits[-1], as_labels(targets), "cpu", boxes[-1], config, logits, boxes
    )
    summed = {
        ours: weight * sum(part for name, part in parts.items() if name.startswith(theirs))
        for ours, theirs, weight in (
            ("class", "loss_ce", 1),
            ("l1", "loss_bbox", 5),
            ("box", "loss_giou", 2),
        )
    }
    return loss, summed


@pytest.mark.parametrize("auxiliary", [True, False])
@pytest.mark.parametrize("counts", [(3, 0, 5), (1,), (7, 7), (0, 0), (2, 6, 1, 0)])
def test_is_that_of_transformers(counts, auxiliary):
    logits, boxes, targets = example(counts, seed=sum(counts), dtype=torch.float32)
    parts = total(giou(auxiliary=auxiliary), logits, boxes, targets)
    loss, expected = by_transformers(logits, boxes, targets, auxiliary=auxiliary)
    torch.testing.assert_close(sum(parts.values()), loss, rtol=1e-5, atol=1e-5)
    for name, part in expected.items():
        torch.testing.assert_close(parts[name], torch.as_tensor(part), rtol=1e-5, atol=1e-5)
    mine = torch.autograd.grad(sum(parts.values()), (logits, boxes))
    theirs = torch.autograd.grad(loss, (logits, boxes))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def slowly(logits, boxes, targets, *, kind, alpha, match_kind, match_alpha, weights, match_weights):
    """One layer, image and pair at a time, in the words of the scalar oracle."""
    one = partial(oracle.loss, kind=getattr(oracle, kind), alpha=alpha)
    match_one = partial(oracle.loss, kind=getattr(oracle, match_kind), alpha=match_alpha)
    pixels = scale(1, torch.float64)[0]
    parts = {"class": 0.0, "l1": 0.0, "box": 0.0}
    for layer_logits, layer_boxes in zip(logits.detach(), boxes.detach(), strict=True):
        losses, weighted = 0.0, 0.0
        for own_logits, own_boxes, target in zip(layer_logits, layer_boxes, targets, strict=True):
            probability = own_logits.softmax(-1)
            corners = (convert_boxes(own_boxes, "cxcywh", "xyxy") * pixels).tolist()
            aims = target["boxes"].double()
            shares = convert_boxes(aims, "xyxy", "cxcywh") / pixels
            labels = target["labels"].tolist()
            cost = torch.zeros(len(labels), len(own_boxes), dtype=torch.float64)
            for i, label in enumerate(labels):
                for j, corner in enumerate(corners):
                    apart = (own_boxes[j] - shares[i]).abs().sum()
                    cost[i, j] = (
                        match_weights[1] * apart
                        - match_weights[0] * probability[j, label]
                        + match_weights[2] * match_one(corner, aims[i].tolist())
                    )
            aim_of = dict.fromkeys(range(len(own_boxes)), CLASSES)
            for i, j in zip(*linear_sum_assignment(cost.numpy()), strict=True):
                aim_of[j] = labels[i]
                parts["l1"] += weights[1] * (own_boxes[j] - shares[i]).abs().sum().item()
                parts["box"] += weights[2] * one(corners[j], aims[i].tolist())
            for j, aim in aim_of.items():
                weight = 0.1 if aim == CLASSES else 1.0
                losses -= weight * probability[j, aim].log().item()
                weighted += weight
        parts["class"] += weights[0] * losses / weighted
    count = max(sum(len(target["labels"]) for target in targets), 1)
    return parts | {"l1": parts["l1"] / count, "box": parts["box"] / count}


@pytest.mark.parametrize(
    ("kind", "alpha", "match_kind", "match_alpha"),
    [
        ("iou", 3.0, "giou", 1.0),
        ("diou", 0.5, "diou", 0.5),
        ("ciou", 3.0, "iou", 3.0),
        ("eiou", 2.0, "nwd", 1.0),
        ("siou", 1.0, "ciou", 2.0),
        ("iou", 0.0, "iou", 0.0),
    ],
)
def test_is_that_of_a_loop(kind, alpha, match_kind, match_alpha):
    logits, boxes, targets = example((2, 0, 4))
    loss = DETRLoss(
        AlphaIoULoss(kind, alpha),
        match_loss=AlphaIoULoss(match_kind, match_alpha),
        class_weight=0.7,
        l1_weight=3.0,
        box_weight=4.0,
        match_class_weight=2.0,
        match_l1_weight=0.5,
        match_box_weight=3.0,
    )
    parts = total(loss, logits, boxes, targets)
    expected = slowly(
        logits,
        boxes,
        targets,
        kind=kind,
        alpha=alpha,
        match_kind=match_kind,
        match_alpha=match_alpha,
        weights=(0.7, 3.0, 4.0),
        match_weights=(2.0, 0.5, 3.0),
    )
    got = {name: part.item() for name, part in parts.items()}
    assert got == pytest.approx(expected, rel=1e-6)


def test_gradient_is_that_of_finite_differences():
    logits, boxes, targets = example((2, 3))
    loss = DETRLoss(AlphaIoULoss("diou", 2.0), match_loss=AlphaIoULoss("iou", 1.0))
    assert torch.autograd.gradcheck(
        lambda *outputs: sum(total(loss, *outputs, targets).values()),
        (logits, boxes),
        fast_mode=True,
    )


def test_the_matchers_loss_is_its_own_choice():
    """Two queries: one overlaps the object, the other is nearer in what NWD sees."""
    logits = torch.zeros(1, 1, 2, 2)
    boxes = torch.tensor([[[[0.5, 0.5, 0.9, 0.9], [0.5, 0.35, 0.1, 0.1]]]])
    objects = [{"boxes": torch.tensor([[43.2, 31.5, 52.8, 38.5]]), "labels": torch.tensor([0])}]
    found = []
    for match_loss in (AlphaIoULoss("iou", 1.0), AlphaIoULoss("nwd", 1.0)):
        loss = DETRLoss(AlphaIoULoss("iou", 1.0), match_loss=match_loss, match_l1_weight=0.0)
        found.append(total(loss, logits, boxes, objects)["l1"].item())
    assert found == pytest.approx([5 * 1.6, 5 * 0.15], rel=1e-5)


def test_weights_multiply_their_parts():
    logits, boxes, targets = example((2, 3))
    before = total(giou(), logits, boxes, targets)
    after = total(giou(class_weight=2.0, l1_weight=15.0, box_weight=8.0), logits, boxes, targets)
    ratios = {name: (after[name] / before[name]).item() for name in before}
    assert ratios == pytest.approx({"class": 2.0, "l1": 3.0, "box": 4.0})


def test_slots_without_a_box_do_not_matter():
    logits, boxes, targets = example((2, 0, 4))
    plain = batch_targets(targets)
    expected = total(giou(), logits, boxes, plain)
    mixed = torch.tensor([0, 1, 6, 7, 2, 8, 3, 4, 9, 5])
    for junk in (torch.nan, torch.inf, 5.0):
        spare = batch_targets(targets, slots=10)
        spare = spare._replace(boxes=spare.boxes.where(spare.valid[:, None], junk))
        spare = spare._replace(labels=spare.labels.where(spare.valid, 999))
        spare = spare._replace(image_of_box=spare.image_of_box.where(spare.valid, -7))
        got = total(giou(), logits, boxes, Targets(*(part[mixed] for part in spare)))
        grads = torch.autograd.grad(sum(got.values()), (logits, boxes))
        assert all(grad.isfinite().all() for grad in grads)
        for name, part in expected.items():
            torch.testing.assert_close(got[name], part)


def test_more_boxes_than_queries_are_the_first_ones():
    """But all of them are counted, as by transformers."""
    logits, boxes, targets = example((30, 2), dtype=torch.float32)
    got = total(giou(), logits, boxes, targets)
    first = {name: tensor[:QUERIES] for name, tensor in targets[0].items()}
    kept = total(giou(), logits, boxes, [first, targets[1]])
    share = (QUERIES + 2) / 32
    assert got["class"].item() == pytest.approx(kept["class"].item())
    assert got["l1"].item() == pytest.approx(kept["l1"].item() * share)
    assert got["box"].item() == pytest.approx(kept["box"].item() * share)


@pytest.mark.parametrize("counts", [(0,), (0, 0), (1, 0), (130, 0, 1)])
@pytest.mark.parametrize("kind", ["iou", "giou", "ciou", "siou"])
def test_any_number_of_boxes_is_finite(counts, kind):
    logits, boxes, targets = example(counts, queries=20, dtype=torch.float32)
    parts = total(DETRLoss(AlphaIoULoss(kind)), logits, boxes, targets)
    grads = torch.autograd.grad(sum(parts.values()), (logits, boxes))
    assert all(part.isfinite() for part in parts.values())
    assert all(grad.isfinite().all() for grad in grads)
    assert (parts["box"] > 0) == (sum(counts) > 0)


@pytest.mark.parametrize("factor", [0.0, 1e2, 1e4])
@pytest.mark.parametrize("flat", ["width", "height", "both", "none"])
def test_extreme_predictions_and_flat_boxes_are_finite(factor, flat):
    generator = torch.Generator().manual_seed(0)
    logits = (factor * torch.randn(LAYERS, 2, 9, 5, generator=generator)).requires_grad_()
    raw = (factor * torch.randn(LAYERS, 2, 9, 4, generator=generator)).requires_grad_()
    targets = [random_target(count, generator=generator) for count in (3, 4)]
    for target in targets:
        boxes = target["boxes"]
        boxes[:, 2] = boxes[:, 0] if flat in ("width", "both") else boxes[:, 2]
        boxes[:, 3] = boxes[:, 1] if flat in ("height", "both") else boxes[:, 3]
    parts = total(DETRLoss(AlphaIoULoss("ciou", 0.5)), logits, raw.sigmoid(), targets)
    grads = torch.autograd.grad(sum(parts.values()), (logits, raw))
    assert all(part.isfinite() for part in parts.values())
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_outputs_give_the_loss_in_single(dtype):
    logits, boxes, targets = example((2, 3))
    logits, boxes = logits.to(dtype), boxes.to(dtype)
    got = total(giou(), logits, boxes, targets)
    expected = total(giou(), logits.double(), boxes.double(), targets)
    for name, part in got.items():
        assert part.dtype == torch.float32
        assert part.item() == pytest.approx(expected[name].item(), rel=1e-5)


def test_any_function_of_pairs_is_a_box_loss():
    logits, boxes, targets = example((2, 3))
    module = AlphaIoULoss("diou", 2.0, box_format="xywh", reduction="mean")
    function = partial(alpha_iou_loss, kind="diou", alpha=2.0)
    first, second = (
        total(DETRLoss(box_loss, match_loss=box_loss), logits, boxes, targets)
        for box_loss in (module, function)
    )
    assert first["box"].item() == pytest.approx(second["box"].item(), rel=1e-12)
    assert (module.box_format, module.reduction) == ("xywh", "mean")


def test_a_scheduled_alpha_is_the_callers():
    logits, boxes, targets = example((2, 3), dtype=torch.float32)
    own = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0))
    loss = DETRLoss(own)
    own.set_progress(1.0)
    fixed = total(DETRLoss(AlphaIoULoss("iou", 3.0)), logits, boxes, targets)["box"]
    torch.testing.assert_close(total(loss, logits, boxes, targets)["box"], fixed)


def test_a_matching_keeps_no_running_mean():
    wise = AlphaIoULoss("iou", modifiers=("wise_v3",))
    with pytest.raises(ValueError, match=r"match_loss: Wise\(version=3.*take the modifier wise"):
        DETRLoss(wise, match_loss=wise)
    logits, boxes, targets = example((2, 3))
    total(
        DETRLoss(wise, match_loss=AlphaIoULoss("iou", modifiers=("wise",))), logits, boxes, targets
    )
    assert wise.stateful[0].mean_loss < 1


def test_processes_count_alike():
    logits, boxes, targets = example((2, 3))
    loss = giou()
    before = total(loss, logits, boxes, targets)
    loss.mean_over_processes = lambda count: 2 * count
    after = total(loss, logits, boxes, targets)
    assert after["class"] == before["class"]
    assert (2 * after["box"]).item() == pytest.approx(before["box"].item())


@pytest.mark.slow
def test_is_one_graph():
    logits, boxes, targets = example((2, 3), dtype=torch.float32)
    targets, loss = batch_targets(targets, slots=9), DETRLoss(AlphaIoULoss("ciou"))
    compiled = torch.compile(loss, fullgraph=True, dynamic=False, backend="eager")
    results = [sum(f(logits, boxes, targets, scale(2)).values()) for f in (compiled, loss)]
    torch.testing.assert_close(*results)
    grads = [torch.autograd.grad(result, (logits, boxes)) for result in results]
    for mine, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_targets_sorted_by_image():
    targets = Targets(
        image_of_box=torch.tensor([1, 0, 1, 9, 1]),
        labels=torch.tensor([5, 6, 7, 8, 9]),
        boxes=torch.arange(20.0).view(5, 4),
        valid=torch.tensor([True, True, True, False, True]),
    )
    pixels = torch.tensor([[8.0, 4.0, 8.0, 4.0]] * 3)
    got = targets_by_image(targets, pixels, most=2)
    assert got.labels.tolist() == [[6, 0], [5, 7], [0, 0]]
    assert got.valid.tolist() == [[True, False], [True, True], [False, False]]
    assert got.boxes[1].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert got.shares[0, 0].tolist() == [5 / 8, 6 / 4, 2 / 8, 2 / 4]
    assert got.total == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"box_weight": -1.0}, "box_weight must be a finite number >= 0, got -1.0"),
        ({"match_l1_weight": torch.inf}, "match_l1_weight must be a finite number >= 0, got inf"),
        ({"no_object_weight": 0.0}, "no_object_weight must be a finite number > 0, got 0.0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        giou(**arguments)
