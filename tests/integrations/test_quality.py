"""Quality losses in transformers' DETR family: the untouched model is the truth."""

import copy
import io
import math

import pytest
import torch
from torch.testing import assert_close

from alphaiou import AlphaSchedule, QualityLoss
from alphaiou.integrations.transformers import restore_box_loss, use_box_loss, use_quality_loss
from tests.integrations.detr_family import CLASSES, MEMBERS, batch, build
from tests.integrations.test_transformers import step
from tests.losses.test_quality import oracle

#: The loss that a model trains its scores with, and settings under which it is that of its paper.
OWN = {
    "RTDetr": ("vfl", {}),
    "RTDetrV2": ("vfl", {}),
    "DFine": ("vfl", {}),
    "Deimv2": ("mal", {"focal_loss_gamma": 1.5}),
    "LwDetr": ("ia_bce", {}),
    "RfDetr": ("ia_bce", {}),
}
WITH_SIGMOIDS = [
    name for name in MEMBERS if name in {*OWN, "DeformableDetr", "ConditionalDetr", "DabDetr"}
]
WITHOUT = [name for name in MEMBERS if name not in WITH_SIGMOIDS]
every_member = pytest.mark.parametrize("name", WITH_SIGMOIDS)


def label_parts(parts):
    return [part for part in parts if part.startswith(("loss_vfl", "loss_mal", "loss_ce"))]


@pytest.mark.parametrize("name", [name for name in MEMBERS if name in OWN])
def test_its_own_loss_changes_nothing_but_rounding(name):
    text, options = OWN[name]
    model, inputs = build(name, **options), batch(3, 1, 0)
    own_loss, own_parts, own_gradients = step(model, inputs)
    with use_quality_loss(model, text):
        loss, parts, gradients = step(model, inputs)
    assert_close(loss, own_loss, rtol=1e-5, atol=1e-5)
    assert list(parts) == list(own_parts)
    assert_close(parts, own_parts, rtol=1e-5, atol=1e-5)
    scale = max(float(gradient.abs().max()) for gradient in own_gradients.values())
    assert_close(gradients, own_gradients, rtol=1e-4, atol=1e-5 * scale)
    again, _, _ = step(model, inputs)
    assert again == own_loss


def test_mal_with_another_power_is_deimv2s_with_that_gamma():
    if "Deimv2" not in MEMBERS:
        pytest.skip("this version of transformers has no DEIMv2")
    model, inputs = build("Deimv2", focal_loss_gamma=2.5), batch(3, 1)
    _, own_parts, _ = step(model, inputs)
    with use_quality_loss(model, QualityLoss("mal", alpha=2.5, gamma=2.5)):
        _, parts, _ = step(model, inputs)
    assert_close(parts, own_parts, rtol=1e-5, atol=1e-5)


@every_member
def test_another_loss_changes_the_label_parts_alone(name):
    model, inputs = build(name), batch(3, 1, 0)
    _, own_parts, _ = step(model, inputs)
    with use_quality_loss(model, "qfl:3"):
        _, parts, gradients = step(model, inputs)
    labels = label_parts(own_parts)
    assert len(labels) >= 2  # the last layer and others
    assert all((parts[part] != own_parts[part]) == (part in labels) for part in own_parts)
    assert all(gradient.isfinite().all() for gradient in gradients.values())
    with use_quality_loss(model, "qfl:3", weight=2.0):
        _, doubled, _ = step(model, inputs)
    for part in own_parts:
        assert_close(doubled[part], parts[part] * (2.0 if part in labels else 1.0))


def test_value_of_a_power_against_the_scalar_oracle():
    """Everything by hand but the matching: one object, and a search for its prediction."""
    model, inputs = build("ConditionalDetr"), batch(1)
    with use_quality_loss(model, "mal:2"):
        outputs = model(**inputs)
    label = inputs["labels"][0]["class_labels"].item()
    (target,) = inputs["labels"][0]["boxes"].double().tolist()
    logits, boxes = outputs.logits[0].double(), outputs.pred_boxes[0].double().tolist()
    totals = []
    for matched, box in enumerate(boxes):
        totals.append(0.0)
        for query, column in ((q, c) for q in range(len(boxes)) for c in range(CLASSES)):
            positive = (query, column) == (matched, label)
            entry = (logits[query, column].item(), iou(box, target) if positive else 0.0, positive)
            totals[-1] += oracle(*entry, kind="mal", alpha=2.0, gamma=1.5)
    found = outputs.loss_dict["loss_ce"].item()
    assert min(abs(found - total) for total in totals) < 1e-4 * found


def iou(box, other):
    sides = [
        min(a + w / 2, b + v / 2) - max(a - w / 2, b - v / 2)
        for a, w, b, v in zip(box[:2], box[2:], other[:2], other[2:], strict=True)
    ]
    both = max(sides[0], 0.0) * max(sides[1], 0.0)
    return both / (math.prod(box[2:]) + math.prod(other[2:]) - both)


def test_both_sides_at_once():
    model, inputs = build("RTDetr"), batch(3, 1)
    with use_quality_loss(model, "vfl:2"):
        _, labels, _ = step(model, inputs)
    with use_box_loss(model, "giou:3"):
        _, boxes, _ = step(model, inputs)
    with use_quality_loss(model, "vfl:2", box_loss="giou:3") as handle:
        _, both, _ = step(model, inputs)
        for name in both:
            expected = boxes if name.startswith("loss_giou") else labels
            assert_close(both[name], expected[name])
        with pytest.raises(ValueError, match="already has"):
            use_box_loss(model, "iou")
        assert "QualityLoss(kind='vfl', alpha=2.0, gamma=2.0) and AlphaIoULoss(" in repr(handle)


@pytest.mark.parametrize("name", WITHOUT)
def test_a_model_in_which_it_would_not_be_called_is_refused(name):
    model, inputs = build(name), batch(2)
    own, _, _ = step(model, inputs)
    with pytest.raises(ValueError, match=rf"{name}.*no sigmoids of classes"):
        use_quality_loss(model, "vfl")
    assert step(model, inputs)[0] == own


@every_member
@pytest.mark.parametrize("counts", [(0, 0), (30, 0)], ids=str)
def test_any_number_of_boxes(name, counts):
    model, inputs = build(name), batch(*counts)
    with use_quality_loss(model, "vfl:3"):
        loss, _, gradients = step(model, inputs)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_confident_scores_give_numbers_where_transformers_has_none():
    """LW-DETR takes log(1 − p), which is −∞ from a logit of 17 on."""
    if "LwDetr" not in MEMBERS:
        pytest.skip("this version of transformers has no LW-DETR")
    model, inputs = build("LwDetr"), batch(2)
    with torch.no_grad():
        for head in (model.class_embed, *model.model.enc_out_class_embed):
            head.bias.fill_(30.0)
    assert not step(model, inputs)[0].isfinite()
    with use_quality_loss(model, "ia_bce"):
        loss, _, gradients = step(model, inputs)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients.values())


def test_bfloat16_copies_and_files():
    model, inputs = build("RTDetr"), batch(3, 1)
    schedule = QualityLoss("vfl", AlphaSchedule(1.0, 3.0))
    use_quality_loss(model, schedule)
    keys = set(model.state_dict())
    with torch.autocast("cpu", torch.bfloat16):
        assert step(model, inputs)[0].isfinite()
    _, first, _ = step(model, inputs)
    schedule.set_progress(1.0)
    _, last, _ = step(model, inputs)
    assert last["loss_vfl"] != first["loss_vfl"]
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert_close(step(other, inputs)[1]["loss_vfl"], last["loss_vfl"])
        restore_box_loss(other)
        assert set(other.state_dict()) == keys
        assert step(other, inputs)[1]["loss_vfl"] != last["loss_vfl"]


@pytest.mark.parametrize("loss", [None, 3.0, lambda logits, iou: logits])
def test_what_is_no_quality_loss_is_refused(loss):
    with pytest.raises(TypeError, match="loss must be a QualityLoss, or a text such as 'mal'"):
        use_quality_loss(build("RTDetr"), loss)
