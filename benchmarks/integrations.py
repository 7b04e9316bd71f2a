"""Train other frameworks with their own box loss and with ours: equality and step time.

    python -m benchmarks.integrations --out benchmarks/integrations-cpu.json
    python -m benchmarks.integrations --device cuda --out benchmarks/integrations-cuda.json

Every framework trains a model from random weights on one batch of drawn images. The losses of the
first steps at α = 1 are compared with those of the framework's own loss. Two runs of the own loss
measure the nondeterminism of the device. Then one model alternates between both losses, so that
other load on the machine affects both equally.
"""

import argparse
import importlib
import os
import statistics
import tempfile
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from torch.nn.functional import interpolate
from torchvision.ops import generalized_box_iou_loss

from alphaiou import convert_boxes, load_dataset
from benchmarks.record import conditions, write_record

os.environ |= {
    "YOLO_CONFIG_DIR": tempfile.mkdtemp(),
    "YOLO_OFFLINE": "true",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # without it products of matrices may differ on CUDA
}


@dataclass(frozen=True)
class Setting:
    """The model and the batch."""

    device: torch.device
    side: int
    images: int
    steps_in_a_row: int


def drawn(setting):
    """Return images in [0, 1], and their labels and relative boxes in cxcywh."""
    dataset = load_dataset("shapes", "train")
    rows = [dataset[i] for i in range(setting.images)]
    size = (setting.side, setting.side)
    images = torch.cat([interpolate(image[None] / 255, size=size) for image, _ in rows])
    targets = [
        {
            "boxes": convert_boxes(target["boxes"], "xyxy", "cxcywh") / image.shape[-1],
            "labels": target["labels"],
        }
        for image, target in rows
    ]
    to = partial(torch.Tensor.to, device=setting.device)
    return to(images), [{name: to(value) for name, value in t.items()} for t in targets]


def stepper(model, losses):
    """A training step, which returns its loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        loss = losses()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def ultralytics_step(setting):
    from ultralytics import YOLO
    from ultralytics.cfg import get_cfg

    images, targets = drawn(setting)
    torch.manual_seed(0)
    model = YOLO("yolov8n.yaml").model.to(setting.device).train()
    model.args = get_cfg()
    counts = [len(target["boxes"]) for target in targets]
    batch = {
        "img": images,
        "cls": torch.cat([target["labels"] for target in targets])[:, None].float(),
        "bboxes": torch.cat([target["boxes"] for target in targets]),
        "batch_idx": torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).float(),
    }
    batch["batch_idx"] = batch["batch_idx"].to(setting.device)

    def losses():
        return model(dict(batch))[0].sum()

    return stepper(model, losses)


def rfdetr_step(setting):
    from rfdetr.config import RFDETRNanoConfig, TrainConfig
    from rfdetr.models import build_criterion_from_config, build_model_from_config
    from rfdetr.utilities.tensors import NestedTensor

    images, targets = drawn(setting)
    torch.manual_seed(0)
    patches = setting.side // 16
    config = RFDETRNanoConfig(
        num_classes=12,
        pretrain_weights="none.pth",  # is not read: the weights are random
        device=setting.device.type,
        resolution=setting.side,
        positional_encoding_size=patches,
    )
    configs = config, TrainConfig(dataset_dir=".", output_dir=".")
    model = build_model_from_config(*configs).to(setting.device).train()
    criterion, _ = build_criterion_from_config(*configs)
    padding = torch.zeros(images.shape[0], *images.shape[2:], dtype=torch.bool)
    nested = NestedTensor(images, padding.to(setting.device))

    def losses():
        found = criterion(model(nested, targets), targets)
        return sum(found[name] * factor for name, factor in criterion.weight_dict.items())

    return stepper(model, losses)


def torchvision_giou(pred, target, weight, avg_factor):
    """Torchvision's loss, called as MMDetection, which is not installed here, calls its own."""
    return (generalized_box_iou_loss(pred, target) * weight.mean(-1)).sum() / avg_factor


#: The last one counts.
MMENGINE_LOSSES = [torchvision_giou]


@contextmanager
def mmengine_loss(text):
    """Register a loss in MMEngine's registry temporarily."""
    importlib.import_module("alphaiou.integrations.mmengine")
    from mmengine.registry import MODELS

    kind, _, alpha = text.partition(":")
    config = {"type": "AlphaIoULoss", "kind": kind, "alpha": float(alpha or 1)}
    MMENGINE_LOSSES.append(MODELS.build(config))
    yield
    MMENGINE_LOSSES.pop()


def mmengine_step(setting):
    """A network that predicts one box per image."""
    images, targets = drawn(setting)
    boxes = torch.stack([target["boxes"][0] for target in targets])
    corners, weight = convert_boxes(boxes, "cxcywh", "xyxy"), torch.ones_like(boxes)
    torch.manual_seed(0)
    features = torch.nn.Conv2d(3, 32, 7, stride=4)
    layers = features, torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4)
    model = torch.nn.Sequential(*layers, torch.nn.Sigmoid()).to(setting.device)
    model(images)  # gives the lazy layer its size

    def losses():
        pred = convert_boxes(model(images), "cxcywh", "xyxy")
        return MMENGINE_LOSSES[-1](pred, corners, weight=weight, avg_factor=len(pred))

    return stepper(model, losses)


def use(framework, text):
    return importlib.import_module(f"alphaiou.integrations.{framework}").use_box_loss(text)


#: The step, how a loss goes in, the own kind, lines of code or of a configuration that change.
FRAMEWORKS = {
    "ultralytics": (ultralytics_step, partial(use, "ultralytics"), "ciou", 1),
    "rfdetr": (rfdetr_step, partial(use, "rfdetr"), "giou", 1),
    "mmengine": (mmengine_step, mmengine_loss, "giou", 2),
}
#: Side and number of the images, steps in a row of which the time is taken.
SIZES = {
    "cpu": {"ultralytics": (160, 4, 1), "rfdetr": (128, 2, 1), "mmengine": (64, 16, 50)},
    "cuda": {"ultralytics": (640, 32, 5), "rfdetr": (384, 16, 5), "mmengine": (64, 256, 50)},
}


def seconds(step, setting):
    """Return the mean time of consecutive steps; on a CPU the process time, as it may be shared."""
    clock = time.perf_counter if setting.device.type == "cuda" else time.process_time
    start = clock()
    for _ in range(setting.steps_in_a_row):
        step()
    if setting.device.type == "cuda":
        torch.cuda.synchronize()
    return (clock() - start) / setting.steps_in_a_row


@contextmanager
def repeatable():
    """Make torch deterministic where possible, in full precision."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield
    torch.use_deterministic_algorithms(False)


def first_losses(make, setting, context):
    """Return the losses of five steps of a new model, and its step."""
    step = make(setting)
    with repeatable(), context:
        return [step().item() for _ in range(5)], step


def relative_differences(losses, others):
    return [abs(one - other) / abs(one) for one, other in zip(losses, others, strict=True)]


def measure(name, device, rounds):
    make, context, kind, lines = FRAMEWORKS[name]
    setting = Setting(device, *SIZES[device.type][name])
    own_losses, _ = first_losses(make, setting, nullcontext())
    again, _ = first_losses(make, setting, nullcontext())
    ours, step = first_losses(make, setting, context(kind))
    differences = relative_differences(own_losses, ours)
    times = {None: [], kind: [], f"{kind}:3": []}
    order = list(times)
    for round_ in range(rounds + 2):
        order.append(order.pop(0))  # none is always the first
        for text in order:
            with nullcontext() if text is None else context(text):
                spent = seconds(step, setting)
            if round_ >= 2:  # the first ones warm up
                times[text].append(spent)
    own, *with_ours = (statistics.median(found) for found in times.values())
    return {
        "framework": name,
        "version": version(name),
        "own_kind": kind,
        "lines_changed": lines,
        "image_side": setting.side,
        "images": setting.images,
        "losses_own": own_losses,
        "losses_alpha_1": ours,
        "relative_differences": differences,
        "largest_relative_difference": max(differences),
        "largest_relative_difference_of_own": max(relative_differences(own_losses, again)),
        "rounds": rounds,
        "steps_in_a_row": setting.steps_in_a_row,
        "clock": "wall" if device.type == "cuda" else "process",
        "ms_own": own * 1e3,
        "ratio_alpha_1": with_ours[0] / own,
        "ratio_alpha_3": with_ours[1] / own,
        "ms_own_quartiles": [q * 1e3 for q in statistics.quantiles(times[None])[::2]],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1)
    load = os.getloadavg()[0]  # other work on the machine
    rows = []
    for name in options.frameworks:
        rows.append(measure(name, device, options.rounds))
        print({key: value for key, value in rows[-1].items() if not isinstance(value, list)})
    record = {
        "record": "integrations",
        **conditions(device, "transformers"),
        "load_average_at_start": load,
        "rows": rows,
    }
    if options.out:
        write_record(record, options.out)


if __name__ == "__main__":
    main()
