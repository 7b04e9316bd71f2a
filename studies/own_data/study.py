"""Train on small data sets with the settings that suit them, beside Ultralytics.

    python -m studies.own_data.study pack PATH/voc320 PATH/coco256 small-sets.tar
    tar xf small-sets.tar
    python -m studies.own_data.study run --data-root small-sets --device cuda
    python -m studies.own_data.study table

``pack`` writes two small data sets as one archive: 300 training and 500 test images of voc320, and
the 128 training and 128 validation images of coco256. ``run`` trains YOLOv5n with the settings of
``alphaiou train --data`` and Ultralytics' ``yolov5n.yaml`` with its own, from random weights, on
the same images, with the same image size, batch size and number of epochs. Both keep the weights of
the last epoch, and never see the test images before they are scored. Both write their detections
with at least the score .001, and one rule scores them.

A finished run has a record in the folder ``--out`` and is not repeated. Timings of runs that shared
the machine (``--jobs``) are marked as such, and left out of the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import yaml

from alphaiou._environment import device_kind
from alphaiou.data.convert import convert_splits
from alphaiou.data.dataset import DetectionDataset, load_dataset
from alphaiou.data.derived import fingerprint
from alphaiou.data.index import DetectionIndex
from alphaiou.data.subset import subset_index
from alphaiou.inference.detection_files import load_detections
from alphaiou.inference.predictor import load_predictor
from alphaiou.metrics import score
from alphaiou.training.auto import auto_recipe
from alphaiou.training.loop import Execution, fit
from alphaiou.training.recipe import Recipe
from alphaiou.training.recipes import ANY_DATA
from benchmarks.record import conditions, positive, write_record

SETS = ("voc320-300", "coco256")
FRAMEWORKS = ("alphaiou", "ultralytics")
SPLITS = ("train", "test")
#: The number of images of voc320, and the seed that takes them.
IMAGES, SUBSET_SEED = {"train": 300, "test": 500}, 0
DETECTOR, MODEL = "yolov5n", "yolov5n.yaml"
RULE, LEAST_SCORE = "coco", 0.001
RECORDS = Path(__file__).parent / "records"

Detections = list[dict[str, Any]]


# --- the data -------------------------------------------------------------------------------------


def pack(options: argparse.Namespace) -> None:
    """Write the small data sets in YOLO layout into one archive."""
    voc = [load_dataset(options.voc320, split).index for split in SPLITS]
    voc = [
        subset_index(index, min(1.0, IMAGES[index.split] / len(index)), SUBSET_SEED)
        for index in voc
    ]
    voc = [index.drop_boxes(index.difficult) for index in voc]
    coco = [load_dataset(options.coco256, split).index for split in ("train", "val")]
    coco = [replace(index, split=split) for index, split in zip(coco, SPLITS, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        for name, indices in zip(SETS, (voc, coco), strict=True):
            convert_splits(indices, "yolo", Path(folder) / name, images="copy")
        with tarfile.open(options.archive, "w") as archive:
            archive.add(folder, "small-sets")
    print(f"wrote {options.archive}, {options.archive.stat().st_size / 2**20:.1f} MiB")


# --- the runs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One training: what, with what, which seed, and what both frameworks share."""

    data: str
    framework: str
    seed: int
    epochs: int
    batch_size: int
    image_size: int
    device: str
    annotations: str

    @property
    def name(self) -> str:
        return f"{self.data}-{self.framework}-{self.seed}"


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        detect: Returns the detections in a data set.
        seconds: The time of each epoch, without evaluation.
        total: The time of the whole training, with its start and the evaluation at its end.
        settings: The settings of the framework.
        scores: What the framework itself scores on the test images, by its own rule.
    """

    detect: Callable[[DetectionDataset], Detections]
    seconds: list[float]
    total: float
    settings: dict[str, Any]
    scores: dict[str, float]


def all_jobs(options: argparse.Namespace) -> list[Job]:
    """Return the runs that the options ask for, the timed seeds of both frameworks in turn."""
    jobs = []
    for data in SETS:
        root = options.data_root / data
        recipe = our_recipe(root, options.device, options.epochs)
        common = {
            "epochs": recipe.epochs,
            "batch_size": recipe.batch_size,
            "image_size": recipe.image_size,
            "device": device_kind(options.device),
            "annotations": fingerprint([load_dataset(root, split).index for split in SPLITS]),
        }
        pairs = product(options.seeds, FRAMEWORKS)
        jobs += [Job(data, framework, seed, **common) for seed, framework in pairs]
    return [job for job in jobs if options.only in job.name]


def our_recipe(root: Path, device: str, epochs: int | None) -> Recipe:
    """Return the recipe of ``alphaiou train --data ROOT --detector yolov5n``."""
    data = replace(ANY_DATA, path=str(root))
    return auto_recipe(data, device, detector=DETECTOR, epochs=epochs).recipe


def run(options: argparse.Namespace) -> int:
    """Run all jobs that have no record, several at a time; return the number of failures."""
    waiting = [job for job in all_jobs(options) if not is_finished(job, options)]
    print(f"{len(waiting)} runs, {options.jobs} at a time", flush=True)
    options.work.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        codes = list(pool.map(lambda job: run_process(job, options), waiting))
    return sum(code != 0 for code in codes)


def is_finished(job: Job, options: argparse.Namespace) -> bool:
    """Return whether a run has a record; that of a run with other settings is an error."""
    path = options.out / f"{job.name}.json"
    if not path.exists():
        return False
    if json.loads(path.read_text())["job"] != asdict(job):
        raise SystemExit(f"{path} is of other settings; remove it, or choose another --out")
    return True


def run_process(job: Job, options: argparse.Namespace) -> int:
    """Run one job in a process of its own, which writes a log and the record."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "studies.own_data.study", "one"]
    command += ["--data-root", options.data_root, "--out", options.out, "--work", options.work]
    command += ["--jobs", str(options.jobs), "--job", json.dumps(asdict(job))]
    log = options.work / f"{job.name}.log"
    with log.open("w") as file:
        done = subprocess.run(command, check=False, stdout=file, stderr=subprocess.STDOUT)
    result = f"failed, see {log}" if done.returncode else "finished"
    print(f"{job.name}: {result} after {time.perf_counter() - started:.0f} s", flush=True)
    return done.returncode


def run_one(options: argparse.Namespace) -> None:
    """Train, score both splits, and write the record."""
    job = Job(**json.loads(options.job))
    root, work = options.data_root / job.data, (options.work / job.name).resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    trained = {"alphaiou": train_ours, "ultralytics": train_theirs}[job.framework](job, root, work)
    scores = {}
    for split in SPLITS:
        dataset = load_dataset(root, split)
        path = work / f"{split}.json"
        path.write_text(json.dumps(trained.detect(dataset)))
        scores[split] = scored(path, dataset.index)
    images = len(load_dataset(root, "train").index)
    record = {
        "record": "own data",
        **conditions(torch.device(job.device), "ultralytics", "opencv-python"),
        "job": asdict(job),
        "settings": trained.settings,
        "images": {split: len(load_dataset(root, split).index) for split in SPLITS},
        "rule": RULE,
        "scores": scores,
        "scores_by_framework": trained.scores,
        "side_by_side": options.jobs,
        # The first epoch compiles and fills caches.
        "seconds_per_image": statistics.median(trained.seconds[1:] or trained.seconds) / images,
        "seconds_of_training": trained.total,
        "epoch_seconds": [round(seconds, 4) for seconds in trained.seconds],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    write_record(record, options.out / f"{job.name}.json")
    shutil.rmtree(work)


def scored(path: Path, index: DetectionIndex) -> dict[str, float]:
    """Score a file of detections with the rule of this study; undefined scores are left out."""
    found = score(load_detections(path, index), index.classes, rule=RULE).as_dict()
    return {name: round(number, 6) for name, number in found.items() if number == number}


def train_ours(job: Job, root: Path, work: Path) -> Trained:
    """Train with the recipe that this package chooses."""
    recipe = replace(our_recipe(root, job.device, job.epochs), seed=job.seed, evaluate_every=0)
    started = time.perf_counter()
    record = fit(recipe, work, execution=Execution(device=job.device))
    total = time.perf_counter() - started
    predictor = load_predictor(work / record["name"], score=LEAST_SCORE, device=job.device)

    def detect(dataset: DetectionDataset) -> Detections:
        return [entry for image in predictor.dataset(dataset) for entry in image.to_coco()]

    settings = record["recipe"] | {"data": record["recipe"]["data"] | {"path": job.data}}
    scores = {name: record["scores"][name] for name in ("ap50", "map")}
    seconds = [entry["seconds"] for entry in record["history"]]
    return Trained(detect, seconds, total, settings, scores)


def train_theirs(job: Job, root: Path, work: Path) -> Trained:
    """Train with Ultralytics; what is not named here is its default."""
    os.environ |= {  # read when Ultralytics is imported
        "YOLO_CONFIG_DIR": str(work),
        "YOLO_OFFLINE": "true",
        "YOLO_AUTOINSTALL": "false",
    }
    from ultralytics import YOLO

    data = work / "data"  # it writes caches beside the labels
    shutil.copytree(root, data)
    names = dict(enumerate(load_dataset(root, "train").index.classes))
    places = {"path": str(data), "train": "images/train", "val": "images/test", "names": names}
    (work / "data.yaml").write_text(yaml.safe_dump(places))
    clock = Clock()
    model = YOLO(MODEL)
    model.add_callback("on_train_epoch_start", clock.start)
    model.add_callback("on_train_epoch_end", clock.stop)
    device = "0" if job.device == "cuda" else "cpu"
    common = {
        "data": str(work / "data.yaml"),
        "imgsz": job.image_size,
        "batch": job.batch_size,
        "device": device,
        "plots": False,
        "project": str(work),
    }
    started = time.perf_counter()
    model.train(
        **common,
        epochs=job.epochs,
        seed=job.seed,
        pretrained=False,
        cache="ram",
        val=False,
        name="run",
    )
    total = time.perf_counter() - started
    trained = YOLO(model.trainer.last)

    def detect(dataset: DetectionDataset) -> Detections:
        files = [Path(dataset.index.images.where(name)) for name in dataset.index.files]
        results = trained.predict(
            [str(file) for file in files],
            imgsz=job.image_size,
            conf=LEAST_SCORE,
            max_det=300,
            device=device,
            stream=True,
            verbose=False,
        )
        pairs = zip(files, results, strict=True)
        return [entry for file, result in pairs for entry in entries(file, result)]

    assert model.trainer is not None
    arguments = {name: getattr(model.trainer.args, name) for name in SHOWN}
    optimiser = type(model.trainer.optimizer).__name__
    settings = arguments | {"optimizer": optimiser, "amp_used": bool(model.trainer.amp)}
    box = trained.val(**common, name="scores").box
    scores = {"ap50": float(box.map50), "map": float(box.map)}
    return Trained(detect, clock.seconds, total, settings, scores)


#: The arguments of Ultralytics in its records.
SHOWN = ("model", "imgsz", "batch", "epochs", "close_mosaic", "box", "deterministic", "cache")


class Clock:
    """Collects the time of each epoch of Ultralytics, without validation."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def start(self, trainer: Any) -> None:
        self.started = time.perf_counter()

    def stop(self, trainer: Any) -> None:
        if trainer.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.started)


def entries(file: Path, result: Any) -> Iterable[dict[str, Any]]:
    """Yield Ultralytics' detections in an image in COCO format."""
    boxes = result.boxes
    columns = (part.tolist() for part in (boxes.xyxy, boxes.cls, boxes.conf))
    for (x1, y1, x2, y2), label, confidence in zip(*columns, strict=True):
        box = [round(side, 3) for side in (x1, y1, x2 - x1, y2 - y1)]
        yield {
            "image_id": file.name,
            "category_id": result.names[int(label)],
            "bbox": box,
            "score": round(confidence, 5),
        }


# --- the table ------------------------------------------------------------------------------------


def table(options: argparse.Namespace) -> None:
    """Print the mean scores over the seeds, and the time per image of runs alone on the machine."""
    records = [json.loads(path.read_text()) for path in sorted(options.out.glob("*.json"))]
    for data, framework in product(SETS, FRAMEWORKS):
        runs = [
            record
            for record in records
            if (record["job"]["data"], record["job"]["framework"]) == (data, framework)
        ]
        if not runs:
            continue
        alone = [record["seconds_per_image"] for record in runs if record["side_by_side"] == 1]
        text = [f"{data:11} {framework:11} {len(runs)} seeds"]
        for split, name in product(SPLITS, ("ap50", "map")):
            values = [100 * record["scores"][split][name] for record in runs]
            text.append(f"{split} {name} {statistics.mean(values):5.1f} ({listed(values)})")
        if alone:
            text.append(f"{1000 * statistics.median(alone):.2f} ms per image")
        print(", ".join(text))


def listed(values: Iterable[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


# --- the command line -----------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    packing = commands.add_parser("pack", help="write the small data sets as one archive")
    packing.add_argument("voc320")
    packing.add_argument("coco256")
    packing.add_argument("archive", type=Path)
    packing.set_defaults(call=pack)
    running = commands.add_parser("run", help="train and score what has no record yet")
    single = commands.add_parser("one")
    for command in (running, single):
        command.add_argument("--data-root", type=Path, default=Path("small-sets"))
        command.add_argument("--out", type=Path, default=RECORDS, help="folder of the records")
        command.add_argument("--work", type=Path, default=Path("runs/own-data"))
        command.add_argument("--jobs", type=positive, default=1, help="runs at a time")
    running.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    running.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    running.add_argument("--epochs", type=positive, help="of both; by default as auto chooses")
    running.add_argument("--only", default="", help="part of the names of runs: voc320, alphaiou")
    running.set_defaults(call=run)
    single.add_argument("--job", required=True)
    single.set_defaults(call=run_one)
    showing = commands.add_parser("table", help="print the records as a table")
    showing.add_argument("--out", type=Path, default=RECORDS)
    showing.set_defaults(call=table)
    options = parser.parse_args()
    return options.call(options) or 0


if __name__ == "__main__":
    sys.exit(main())
