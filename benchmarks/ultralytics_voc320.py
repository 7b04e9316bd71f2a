"""Train an Ultralytics model from random weights on voc320, with its own box loss and with ours.

    python benchmarks/ultralytics_voc320.py VOC320

The losses train in parallel, each in a separate process that writes a record to a folder. All
settings except the options below are Ultralytics defaults; nothing is downloaded. Ultralytics may
validate on the test images after every epoch, so the last weights are scored, not its best ones.
Difficult objects are left out, as in its own conversion of VOC.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import cv2
import torch
import yaml

from alphaiou import load_dataset
from alphaiou._environment import device_name, versions
from alphaiou.data.convert import convert_splits
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import columns_of
from alphaiou.training.record import throughput

OWN = "own"
RECORDS = Path(__file__).with_suffix("")


def write_data(options):
    """Convert the data set to YOLO layout and return its configuration file.

    Every loss needs its own copy, because Ultralytics writes caches next to the labels.
    """
    indices = [load_dataset(options.data, split).index for split in ("train", "test")]
    indices = [index.take(range(len(index))[: options.images]) for index in indices]
    indices = [index.drop_boxes(index.difficult) for index in indices]
    folder = options.work / f"data-{file_name(options.loss)}"
    convert_splits(indices, "yolo", folder, images="copy")
    places = {"path": str(folder), "train": "images/train", "val": "images/test"}
    config = folder / "ultralytics.yaml"
    config.write_text(yaml.safe_dump(places | {"names": dict(enumerate(indices[0].classes))}))
    return config


def train_side_by_side(options):
    """Run one process per loss; return the exit code of the first failure, or 0."""
    command = [sys.executable, __file__, *sys.argv[1:]]
    processes = [subprocess.Popen([*command, "--loss", loss]) for loss in options.losses]
    return next(filter(None, [process.wait() for process in processes]), 0)


def train(options):
    """Train with one loss, score, and write the record."""
    name = file_name(options.loss)
    os.environ |= {  # read when Ultralytics is imported
        "YOLO_CONFIG_DIR": str(options.work / f"config-{name}"),
        "YOLO_OFFLINE": "true",
        "YOLO_AUTOINSTALL": "false",
    }
    from ultralytics import YOLO

    from alphaiou.integrations.ultralytics import use_box_loss

    both = {  # of the training and of the scoring
        "data": str(write_data(options)),
        "imgsz": options.size,
        "batch": options.batch,
        "workers": options.workers,
        "device": options.device,
        "project": str(options.work),
        "exist_ok": True,
        "plots": False,
    }
    model, history = YOLO(options.model), History(scored=options.score_epochs)
    for event in ("on_train_epoch_start", "on_train_epoch_end", "on_fit_epoch_end"):
        model.add_callback(event, getattr(history, event))
    with nullcontext() if options.loss == OWN else use_box_loss(options.loss) as handle:
        print(handle or "its own loss", flush=True)
        model.train(
            **both,
            name=name,
            epochs=options.epochs,
            close_mosaic=options.close_mosaic,
            seed=options.seed,
            pretrained=False,
            val=options.score_epochs,
        )
    trainer = model.trainer
    found = scores(YOLO(trainer.last).val(**both, name=f"{name}-scores"))
    written = json.dumps(record(options, trainer, history.epochs, found), indent=1)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(written + "\n")
    print(options.loss, found)


class History:
    """Collect the time of each epoch without validation, and its scores, from Ultralytics."""

    def __init__(self, *, scored):
        self.scored, self.epochs = scored, []

    def on_train_epoch_start(self, trainer):
        self.start = time.perf_counter()

    def on_train_epoch_end(self, trainer):
        seconds = time.perf_counter() - self.start
        images = len(trainer.train_loader.dataset)
        self.epochs.append({"epoch": trainer.epoch + 1, "seconds": seconds})
        self.epochs[-1]["images_per_second"] = images / seconds

    def on_fit_epoch_end(self, trainer):
        if (
            self.scored and "test" not in self.epochs[-1]
        ):  # else this is for the best weights, at the end
            self.epochs[-1]["test"] = scores(trainer.validator.metrics)
            self.epochs[-1]["seconds_with_scores"] = time.perf_counter() - self.start


def scores(metrics):
    """Return the class means by our names; all are 0 if nothing was detected."""
    found = torch.as_tensor(metrics.box.all_ap, dtype=torch.float64).reshape(-1, 10)
    by_iou = found.mean(dim=0) if len(found) else torch.zeros(10)
    named = dict(zip(columns_of("threshold"), by_iou.tolist(), strict=True))
    return named | {"map": by_iou.mean().item(), "map75_95": by_iou[5:].mean().item()}


def record(options, trainer, history, found):
    spec = LossSpec.parse("ciou" if options.loss == OWN else options.loss)
    own_names = ("imgsz", "batch", "epochs", "seed", "close_mosaic", "box", "amp", "deterministic")
    return {
        "record": "framework run",
        "framework": "ultralytics",
        "version": version("ultralytics"),
        "model": options.model,
        "data": Path(options.data).name,
        "train_images": len(trainer.train_loader.dataset),
        "test_images": len(trainer.test_loader.dataset),
        "loss": {"own": options.loss == OWN, **asdict(spec)},
        "lines_changed": int(options.loss != OWN),
        "settings": {name: getattr(trainer.args, name) for name in own_names}
        | {"optimizer": type(trainer.optimizer).__name__, "amp_used": bool(trainer.amp)},
        "scores": found,
        "scored": "weights of the last epoch, Ultralytics' validator",
        "side_by_side": len(options.losses),
        "throughput": throughput(history),
        "device": device_name(trainer.device),
        "versions": versions() | {"opencv": cv2.__version__},
        "history": history,
    }


def file_name(loss):
    return loss.replace(":", "-")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="voc320, or another set with the splits train and test")
    parser.add_argument("--out", type=Path, default=RECORDS, help="folder for the records")
    parser.add_argument("--work", type=Path, default=Path("ultralytics-runs"))
    parser.add_argument("--model", default="yolov8n.yaml")
    parser.add_argument("--losses", nargs="+", default=[OWN, "ciou:3"], help="own, or kind:alpha")
    parser.add_argument("--loss", help="train with this loss only, in this process")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument(
        "--close-mosaic", type=int, default=5, help="number of final epochs without mosaic"
    )
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--score-epochs",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="score after every epoch, not only at the end",
    )
    parser.add_argument("--images", type=int, help="maximum number of images per split")
    parser.add_argument("--workers", type=int, default=7)
    parser.add_argument("--device", default="0", help="as Ultralytics names it: 0, cpu")
    options = parser.parse_args()
    options.work = options.work.resolve()
    return train_side_by_side(options) if options.loss is None else train(options)


if __name__ == "__main__":
    sys.exit(main())
