"""The three-part loss, against a loop, at its edges, and its gradient."""

from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.nn.functional import pad

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.batch import Targets
from alphaiou.detectors.yolov5.loss import YOLOv5Loss
from alphaiou.detectors.yolov5.network import ANCHORS, STRIDES
from alphaiou.losses import Wise
from alphaiou.losses.pair_loss import PairLoss
from alphaiou.losses.similarity import box_iou
from alphaiou.losses.spec import LossSpec
from tests.detectors import oracle
from tests.detectors.yolov5.test_targets import as_tuples, random_targets
from tests.strategies import generic_pairs

ANCHOR_SIZES = torch.tensor(ANCHORS, dtype=torch.float64)
CLASSES = 5
#: One that single precision holds exactly.
GAIN = 0.0625


def random_outputs(generator, size=(64, 96), batch=3, classes=CLASSES):
    height, width = size
    return [
        torch.randn(
            batch, height // s, width // s, 3, 5 + classes, generator=generator, dtype=torch.float64
        )
        for s in STRIDES
    ]


def example(count, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return random_outputs(generator, **options), random_targets(count, generator, size=(64, 96))


@pytest.mark.parametrize(
    ("objectness", "power"), [("iou", 1.0), ("similarity", 1.0), ("iou", 3.0), ("similarity", 0.5)]
)
@pytest.mark.parametrize("count", [0, 1, 12, 130])
def test_is_that_of_a_loop(count, objectness, power):
    outputs, targets = example(count, seed=count)
    loss = YOLOv5Loss(
        CLASSES,
        AlphaIoULoss(alpha=3.0),
        box_gain=GAIN,
        objectness=objectness,
        objectness_alpha=power,
    )
    got = loss(outputs, targets, ANCHOR_SIZES, STRIDES)
    expected = oracle.loss(
        [output.tolist() for output in outputs],
        as_tuples(targets),
        ANCHORS,
        STRIDES,
        alpha=3.0,
        box_gain=GAIN,
        similarity=objectness == "similarity",
        objectness_alpha=power,
    )
    assert {name: part.item() for name, part in got.items()} == pytest.approx(expected, rel=1e-9)
    assert count < 12 or min(expected.values()) > 0


def test_a_power_of_0_teaches_every_positive_1():
    outputs, targets = example(12)
    hard = YOLOv5Loss(CLASSES, AlphaIoULoss(), objectness_alpha=0.0)
    same = YOLOv5Loss(CLASSES, AlphaIoULoss())
    same._quality = lambda pred, target, losses: torch.ones_like(losses)
    found, expected = (loss(outputs, targets, ANCHOR_SIZES, STRIDES) for loss in (hard, same))
    assert found == expected


def test_gains_multiply_their_parts():
    outputs, targets = example(12)
    plain = YOLOv5Loss(CLASSES, AlphaIoULoss())
    other = YOLOv5Loss(CLASSES, AlphaIoULoss(), box_gain=0.1, objectness_gain=3.0, class_gain=2.0)
    before, after = (loss(outputs, targets, ANCHOR_SIZES, STRIDES) for loss in (plain, other))
    ratios = {name: (after[name] / before[name]).item() for name in before}
    assert ratios == pytest.approx({"box": 2.0, "objectness": 3.0, "class": 4.0})


def test_one_class_has_no_class_loss():
    outputs, targets = example(10, classes=1)
    targets = targets._replace(labels=torch.zeros_like(targets.labels))
    got = YOLOv5Loss(1, AlphaIoULoss())(outputs, targets, ANCHOR_SIZES, STRIDES)
    assert got["class"].item() == 0
    assert got["box"].item() > 0


def test_gradient_is_that_of_finite_differences():
    outputs, targets = example(3, size=(32, 32), batch=1)
    boxes = targets.boxes.clamp(0, 32)
    targets = targets._replace(image_of_box=torch.zeros_like(targets.image_of_box), boxes=boxes)
    # The quality of a box is held constant as an aim: without it the value is differentiable.
    loss = YOLOv5Loss(CLASSES, AlphaIoULoss("diou", 2.0))
    loss._quality = lambda pred, target, losses: torch.full_like(losses, 0.6)
    inputs = [output.requires_grad_() for output in outputs]

    def total(*layers):
        return sum(loss(layers, targets, ANCHOR_SIZES, STRIDES).values())

    assert torch.autograd.gradcheck(total, inputs, fast_mode=True)


@pytest.mark.parametrize("objectness", ["iou", "similarity"])
def test_objectness_has_no_gradient_to_the_box(objectness):
    outputs, targets = example(12)
    for output in outputs:
        output.requires_grad_()
    loss = YOLOv5Loss(CLASSES, AlphaIoULoss(), objectness=objectness)
    loss(outputs, targets, ANCHOR_SIZES, STRIDES)["objectness"].backward()
    for output in outputs:
        assert output.grad[..., :4].abs().max() == 0
        assert output.grad[..., 4].abs().min() > 0


def test_slots_without_a_box_do_not_matter():
    outputs, targets = example(12)
    for output in outputs:
        output.requires_grad_()
    loss = YOLOv5Loss(CLASSES, AlphaIoULoss("ciou", modifiers=("wise_v2",)))
    results = []
    for junk in (float("nan"), float("inf"), 5.0):
        boxes = torch.where(targets.valid[:, None], targets.boxes, junk)
        loss = YOLOv5Loss(CLASSES, AlphaIoULoss("ciou", modifiers=("wise_v2",)))
        parts = loss(outputs, targets._replace(boxes=boxes), ANCHOR_SIZES, STRIDES)
        grads = torch.autograd.grad(sum(parts.values()), outputs)
        results.append(
            torch.cat([*map(torch.atleast_1d, parts.values()), *map(torch.ravel, grads)])
        )
    assert results[0].isfinite().all()
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def running_mean(loss):
    (mean,) = (buffer for name, buffer in loss.named_buffers() if name.endswith("mean_loss"))
    return mean


def test_a_running_mean_is_of_the_pairs_alone():
    wise = Wise(momentum=0.25)
    loss = PairLoss(AlphaIoULoss("diou", modifiers=(wise,)), box_format="cxcywh")
    pred, target = generic_pairs(12, seed=4)
    valid = torch.arange(12) % 3 == 0
    loss(pred, target, valid)
    plain = 1.0 - box_iou(pred, target, box_format="cxcywh")[valid]
    assert wise.mean_loss.item() == pytest.approx(1 + 0.25 * (plain.mean().item() - 1), rel=1e-6)
    before = wise.mean_loss.clone()
    loss(pred, target, torch.zeros(12, dtype=torch.bool))
    assert torch.equal(wise.mean_loss, before), "there was no pair"


def test_more_slots_move_the_running_mean_no_further():
    outputs, targets = example(12)
    means = []
    for slots in (targets.valid.sum(), 100, 300):
        spare = (0, int(slots - targets.valid.sum()))
        kept = Targets(*(part[targets.valid] for part in targets))
        wide = Targets(
            *(pad(part, (*(0, 0) * (part.ndim - 1), *spare)) for part in kept[:3]),
            valid=torch.arange(int(slots)) < len(kept.labels),
        )
        loss = YOLOv5Loss(CLASSES, AlphaIoULoss("iou", modifiers=("wise_v3",)))
        loss(outputs, wide, ANCHOR_SIZES, STRIDES)
        means.append(running_mean(loss).item())
    assert means[0] == pytest.approx(means[1], rel=1e-7) == pytest.approx(means[2], rel=1e-7)
    assert means[0] < 1


@pytest.mark.slow
def test_with_modifiers_it_is_one_graph_that_keeps_its_addresses():
    torch._dynamo.reset()
    outputs, targets = example(12)
    outputs = [output.float().requires_grad_() for output in outputs]
    anchors = ANCHOR_SIZES.float()
    spec = LossSpec.parse("eiou+focal+wise_v3:3")
    plain, graph = (YOLOv5Loss(CLASSES, spec.module()) for _ in range(2))
    compiled = torch.compile(graph, fullgraph=True, dynamic=False, backend="eager")
    places = [buffer.data_ptr() for buffer in graph.buffers()]
    for _ in range(2):
        results = [sum(f(outputs, targets, anchors, STRIDES).values()) for f in (plain, compiled)]
        torch.testing.assert_close(*results)
        gradients = [torch.autograd.grad(result, outputs) for result in results]
        torch.testing.assert_close(*gradients)
    torch.testing.assert_close(graph.state_dict(), plain.state_dict())
    assert [buffer.data_ptr() for buffer in graph.buffers()] == places
    assert running_mean(graph) != 1


@pytest.mark.parametrize("scale", [0.0, 1e2, 1e4, 1e30])
@pytest.mark.parametrize("kind", ["iou", "giou", "ciou", "siou"])
def test_extreme_predictions_are_finite(scale, kind):
    outputs, targets = example(40)
    outputs = [(output.float() * scale).requires_grad_() for output in outputs]
    parts = YOLOv5Loss(CLASSES, AlphaIoULoss(kind))(outputs, targets, ANCHOR_SIZES, STRIDES)
    gradients = torch.autograd.grad(sum(parts.values()), outputs)
    assert all(part.isfinite() for part in parts.values())
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_predictions_give_the_loss_in_single(dtype):
    outputs, targets = example(20)
    outputs = [output.to(dtype) for output in outputs]
    loss = YOLOv5Loss(CLASSES, AlphaIoULoss())
    got = loss(outputs, targets, ANCHOR_SIZES, STRIDES)
    expected = loss([output.double() for output in outputs], targets, ANCHOR_SIZES, STRIDES)
    for name, part in got.items():
        assert part.dtype == torch.float32
        assert part.item() == pytest.approx(expected[name].item(), rel=1e-5)


def test_any_function_of_pairs_is_a_box_loss():
    outputs, targets = example(20)
    module = AlphaIoULoss("giou", 2.0, box_format="xywh", reduction="mean")
    function = partial(alpha_iou_loss, kind="giou", alpha=2.0, box_format="cxcywh")
    first, second = (
        YOLOv5Loss(CLASSES, box_loss)(outputs, targets, ANCHOR_SIZES, STRIDES)
        for box_loss in (module, function)
    )
    assert first["box"].item() == pytest.approx(second["box"].item(), rel=1e-12)
    assert (module.box_format, module.reduction) == ("xywh", "mean")


def test_a_scheduled_alpha_is_the_callers():
    outputs, targets = example(20)
    own = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0))
    loss = YOLOv5Loss(CLASSES, own).double()
    before = loss(outputs, targets, ANCHOR_SIZES, STRIDES)["box"]
    own.set_progress(1.0)
    after = loss(outputs, targets, ANCHOR_SIZES, STRIDES)["box"]
    fixed = YOLOv5Loss(CLASSES, AlphaIoULoss("iou", 3.0))
    assert after.item() == pytest.approx(
        fixed(outputs, targets, ANCHOR_SIZES, STRIDES)["box"].item(), rel=1e-6
    )
    assert after > before


def test_two_boxes_in_one_place_give_the_better_quality():
    outputs, targets = example(1)
    twice = Targets(*(part[:1].repeat(2, *[1] * (part.ndim - 1)) for part in targets))
    twice.boxes[0] += 0.4
    swapped = Targets(*(part.flip(0) for part in twice))
    loss = YOLOv5Loss(CLASSES, AlphaIoULoss())
    one, other = (
        loss(outputs, some, ANCHOR_SIZES, STRIDES)["objectness"] for some in (twice, swapped)
    )
    assert one == other


@pytest.mark.slow
def test_is_one_graph():
    outputs, targets = example(10)
    loss = YOLOv5Loss(CLASSES, AlphaIoULoss("ciou"))
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    for output in outputs:
        output.requires_grad_()
    got = sum(compiled(outputs, targets, ANCHOR_SIZES, STRIDES).values())
    expected = sum(loss(outputs, targets, ANCHOR_SIZES, STRIDES).values())
    torch.testing.assert_close(got, expected)
    for mine, theirs in zip(
        torch.autograd.grad(got, outputs), torch.autograd.grad(expected, outputs), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.slow
def test_what_is_compiled_serves_for_any_gains():
    outputs, targets = example(12)
    compiler = CompileCounter()
    found = []
    for gain in (0.05, 0.1):
        loss = YOLOv5Loss(CLASSES, AlphaIoULoss(), box_gain=gain, objectness_gain=20 * gain)
        compiled = torch.compile(loss.forward, fullgraph=True, dynamic=False, backend=compiler)
        found.append(compiled(outputs, targets, ANCHOR_SIZES, STRIDES))
        torch.testing.assert_close(found[-1], loss(outputs, targets, ANCHOR_SIZES, STRIDES))
    assert compiler.frame_count == 1
    assert loss.state_dict() == {}, "gains are no weights"
    assert found[1]["box"] == pytest.approx(2 * found[0]["box"].item())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objectness_alpha": -1.0}, "objectness_alpha must be a finite number >= 0, got -1.0"),
        ({"objectness": "one"}, "objectness must be one of iou, similarity; got 'one'"),
        ({"box_gain": 0.0}, "box_gain must be a finite number > 0, got 0.0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        YOLOv5Loss(CLASSES, AlphaIoULoss(), **arguments)
