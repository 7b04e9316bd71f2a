"""Train detectors of MMYOLO and MMRotate with their own box loss and with ours; write the record.

    python .ci/mmyolo_mmrotate.py [FOLDER] [--only YOLOv8-n "Rotated FCOS"]

Both refuse the versions of ``.ci/mmdetection.py``, so FOLDER gets another environment, with
MMDetection 3.0 and mmcv 2.0.1, which is compiled once. Detectors, trainings and differences are as
in that script. The detectors of MMRotate train on drawn rectangles that are turned, in DOTA's
format. Its ``GDLoss`` has the formulas of our ``kld`` and ``gwd`` with ``fun="log1p", tau=1``. Its
``RotatedIoULoss`` runs on CUDA alone, so the exact IoU is compared with mmcv's operator, which has
no gradient. MMRotate takes ``Sequence`` from ``collections``, where Python 3.10 has it no longer;
this script puts it back there.
"""

from __future__ import annotations

import argparse
import collections.abc
import json
import math
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from mmdetection import (
    ITERATIONS,
    SEED,
    SIZE,
    TREE,
    Comparison,
    coco_set,
    compared,
    conditions,
    draw,
    environment,
    loss_of,
    random_weights,
    short_training,
    train,
    write,
)

RECORD = TREE / "benchmarks" / "mmyolo-mmrotate-cpu.json"
MMCV = "mmcv==2.0.1"
REST = ("mmdet==3.0.0", "mmyolo==0.6.0", "mmrotate==1.0.0rc1", "numpy<2", "setuptools<70")
#: Package, its configuration, and the part of the model with the loss of decoded boxes.
DETECTORS = {
    "YOLOv5-n": ("mmyolo", "yolov5/yolov5_n-v61_syncbn_fast_8xb16-300e_coco", "bbox_head"),
    "YOLOv6-n": ("mmyolo", "yolov6/yolov6_n_syncbn_fast_8xb32-400e_coco", "bbox_head"),
    "YOLOv7-tiny": ("mmyolo", "yolov7/yolov7_tiny_syncbn_fast_8x16b-300e_coco", "bbox_head"),
    "YOLOv8-n": ("mmyolo", "yolov8/yolov8_n_syncbn_fast_8xb16-500e_coco", "bbox_head"),
    "RTMDet-tiny": ("mmyolo", "rtmdet/rtmdet_tiny_syncbn_fast_8xb32-300e_coco", "bbox_head"),
    "Rotated RetinaNet, le90": (
        "mmrotate",
        "rotated_retinanet/rotated-retinanet-rbox-le90_r50_fpn_1x_dota",
        "bbox_head",
    ),
    "Rotated RetinaNet, oc": (
        "mmrotate",
        "rotated_retinanet/rotated-retinanet-rbox-oc_r50_fpn_1x_dota",
        "bbox_head",
    ),
    "Rotated FCOS": ("mmrotate", "rotated_fcos/rotated-fcos-le90_r50_fpn_1x_dota", "bbox_head"),
    "Rotated ATSS": ("mmrotate", "rotated_atss/rotated-atss-le90_r50_fpn_1x_dota", "bbox_head"),
    "Rotated RTMDet-tiny": ("mmrotate", "rotated_rtmdet/rotated_rtmdet_tiny-3x-dota", "bbox_head"),
    "Oriented R-CNN": (
        "mmrotate",
        "oriented_rcnn/oriented-rcnn-le90_r50_fpn_1x_dota",
        "roi_head.bbox_head",
    ),
}
#: Those that decode their boxes only if they are told to.
DELTAS = ("Rotated RetinaNet, le90", "Rotated RetinaNet, oc", "Oriented R-CNN")
GAUSSIAN = ("kld", "gwd")
OTHER_KINDS = ("iou", "giou", "diou", "ciou", "probiou", "kld", "gwd", "kfiou")
ORIENTED = {"box_format": "cxcywhr"}
FORMULA_PAIRS = 10_000
#: The side of a predicted box, in pixels, below which it is not compared.
SHORT = 1.0


def draw_oriented(folder: Path, images: int = 10) -> None:
    """Images with one to three turned rectangles on noise, and a DOTA file for each."""
    import numpy as np
    from PIL import Image, ImageDraw

    random = np.random.default_rng(SEED)
    (folder / "labels").mkdir()
    (folder / "images").mkdir()
    for image_id in range(images):
        noise = random.integers(0, 100, (SIZE, SIZE, 3), dtype=np.uint8)
        image, lines = Image.fromarray(noise), []
        for _ in range(random.integers(1, 4)):
            width, height = random.integers(SIZE // 5, SIZE // 2, 2)
            angle, center = random.uniform(0, math.pi), random.uniform(SIZE / 4, 3 * SIZE / 4, 2)
            along = width / 2 * np.array([math.cos(angle), math.sin(angle)])
            across = height / 2 * np.array([-math.sin(angle), math.cos(angle)])
            corners = [
                center + a * along + b * across for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
            ]
            colour = tuple(random.integers(120, 256, 3).tolist())
            ImageDraw.Draw(image).polygon([tuple(corner) for corner in corners], fill=colour)
            numbers = " ".join(f"{value:.2f}" for corner in corners for value in corner)
            lines.append(f"{numbers} {('plane', 'ship')[random.integers(2)]} 0\n")
        image.save(folder / "images" / f"{image_id}.png")
        (folder / "labels" / f"{image_id}.txt").write_text("".join(lines), encoding="utf-8")


def configuration(name: str, loss: dict[str, object] | None, folder: Path):
    """The framework's own, on the drawn set, with this loss in the place of its own."""
    from mmengine.config import Config

    package, path, part = DETECTORS[name]
    configs = Path(import_module(package).__file__).parent / ".mim" / "configs"
    file = folder / "configuration.py"
    file.write_text(
        f'_base_ = ["{configs / path}.py"]\n'
        'custom_imports = dict(imports=["alphaiou.integrations.mmengine"])\n',
        encoding="utf-8",
    )
    config = Config.fromfile(file)
    head = part_of(config.model, part)
    if loss is not None:
        kept = {
            key: head.loss_bbox[key]
            for key in ("reduction", "loss_weight")
            if key in head.loss_bbox
        }
        head.loss_bbox = {**kept, **loss}
    if name in DELTAS:
        head.reg_decoded_bbox = True
    random_weights(config.model.backbone)
    config.model.data_preprocessor.pop("batch_augments", None)
    # Nothing is resized, so there is no scale.
    keys = ("img_id", "img_path", "ori_shape", "img_shape")
    if package == "mmyolo":
        pipeline = [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations", "with_bbox": True}]
        pipeline += [{"type": "mmdet.PackDetInputs", "meta_keys": keys}]
        dataset = coco_set(folder, "YOLOv5CocoDataset", pipeline)
        return short_training(config, folder, dataset, collate_fn={"type": "yolov5_collate"})
    pipeline = [
        {"type": "mmdet.LoadImageFromFile"},
        {"type": "mmdet.LoadAnnotations", "with_bbox": True, "box_type": "qbox"},
        {"type": "ConvertBoxType", "box_type_mapping": {"gt_bboxes": "rbox"}},
        {"type": "mmdet.PackDetInputs", "meta_keys": keys},
    ]
    dataset = {
        "type": "DOTADataset",
        "data_root": str(folder),
        "ann_file": "labels",
        "data_prefix": {"img_path": "images"},
        "img_shape": (SIZE, SIZE),
        "pipeline": pipeline,
    }
    return short_training(config, folder, dataset)


def part_of(model, path: str):
    """A part of a model's configuration."""
    for name in path.split("."):
        model = model[name]
    return model


def measure_mmyolo(name: str, folder: Path) -> list[dict[str, object]]:
    """One row: ours of the same kind in the place of the loss of the configuration."""
    draw(folder)
    own = configuration(name, None, folder)
    part = DETECTORS[name][2]
    loss = part_of(own.model, part).loss_bbox
    kind = loss.get("iou_mode", "giou")
    settings = {"box_format": {"xywh": "cxcywh"}.get(loss.get("bbox_format"), "xyxy")}
    if loss.get("return_iou"):
        settings["return_iou"] = True
    configs = [own]
    configs += [
        configuration(name, loss_of(kind, power, **settings), folder) for power in (1.0, 3.0)
    ]
    return [row_of(name, kind, loss.type, configs, PreciseComparison(kind, **settings))]


def measure_mmrotate(name: str, folder: Path) -> list[dict[str, object]]:
    """A row for each kind of which MMRotate has the formula, and one for the exact IoU."""
    draw_oriented(folder)
    rows = []
    for kind in GAUSSIAN:
        own = {"type": "mmrotate.GDLoss", "loss_type": kind, "fun": "log1p", "tau": 1.0}
        losses = [own, *(loss_of(kind, power, **ORIENTED) for power in (1.0, 3.0))]
        configs = [configuration(name, loss, folder) for loss in losses]
        compare = PreciseComparison(kind, own, **ORIENTED)
        rows.append(row_of(name, kind, f"GDLoss {kind}", configs, compare))
    operator = OperatorComparison()
    place = f"{DETECTORS[name][2]}.loss_bbox"
    exact = configuration(name, loss_of("iou", 1.0, **ORIENTED), folder)
    _, _, calls = train(exact, place, compare=operator)
    rows.append(about(name, "iou", "box_iou_rotated") | {"calls": calls, **operator.result()})
    trained = {}
    for kind in OTHER_KINDS:
        losses, _, calls = train(configuration(name, loss_of(kind, 3.0, **ORIENTED), folder))
        assert all(map(math.isfinite, losses)), (name, kind, losses)
        trained[kind] = calls
    rows[-1]["calls_alpha_3"] = trained
    return rows


def about(name: str, kind: str, own: str) -> dict[str, object]:
    """The head of a row."""
    package, path, _ = DETECTORS[name]
    row = {"package": package, "detector": name, "configuration": path, "kind": kind}
    return row | {"own": own, "iterations": ITERATIONS}


def row_of(
    name: str, kind: str, own: str, configs: list, compare: PreciseComparison
) -> dict[str, object]:
    """The differences, and the time of an iteration."""
    from statistics import median

    place = f"{DETECTORS[name][2]}.loss_bbox"
    row, before, after = compared(configs, place, compare, in_ours=bool(compare.own))
    row |= compare.result() | {"ratio_alpha_3": median(after) / median(before)}
    return about(name, kind, own) | row


class PreciseComparison(Comparison):
    """The same in float32 and in float64, of the pairs that have a weight.

    MMRotate's Gaussian losses take the determinant of a matrix, which rounding may make negative
    where a side is short. Such calls are counted, and pairs with a side below one pixel are left
    out of its comparison. A training with such a call is lost, so theirs, as ``own``, is compared
    in the training with ours.
    """

    def __init__(self, kind: str, own: dict[str, object] | None = None, **settings: object) -> None:
        super().__init__(kind, **settings)
        self.own = own
        self.pairs = self.short = self.own_not_finite = 0
        self.precise_loss = self.precise_gradient = 0.0

    def __call__(self, module, arguments, options, _value) -> None:
        """Compare one call."""
        import torch
        from mmengine.registry import MODELS

        from alphaiou.integrations.mmengine import AlphaIoULoss

        scale = {"reduction": module.reduction, "loss_weight": module.loss_weight}
        ours = AlphaIoULoss(self.kind, 1.0, **scale, **self.settings)
        own = MODELS.build({**self.own, **scale}) if self.own else module
        pred, target, weight = boxes_and_weight(arguments, options)
        if not len(pred):
            return
        self.calls += 1
        (own_loss, own_gradient), (loss, gradient) = (
            value_and_gradient(module, pred, target, weight) for module in (own, ours)
        )
        assert loss.isfinite()
        assert gradient.isfinite().all()
        self.own_not_finite += not (own_loss.isfinite() and own_gradient.isfinite().all())
        sides = pred[:, 2:4]
        if self.settings["box_format"] == "xyxy":
            sides = sides - pred[:, :2]
        usable = sides.amin(-1) >= (SHORT if self.own else -math.inf)
        self.pairs, self.short = self.pairs + len(pred), self.short + int((~usable).sum())
        if not usable.any():
            return
        boxes = [values[usable] for values in (pred, target, weight)]
        loss, gradient = differences(own, ours, *boxes)
        self.loss, self.gradient = max(self.loss, loss), max(self.gradient, gradient)
        loss, gradient = differences(own, ours, *(values.double() for values in boxes))
        self.precise_loss = max(self.precise_loss, loss)
        self.precise_gradient = max(self.precise_gradient, gradient)
        assert torch.isfinite(torch.tensor([self.loss, self.gradient])).all()

    def result(self) -> dict[str, object]:
        """What the row says beside what each comparison has."""
        return {
            "pairs": self.pairs,
            "pairs_short": self.short,
            "own_not_finite": self.own_not_finite,
            "call_loss_float64": self.precise_loss,
            "call_gradient_float64": self.precise_gradient,
        }


def boxes_and_weight(arguments, options):
    """Those pairs of a call of a loss that have a weight."""
    import torch

    pred, target = (boxes.detach() for boxes in arguments[:2])
    weight = arguments[2] if len(arguments) > 2 else options.get("weight")
    weight = torch.ones(len(pred)) if weight is None else weight.detach()
    weight = weight.mean(-1) if weight.ndim > 1 else weight
    return [values[weight > 0] for values in (pred, target, weight)]


def value_and_gradient(module, pred, target, weight):
    """Of a loss as its heads call it, summed."""
    import torch

    pred = pred.clone().requires_grad_()
    with torch.enable_grad():
        loss = module.forward(pred, target, weight=weight, reduction_override="none")
    loss = (loss[0] if isinstance(loss, tuple) else loss).sum()
    return loss.detach(), torch.autograd.grad(loss, pred)[0]


def differences(own, ours, *boxes) -> tuple[float, float]:
    """Of the loss and of the gradient by its norm, relative."""
    (loss, gradient), (our_loss, our_gradient) = (
        value_and_gradient(module, *boxes) for module in (own, ours)
    )
    change = (gradient - our_gradient).norm() / gradient.norm()
    return (abs(loss - our_loss) / loss).item(), change.item()


class OperatorComparison:
    """A forward hook of our IoU loss: one minus mmcv's IoU of the same boxes."""

    def __init__(self) -> None:
        self.calls, self.loss, self.pair = 0, 0.0, 0.0

    def __call__(self, ours, arguments, options, _value) -> None:
        """Compare the pairs of one call that have a weight."""
        from mmcv.ops import box_iou_rotated

        pred, target, weight = boxes_and_weight(arguments, options)
        if not len(pred):
            return
        losses = ours.forward(pred, target, reduction_override="none") / ours.loss_weight
        theirs = 1 - box_iou_rotated(pred, target, aligned=True)
        self.calls += 1
        self.pair = max(self.pair, (losses - theirs).abs().max().item())
        sums = [(weight * values).sum().item() for values in (theirs, losses)]
        self.loss = max(self.loss, abs(sums[0] - sums[1]) / sums[0])

    def result(self) -> dict[str, object]:
        """What the row says."""
        return {"calls_compared": self.calls, "call_loss": self.loss, "pair": self.pair}


def formulas() -> list[dict[str, object]]:
    """The largest difference of a pair from their formulas, in float64."""
    import torch
    from mmrotate.models.losses import GDLoss, KFLoss
    from mmyolo.models.losses import IoULoss

    from alphaiou import alpha_iou_loss

    rows: list[dict[str, object]] = []

    def add(package: str, kind: str, own: str, ours, theirs) -> None:
        difference = (ours - theirs).abs().max().item()
        row = {"package": package, "kind": kind, "own": own, "pairs": len(ours)}
        rows.append(row | {"difference": difference})

    generator = torch.Generator().manual_seed(SEED)
    scale, least = torch.tensor([20, 20, 60, 60, math.pi]), torch.tensor([0, 0, 4, 4, 0])
    numbers = torch.rand(2, FORMULA_PAIRS, 5, generator=generator, dtype=torch.float64)
    pred, target = numbers * scale + least
    upright = [torch.cat((box[:, :2], box[:, :2] + box[:, 2:4]), dim=1) for box in (pred, target)]
    for kind in ("ciou", "giou", "siou"):
        own = IoULoss(iou_mode=kind, bbox_format="xyxy", reduction="none", return_iou=False)
        ours = alpha_iou_loss(*upright, kind=kind, alpha=1.0)
        add("mmyolo", kind, f"IoULoss {kind}", ours, own(*upright))
    for kind in GAUSSIAN:
        own = GDLoss(kind, fun="log1p", tau=1.0, reduction="none")
        ours = alpha_iou_loss(pred, target, kind=kind, alpha=1.0, **ORIENTED)
        add("mmrotate", kind, f"GDLoss {kind}", ours, own(pred, target))
    # Its term of the centres is a smooth ℓ1 of deltas; without it one third is the largest value.
    concentric = torch.cat((target[:, :2], pred[:, 2:]), dim=1)
    deltas = torch.zeros_like(pred)
    boxes = {"pred_decode": concentric, "targets_decode": target}
    overlap = 3 * (1 - KFLoss(reduction="none")(deltas, deltas, **boxes))
    ours = alpha_iou_loss(concentric, target, kind="kfiou", alpha=1.0, **ORIENTED)
    add("mmrotate", "kfiou", "KFLoss, its overlap × 3", ours, 1 - overlap)
    return rows


def mmrotate_alone() -> dict[str, object]:
    """Whether its models can be imported on this Python without the line in ``measure_all``."""
    command = [sys.executable, "-c", "import mmrotate.models"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.returncode:
        return {"imports": True}
    reason = done.stderr.strip().splitlines()[-1].partition(" (")[0]
    return {"imports": False, "reason": reason}


def on_the_cpu() -> dict[str, object]:
    """Whether MMRotate's loss of the exact IoU runs on the CPU, or what it raises."""
    import torch
    from mmrotate.models.losses import RotatedIoULoss

    boxes = torch.tensor([[5.0, 5.0, 4.0, 2.0, 0.3]])
    try:
        RotatedIoULoss(mode="linear")(boxes, boxes)
    except RuntimeError as error:
        return {"runs": False, "reason": str(error).splitlines()[0]}
    return {"runs": True}


def measure_all(names: list[str]) -> None:
    """All of these, in the process of the environment; the record is written after each."""
    import torch

    torch.set_num_threads(1)
    collections.Sequence = collections.abc.Sequence
    for package in ("mmdet", "mmyolo", "mmrotate"):
        import_module(f"{package}.utils").register_all_modules(init_default_scope=False)
    head = {"record": "mmyolo_mmrotate", **conditions("mmdet", "mmyolo", "mmrotate")}
    head |= {"mmrotate_alone": mmrotate_alone(), "rotated_iou_loss_on_cpu": on_the_cpu()}
    head["formulas"] = formulas()
    for name in names:
        measure = measure_mmyolo if DETECTORS[name][0] == "mmyolo" else measure_mmrotate
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(name, Path(folder))
        print(*rows, sep="\n", flush=True)
        kept = json.loads(RECORD.read_text(encoding="utf-8"))["rows"] if RECORD.exists() else []
        rows += [row for row in kept if row["detector"] != name]
        rows.sort(key=lambda row: list(DETECTORS).index(row["detector"]))
        write(head | {"rows": rows}, RECORD)


def compiler(folder: Path) -> str:
    """A C++ compiler for mmcv 2.0.1: it asks for C++14, the headers of torch 2.1 need C++17."""
    script = folder / "c++17"
    script.write_text(
        "#!/bin/sh\n"
        "for word do\n"
        "  shift\n"
        '  [ "$word" = -std=c++14 ] && word=-std=c++17\n'
        '  set -- "$@" "$word"\n'
        "done\n"
        'exec c++ "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return str(script)


def main() -> None:
    """Build the environment if it is missing, and measure in it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", nargs="+", choices=DETECTORS, default=list(DETECTORS))
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure_all(options.only)
        return
    folder = options.folder.resolve()
    python = environment(folder, "mm-rotate", MMCV, REST, CXX=compiler(folder))
    command = [str(python), __file__, "--measure", "--only", *options.only]
    subprocess.run(command, cwd=TREE, check=True)


if __name__ == "__main__":
    main()
