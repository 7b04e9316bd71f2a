"""The shapes in the signatures, executed: the package under jaxtyping's import hook.

The hook must be there before the package is imported: the battery below runs once, in a process of
its own (`python tests/test_shapes.py`), and its tests read what came of each call.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Compiled from their source or their bare signature by torch or Triton: they take no decorator.
COMPILED = {"kernels"}


def hooked_modules():
    """Every module with code of its own, but those that are compiled."""
    (root,) = map(Path, find_spec("alphaiou").submodule_search_locations)
    paths = (path.relative_to(root).with_suffix("") for path in root.rglob("*.py"))
    return [
        ".".join(("alphaiou", *path.parts))
        for path in paths
        if not path.name.startswith("__") and not COMPILED & set(path.parts)
    ]


def calls():
    """Calls that must pass, by name; alphaiou is imported here, under the hook."""
    import torch

    import alphaiou
    from alphaiou import (
        AlphaIoULoss,
        AlphaSchedule,
        Terms,
        Wise,
        alpha_iou_loss,
        properties,
        simulate,
    )
    from alphaiou.losses import kinds, modifiers

    torch.manual_seed(0)
    pred, target = (boxes + torch.tensor([0.0, 0, 1, 1]) for boxes in torch.rand(2, 6, 4))
    loss = partial(alpha_iou_loss, pred, target)
    every_kind = {kind: partial(loss, kind=kind) for kind in kinds.kinds_of()}
    every_kind |= {
        "piou 2": partial(loss, kind=partial(kinds.piou, version=2)),
        "mpdiou in image": partial(loss, kind=partial(kinds.mpdiou, image_size=(640.0, 480.0))),
        "own": partial(loss, kind=lambda pair: Terms(pair.iou, (pair.hull_gap(),))),
    }
    modified = {name: partial(loss, kind="ciou", modifiers=(name,)) for name in alphaiou.MODIFIERS}
    modified |= {
        "all": partial(loss, kind="diou", modifiers=tuple(alphaiou.MODIFIERS)),
        "shares": partial(
            loss, modifiers=[partial(modifiers.rectified, powers=(1.0, 2.0), shares=(0.5, 0.5))]
        ),
        "wise 2": partial(loss, modifiers=[Wise(2)]),
    }
    options = {
        "weight": {"weight": torch.rand(6)},
        "whole weights": {"weight": torch.arange(6)},
        "mask as weight": {"weight": torch.arange(6) > 2},
        "one weight": {"weight": torch.rand(())},
        "a weight that broadcasts": {"weight": torch.rand(1)},
        "alpha": {"alpha": torch.rand(6), "penalty_alpha": torch.rand(()) + 1.0},
        "box cox": {"alpha": 0.5, "box_cox": True},
        "log": {"alpha": 0.0},
        "mean": {"reduction": "mean"},
        "sum": {"reduction": "sum"},
        "avg_factor": {"reduction": "mean", "avg_factor": 3.0},
        "avg_factor tensor": {"reduction": "mean", "avg_factor": torch.tensor(3.0)},
        **{name: {"box_format": name} for name in ("xywh", "cxcywh")},
    }
    optional = {name: partial(loss, kind="ciou", **some) for name, some in options.items()}
    shaped = {}
    for shape in ((4,), (0, 4), (1, 4), (2, 3, 4)):
        boxes = torch.rand(shape)
        ones = torch.ones(shape[:-1])
        shaped[f"loss {shape}"] = partial(alpha_iou_loss, boxes, boxes, kind="siou", weight=ones)
        shaped[f"box_iou {shape}"] = partial(alphaiou.box_iou, boxes, boxes, kind="ciou")
        shaped[f"convert {shape}"] = partial(alphaiou.convert_boxes, boxes, "xyxy", "cxcywh")
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64):
        boxes = pred.to(dtype)
        shaped[f"loss {dtype}"] = partial(alpha_iou_loss, boxes, boxes, kind="ciou")
        shaped[f"convert {dtype}"] = partial(alphaiou.convert_boxes, boxes, "xywh", "xyxy")
    similar = {}
    for kind in ("iou", "giou", "diou", "ciou"):
        similar[f"box_iou {kind}"] = partial(alphaiou.box_iou, pred, target, kind=kind)
        similar[f"pairwise {kind}"] = partial(alphaiou.pairwise_iou, pred, target[:3], kind=kind)
    similar["pairwise empty"] = partial(alphaiou.pairwise_iou, pred[:0], target)
    modules = {
        "module": lambda: AlphaIoULoss("ciou", 3.0)(pred, target, torch.rand(6)),
        "module avg_factor": lambda: AlphaIoULoss("ciou")(pred, target, avg_factor=2.0),
        "schedule": lambda: AlphaIoULoss("diou", AlphaSchedule(1.0, 3.0)).set_progress(0.5),
        "wise": lambda: AlphaIoULoss(modifiers=("wise_v2", "wise_v3"))(pred, target),
    }
    iou, alpha = torch.rand(3, 1), torch.rand(2) + 1.0
    weights = {}
    for name in properties.__all__:
        function = getattr(properties, name)
        arguments = ((0.5, 3.0), (iou, 3.0), (0.5, alpha), (iou, alpha))
        for number, both in enumerate(arguments):
            some = both[1:] if name == "turning_point" else both
            weights[f"{name} {number}"] = partial(function, *some)
    settings = simulate.SimulationSettings(points=3, iterations=2)
    in_cxcywh = partial(alpha_iou_loss, box_format="cxcywh")
    descent = partial(simulate.simulate, in_cxcywh, settings, points_per_chunk=2)
    return {
        **every_kind,
        **{f"modifier {name}": call for name, call in modified.items()},
        **optional,
        **shaped,
        **similar,
        **modules,
        **weights,
        "simulate": descent,
        "vmap": lambda: torch.func.vmap(alpha_iou_loss)(pred, target),
    }


def data_calls():
    """The same over data sets: readers and writers of every layout, noise, stats, pixels."""
    import torch

    from alphaiou.data import noise, stats
    from alphaiou.data.dataset import load_dataset
    from alphaiou.data.formats.registry import get_format
    from alphaiou.data.images import decode_image
    from alphaiou.data.pipeline import cache
    from alphaiou.data.pipeline.augment import Augmentation, augment, sample_augmentation
    from alphaiou.data.shapes.dataset import shapes_dataset
    from alphaiou.data.subset import subset_index

    dataset = shapes_dataset("val", size=64, length=6)
    index = dataset.index
    folder = Path(tempfile.mkdtemp(dir=os.environ["ALPHAIOU_CACHE"]))

    def round_trip(layout):
        get_format(layout).write(index, folder / layout, images="link")
        again = load_dataset(folder / layout, "val", layout=layout)
        assert again[0][0].shape == dataset[0][0].shape
        return load_dataset(folder / layout, "val", layout=layout)  # from the cache

    def pixels(settings):
        kept = cache.build_cache(dataset, 64, workers=1, memory_limit=1 << 30)
        sample = sample_augmentation(3, len(kept), 64, settings, "cpu")
        batch = augment(kept, torch.arange(3), sample, settings, 50)
        cache.letterbox_batch(kept, torch.arange(2))
        return cache.to_original(batch.targets.boxes, torch.ones(1, 2))

    noisy = partial(noise.perturb_boxes, generator=torch.Generator(), image_size=(64.0, 64.0))
    boxes = dataset.target(0)["boxes"]
    return {
        **{layout: partial(round_trip, layout) for layout in ("voc", "coco", "yolo")},
        "decode": partial(decode_image, b"P6 3 2 255 " + bytes(18)),
        "noise": partial(noisy, boxes, 0.3),
        "noise of a batch": partial(noisy, boxes[None], 0.3, box_format="cxcywh"),
        "noisy index": lambda: noise.clean_iou(noise.perturb_index(index, 0.3, 0), index),
        "no boxes": lambda: noise.perturb_index(index.drop_boxes(index.areas > 0), 0.3, 0),
        "subset": partial(subset_index, index, 0.5, 0),
        "stats": partial(stats.dataset_stats, index),
        "centres": partial(stats.centre_map, index, 15),
        "mosaic": partial(pixels, Augmentation()),
        "plain pixels": partial(pixels, Augmentation(mosaic=0.0, flip=0.0)),
    }


def detection_calls():
    """The same over detectors and scores, on boxes of the drawn set."""
    import torch

    from alphaiou import AlphaIoULoss
    from alphaiou.data.shapes.dataset import shapes_dataset
    from alphaiou.detectors import build_detector
    from alphaiou.detectors.detr.network import detr
    from alphaiou.detectors.faster_rcnn.network import faster_rcnn
    from alphaiou.detectors.yolov5.anchors import best_possible_recall, fit_anchors
    from alphaiou.metrics import RULES, DetectionScores, counts_above, detection_ious

    dataset = shapes_dataset("val", size=64, length=4)
    images, targets = zip(*(dataset[position] for position in range(4)), strict=True)
    found = [
        target | {"boxes": target["boxes"] + 1, "scores": torch.rand(len(target["labels"]))}
        for target in targets
    ]

    def scores(rule):
        collected = DetectionScores(classes=dataset.index.classes, rule=rule)
        collected.update(found, targets)
        again = DetectionScores.from_state(collected.state())
        again.compute().precision_recall(iou=0.75, label=0)
        return again

    def detector(**options):
        return build_detector("yolov5n", len(dataset.index.classes), **options)

    def learn(model):
        losses = model(list(images), list(targets))
        torch.stack(list(losses.values())).sum().backward()

    def train(objectness):
        learn(detector(objectness=objectness))

    def small_rcnn(loss):
        return faster_rcnn(
            len(dataset.index.classes),
            loss,
            backbone="resnet18",
            head_width=16,
            image_size=200,
            pre_nms=50,
            post_nms=40,
            roi_samples=32,
        )

    def small_detr():
        layers = {"encoder_layers": 1, "decoder_layers": 2}
        return detr(len(dataset.index.classes), AlphaIoULoss("diou"), queries=12, **layers)

    sides = torch.rand(30, 2) * 60 + 4
    return {
        **{f"scores {rule}": partial(scores, rule) for rule in RULES},
        "no images": lambda: DetectionScores(3).compute(),
        "ious": lambda: counts_above(detection_ious(scores("paper").data(), once=True)),
        "train": partial(train, "iou"),
        "train similarity": partial(train, "similarity"),
        "detect": lambda: detector().eval()(list(images)),
        "Faster R-CNN, deltas": lambda: learn(small_rcnn("l1")),
        "Faster R-CNN, boxes": lambda: learn(small_rcnn(AlphaIoULoss("giou"))),
        "Faster R-CNN detects": lambda: small_rcnn("l1").eval()(list(images)),
        "DETR": lambda: learn(small_detr()),
        "DETR detects": lambda: small_detr().eval()(list(images)),
        "anchors": lambda: best_possible_recall(sides, fit_anchors(sides, torch.ones(3, 3, 2))),
    }


def wrong_calls():
    """Calls that only the hook, or the hook first, refuses."""
    import torch

    import alphaiou
    from alphaiou import boxes
    from alphaiou.data.noise import perturb_boxes
    from alphaiou.metrics import counts_above

    some, flat = torch.rand(6, 4), torch.rand(6, 3)
    own = torch.Generator()
    return {
        "noise": partial(perturb_boxes, flat, 0.1, generator=own, image_size=(9.0, 9.0)),
        "ious of pairs": partial(counts_above, some.double().numpy()),
        "unequal batches": partial(alphaiou.alpha_iou_loss, some, some[:3]),
        "module": partial(alphaiou.AlphaIoULoss(), some, some[:3]),
        "box_iou": partial(alphaiou.box_iou, some, flat),
        "pairwise of a batch": partial(alphaiou.pairwise_iou, some[None], some),
        "convert": partial(alphaiou.convert_boxes, flat, "xyxy", "xywh"),
        "a list": partial(alphaiou.box_iou, some.tolist(), some),
        "vectors of three": partial(boxes.norm_squared, flat),
        "whole vectors": partial(boxes.area, torch.ones(6, 2, dtype=torch.int64)),
        "terms of two lengths": partial(alphaiou.Terms, torch.rand(6), (torch.rand(5),)),
    }


def main():
    from jaxtyping import install_import_hook

    from alphaiou._config import Config

    # Configurations look like dataclasses, whose constructors jaxtyping wraps; msgspec checks them.
    Config.__no_type_check__ = True
    install_import_hook(hooked_modules(), "beartype.beartype")
    outcomes = {}
    for group in (calls, data_calls, detection_calls, wrong_calls):
        outcomes[group.__name__] = results = {}
        for name, call in group().items():
            try:
                call()
            except Exception as error:
                results[name] = [type(error).__name__, str(error)[:2000]]
            else:
                results[name] = None
    print(json.dumps(outcomes))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    command = [sys.executable, "-W", "error", __file__]
    environment = os.environ | {"ALPHAIOU_CACHE": str(tmp_path_factory.mktemp("cache"))}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_every_module_with_shapes_is_hooked():
    hooked = set(hooked_modules())
    assert {f"alphaiou.{name}" for name in ("boxes", "numerics", "properties")} <= hooked
    assert "alphaiou.losses.functional" in hooked
    for path in (ROOT / "src/alphaiou").rglob("*.py"):
        if "alphaiou._shapes import" in path.read_text(encoding="utf-8"):
            module = path.relative_to(ROOT / "src").with_suffix("")
            assert ".".join(module.parts) in hooked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "least"), [("calls", 80), ("data_calls", 12), ("detection_calls", 14)]
)
def test_right_shapes_pass(outcomes, group, least):
    assert len(outcomes[group]) > least
    failed = {name: error for name, error in outcomes[group].items() if error}
    assert not failed, json.dumps(failed, indent=1)


@pytest.mark.slow
def test_wrong_shapes_are_refused(outcomes):
    passed = {
        name: error
        for name, error in outcomes["wrong_calls"].items()
        if not error or error[0] != "TypeCheckError"
    }
    assert not passed, json.dumps(passed, indent=1)


if __name__ == "__main__":
    main()
