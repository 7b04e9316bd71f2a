"""Any box loss in transformers' DETR family: the untouched model is the truth."""

import copy
import io
from types import SimpleNamespace

import pytest
import torch
import transformers
from scipy.optimize import linear_sum_assignment
from torch.testing import assert_close
from transformers.loss import loss_for_object_detection as detr_loss
from transformers.loss.loss_utils import LOSS_MAPPING

from alphaiou import AlphaIoULoss, AlphaSchedule
from alphaiou.integrations._patching import UnsupportedVersionError
from alphaiou.integrations.transformers import restore_box_loss, use_box_loss
from tests import oracle
from tests.integrations.detr_family import CLASSES, MEMBERS, batch, build

every_member = pytest.mark.parametrize("name", MEMBERS)


def step(model, inputs):
    """The total loss, its parts and all gradients, with the same random numbers every time."""
    torch.manual_seed(1)
    model.zero_grad()
    outputs = model(**inputs)
    outputs.loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return outputs.loss.detach(), outputs.loss_dict, copy.deepcopy(gradients)


def corners(boxes):
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)


@every_member
def test_giou_changes_nothing_but_rounding(name):
    model, inputs = build(name), batch(3, 1, 0)
    own_loss, own_parts, own_gradients = step(model, inputs)
    with use_box_loss(model, "giou"):
        loss, parts, gradients = step(model, inputs)
    assert_close(loss, own_loss, rtol=1e-5, atol=1e-5)
    assert list(parts) == list(own_parts)
    assert_close(parts, own_parts, rtol=1e-5, atol=1e-5)
    scale = max(float(gradient.abs().max()) for gradient in own_gradients.values())
    assert_close(gradients, own_gradients, rtol=1e-4, atol=1e-5 * scale)
    again, _, _ = step(model, inputs)
    assert again == own_loss


@every_member
def test_another_loss_changes_the_box_parts_alone(name):
    model, inputs = build(name), batch(3, 1, 0)
    _, own_parts, _ = step(model, inputs)
    with use_box_loss(model, "giou", weight=3.0):
        _, parts, _ = step(model, inputs)
    boxes = [part for part in own_parts if part.startswith("loss_giou")]
    assert len(boxes) >= (1 if name == "Yolos" else 3)
    for part in own_parts:
        assert_close(parts[part], own_parts[part] * (3.0 if part in boxes else 1.0))
    with use_box_loss(model, "diou:3"):
        _, parts, _ = step(model, inputs)
    assert all((parts[part] != own_parts[part]) == (part in boxes) for part in own_parts)


@pytest.mark.parametrize("name", [name for name in MEMBERS if name[:2] in {"RT", "DF", "De"}])
def test_auxiliary_outputs_and_denoising_groups_are_there(name):
    """So that the equalities above say something about them."""
    _, parts, _ = step(build(name), batch(2, 1))
    assert "loss_giou_0" in parts or {"loss_giou_aux_0", "loss_giou_dn_0"} <= set(parts)


def test_value_of_a_power_against_the_scalar_oracle():
    """The matching by their matcher, the loss by hand."""
    model, inputs = build("Detr", auxiliary_loss=False), batch(4, 2)
    with use_box_loss(model, AlphaIoULoss("ciou", 3.0)):
        outputs = model(**inputs)
    matcher = detr_loss.HungarianMatcher(class_cost=1, bbox_cost=5, giou_cost=2)
    indices = matcher(
        {"logits": outputs.logits, "pred_boxes": outputs.pred_boxes}, inputs["labels"]
    )
    expected = 0.0
    for boxes, labels, (source, target) in zip(
        outputs.pred_boxes.detach(), inputs["labels"], indices, strict=True
    ):
        pairs = boxes[source].tolist(), labels["boxes"][target].tolist()
        expected += sum(oracle.losses(*pairs, kind=oracle.ciou, alpha=3.0, box_format="cxcywh"))
    assert outputs.loss_dict["loss_giou"].item() == pytest.approx(expected / 6, rel=1e-4)


@every_member
def test_giou_in_the_matcher_changes_nothing(name):
    model, inputs = build(name), batch(3, 1, 0)
    own_loss, own_parts, _ = step(model, inputs)
    with use_box_loss(model, "giou", matcher_loss="giou"):
        loss, parts, _ = step(model, inputs)
    assert_close(loss, own_loss, rtol=1e-5, atol=1e-5)
    assert_close(parts, own_parts, rtol=1e-5, atol=1e-5)


def test_the_matching_is_the_cheapest_by_the_loss_of_the_matcher():
    model = build("Detr", auxiliary_loss=False, class_cost=0, bbox_cost=0, giou_cost=1)
    inputs = batch(5)
    with use_box_loss(model, "iou:2", matcher_loss=lambda pred, target: pred[:, 0] * target[:, 0]):
        outputs = model(**inputs)
    pred, target = corners(outputs.pred_boxes[0].detach()), corners(inputs["labels"][0]["boxes"])
    pairs = linear_sum_assignment(pred[:, :1] @ target[:, :1].T)
    chosen = pred[pairs[0]].tolist(), target[pairs[1]].tolist()
    expected = sum(oracle.losses(*chosen, kind=oracle.iou, alpha=2.0)) / 5
    assert outputs.loss_dict["loss_giou"].item() == pytest.approx(expected, rel=1e-4)


@every_member
@pytest.mark.parametrize("counts", [(0, 0), (1,), (30, 0)], ids=str)
def test_any_number_of_boxes(name, counts):
    model, inputs = build(name), batch(*counts)
    with use_box_loss(model, "ciou:3", matcher_loss="diou:3"):
        loss, parts, gradients = step(model, inputs)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    if sum(counts) == 0:
        assert all(parts[part] == 0 for part in parts if part.startswith("loss_giou"))


def test_flat_boxes_give_numbers():
    model, inputs = build("Detr"), batch(3)
    inputs["labels"][0]["boxes"][0, 2:] = 0.0
    with use_box_loss(model, "ciou:3"):
        loss, _, gradients = step(model, inputs)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.parametrize("name", ["Detr", "RTDetr"])
def test_bfloat16(name):
    model, inputs = build(name), batch(3, 1)
    with use_box_loss(model, "ciou:3"), torch.autocast("cpu", torch.bfloat16):
        loss, parts, gradients = step(model, inputs)
    assert loss.isfinite()
    assert parts["loss_giou"].dtype == torch.float32
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_other_models_of_the_process_are_untouched():
    model, other, inputs = build("Detr"), build("Detr"), batch(3, 1)
    before, _, _ = step(other, inputs)
    with use_box_loss(model, "iou:5", matcher_loss="iou:5"):
        changed, _, _ = step(model, inputs)
        after, _, _ = step(other, inputs)
    assert after == before
    assert changed != before
    assert LOSS_MAPPING["ForObjectDetection"] is detr_loss.ForObjectDetectionLoss


@pytest.mark.parametrize("name", ["Detr", "DFine"])
def test_restored_models_are_as_they_were(name):
    model = build(name)
    before = dict(vars(model))
    handle = use_box_loss(model, "giou:3", weight=2.0)
    assert repr(handle) == (
        "<AlphaIoULoss(kind='giou', alpha=3.0, penalty_alpha=None) × 2 in "
        f"{name}ForObjectDetection._loss_function>"
    )
    assert "matched by" not in repr(handle)
    with pytest.raises(ValueError, match=r"_loss_function already has a box loss.*restore"):
        use_box_loss(model, "giou:3")
    handle.restore()
    assert vars(model) == before
    assert list(vars(model)) == list(before)


def test_a_loss_function_of_the_users_is_kept_and_put_back():
    model, inputs = build("Yolos"), batch(3, 1)
    own = LOSS_MAPPING["DeformableDetrForObjectDetection"]
    model.loss_function, model.config.focal_alpha = own, 0.25
    _, own_parts, _ = step(model, inputs)
    with use_box_loss(model, "giou"):
        _, parts, _ = step(model, inputs)
    assert_close(parts, own_parts, rtol=1e-5, atol=1e-5)
    assert model.loss_function is own


def random_outputs(queries=12, layers=3, width=CLASSES + 1):
    """What a decoder of three layers might give: logits and boxes of every layer, and masks."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(layers, 2, queries, width, generator=generator)
    boxes = (0.2 + 0.4 * torch.rand(layers, 2, queries, 4, generator=generator)).requires_grad_()
    return logits, boxes, torch.rand(2, queries, 8, 8, generator=generator)


CONFIG = SimpleNamespace(
    class_cost=1.0,
    bbox_cost=5.0,
    giou_cost=2.0,
    num_labels=CLASSES,
    eos_coefficient=0.1,
    focal_alpha=0.25,
    auxiliary_loss=True,
    decoder_layers=3,
    two_stage=False,
    bbox_loss_coefficient=5.0,
    giou_loss_coefficient=2.0,
    mask_loss_coefficient=1.0,
    dice_loss_coefficient=1.0,
)


@pytest.mark.parametrize("name", ["ForSegmentation", "GroundingDinoForObjectDetection"])
def test_giou_changes_nothing_in_losses_of_larger_models(name):
    """Segmentation and Grounding DINO, on random outputs: their models need more than images."""
    model, labels = build("Yolos"), batch(3, 1)["labels"]
    width = CLASSES + (name == "ForSegmentation")
    logits, boxes, masks = random_outputs(width=width)
    labels = [target | {"masks": torch.ones(len(target["boxes"]), 8, 8)} for target in labels]
    more = {"pred_masks": masks}
    if name != "ForSegmentation":
        more = {"label_maps": [torch.eye(width)] * 2, "text_mask": torch.ones_like(logits[0]) > 0}
    model.loss_function = own = LOSS_MAPPING[name]

    def total():
        loss, parts, _ = model.loss_function(
            logits=logits[-1],
            labels=labels,
            device=logits.device,
            pred_boxes=boxes[-1],
            config=CONFIG,
            outputs_class=logits,
            outputs_coord=boxes,
            **more,
        )
        return loss, parts, *torch.autograd.grad(loss, boxes)

    expected = total()
    with use_box_loss(model, "giou", matcher_loss="giou"):
        assert model.loss_function is not own
        assert_close(total(), expected, rtol=1e-5, atol=1e-5)


SEGMENTATION = {
    "ForSegmentation",
    "ConditionalDetrForSegmentation",
    "RfDetrForInstanceSegmentation",
}


@pytest.mark.parametrize("name", [n for n in LOSS_MAPPING if "Detection" in n or n in SEGMENTATION])
def test_every_loss_with_boxes_takes_it(name):
    model = build("Yolos")
    model.loss_function = own = LOSS_MAPPING[name]
    with use_box_loss(model, "giou", matcher_loss="giou"):
        assert model.loss_function is not own
    assert model.loss_function is own


def test_a_detector_inside_another_module_is_found():
    outer = torch.nn.ModuleDict({"inner": build("Detr")})
    handle = use_box_loss(outer, "iou", matcher_loss="giou:2")
    assert "ModuleDict.inner._loss_function" in repr(handle)
    assert "matched by AlphaIoULoss(kind='giou', alpha=2.0" in repr(handle)


def test_a_matching_keeps_no_running_mean():
    with pytest.raises(ValueError, match=r"matcher_loss: Wise.*running mean"):
        use_box_loss(build("Yolos"), "iou+wise_v3", matcher_loss="iou+wise_v3")


@pytest.mark.parametrize("name", ["Detr", "RTDetr"])
def test_changed_models_can_be_copied_saved_and_loaded(name):
    model, inputs = build(name), batch(3, 1)
    keys = list(model.state_dict())
    loss = AlphaIoULoss("diou", AlphaSchedule(1.0, 3.0), modifiers=("wise_v3",))
    handle = use_box_loss(model, loss, matcher_loss="diou:2")
    assert list(model.state_dict()) == keys
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twins = [copy.deepcopy(model), torch.load(file, weights_only=False)]
    expected, _, _ = step(model, inputs)
    for twin in twins:
        assert step(twin, inputs)[0] == expected
        restore_box_loss(twin)
    handle.restore()
    own, _, _ = step(model, inputs)
    assert [step(twin, inputs)[0] for twin in twins] == [own, own]
    assert own != expected


def test_their_checkpoints(tmp_path):
    model = build("Detr")
    use_box_loss(model, "giou:3")
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert_close(dict(loaded.state_dict()), dict(model.state_dict()))
    assert loaded.loss_function is LOSS_MAPPING["ForObjectDetection"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_models():
    """Untouched, changed and untouched again: each has its own loss."""
    model, inputs = build("Yolos"), batch(3, 1)
    losses = [step(model, inputs)[0], step(torch.compile(model, backend="eager"), inputs)[0]]
    with use_box_loss(model, "iou:4", matcher_loss="iou"):
        losses += [step(model, inputs)[0], step(torch.compile(model, backend="eager"), inputs)[0]]
    losses += [step(torch.compile(model, backend="eager"), inputs)[0]]
    assert_close(losses[1], losses[0])
    assert_close(losses[3], losses[2])
    assert_close(losses[4], losses[0])
    assert losses[2] != losses[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the trainer's own
def test_their_trainer(tmp_path):
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    model = build("Detr")
    keys = list(model.state_dict())
    examples = [
        {"pixel_values": inputs["pixel_values"][0], "labels": inputs["labels"][0]}
        for inputs in (batch(2, seed=seed) for seed in range(4))
    ]

    def collate(rows):
        return {
            "pixel_values": torch.stack([row["pixel_values"] for row in rows]),
            "labels": [row["labels"] for row in rows],
        }

    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            tmp_path,
            num_train_epochs=30,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            remove_unused_columns=False,
            disable_tqdm=True,
        ),
        train_dataset=examples,
        data_collator=collate,
    )
    with use_box_loss(model, "giou:3"):
        trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 30
    assert losses[-1] < 0.8 * losses[0]
    trainer.save_model(tmp_path / "model")
    loaded = type(model).from_pretrained(tmp_path / "model")
    assert sorted(loaded.state_dict()) == sorted(keys)


def test_other_models_are_refused():
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 4], depths=[1, 1], layer_type="basic"
    )
    model = transformers.ResNetForImageClassification(config)
    with pytest.raises(ValueError, match=r"ResNetForImageClassification.*RTDetrForObjectDetection"):
        use_box_loss(model, "giou")
    with pytest.raises(ValueError, match="Linear has no box loss"):
        use_box_loss(torch.nn.Linear(2, 2), "giou")


class WithAThirdLoss(detr_loss.ImageLoss):
    """What a coming version might have."""

    def loss_boxes(self, outputs, targets, indices, num_boxes):
        losses = super().loss_boxes(outputs, targets, indices, num_boxes)
        losses["loss_edges"] = losses["loss_bbox"] - losses["loss_giou"]
        return losses


class WithoutMatcher(detr_loss.ImageLoss):
    """A criterion whose loss function has no matcher to change."""


def loss_of_a_coming_version(logits, labels, device, pred_boxes, config, *rest):
    return WithAThirdLoss(None, CLASSES, 0.1, ["boxes"])


def loss_without_matcher(logits, labels, device, pred_boxes, config, *rest):
    return WithoutMatcher(None, CLASSES, 0.1, ["boxes"])


def test_unknown_versions_are_refused_and_nothing_is_changed():
    model = build("Yolos")
    model.loss_function = loss_of_a_coming_version
    with pytest.raises(UnsupportedVersionError, match=r"loss_edges.*knows transformers \d"):
        use_box_loss(model, "giou")
    model.loss_function = loss_without_matcher
    with pytest.raises(UnsupportedVersionError, match=r"no matcher.*knows transformers \d"):
        use_box_loss(model, "giou", matcher_loss="giou")
    assert model.loss_function is loss_without_matcher
