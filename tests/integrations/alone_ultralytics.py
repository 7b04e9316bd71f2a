"""Models of the real package, trained from random weights on drawn images.

Ultralytics is called here as its documentation says; nothing of it is looked into.
"""

import inspect
import json
import os
import runpy
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from alphaiou import AlphaIoULoss, alpha_iou_loss, convert_boxes, load_dataset
from alphaiou.data.formats.yolo import write_yolo

# Read when the package is imported: settings of its own, and nothing from the network.
os.environ |= {
    "YOLO_CONFIG_DIR": tempfile.mkdtemp(prefix="ultralytics-"),
    "YOLO_OFFLINE": "true",
    "YOLO_AUTOINSTALL": "false",
}
pytest.importorskip(
    "ultralytics", reason="Ultralytics is not installed: pip install 'ultralytics>=8.3'"
)
from ultralytics import RTDETR, YOLO
from ultralytics.cfg import get_cfg
from ultralytics.engine import trainer as trainers
from ultralytics.models.utils import loss as rtdetr_loss
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.utils import loss as yolo_loss
from ultralytics.utils import tal
from ultralytics.utils.metrics import Metric, ap_per_class, bbox_iou

from alphaiou.integrations._patching import UnsupportedVersionError
from alphaiou.integrations.ultralytics import (
    NAMES,
    main,
    restore_box_loss,
    use_box_loss,
    use_quality_loss,
)
from alphaiou.losses import QUALITY_LOSSES, QualityLoss
from tests.integrations.two_processes_ultralytics import half_batch_step

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "ultralytics_voc320.py"
OWN = [vars(module)[name] for module, name in NAMES]


@pytest.fixture(autouse=True)
def own_loss_at_the_end():
    yield
    restore_box_loss()
    assert [vars(module)[name] for module, name in NAMES] == OWN


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """What every training is told: drawn images, and no more than a few steps."""
    folder = tmp_path_factory.mktemp("shapes")
    index = load_dataset("shapes", "train").index.take(range(16))
    write_yolo(index, folder / "data", images="copy")
    config = {"path": str(folder / "data"), "names": dict(enumerate(index.classes))}
    config |= {"train": "images/train", "val": "images/train"}
    (folder / "data.yaml").write_text(yaml.safe_dump(config))
    return {
        "data": str(folder / "data.yaml"),
        "project": str(folder),
        "device": "cpu",
        "imgsz": 64,
        "batch": 8,
        "nbs": 8,  # so that every batch is a step
        "epochs": 2,
        "warmup_epochs": 0,
        "optimizer": "SGD",
        "lr0": 1e-3,
        "workers": 0,
        "amp": False,
        "val": False,
        "plots": False,
        "verbose": False,
    }


def train(options, box_loss=None, weight=1.0):
    """The three losses of each step of a training."""
    model, steps = YOLO("yolov8n.yaml", verbose=False), []
    model.add_callback("on_train_batch_end", lambda t: steps.append(_numbers(t.loss_items)))
    with nullcontext() if box_loss is None else use_box_loss(box_loss, weight=weight):
        model.train(**options)
    return torch.tensor(steps, dtype=torch.float64)


def _numbers(items):
    """The losses in the order box, class, distribution, whichever way a version keeps them."""
    return [float(value) for value in (items.values() if isinstance(items, dict) else items)]


@pytest.fixture(scope="module")
def own_steps(options):
    return train(options)


def test_a_training_with_ciou_is_the_one_it_was(options, own_steps):
    steps = train(options, "ciou")
    assert steps.shape == (4, 3)
    torch.testing.assert_close(steps, own_steps, rtol=2e-5, atol=0)


def test_another_loss_changes_the_loss_of_the_boxes_then_the_training(options, own_steps):
    steps = train(options, "ciou:3")
    assert steps[0, 0] > 1.05 * own_steps[0, 0]
    assert torch.equal(steps[0, 1:], own_steps[0, 1:])
    assert (steps[-1] != own_steps[-1]).all()
    weights = next(Path(options["project"]).glob("**/last.pt")).read_bytes()
    # Not the name alone: a checkpoint also has the last commit of the folder it was made in.
    assert b"alphaiou.integrations" not in weights


def test_processes_that_ultralytics_launches_have_the_loss(options):
    """What it writes for them on several devices, run as one process."""
    pytest.importorskip("cloudpickle", reason="newer versions launch with cloudpickle")
    overrides = options | {"model": "yolov8n.yaml", "name": "launched"}
    trainer = DetectionTrainer(overrides=overrides)
    with use_box_loss(AlphaIoULoss("ciou", 3.0), weight=2.0):
        _, script = trainers.generate_ddp_command(trainer)
    subprocess.run([sys.executable, script], check=True, capture_output=True)
    row = _row((trainer.save_dir / "results.csv").read_text())
    steps = train(options, "ciou:3", weight=2.0)
    assert row["train/box_loss"] == pytest.approx(steps[:2, 0].mean().item(), rel=1e-4)


def _row(table):
    """The first epoch in a table that Ultralytics wrote."""
    header, first, *_ = table.splitlines()
    return dict(zip(header.split(","), map(float, first.split(",")), strict=True))


def test_a_loss_that_cannot_be_sent_is_refused_before_the_launch(options):
    trainer = DetectionTrainer(overrides=options | {"model": "yolov8n.yaml"})
    with (
        use_box_loss(lambda pred, target: (pred - target).abs().sum(-1)),
        pytest.raises(ValueError, match=r"cannot go to the processes.*function of a module"),
    ):
        trainers.generate_ddp_command(trainer)


BATCH = {
    "img": torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)),
    "cls": torch.tensor([[0.0], [1.0], [2.0]]),
    "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.3, 0.3, 0.2, 0.4], [0.6, 0.5, 0.5, 0.3]]),
    "batch_idx": torch.tensor([0.0, 0.0, 1.0]),
}


def losses_of(model, batch=BATCH):
    """The losses of one batch, in the order of the model, boxes first."""
    torch.manual_seed(0)
    return torch.tensor(_numbers(model(dict(batch))[1]), dtype=torch.float64)


def build(name, kind=YOLO):
    torch.manual_seed(0)
    model = kind(name).model.train()
    model.args, model.nc = get_cfg(), 80
    return model


FAMILY = ["yolov5nu", "yolov8n", "yolov9t", "yolov10n", "yolo11n", "yolo12n", "yolo26n"]


@pytest.mark.parametrize("name", FAMILY)
def test_every_yolo_takes_the_loss_for_its_boxes_alone(name):
    model = build(f"{name}.yaml")
    own = losses_of(model)
    with use_box_loss("ciou"):
        torch.testing.assert_close(losses_of(model), own, rtol=1e-5, atol=0)
    with use_box_loss("ciou:3"):
        changed = losses_of(model)
    assert changed[0] > own[0]
    assert torch.equal(changed[1:], own[1:])
    assert torch.equal(losses_of(model), own)


def test_rtdetr_takes_it_in_the_place_of_giou_and_keeps_its_matching():
    model = build("rtdetr-resnet50.yaml", RTDETR)
    own = losses_of(model)
    with use_box_loss("giou"):
        torch.testing.assert_close(losses_of(model), own, rtol=1e-5, atol=0)
    with use_box_loss("giou:3", weight=3.0):
        changed = losses_of(model)
    assert changed[0] != own[0]
    assert torch.equal(changed[1:], own[1:])  # classes, taught the IoU; ℓ1 of the same pairs


def boxes(count=500):
    """Pairs in cells of a grid, near one another."""
    generator = torch.Generator().manual_seed(0)
    centre, size = (10 * torch.rand(count, 2, generator=generator) + 0.1 for _ in range(2))
    target = torch.cat([centre - size / 2, centre + size / 2], dim=1)
    return target + 0.5 * torch.randn(count, 4, generator=generator).clamp(-0.05, 0.05), target


@pytest.mark.parametrize(("kind", "flag"), [("ciou", "CIoU"), ("giou", "GIoU"), ("diou", "DIoU")])
def test_values_and_gradients_are_those_of_ultralytics(kind, flag):
    pred, target = boxes()
    pred.requires_grad_()
    own = 1 - bbox_iou(pred, target, xywh=False, **{flag: True})
    with use_box_loss(kind):
        ours = 1 - yolo_loss.bbox_iou(pred, target, xywh=False, **{flag: True})
    assert ours.shape == own.shape == (500, 1)
    torch.testing.assert_close(ours, own, rtol=0, atol=2e-6)
    gradients = [torch.autograd.grad(loss.sum(), pred)[0] for loss in (ours, own)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_boxes_by_their_centre_and_the_plain_iou():
    pred, target = boxes()
    centred = [convert_boxes(corners, "xyxy", "cxcywh") for corners in (pred, target)]
    with use_box_loss("diou:3", weight=2.0):
        found = 1 - rtdetr_loss.bbox_iou(*centred, xywh=True, GIoU=True)
        plain = rtdetr_loss.bbox_iou(*centred, xywh=True)
        assert tal.bbox_iou is bbox_iou  # the assigner's
    expected = 2 * alpha_iou_loss(pred, target, kind="diou", alpha=3.0)
    torch.testing.assert_close(found[:, 0], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(plain, bbox_iou(*centred, xywh=True))


@pytest.mark.parametrize("name", ["yolov8n-obb", "yolo11n-obb", "yolo26n-obb"])
def test_a_loss_without_angles_is_refused_by_oriented_models(name):
    model = build(f"{name}.yaml")
    with use_box_loss("ciou:3"), pytest.raises(ValueError, match="no effect on oriented boxes"):
        model(dict(OBB_BATCH))
    assert model(dict(OBB_BATCH))[0].isfinite().all()


def test_rtdetr_learns_with_a_power():
    model = build("rtdetr-resnet50.yaml", RTDETR)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    totals = []
    with use_box_loss("giou:3") as handle:
        for _ in range(2):
            torch.manual_seed(0)
            total = model(dict(BATCH))[0].sum()
            optimizer.zero_grad()
            total.backward()
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            assert all(gradient.isfinite().all() for gradient in gradients)
            optimizer.step()
            totals.append(total.item())
    assert handle.called
    assert totals[-1] < totals[0]


def stop(trainer):
    """As a kill in the second epoch does."""
    if trainer.epoch == 1:
        raise KeyboardInterrupt


def test_the_run_records_its_loss_and_a_resume_without_it_warns(options, monkeypatch):
    model = YOLO("yolov8n.yaml", verbose=False)
    model.add_callback("on_train_epoch_start", stop)
    text = "AlphaIoULoss(kind='ciou', alpha=3.0, penalty_alpha=None)"
    with use_box_loss("ciou:3"), pytest.raises(KeyboardInterrupt):
        model.train(**options | {"name": "recorded"})
    folder = Path(model.trainer.save_dir)
    assert yaml.safe_load((folder / "args.yaml").read_text())["box_loss"] == text
    last = folder / "weights" / "last.pt"
    assert torch.load(last, map_location="cpu", weights_only=False)["box_loss"] == text
    monkeypatch.setattr(sys, "argv", ["", "detect", "train", f"model={last}", "resume=True"])
    monkeypatch.setattr("ultralytics.cfg.ARGV", sys.argv)
    with pytest.warns(
        UserWarning, match=r"last\.pt was trained with .*'ciou', alpha=3\.0.*goes on"
    ):
        main()
    restore_box_loss()


def test_the_command_line_takes_the_loss(options, tmp_path):
    words = options | {"epochs": 1, "name": "words", "project": str(tmp_path)}
    command = [sys.executable, "-m", "alphaiou.integrations.ultralytics", "detect", "train"]
    command += ["model=yolov8n.yaml", *(f"{key}={value}" for key, value in words.items())]
    done = subprocess.run(
        [*command, "box_loss=ciou:3"], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert "kind='ciou', alpha=3.0" in done.stdout
    row = _row(next(tmp_path.glob("**/results.csv")).read_text())
    steps = train(options | {"epochs": 1}, "ciou:3")
    assert row["train/box_loss"] == pytest.approx(steps[:, 0].mean().item(), rel=1e-3)


def test_two_processes_have_the_loss_and_one_gradient(tmp_path):
    """DistributedDataParallel over gloo: Ultralytics itself distributes on GPUs alone."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    script = Path(__file__).with_name("two_processes_ultralytics.py")
    subprocess.run([*command, str(script), str(tmp_path)], check=True, capture_output=True)
    losses, gradients, called = zip(
        *(torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)), strict=True
    )
    assert all(called)
    assert losses[0] != losses[1]
    assert torch.equal(*gradients)
    alone = []
    for rank in range(2):
        with use_box_loss("ciou:3"):
            alone.append(half_batch_step(build("yolov8n.yaml"), rank))
    assert [loss for loss, _ in alone] == pytest.approx(losses, rel=1e-5)
    mean = (alone[0][1] + alone[1][1]) / 2
    torch.testing.assert_close(gradients[0], mean, rtol=1e-3, atol=1e-3 * float(mean.abs().max()))


OBB_BATCH = BATCH | {
    "bboxes": torch.tensor(
        [[0.5, 0.5, 0.4, 0.2, 0.3], [0.3, 0.3, 0.2, 0.4, 1.2], [0.6, 0.5, 0.5, 0.3, 0.8]]
    )
}


def oriented_boxes(count=500):
    """Pairs near one another, as ``cxcywhr``."""
    generator = torch.Generator().manual_seed(0)
    center, sides = (20 * torch.rand(count, 2, generator=generator) + 1 for _ in range(2))
    target = torch.cat([center, sides, 3 * torch.rand(count, 1, generator=generator)], dim=1)
    noise = torch.randn(count, 5, generator=generator) * torch.tensor([0.5, 0.5, 0.2, 0.2, 0.2])
    return target + noise.clamp(-0.9, 0.9), target


@pytest.mark.parametrize("floor", [{}, {"floor": 0.1}])
def test_probiou_and_its_gradient_are_those_of_ultralytics(floor):
    if not set(floor) <= set(inspect.signature(yolo_loss.probiou).parameters):
        pytest.skip("this version has no floor")
    pred, target = oriented_boxes()
    pred.requires_grad_()
    own = 1 - yolo_loss.probiou(pred, target, **floor)
    with use_box_loss("probiou"):
        ours = 1 - yolo_loss.probiou(pred, target, **floor)
    assert ours.shape == own.shape == (500, 1)
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-5)
    gradients = [torch.autograd.grad(loss.sum(), pred)[0] for loss in (ours, own)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["yolov8n-obb", "yolo11n-obb", "yolo26n-obb"])
def test_every_oriented_yolo_takes_the_loss_for_its_boxes_alone(name):
    model = build(f"{name}.yaml")
    own = losses_of(model, OBB_BATCH)
    with use_box_loss("probiou"):
        torch.testing.assert_close(losses_of(model, OBB_BATCH), own, rtol=1e-4, atol=0)
    for loss in ("probiou:3", AlphaIoULoss("iou", 3.0, box_format="cxcywhr")):
        with use_box_loss(loss):
            changed = losses_of(model, OBB_BATCH)
        assert changed[0] != own[0]
        assert torch.equal(changed[1:], own[1:])
    assert torch.equal(losses_of(model, OBB_BATCH), own)


def test_a_loss_for_oriented_boxes_and_what_it_replaces():
    pred, target = oriented_boxes()
    with use_box_loss("giou:3", weight=2.0, box_format="cxcywhr") as handle:
        found = 1 - yolo_loss.probiou(pred, target)
        assert yolo_loss.bbox_iou is OWN[0]
    expected = 2 * alpha_iou_loss(pred, target, kind="giou", alpha=3.0, box_format="cxcywhr")
    torch.testing.assert_close(found[:, 0], expected)
    assert repr(handle).endswith(
        "in ultralytics.utils.loss.probiou, ultralytics.engine.trainer.generate_ddp_command, "
        "BaseTrainer.run_callbacks>"
    )
    with pytest.raises(ValueError, match="kind 'probiou' is for oriented boxes"):
        use_box_loss("probiou:3", box_format="xyxy")
    with pytest.raises(ValueError, match="kind 'siou' is for axis-aligned boxes"):
        use_box_loss("siou", box_format="cxcywhr")
    with pytest.raises(ValueError, match="box_format must be"):
        use_box_loss("iou", box_format="cxcywh")


def test_half_precision():
    pred, target = (b.to(torch.bfloat16) for b in boxes())
    with use_box_loss("ciou:3"):
        assert yolo_loss.bbox_iou(pred, target.float(), xywh=False, CIoU=True).isfinite().all()


def test_it_says_what_it_changed_and_the_second_is_refused():
    handle = use_box_loss("ciou:3", weight=2.0)
    assert repr(handle) == (
        "<AlphaIoULoss(kind='ciou', alpha=3.0, penalty_alpha=None) × 2 in "
        "ultralytics.utils.loss.bbox_iou, ultralytics.models.utils.loss.bbox_iou, "
        "ultralytics.utils.loss.probiou, ultralytics.engine.trainer.generate_ddp_command, "
        "BaseTrainer.run_callbacks>"
    )
    with pytest.raises(ValueError, match=r"ultralytics\.utils\.loss\.bbox_iou.*already"):
        use_box_loss("iou")
    handle.restore()
    assert [vars(module)[name] for module, name in NAMES] == OWN


def test_a_version_without_a_place_is_refused_and_left_as_it_is(monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(rtdetr_loss, "bbox_iou")
        with pytest.raises(UnsupportedVersionError, match=r"knows ultralytics 8\.3 to 8\.4"):
            use_box_loss("ciou")
        assert yolo_loss.bbox_iou is OWN[0]


def test_the_benchmark_names_the_scores_of_ultralytics():
    generator = torch.Generator().manual_seed(0)
    hits = torch.rand(200, 10, generator=generator) < torch.linspace(0.8, 0.1, 10)
    confidence, classes = (torch.rand(200, generator=generator).numpy() for _ in range(2))
    metric = Metric()
    labels = (3 * classes).astype(int)
    metric.update(ap_per_class(hits.numpy(), confidence, labels, labels)[2:])
    scores = runpy.run_path(str(BENCHMARK))["scores"]
    found = scores(SimpleNamespace(box=metric))
    assert 0 < found["ap95"] < found["map75_95"] < found["map"] < found["ap50"] < 1
    expected = metric.map50, metric.map75, metric.map
    assert [found[name] for name in ("ap50", "ap75", "map")] == pytest.approx(expected)
    assert set(scores(SimpleNamespace(box=Metric())).values()) == {0.0}


def test_the_benchmark_trains_with_both_losses_and_leaves_their_records(tmp_path, monkeypatch):
    small = "--images 8 --size 64 --batch 8 --epochs 1 --workers 0 --device cpu"
    folders = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    options = ["shapes", *folders, *small.split()]
    command = [sys.executable, BENCHMARK, *options, "--losses", "ciou:3"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    monkeypatch.setattr("sys.argv", [str(BENCHMARK), *options, "--loss", "own"])
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    assert not runpy.run_path(str(BENCHMARK))["main"]()
    names = "own", "ciou-3"
    own, ours = (json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in names)
    assert (own["loss"]["own"], own["lines_changed"]) == (True, 0)
    assert (ours["loss"]["own"], ours["loss"]["alpha"], ours["lines_changed"]) == (False, 3.0, 1)
    assert own["settings"] == ours["settings"]
    assert [epoch["epoch"] for epoch in ours["history"]] == [1]
    assert set(own["scores"]) == set(ours["history"][-1]["test"])
    assert own["train_images"] == own["test_images"] == 8
    tables = [(tmp_path / "work" / name / "results.csv").read_text() for name in names]
    before, after = (_row(table)["train/box_loss"] for table in tables)
    assert after > 1.01 * before


# --- quality losses -------------------------------------------------------------------------------

#: Ultralytics differentiates p^γ, and its RT-DETR has settings of its own.
FREE = replace(QUALITY_LOSSES["vfl"], hold_weight=False)
ITS_VFL = QualityLoss(FREE)
RTDETR_VFL = QualityLoss(replace(FREE, negative_weight=0.25), gamma=1.5)


def test_vfl_is_that_of_ultralytics():
    generator = torch.Generator().manual_seed(0)
    scores = (3 * torch.randn(2, 7, 4, generator=generator)).requires_grad_()
    label = torch.rand(2, 7, 4, generator=generator) < 0.2
    iou = label * torch.rand(2, 7, 4, generator=generator)
    own = yolo_loss.VarifocalLoss()(scores, iou, label.float())
    with use_quality_loss(ITS_VFL):
        ours = rtdetr_loss.VarifocalLoss(2.0, 0.75)(scores, iou, label.float())
    torch.testing.assert_close(ours, own)
    gradients = [torch.autograd.grad(loss, scores)[0] for loss in (ours, own)]
    torch.testing.assert_close(*gradients)


def test_rtdetr_takes_a_quality_loss_for_its_classes_alone():
    model = build("rtdetr-resnet50.yaml", RTDETR)
    own = losses_of(model)
    for loss, same in ((RTDETR_VFL, True), ("mal:3", False)):
        model.criterion = None  # as in a model whose training starts
        with use_quality_loss(loss):
            found = losses_of(model)
        assert torch.equal(found[[0, 2]], own[[0, 2]])
        assert (abs(found[1] - own[1]) < 1e-5 * own[1]) == same
    model.criterion = None
    with use_quality_loss(RTDETR_VFL, box_loss="giou:3") as handle:
        both = losses_of(model)
        assert both[0] != own[0]
        torch.testing.assert_close(both[1:], own[1:], rtol=1e-5, atol=0)
        assert "QualityLoss(kind='vfl'" in repr(handle)
        with pytest.raises(ValueError, match="already"):
            use_box_loss("iou")


def test_a_yolo_has_no_place_for_it():
    model = build("yolov8n.yaml")
    own = losses_of(model)
    with use_quality_loss("mal:3"):
        assert torch.equal(losses_of(model), own)


def test_launched_processes_have_both_losses(options):
    trainer = DetectionTrainer(overrides=options | {"model": "yolov8n.yaml", "name": "both"})
    with use_quality_loss("mal:3", weight=2.0, box_loss="giou:3"):
        pytest.importorskip("cloudpickle", reason="newer versions launch with cloudpickle")
        _, script = trainers.generate_ddp_command(trainer)
    first, *_ = Path(script).read_text(encoding="utf-8").splitlines()
    exec(first)
    kept = [vars(module)[name] for module, name in NAMES]
    assert all(now is not before for now, before in zip(kept, OWN, strict=True))
    assert repr(kept[-1].loss) == "QualityLoss(kind='mal', alpha=3.0, gamma=1.5) × 2"
    assert kept[0].loss.function.alpha == 3.0
