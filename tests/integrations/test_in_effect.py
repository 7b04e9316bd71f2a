"""The loss is in effect, or refused: models and modes in which it would do nothing."""

import warnings
from functools import partial

import pytest
import torch
import transformers
from torchvision.models import resnet18
from torchvision.models.detection import ssd300_vgg16, ssdlite320_mobilenet_v3_large

from alphaiou.integrations import torchvision as for_torchvision
from alphaiou.integrations import transformers as for_transformers
from tests.integrations import detr_family, torchvision_models

no_weights = {"weights": None, "weights_backbone": None}


def of_transformers(name):
    """The model as its class builds it, on the meta device: no weights are needed to refuse it."""
    if not hasattr(transformers, name):
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    kind = getattr(transformers, name)
    with torch.device("meta"):
        return kind(kind.config_class())


def scripted(name):
    model = torchvision_models.build(name)
    with for_torchvision.use_box_loss(model, "giou:3"):
        torch.jit.script(model)


class OwnForward(torch.nn.Module):
    """A model of the user's own, without anything that is known."""


NO_OPS = {
    "SSD": lambda: for_torchvision.use_box_loss(ssd300_vgg16(**no_weights), "giou"),
    "SSDlite": lambda: for_torchvision.use_box_loss(
        ssdlite320_mobilenet_v3_large(**no_weights), "giou"
    ),
    "classifier": lambda: for_torchvision.use_box_loss(resnet18(), "giou"),
    "another module": lambda: for_torchvision.use_box_loss(OwnForward(), "giou"),
    "transformer for torchvision": lambda: for_torchvision.use_box_loss(
        detr_family.build("Yolos"), "giou"
    ),
    "torchvision for transformers": lambda: for_transformers.use_box_loss(
        torchvision_models.build("FCOS"), "giou"
    ),
} | {
    name: partial(lambda name: for_transformers.use_box_loss(of_transformers(name), "giou"), name)
    for name in (
        "OwlViTForObjectDetection",
        "Owlv2ForObjectDetection",
        "PPDocLayoutV2ForObjectDetection",
        "PPDocLayoutV3ForObjectDetection",
        "PPDocLayoutV4ForObjectDetection",
        "PPOCRV5MobileDetForObjectDetection",
        "MaskFormerForInstanceSegmentation",
        "Mask2FormerForUniversalSegmentation",
        "ResNetForImageClassification",
    )
}


@pytest.mark.parametrize("case", NO_OPS)
def test_what_would_do_nothing_is_refused(case):
    """With the OBB models of Ultralytics, in their own file, and the scripted ones below."""
    with pytest.raises(ValueError, match="has no box loss that can be exchanged"):
        NO_OPS[case]()


@pytest.mark.filterwarnings("ignore:.torch.jit")
@pytest.mark.parametrize("name", ["FasterRCNN", "RetinaNet", "FCOS"])
def test_a_scripted_model_is_refused_while_the_loss_is_in(name):
    with pytest.raises(
        TypeError, match=r"torch\.jit\.script would leave out the box loss.*restore"
    ):
        scripted(name)
    model = torchvision_models.build(name)
    for_torchvision.use_box_loss(model, "giou:3").restore()
    assert isinstance(torch.jit.script(model), torch.jit.ScriptModule)


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3)


def detector():
    images, targets = torchvision_models.batch(2, 1)
    model = torchvision_models.build("FCOS")
    return model, for_torchvision.use_box_loss, lambda: sum(model(images, targets).values())


def detr():
    model, inputs = detr_family.build("Detr"), detr_family.batch(2, 1)
    return model, for_transformers.use_box_loss, lambda: model(**inputs).loss


@pytest.mark.parametrize("make", [detector, detr])
def test_the_handle_knows_of_the_call(make):
    model, use_box_loss, loss = make()
    handle = use_box_loss(model, "giou:3")
    assert not handle.called
    loss().backward()
    assert handle.called
    optimizer_of(model).step()  # no warning, which the tests would raise
    handle.restore()
    second = use_box_loss(model, "giou:3")
    assert not second.called


def test_a_step_without_a_call_warns_once_and_names_the_likely_cause():
    model, _, loss = detr()
    handle = for_transformers.use_box_loss(model, "giou:3")
    own = loss().detach()
    assert own.isfinite()
    handle.restore()
    handle = for_transformers.use_box_loss(model, "giou:3")
    outputs = model(pixel_values=detr_family.batch(2, 1)["pixel_values"])  # no labels
    outputs.pred_boxes.sum().backward()
    optimizer = optimizer_of(model)
    with pytest.warns(UserWarning, match=r"without a call of <AlphaIoULoss.*without labels"):
        optimizer.step()
    optimizer.step()
    assert not handle.called


def test_steps_of_other_models_and_after_the_end_do_not_warn():
    model, use_box_loss, _ = detector()
    other = torchvision_models.build("FCOS")
    handle = use_box_loss(model, "giou:3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer_of(other).step()
        handle.restore()
        optimizer_of(model).step()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_call_inside_a_compiled_graph_counts_and_costs_no_second_graph():
    from alphaiou.integrations._patching import _CALLED, InstalledLoss

    torch._dynamo.reset()
    loss, graphs = InstalledLoss("giou:3"), []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda a, b: loss(a, b).sum(), fullgraph=True, backend=backend)
    boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.tensor([[1.0, 0.0, 3.0, 2.0]])
    assert loss.key not in _CALLED
    for _ in range(3):
        torch.testing.assert_close(compiled(*boxes), loss.function(*boxes).sum())
    assert loss.key in _CALLED
    assert len(graphs) == 1
