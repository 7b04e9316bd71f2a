"""The detector under torchvision's contract, and against transformers' own."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from transformers import DetrImageProcessor

from alphaiou import AlphaIoULoss
from alphaiou.batch import Targets
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.detectors.base import batch_targets
from alphaiou.detectors.detr.backbone import prepare_backbone
from alphaiou.detectors.detr.loss import DETRLoss
from alphaiou.detectors.detr.network import DETR, DETRNetwork
from alphaiou.metrics import DetectionScores
from tests.detectors.detr.models import (
    CLASSES,
    QUERIES,
    SIZE,
    as_labels,
    batch,
    fresh_small_model,
    normalised,
    random_target,
    small_model,
)


def small_detector(kind="giou", alpha=1.0, *, norm=None, **options):
    model = small_model(**options)
    if norm:
        prepare_backbone(model.model.backbone.model, weights=None, norm=norm)
    return DETR(DETRNetwork(model), DETRLoss(AlphaIoULoss(kind, alpha)))


def parts_of(output):
    """The losses of transformers with their weights, summed over layers."""
    weights = {"loss_ce": 1, "loss_bbox": 5, "loss_giou": 2}
    return [
        weight * sum(value for key, value in output.loss_dict.items() if key.startswith(name))
        for name, weight in weights.items()
    ]


@pytest.fixture
def in_double():
    """Numbers that nobody asks to be otherwise are fp64: some of transformers' are made thus."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize("auxiliary", [False, True])
def test_losses_and_gradients_are_those_of_transformers(auxiliary):
    """In fp64 to 1e-9 and more, where rounding does not blur what is compared."""
    model = small_model(auxiliary_loss=auxiliary).train()
    detector = small_detector(auxiliary_loss=auxiliary).train()
    detector.loss.auxiliary = auxiliary
    for seed, counts in enumerate([(3, 0, 5), (QUERIES, 1, 2)]):
        images, targets = batch(counts, seed=seed)
        expected = model(normalised(images), labels=as_labels(targets))
        got = detector(images, targets)
        assert tuple(got) == detector.loss_names
        for part, other in zip(got.values(), parts_of(expected), strict=True):
            torch.testing.assert_close(part, other, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(sum(got.values()), expected.loss, rtol=1e-9, atol=1e-9)
        expected.loss.backward()
        sum(got.values()).backward()
    parameters = dict(detector.network.model.named_parameters())
    assert parameters.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameters[name].grad, parameter.grad, rtol=1e-7, atol=1e-8)


@torch.no_grad()
@pytest.mark.parametrize("auxiliary", [False, True])
def test_detections_are_those_of_transformers(auxiliary):
    model = small_model(auxiliary_loss=auxiliary, seed=3).eval()
    detector = small_detector(auxiliary_loss=auxiliary).eval()
    detector.network.model.load_state_dict(model.state_dict())
    images, _ = batch((0, 0))
    processor = DetrImageProcessor()
    outputs = model(normalised(images))
    expected = processor.post_process_object_detection(outputs, 0.0, [SIZE] * 2)
    limits = torch.tensor([SIZE[1], SIZE[0]] * 2)
    for mine, theirs in zip(detector(images), expected, strict=True):
        scores, order = theirs["scores"].sort(descending=True)
        torch.testing.assert_close(mine["scores"], scores)
        assert mine["labels"].equal(theirs["labels"][order])
        clipped = theirs["boxes"][order].clamp(min=0).minimum(limits)
        torch.testing.assert_close(mine["boxes"], clipped, rtol=1e-5, atol=1e-4)


@torch.no_grad()
def test_images_of_several_sizes_are_masked_as_by_transformers():
    model = small_model().eval()
    detector = small_detector().eval()
    images, sizes = batch((0, 0))[0], [SIZE, (40, 50)]
    mask = torch.zeros(2, *SIZE, dtype=torch.bool)
    for own, (height, width) in zip(mask, sizes, strict=True):
        own[:height, :width] = True
    outputs = model(normalised(images) * mask[:, None], pixel_mask=mask)
    expected = DetrImageProcessor().post_process_object_detection(outputs, 0.0, sizes)
    found = detector([image[:, :h, :w] for image, (h, w) in zip(images, sizes, strict=True)])
    for mine, theirs, (height, width) in zip(found, expected, sizes, strict=True):
        scores, order = theirs["scores"].sort(descending=True)
        torch.testing.assert_close(mine["scores"], scores)
        limits = torch.tensor([width, height] * 2)
        clipped = theirs["boxes"][order].clamp(min=0).minimum(limits)
        torch.testing.assert_close(mine["boxes"], clipped, rtol=1e-5, atol=1e-4)


def test_training_on_images_of_several_sizes():
    detector = small_detector(norm="batch")
    generator = torch.Generator().manual_seed(0)
    sizes = [(64, 96), (70, 40)]
    images = [torch.rand(3, *size, generator=generator) for size in sizes]
    targets = [random_target(3, size=size, generator=generator) for size in sizes]
    together = detector(images, targets)
    assert all(part.isfinite() for part in together.values())
    sum(together.values()).backward()


@torch.no_grad()
def test_detections_are_in_their_image_and_sorted():
    detector = small_detector().eval()
    images = [torch.rand(3, 40, 64), torch.rand(3, 64, 50)]
    for image, found in zip(images, detector(images), strict=True):
        height, width = image.shape[1:]
        assert found["boxes"].shape == (QUERIES, 4)
        assert found["boxes"].min() >= 0
        assert found["boxes"][:, 2].max() <= width
        assert found["boxes"][:, 3].max() <= height
        assert (found["scores"].diff() <= 0).all()
        assert found["labels"].dtype == torch.int64
        assert set(found["labels"].tolist()) <= set(range(CLASSES))


@torch.no_grad()
def test_nothing_under_the_least_score():
    detector = small_detector().eval()
    images = batch((0, 0))[0]
    everything = detector(images)
    middle = everything[0]["scores"][QUERIES // 2].item()
    detector.set_least_score(middle)
    for found, every in zip(detector(images), everything, strict=True):
        count = (every["scores"] >= middle).sum().item()
        assert found.keys() == every.keys()
        assert all(found[name].equal(every[name][:count]) for name in every)
    assert len(detector(images)[0]["scores"]) == QUERIES // 2 + 1


@torch.no_grad()
def test_bytes_are_numbers_from_0_to_1():
    detector = small_detector().eval()
    image = torch.randint(256, (1, 3, 64, 64), dtype=torch.uint8)
    as_bytes, as_floats = detector(image)[0], detector([image[0] / 255])[0]
    torch.testing.assert_close(as_bytes["boxes"], as_floats["boxes"])


def test_targets_at_fixed_shapes_are_the_same():
    detector = small_detector()
    images, targets = batch()
    expected, got = detector(images, targets), detector(images, batch_targets(targets, slots=40))
    for name, part in expected.items():
        assert got[name].item() == pytest.approx(part.item(), rel=1e-5)


@pytest.mark.parametrize("norm", ["frozen", "batch", "group"])
@pytest.mark.parametrize("counts", [(0, 0), (0, 1), (130, 0)])
def test_any_number_of_boxes_trains(counts, norm):
    detector = small_detector("ciou", 3.0, norm=norm, dropout=0.1)
    losses = detector(*batch(counts))
    assert all(loss.isfinite() for loss in losses.values())
    assert (losses["box"] > 0) == (sum(counts) > 0)
    sum(losses.values()).backward()
    for name, parameter in detector.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("norm", ["frozen", "batch", "group"])
def test_mixed_precision_trains(norm):
    detector = small_detector(norm=norm)
    images, targets = batch()
    with torch.autocast("cpu", torch.bfloat16):
        losses = detector(images, targets)
        boxes = detector.network(images)[1]
    assert boxes.dtype == torch.float32
    assert all(loss.dtype == torch.float32 for loss in losses.values())
    sum(losses.values()).backward()
    exact = detector(images, targets)
    for name, loss in losses.items():
        assert loss.item() == pytest.approx(exact[name].item(), rel=0.1)


@pytest.mark.slow
def test_the_training_step_is_one_graph():
    """Forward and backward: the parts that are compiled, and both together."""
    detector = small_detector(norm="batch", dropout=0.1)
    images, targets = batch()
    targets = batch_targets(targets, slots=20)
    compiled = torch.compile(detector, fullgraph=True, dynamic=False, backend="eager")
    for step in (compiled, detector):
        torch.manual_seed(0)
        detector.zero_grad()
        total = sum(step(images, targets).values())
        total.backward()
        gradient = torch.cat([p.grad.flatten() for p in detector.parameters()])
        if step is compiled:
            kept = total.detach(), gradient
    torch.testing.assert_close((total.detach(), gradient), kept, rtol=1e-4, atol=1e-5)
    assert [detector.get_submodule(name) for name in DETR.compiled_parts] == [
        detector.network,
        detector.loss,
    ]


@pytest.mark.slow
def test_no_shape_depends_on_the_data():
    """Tensors without data cannot say how many or whether: any such question would raise."""
    detector = small_detector(norm="batch", dropout=0.1)
    images = torch.zeros(2, 3, 64, 64, dtype=torch.uint8)
    slots = batch_targets(batch((3, 4))[1], slots=20)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(images)
        targets = Targets(*map(mode.from_tensor, slots))
        total = sum(detector(fake, targets).values())
        assert total.shape == ()
        total.backward()


@pytest.mark.slow
def test_overfits_four_images():
    torch.manual_seed(0)
    index = shapes_index("train", size=64, length=4, level="plain")
    data = DetectionDataset(index)
    images, targets = zip(*(data[i] for i in range(4)), strict=True)
    model = fresh_small_model(num_labels=len(index.classes), d_model=64, stages=3)
    prepare_backbone(model.model.backbone.model, weights=None, norm="group")
    detector = DETR(DETRNetwork(model), DETRLoss(AlphaIoULoss("giou", 3.0)))
    steps, rate = 220, 1e-3
    optimizer = torch.optim.AdamW(detector.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        sum(detector(images, targets).values()).backward()
        torch.nn.utils.clip_grad_norm_(detector.parameters(), 0.5)
        optimizer.step()
        schedule.step()
    scores = DetectionScores(classes=index.classes, rule="coco")
    with torch.no_grad():
        scores.update(detector.eval()(images), targets)
    assert scores.compute().ap[50] == pytest.approx(1.0)
    assert scores.compute().map > 0.9
