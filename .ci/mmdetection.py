"""Train detectors of MMDetection with their own box loss and with ours, and write the record.

    python .ci/mmdetection.py [FOLDER] [--only FCOS DETR] [--tests TEST_LOSS.PY]

FOLDER gets the environment, for which mmcv is compiled with its operators: about 20 minutes on two
cores, once. Every detector comes from MMDetection's own configuration, with random weights and a
small drawn COCO set, and trains under MMEngine's runner. Each row: the largest relative difference
of ours at α = 1 from MMDetection's GIoU and DIoU, per call on the same boxes (loss and gradient)
and of the whole loss in two trainings with the same seed; that of two trainings with MMDetection's
loss whose first weights differ by rounding; the calls of our loss; and the time of an iteration.

--tests is ``tests/test_models/test_losses/test_loss.py`` of MMDetection's repository, which its
packages do not contain: it runs with our class in the place of theirs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

TREE = Path(__file__).parents[1]
RECORD = TREE / "benchmarks" / "mmdetection-cpu.json"
BASE = ("torch==2.1.2", "torchvision==0.16.2", "numpy<2", "setuptools<70", "wheel", "ninja")
BASE += ("pip", "psutil", "mmengine==0.10.7")
MMCV = "mmcv==2.1.0"
REST = ("mmdet==3.3.0", "numpy<2", "setuptools<70", "pytest", "hypothesis")
NEIGHBOURS = ("mmyolo==0.6.0", "mmrotate==1.0.0rc1")
#: Its configuration, and where in the model the loss of decoded boxes is.
DETECTORS = {
    "FCOS": ("fcos/fcos_r50-caffe_fpn_gn-head_1x_coco", "bbox_head.loss_bbox"),
    "RetinaNet": ("retinanet/retinanet_r50_fpn_1x_coco", "bbox_head.loss_bbox"),
    "ATSS": ("atss/atss_r50_fpn_1x_coco", "bbox_head.loss_bbox"),
    "Faster R-CNN": (
        "faster_rcnn/faster-rcnn_r50_fpn_giou_1x_coco",
        "roi_head.bbox_head.loss_bbox",
    ),
    "DETR": ("detr/detr_r50_8xb2-150e_coco", "bbox_head.loss_iou"),
    "YOLOX": ("yolox/yolox_tiny_8xb8-300e_coco", "bbox_head.loss_bbox"),
}
#: Those of which MMDetection has a loss of the same name.
KINDS = ("iou", "giou", "diou", "ciou", "eiou", "siou")
ITERATIONS, SIZE, SEED = 5, 128, 0
#: Relative changes of the weights, about the rounding of float32.
ROUNDING = 1e-7


def draw(folder: Path, images: int = 10) -> None:
    """A COCO set: one to three rectangles and ellipses per image, on noise."""
    import numpy as np
    from PIL import Image, ImageDraw

    random = np.random.default_rng(SEED)
    names = ("person", "car")
    coco = {"images": [], "annotations": [], "categories": []}
    coco["categories"] = [{"id": i + 1, "name": name} for i, name in enumerate(names)]
    for image_id in range(images):
        noise = random.integers(0, 100, (SIZE, SIZE, 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        for _ in range(random.integers(1, 4)):
            side = random.integers(SIZE // 5, SIZE // 2, 2)
            corner = random.integers(0, SIZE - side)
            category = int(random.integers(2))
            shape = getattr(ImageDraw.Draw(image), ("rectangle", "ellipse")[category])
            colour = tuple(random.integers(120, 256, 3).tolist())
            shape((*corner.tolist(), *(corner + side).tolist()), fill=colour)
            box = [*corner.tolist(), *side.tolist()]
            annotation = {"id": len(coco["annotations"]) + 1, "image_id": image_id, "bbox": box}
            annotation |= {"category_id": category + 1, "area": int(side.prod()), "iscrowd": 0}
            coco["annotations"].append(annotation)
        name = f"{image_id}.png"
        image.save(folder / name)
        coco["images"].append({"id": image_id, "file_name": name, "width": SIZE, "height": SIZE})
    (folder / "train.json").write_text(json.dumps(coco), encoding="utf-8")


def configuration(name: str, loss: dict[str, object], folder: Path):
    """MMDetection's own, with the loss, without downloads, on the drawn set."""
    import mmdet
    from mmengine.config import Config

    path, place = DETECTORS[name]
    file = folder / "configuration.py"
    file.write_text(
        f'_base_ = ["{Path(mmdet.__file__).parent}/.mim/configs/{path}.py"]\n'
        'custom_imports = dict(imports=["alphaiou.integrations.mmengine"])\n',
        encoding="utf-8",
    )
    config = Config.fromfile(file)
    model = config.model
    *parents, slot = place.split(".")
    head = model
    for parent in parents:
        head = head[parent]
    kept = {key: head[slot][key] for key in ("reduction", "loss_weight") if key in head[slot]}
    head[slot] = {**kept, **loss}
    if name in ("RetinaNet", "Faster R-CNN"):
        head.reg_decoded_bbox = True
    random_weights(model.backbone)
    model.data_preprocessor.pop("batch_augments", None)
    pipeline = [{"type": "LoadImageFromFile"}, {"type": "LoadAnnotations", "with_bbox": True}]
    pipeline += [{"type": "PackDetInputs"}]
    return short_training(config, folder, coco_set(folder, "CocoDataset", pipeline))


def random_weights(backbone) -> None:
    """Download no weights. Random ones explode where batch norm is frozen."""
    if backbone.get("init_cfg", {}).get("type") == "Pretrained":
        backbone.init_cfg = None
    if "frozen_stages" in backbone and "norm_eval" in backbone:
        backbone.update(frozen_stages=-1, norm_eval=False)
        backbone.norm_cfg.requires_grad = True


def coco_set(folder: Path, kind: str, pipeline: list[dict[str, object]]) -> dict[str, object]:
    """The drawn set, as a configuration says it."""
    return {
        "type": kind,
        "data_root": str(folder),
        "ann_file": "train.json",
        "data_prefix": {"img": ""},
        "metainfo": {"classes": ("person", "car")},
        "pipeline": pipeline,
    }


def short_training(config, folder: Path, dataset: dict[str, object], **dataloader):
    """The configuration for some iterations on a data set, without scores, files and output."""
    config.train_dataloader = {
        "batch_size": 2,
        "num_workers": 0,
        "sampler": {"type": "DefaultSampler", "shuffle": True},
        "dataset": dataset,
        **dataloader,
    }
    config.train_cfg = {"type": "IterBasedTrainLoop", "max_iters": ITERATIONS}
    sgd = {"type": "SGD", "lr": 1e-3}
    config.optim_wrapper = {"type": "OptimWrapper", "optimizer": sgd, "clip_grad": {"max_norm": 35}}
    for key in ("val_cfg", "val_dataloader", "val_evaluator", "param_scheduler"):
        config.pop(key, None)
    for key in ("test_cfg", "test_dataloader", "test_evaluator"):
        config.pop(key, None)
    config.custom_hooks = []
    config.visualizer = {"type": "Visualizer", "vis_backends": []}
    config.default_hooks = {"checkpoint": None}
    config.work_dir, config.log_level = str(folder / "work"), "ERROR"
    config.randomness = {"seed": SEED}
    return config


def train(config, place: str = "", rounding: float = 0.0, compare=None):
    """The losses and the time of every iteration, and how often our loss was called.

    ``rounding`` changes the first weights; ``compare`` is a forward hook of the box loss, which
    is at ``place`` of the model.
    """
    import torch
    from mmengine.hooks import Hook
    from mmengine.runner import Runner

    from alphaiou.integrations.mmengine import AlphaIoULoss

    losses, times, calls = [], [], []

    class Look(Hook):
        def before_train(self, runner) -> None:
            if rounding:
                generator = torch.Generator().manual_seed(SEED)
                with torch.no_grad():
                    for weight in runner.model.parameters():
                        noise = torch.randn(weight.shape, generator=generator)
                        weight.mul_(1 + rounding * noise)
            if compare is not None:
                box_loss = runner.model.get_submodule(place)
                box_loss.register_forward_hook(compare, with_kwargs=True)
            for module in runner.model.modules():
                if isinstance(module, AlphaIoULoss):
                    module.register_forward_hook(lambda *_: calls.append(1))

        def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
            # Samplers of regions draw; the same numbers for every loss.
            torch.manual_seed(batch_idx)
            self.start = time.process_time()

        def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
            times.append(time.process_time() - self.start)
            losses.append(float(outputs["loss"]))

    runner = Runner.from_cfg(config)
    runner.register_hook(Look())
    runner.train()
    return losses, times, len(calls)


def difference(own: list[float], ours: list[float]) -> float | None:
    """The largest relative one; None where the framework's loss is not finite."""
    if not all(map(math.isfinite, own)):
        return None
    return max(abs(a - b) / abs(a) for a, b in zip(own, ours, strict=True))


class Comparison:
    """A forward hook of a framework's loss: ours on the same boxes, its value and its gradient."""

    def __init__(self, kind: str, **settings: object) -> None:
        self.kind, self.settings = kind, settings
        self.calls, self.loss, self.gradient = 0, 0.0, 0.0

    def __call__(self, own, arguments, options, _value) -> None:
        """Compare one call."""
        import torch

        from alphaiou.integrations.mmengine import AlphaIoULoss

        settings = {"reduction": own.reduction, "loss_weight": own.loss_weight, **self.settings}
        ours = AlphaIoULoss(self.kind, 1.0, **settings)
        pred = arguments[0].detach().requires_grad_()
        with torch.enable_grad():
            values = [module.forward(pred, *arguments[1:], **options) for module in (own, ours)]
        # A tuple holds the IoU of each pair as well.
        losses = [value[0] if isinstance(value, tuple) else value for value in values]
        gradients = [torch.autograd.grad(loss, pred)[0] for loss in losses]
        if losses[0] == 0:
            assert losses[1] == 0
            return
        self.calls += 1
        self.loss = max(self.loss, abs(losses[0] - losses[1]).item() / losses[0].item())
        change = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
        self.gradient = max(self.gradient, change.item())


def measure(name: str) -> dict[str, object]:
    """One row."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        draw(folder)
        rows, before, after = {}, [], []
        for kind, own_type in (("giou", "GIoULoss"), ("diou", "DIoULoss")):
            compare = Comparison(kind)
            losses = [{"type": own_type}, loss_of(kind, 1.0), loss_of(kind, 3.0)]
            configs = [configuration(name, loss, folder) for loss in losses]
            rows[kind], times, more = compared(configs, DETECTORS[name][1], compare)
            before, after = before + times, after + more
    return {
        "detector": name,
        "configuration": DETECTORS[name][0],
        "iterations": ITERATIONS,
        **rows,
        "ratio_alpha_3": statistics.median(after) / statistics.median(before),
    }


def compared(configs: list, place: str, compare: Comparison, *, in_ours: bool = False):
    """Trainings with the framework's loss, ours at α = 1 and at α = 3: what differs, and times.

    Calls are compared in a training with the framework's loss, or in that with ours.
    """
    own, before, _ = train(configs[0])
    ours, _, calls = train(configs[1], place, compare=compare if in_ours else None)
    powered, after, _ = train(configs[2])
    changed, _, _ = train(configs[0], place, ROUNDING, None if in_ours else compare)
    row = {
        "calls_compared": compare.calls,
        "call_loss": compare.loss,
        "call_gradient": compare.gradient,
        "training": difference(own, ours),
        "training_rounding": difference(own, changed),
        "first_iteration": difference(own[:1], ours[:1]),
        "power_changes_it": own != powered,
        "calls": calls,
    }
    return row, before[1:], after[1:]


def loss_of(kind: str, alpha: float, **settings: object) -> dict[str, object]:
    """What the configuration says."""
    return {"type": "AlphaIoULoss", "kind": kind, "alpha": alpha, **settings}


def warned_about_deltas() -> bool:
    """Whether RetinaNet without ``reg_decoded_bbox``, which gives deltas, is warned about."""
    import torch
    from mmengine.runner import Runner

    with tempfile.TemporaryDirectory() as text, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draw(Path(text))
        config = configuration("RetinaNet", loss_of("giou", 3.0), Path(text))
        config.model.bbox_head.reg_decoded_bbox = False
        torch.manual_seed(SEED)
        Runner.from_cfg(config).train()
    return any("reg_decoded_bbox=True" in str(warning.message) for warning in caught)


def own_tests(path: Path) -> dict[str, object]:
    """MMDetection's tests of its box losses, with our class at α = 1 under the names of theirs."""
    import pytest

    from alphaiou.integrations.mmengine import AlphaIoULoss

    # The package has a function of the same name.
    module = import_module("mmdet.models.losses.iou_loss")
    built = []

    for kind in KINDS:
        name = f"{kind[:-3].upper()}IoULoss"

        def start(self, kind=kind, **options) -> None:
            AlphaIoULoss.__init__(self, kind, 1.0, **options)
            built.append(kind)

        setattr(module, name, type(name, (AlphaIoULoss,), {"__init__": start}))
    counts: dict[str, int] = {}

    class Count:
        def pytest_runtest_logreport(self, report) -> None:
            if report.when == "call":
                counts[report.outcome] = counts.get(report.outcome, 0) + 1

    options = ["-q", "-p", "no:cacheprovider", "-k", "IoULoss and not BoundedIoULoss", str(path)]
    pytest.main(options, plugins=[Count()])
    assert set(built) == set(KINDS), f"the tests built only {set(built)} of ours"
    return {"file": "tests/test_models/test_losses/test_loss.py", "kinds": KINDS, **counts}


def neighbour(package: str) -> dict[str, object]:
    """Whether it can be imported beside these versions, or why not."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--target", folder, package], check=True)
        name, _, number = package.partition("==")
        environment = os.environ | {"PYTHONPATH": folder}
        done = subprocess.run(
            [sys.executable, "-c", f"import {name}"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    reason = done.stderr.strip().splitlines()[-1:] if done.returncode else []
    return {"package": name, "version": number, "imports": not reason, "reason": "".join(reason)}


def measure_all(names: list[str], tests: Path | None) -> None:
    """All of these, in the process of the environment; the record is written after each row."""
    import torch

    torch.set_num_threads(1)
    record = {"record": "mmdetection", **conditions("mmdet")}
    if tests:
        record["own_tests"] = own_tests(tests)
    if names == list(DETECTORS):
        record["warned_about_deltas"] = warned_about_deltas()
        record["neighbours"] = [neighbour(package) for package in NEIGHBOURS]
    measured = {}
    for name in names:
        measured[name] = measure(name)
        print(measured[name], flush=True)
        kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"rows": []}
        rows = {row["detector"]: row for row in kept.pop("rows")} | measured
        record = kept | record | {"rows": [rows[name] for name in DETECTORS if name in rows]}
        write(record, RECORD)


def conditions(*packages: str) -> dict[str, object]:
    """The head of a record."""
    names = ("torch", "mmengine", "mmcv", *packages, "numpy")
    return {
        "device": f"{platform.machine()} CPU, 1 thread",
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),  # noqa: UP017
        "python": platform.python_version(),
        "versions": {name: version(name).split("+")[0] for name in names},
    }


def write(record: dict[str, object], path: Path) -> None:
    """Write the record with one line per row."""
    text = re.sub(r"\n {3,}| *\n {2}(?=[]}])", " ", json.dumps(record, indent=1))
    path.write_text(text + "\n", encoding="utf-8")


def environment(
    folder: Path, name: str = "mm", mmcv: str = MMCV, rest: tuple[str, ...] = REST, **variables: str
) -> Path:
    """Its Python; the steps in the order in which mmcv finds what it is compiled against.

    ``variables`` are those of the environment in which mmcv is compiled.
    """
    python = folder / name / "bin" / "python"
    if not python.exists():
        subprocess.run(
            ["uv", "venv", "--quiet", "--python", "3.11", str(folder / name)], check=True
        )
    # From outside the tree, where uv does not read the pins of pyproject.toml.
    pip = ["uv", "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run([*pip, *BASE], cwd=folder, check=True)
    if subprocess.run([str(python), "-c", "import mmcv.ops"], check=False).returncode:
        compiled = [str(python), "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # ninja
        subprocess.run(
            [*compiled, "--no-binary", "mmcv", mmcv],
            cwd=folder,
            env=os.environ | {"MMCV_WITH_OPS": "1", "MAX_JOBS": "2", "PATH": path} | variables,
            check=True,
        )
    subprocess.run([*pip, *rest], cwd=folder, check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(TREE)], cwd=folder, check=True)
    return python


def main() -> None:
    """Build the environment if it is missing, and measure in it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", nargs="+", choices=DETECTORS, default=list(DETECTORS))
    parser.add_argument("--tests", type=Path, help="test_loss.py of MMDetection's repository")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure_all(options.only, options.tests)
        return
    command = [str(environment(options.folder.resolve())), __file__, "--measure"]
    command += ["--only", *options.only]
    if options.tests:
        command += ["--tests", str(options.tests.resolve())]
    subprocess.run(command, cwd=TREE, check=True)


if __name__ == "__main__":
    main()
