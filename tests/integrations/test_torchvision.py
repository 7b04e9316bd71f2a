"""Any box loss in torchvision's detectors: against their own losses, and a slow oracle."""

import copy
import io

import pytest
import torch
from torch.testing import assert_close
from torchvision.models.detection import roi_heads
from torchvision.models.detection.anchor_utils import DefaultBoxGenerator
from torchvision.models.detection.retinanet import RetinaNetRegressionHead
from torchvision.models.detection.ssd import SSD

from alphaiou import AlphaIoULoss, AlphaSchedule
from alphaiou.integrations._patching import UnsupportedVersionError
from alphaiou.integrations.torchvision import restore_box_loss, use_box_loss
from tests import oracle
from tests.integrations.torchvision_models import FAMILY, Backbone, batch, build

every_model = pytest.mark.parametrize("name", FAMILY)
BOX_PART = {name: "loss_box_reg" if "RCNN" in name else "bbox_regression" for name in FAMILY}


def step(model, inputs):
    """The losses and all gradients, with the same random numbers every time."""
    torch.manual_seed(1)
    model.zero_grad()
    images, targets = copy.deepcopy(inputs)
    losses = model(images, targets)
    sum(losses.values()).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: loss.detach() for name, loss in losses.items()}, copy.deepcopy(gradients)


def own_loss(model, kind):
    """The same loss by torchvision's own means."""
    if kind != "giou" or hasattr(model.head, "regression_head"):
        model.head.regression_head._loss_type = kind
    return model


@pytest.mark.parametrize(
    ("name", "kind"),
    [("FCOS", "giou"), ("RetinaNet", "giou"), ("RetinaNet", "diou"), ("RetinaNet", "ciou")],
)
def test_their_own_kinds_change_nothing_but_rounding(name, kind):
    model, inputs = own_loss(build(name), kind), batch(3, 1, 0)
    own_losses, own_gradients = step(model, inputs)
    with use_box_loss(model, kind):
        losses, gradients = step(model, inputs)
    assert_close(losses, own_losses, rtol=1e-5, atol=1e-6)
    scale = max(float(gradient.abs().max()) for gradient in own_gradients.values())
    assert_close(gradients, own_gradients, rtol=1e-4, atol=1e-5 * scale)
    assert step(model, inputs)[0] == own_losses


class SlowRCNNLoss:
    """`fastrcnn_loss` by hand: one region at a time, numbers of plain Python."""

    def __init__(self, head):
        self.head = head
        head.register_forward_pre_hook(self.keep_inputs)
        head.box_predictor.register_forward_hook(self.keep_regression)

    def keep_inputs(self, module, inputs):
        _, self.proposals, _, self.targets = inputs
        torch.manual_seed(1)

    def keep_regression(self, module, inputs, outputs):
        self.box_regression = outputs[1].detach()

    def loss(self, **options):
        """The sampling is torchvision's, with the same random numbers as in the step."""
        torch.manual_seed(1)
        regions, matched, labels, _ = type(self.head).select_training_samples(
            self.head, self.proposals, self.targets
        )
        total, count, row = 0.0, sum(map(len, labels)), 0
        for image, classes in enumerate(labels):
            for index, label in enumerate(classes.tolist()):
                if label > 0:
                    codes = self.box_regression[row : row + 1, 4 * label : 4 * label + 4]
                    region = regions[image][index : index + 1]
                    pred = self.head.box_coder.decode_single(codes, region)[0].tolist()
                    target = self.targets[image]["boxes"][matched[image][index]].tolist()
                    total += oracle.loss(pred, target, **options)
                row += 1
        assert row == count == len(self.box_regression)
        return total / count


@pytest.mark.parametrize("name", [name for name in FAMILY if "RCNN" in name])
def test_rcnn_against_a_slow_oracle(name):
    """The sum over the positives, times the weight, by the number of sampled regions."""
    model, (images, targets) = build(name), batch(3, 1, 0)
    slow = SlowRCNNLoss(model.roi_heads)
    use_box_loss(model, AlphaIoULoss("ciou", 3.0), weight=10.0)
    losses = model(images, targets)
    expected = slow.loss(kind=oracle.ciou, alpha=3.0)
    assert expected > 0
    assert losses["loss_box_reg"].item() == pytest.approx(10.0 * expected, rel=1e-4)


@every_model
def test_the_box_part_alone_changes(name):
    model, inputs = build(name), batch(3, 1, 0)
    own_losses, _ = step(model, inputs)
    with use_box_loss(model, "diou:3"):
        losses, _ = step(model, inputs)
    with use_box_loss(model, "diou:3", weight=4.0):
        weighted, _ = step(model, inputs)
    assert list(losses) == list(own_losses)
    for part, loss in losses.items():
        assert (loss != own_losses[part]) == (part == BOX_PART[name])
        assert_close(weighted[part], loss * (4.0 if part == BOX_PART[name] else 1.0))


@every_model
@pytest.mark.parametrize("counts", [(0, 0), (1,), (120, 0)], ids=str)
def test_any_number_of_boxes(name, counts):
    model, inputs = build(name), batch(*counts)
    if sum(counts) == 0 and name in {"MaskRCNN", "KeypointRCNN"}:
        inputs = inputs[0], [target | {"masks": target["masks"][:0]} for target in inputs[1]]
    with use_box_loss(model, "ciou:3"):
        losses, gradients = step(model, inputs)
    assert all(loss.isfinite() for loss in losses.values())
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    assert (losses[BOX_PART[name]] == 0) == (sum(counts) == 0)


@pytest.mark.parametrize("name", ["FasterRCNN", "RetinaNet", "FCOS"])
def test_bfloat16(name):
    model, inputs = build(name), batch(3, 1)
    with use_box_loss(model, "ciou:3"), torch.autocast("cpu", torch.bfloat16):
        losses, gradients = step(model, inputs)
    assert losses[BOX_PART[name]].isfinite()
    assert losses[BOX_PART[name]].dtype == torch.float32
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("name", ["FasterRCNN", "RetinaNet", "FCOS"])
def test_other_models_of_the_process_are_untouched(name):
    model, other, inputs = build(name), build(name), batch(3, 1)
    own_function = roi_heads.fastrcnn_loss
    before, _ = step(other, inputs)
    with use_box_loss(model, "iou:5"):
        changed, _ = step(model, inputs)
        after, _ = step(other, inputs)
    assert after == before
    assert changed != before
    assert roi_heads.fastrcnn_loss is own_function


@every_model
def test_restored_models_are_as_they_were(name):
    model = build(name)
    before = {path: dict(vars(module)) for path, module in model.named_modules()}
    handle = use_box_loss(model, "giou:3")
    assert name in repr(handle)
    with pytest.raises(ValueError, match=rf"{name}.*already has a box loss"):
        use_box_loss(model, "iou")
    handle.restore()
    assert {path: dict(vars(module)) for path, module in model.named_modules()} == before


def test_where_it_is_can_be_read():
    handle = use_box_loss(torch.nn.Sequential(build("FasterRCNN")), "giou:3", weight=10.0)
    assert repr(handle) == (
        "<AlphaIoULoss(kind='giou', alpha=3.0, penalty_alpha=None) × 10 in Sequential.0.roi_heads."
        "forward, Sequential.0.roi_heads.select_training_samples>"
    )


@every_model
def test_changed_models_can_be_copied_saved_and_loaded(name):
    model, inputs = build(name), batch(3, 1)
    keys = list(model.state_dict())
    loss = AlphaIoULoss("diou", AlphaSchedule(1.0, 3.0), modifiers=("wise_v3",))
    handle = use_box_loss(model, loss, weight=2.0)
    assert list(model.state_dict()) == keys
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twins = [copy.deepcopy(model), torch.load(file, weights_only=False)]
    expected, _ = step(model, inputs)
    for twin in twins:
        assert step(twin, inputs)[0] == expected
        restore_box_loss(twin)
    handle.restore()
    own, _ = step(model, inputs)
    assert [step(twin, inputs)[0] for twin in twins] == [own, own]
    assert own != expected


@pytest.mark.parametrize("name", ["FasterRCNN", "FCOS"])
def test_detections_stay_the_same(name):
    model, (images, _) = build(name).eval(), batch(1, 1)
    own = model(images)
    with use_box_loss(model, "giou:3"):
        assert_close(model(images), own, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_models():
    """Untouched, changed and untouched again: each has its own loss."""
    model, inputs = build("FasterRCNN"), batch(3, 1)

    def compiled():
        return step(torch.compile(model, backend="eager"), inputs)[0]

    own_losses, _ = step(model, inputs)
    assert_close(compiled(), own_losses)
    with use_box_loss(model, "iou:4"):
        losses, _ = step(model, inputs)
        assert losses != own_losses
        assert_close(compiled(), losses)
    assert_close(compiled(), own_losses)


@pytest.mark.parametrize("name", ["FasterRCNN", "RetinaNet", "FCOS"])
def test_a_plain_loop_learns(name):
    model, inputs = build(name), batch(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    totals = []
    with use_box_loss(model, "giou:3", weight=2.0):
        for _ in range(15):
            totals.append(float(sum(step(model, inputs)[0].values())))
            optimizer.step()
    assert totals[-1] < 0.9 * totals[0]


class SSDBackbone(Backbone):
    """The same features, as SSD wants them described."""

    out_channels = (32, 32)


def test_other_models_are_refused():
    with pytest.raises(ValueError, match=r"SSD has no box loss.*Faster R-CNN.*RetinaNet.*FCOS"):
        use_box_loss(SSD(SSDBackbone(), DefaultBoxGenerator([[2], [2]]), (64, 64), 5), "giou")


def test_a_method_changed_by_something_else_is_refused():
    model = build("FasterRCNN")
    own = model.roi_heads.forward = model.roi_heads.forward  # as hooks of other libraries do
    with pytest.raises(ValueError, match="forward of this RoIHeads is not the one of its class"):
        use_box_loss(model, "giou")
    assert model.roi_heads.forward is own
    assert "select_training_samples" not in vars(model.roi_heads)


class HeadOfAComingVersion(RetinaNetRegressionHead):
    """One that takes its loss from somewhere else."""

    def compute_loss(self, targets, head_outputs, anchors, matched_idxs):
        return head_outputs["bbox_regression"].sum()


def test_unknown_versions_are_refused_and_nothing_is_changed():
    model = build("RetinaNet")
    head = HeadOfAComingVersion(32, 6)
    model.head.regression_head = head
    with pytest.raises(UnsupportedVersionError, match=r"'_box_loss'.*knows torchvision \d"):
        use_box_loss(model, "giou")
    assert "compute_loss" not in vars(head)
