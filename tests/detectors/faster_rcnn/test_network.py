"""Faster R-CNN as a whole: torchvision's losses, gradients and detections; fixed shapes."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torchvision.models.detection import FasterRCNN as TorchvisionFasterRCNN
from torchvision.models.detection import fasterrcnn_resnet50_fpn
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.ops import generalized_box_iou_loss

from alphaiou import AlphaIoULoss
from alphaiou.batch import Targets
from alphaiou.data.shapes.dataset import shapes_dataset
from alphaiou.detectors import PostProcess, batch_targets
from alphaiou.detectors.faster_rcnn.network import faster_rcnn
from alphaiou.metrics import DetectionScores

CLASSES = 4
HEIGHT, WIDTH = 96, 128
#: torchvision's names of the losses, in the order of ours.
LOSSES = ("loss_objectness", "loss_rpn_box_reg", "loss_classifier", "loss_box_reg")


def tiny(box_loss="l1", **options):
    settings = {"backbone": "resnet18", "head_width": 32, "image_size": 200}
    settings |= {"pre_nms": 60, "post_nms": 90, "roi_samples": 64}
    return faster_rcnn(CLASSES, box_loss, **(settings | options))


def twins(box_loss="smooth_l1", **options):
    """Ours and torchvision's with the same weights; every anchor and proposal trains."""
    settings = {"norm": "frozen", "rpn_box_loss": "smooth_l1"}
    mine = tiny(box_loss, **settings, rpn_samples=99_999, roi_samples=9_999, **options)
    theirs = TorchvisionFasterRCNN(
        resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5),
        rpn_anchor_generator=AnchorGenerator(
            tuple((size,) for size in (8, 16, 32, 64, 128)), ((0.5, 1.0, 2.0),) * 5
        ),
        box_head=TwoMLPHead(256 * 49, 32),
        box_predictor=FastRCNNPredictor(32, CLASSES + 1),
        min_size=HEIGHT,
        max_size=WIDTH,
        rpn_pre_nms_top_n_train=60,
        rpn_pre_nms_top_n_test=60,
        rpn_post_nms_top_n_train=90,
        rpn_post_nms_top_n_test=90,
        rpn_batch_size_per_image=99_999,
        box_batch_size_per_image=9_999,
    )
    theirs.load_state_dict(mine.state_dict())
    return mine, theirs


def target(count, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    corner, sides = torch.rand(2, count, 2, generator=generator, dtype=dtype)
    boxes = torch.cat([corner * 70, corner * 70 + 2 + sides * 24], dim=1)
    return {"boxes": boxes, "labels": torch.randint(CLASSES, (count,), generator=generator)}


def shifted(targets):
    """torchvision's classes begin with the background."""
    return [one | {"labels": one["labels"] + 1} for one in targets]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "dtype"),
    [((3, 7), torch.float64), ((1, 0), torch.float32), ((40, 2), torch.float32)],
)
def test_losses_and_gradients_are_torchvisions(counts, dtype):
    torch.manual_seed(sum(counts))
    mine, theirs = (model.to(dtype) for model in twins())
    images = torch.rand(2, 3, HEIGHT, WIDTH, dtype=dtype)
    targets = [target(count, seed, dtype) for seed, count in enumerate(counts)]
    got = mine(images, targets)
    assert tuple(got) == mine.loss_names
    expected = theirs(list(images), shifted(targets))
    for name, own in zip(LOSSES, got.values(), strict=True):
        assert own.item() == pytest.approx(expected[name].item(), rel=1e-5), name
    assert got["box"] > 0
    sum(got.values()).backward()
    sum(expected.values()).backward()
    theirs = dict(theirs.named_parameters())
    for name, parameter in mine.named_parameters():
        scale = theirs[name].grad.abs().max().item()
        error = (parameter.grad - theirs[name].grad).abs().max().item()
        assert error <= (2e-3 if dtype == torch.float32 else 1e-5) * scale, name


def test_giou_is_that_of_decoded_positives_over_all_regions():
    torch.manual_seed(0)
    mine, theirs = twins(AlphaIoULoss("giou", 1.0), box_weight=7.0)
    images, targets = torch.rand(2, 3, HEIGHT, WIDTH), [target(5, 1), target(2, 2)]
    got = mine(images, targets)["box"]

    batch, theirs_targets = theirs.transform(list(images), shifted(targets))
    features = theirs.backbone(batch.tensors)
    proposals, _ = theirs.rpn(batch, features, theirs_targets)
    heads = theirs.roi_heads
    regions, matched, labels, _ = heads.select_training_samples(proposals, theirs_targets)
    pooled = heads.box_roi_pool(features, regions, batch.image_sizes)
    _, deltas = heads.box_predictor(heads.box_head(pooled))
    decoded, start, total = heads.box_coder.decode(deltas, regions), 0, 0.0
    for image, own in enumerate(labels):
        for row, label in enumerate(own.tolist()):
            if label:
                box = targets[image]["boxes"][matched[image][row]]
                total = total + generalized_box_iou_loss(decoded[start + row, label], box)
        start += len(own)
    expected = 7.0 * total / start
    assert got.item() == pytest.approx(expected.item(), rel=1e-5)
    weight = mine.roi_heads.box_predictor.bbox_pred.weight
    torch.testing.assert_close(
        torch.autograd.grad(got, weight)[0],
        torch.autograd.grad(expected, heads.box_predictor.bbox_pred.weight)[0],
        rtol=1e-3,
        atol=1e-6,
    )


def test_a_box_loss_of_the_first_stage():
    torch.manual_seed(0)
    images, targets = torch.rand(2, 3, HEIGHT, WIDTH), [target(5, 1), target(2, 2)]
    model = tiny(rpn_box_loss=AlphaIoULoss("diou", 3.0), rpn_box_weight=2.0)
    loss = model(images, targets)["rpn_box"]
    assert 0 < loss.item() < 2.0 * 2.0  # a mean over positives and negatives of at most 2
    (gradient,) = torch.autograd.grad(loss, model.rpn.head.bbox_pred.weight)
    assert gradient.abs().max() > 0


@torch.no_grad()
def test_detections_are_torchvisions():
    torch.manual_seed(0)
    mine, theirs = (model.double().eval() for model in twins())
    images = torch.rand(2, 3, HEIGHT, WIDTH, dtype=torch.float64)
    for got, expected in zip(mine(images), theirs(list(images)), strict=True):
        assert len(got["boxes"]) > 20
        torch.testing.assert_close(got["boxes"], expected["boxes"], rtol=0, atol=1e-4)
        torch.testing.assert_close(got["scores"], expected["scores"], rtol=0, atol=1e-6)
        assert torch.equal(got["labels"] + 1, expected["labels"])


@pytest.mark.slow
@torch.no_grad()
def test_the_weights_are_those_of_torchvisions_r50():
    torch.manual_seed(0)
    theirs = fasterrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=64, max_size=64, box_score_thresh=0.0
    )
    images = torch.rand(2, 3, 64, 64)
    for module in theirs.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0  # the means of one batch, so that features are of usual size
    theirs.backbone.train()(theirs.transform(list(images))[0].tensors)
    expected = theirs.eval()(list(images))
    assert all(len(one["boxes"]) > 20 for one in expected)
    weights = theirs.state_dict()
    for norm in ("batch", "frozen"):
        mine = faster_rcnn(90, AlphaIoULoss("ciou"), norm=norm).eval()
        mine.load_state_dict(
            {key: weights[key] for key in weights if norm == "batch" or "num_batches" not in key}
        )
        mine.postprocess = PostProcess(0.0, 0.5, max_detections=100)
        for got, one in zip(mine(images), expected, strict=True):
            torch.testing.assert_close(got["scores"], one["scores"], rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(got["boxes"], one["boxes"], rtol=1e-3, atol=1e-2)
    # As torchvision counts its published weights, whose norms are frozen.
    assert sum(parameter.numel() for parameter in mine.parameters()) == 41_755_286


@torch.no_grad()
def test_detections_are_in_their_image_and_sorted():
    torch.manual_seed(0)
    model = tiny(postprocess=PostProcess(0.001, 0.5, max_detections=100)).eval()
    images = [torch.randint(256, (3, *size), dtype=torch.uint8) for size in ((40, 64), (96, 50))]
    for image, found in zip(images, model(images), strict=True):
        assert 0 < len(found["boxes"]) <= 100
        assert found["boxes"].min() >= 0
        assert found["boxes"][:, 2].max() <= image.shape[2]
        assert found["boxes"][:, 3].max() <= image.shape[1]
        assert (found["scores"].diff() <= 0).all()
        assert set(found["labels"].tolist()) <= set(range(CLASSES))


@torch.no_grad()
def test_bytes_are_numbers_from_0_to_1():
    torch.manual_seed(0)
    model = tiny().eval()
    image = torch.randint(256, (1, 3, 64, 64), dtype=torch.uint8)
    as_bytes, as_floats = model(image)[0], model([image[0] / 255])[0]
    torch.testing.assert_close(as_bytes["boxes"], as_floats["boxes"])


def test_targets_at_fixed_shapes_are_the_same():
    torch.manual_seed(0)
    model, _ = twins()
    targets, images = [target(4, 1), target(2, 2)], torch.rand(2, 3, HEIGHT, WIDTH)
    expected, fixed = model(images, targets), batch_targets(targets, slots=30)
    fixed.boxes[~fixed.valid] = float("nan")
    got = model(images, fixed)
    for name, part in expected.items():
        assert got[name].item() == pytest.approx(part.item(), rel=1e-5)


FLAT = torch.tensor([[5.0, 5.0, 5.0, 40.0], [9.0, 9.0, 9.0, 9.0], [0.0, 0.0, 60.0, 60.0]])
UNUSUAL = {
    "none": (target(0), target(0)),
    "one": (target(0), target(1)),
    "130": (target(130), target(3)),
    "flat": ({"boxes": FLAT, "labels": torch.tensor([0, 1, 2])}, target(2)),
    "only flat": ({"boxes": FLAT[:2], "labels": torch.tensor([0, 1])}, target(0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("box_loss", ["l1", AlphaIoULoss("ciou", 3.0), AlphaIoULoss("iou", 0.0)])
def test_losses_and_gradients_are_finite(box_loss):
    torch.manual_seed(0)
    model = tiny(box_loss, rpn_box_loss=box_loss)
    images = torch.randint(256, (2, 3, 64, 96), dtype=torch.uint8)
    for case, targets in UNUSUAL.items():
        losses = model(images, batch_targets(targets, slots=400))
        assert all(loss.isfinite() and loss.ndim == 0 for loss in losses.values()), case
        assert (losses["box"] > 0) == (case not in ("none", "only flat")), case
        model.zero_grad()
        sum(losses.values()).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, (case, name)
            assert parameter.grad.isfinite().all(), (case, name)


def test_mixed_precision_trains():
    torch.manual_seed(0)
    model = tiny(AlphaIoULoss("giou"))
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(torch.rand(2, 3, 64, 64), [target(3), target(0)])
    assert all(loss.dtype == torch.float32 for loss in losses.values())
    sum(losses.values()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert model.eval()(torch.rand(1, 3, 64, 64))[0]["boxes"].isfinite().all()


@pytest.mark.slow
def test_training_is_one_graph():
    """Nothing in it depends on what the tensors hold: no host sync, one recording for all."""
    torch.manual_seed(0)
    model = tiny(AlphaIoULoss("ciou"))
    images = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8)
    targets = batch_targets([target(3), target(5)], slots=20)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    results = []
    for run in (model, compiled):
        torch.manual_seed(1)
        total = sum(run(images, targets).values())
        results.append((total, torch.autograd.grad(total, model.roi_heads.box_head.fc6.weight)[0]))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.slow
def test_training_needs_no_values():
    """Forward and backward of tensors that have a shape and nothing else."""
    with FakeTensorMode():
        model = tiny(AlphaIoULoss("giou"))
        numbers = torch.empty(20, dtype=torch.int64)
        targets = Targets(numbers, numbers, torch.empty(20, 4), torch.empty(20).bool())
        losses = model(torch.empty(2, 3, 64, 64, dtype=torch.uint8), targets)
        sum(losses.values()).backward()
        assert all(parameter.grad.shape == parameter.shape for parameter in model.parameters())


def test_a_training_keeps_its_anchors_whatever_else_is_detected():
    """A recorded step reads them where they are."""
    rpn = tiny().rpn
    small, large = ([torch.zeros(1, 1, n * s, n * s) for s in (16, 8, 4, 2, 1)] for n in (1, 2))
    kept = rpn.anchors(small, (64, 64))
    assert len(rpn.eval().anchors(large, (128, 128))) == 4 * len(kept)
    assert rpn.train().anchors(small, (64, 64)) is kept


def test_as_many_regions_train_as_asked_for():
    torch.manual_seed(0)
    model = tiny(pre_nms=200, post_nms=300)
    images = torch.rand(2, 3, HEIGHT, WIDTH)
    seen = []
    model.roi_loss.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[2]))
    model(images, [target(2, 1), target(90, 2)])
    (regions,) = seen
    assert regions.boxes.shape == (2, 64, 4)
    assert regions.valid.all()
    positives = (regions.labels > 0).sum(1).tolist()
    assert 2 <= positives[0] < 16
    assert positives[1] == 16  # a quarter, however many there are


@pytest.mark.slow
def test_overfits_four_images():
    torch.manual_seed(0)
    dataset = shapes_dataset("train", size=64, length=60, level="plain")
    pairs = (dataset[position] for position in range(60))
    square = [(image, one) for image, one in pairs if image.shape[1:] == (64, 64)][:4]
    images, targets = torch.stack([image for image, _ in square]), [one for _, one in square]
    model = faster_rcnn(
        len(dataset.index.classes),
        AlphaIoULoss("giou", 1.0),
        backbone="resnet18",
        head_width=128,
        image_size=200,
        pre_nms=50,
        post_nms=40,
        rpn_samples=64,
        roi_samples=32,
    )
    optimiser = torch.optim.AdamW(model.parameters(), 4e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 50)
    for _ in range(50):
        optimiser.zero_grad()
        sum(model(images, targets).values()).backward()
        optimiser.step()
        schedule.step()
    scores = DetectionScores(classes=dataset.index.classes)
    with torch.no_grad():
        scores.update(model.eval()(images), targets)
    assert scores.compute().ap[50] > 0.9
    assert scores.compute().map > 0.6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: faster_rcnn(0, "l1"), "num_classes must be at least 1, got 0"),
        (lambda: tiny()(torch.rand(1, 3, 32, 32)), "targets must be given in training"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
