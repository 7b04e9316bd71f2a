"""Exported detectors: differences from the detector, file sizes and latency on the CPU.

    python -m benchmarks.export --photos PATH     # writes benchmarks/export-cpu.json

Every detector is exported to both formats, for one image or any batch, with and without NMS. The
same images go through the detector and through the file. Faster R-CNN and DETR have random weights
and YOLOv5n those of a short training on the drawn set, on which fp16 and int8 weights are scored.
Ultralytics exports its own yolov5n in the same run.

The latency is the processor time of one thread for one image, the median of several calls: on a
machine that others use too, processor time varies less than elapsed time.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from alphaiou._environment import versions
from alphaiou.data.dataset import load_dataset
from alphaiou.data.images import decode_image
from alphaiou.data.pipeline.decoding import fit_image
from alphaiou.detectors import build_detector
from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.inference.export import ExportOptions, export_program, metadata, write_program
from alphaiou.inference.predictor import find_images, for_inference
from alphaiou.inference.weights import TrainedDetector, load_weights
from alphaiou.metrics import DetectionScores
from alphaiou.training.loop import Execution, fit
from alphaiou.training.recipes import RECIPES
from benchmarks.record import FOLDER, conditions, write_record

SIDE, CALLS = 320, 5
#: Scores that differ by less are nearly tied: fp32 sums of another order can swap them.
TIE = 1e-5
#: The minimum score of each detector, at which photos have some detections.
SCORES = {"yolov5n": 0.25, FASTER_RCNN: 0.1, DETR: 0.1}
#: The photos that each detector is compared on.
PHOTOS = {"yolov5n": 50, FASTER_RCNN: 8, DETR: 8}


def yolov5n(folder: Path, *, epochs: int, subset: float) -> TrainedDetector:
    """Train YOLOv5n on the drawn set."""
    recipe = replace(
        RECIPES["quick"](), epochs=epochs, subset=subset, precision="fp32", evaluate_every=0
    )
    record = fit(recipe, folder, execution=Execution(device="cpu"))
    return load_weights(folder / record["name"])


@torch.no_grad()
def untrained(name: str, photos: torch.Tensor) -> TrainedDetector:
    """A detector with random weights, whose classifier is scaled to have some high scores."""
    torch.manual_seed(0)
    detector: Any = build_detector(name, 20, image_size=SIDE).eval()
    if name == DETR:
        classifier = detector.network.model.class_labels_classifier
        outputs = detector.network(photos)[0]
    else:
        classifier = detector.roi_heads.box_predictor.cls_score
        detector.rpn.head.cls_logits.weight *= 20.0  # fewer proposals that are nearly tied
        levels, _, _, _, proposals = detector._first_stage(photos)
        outputs = detector.roi_heads(levels, proposals.boxes)[0]
    classifier.weight *= 2.0 / outputs.std()
    classes = tuple(f"class {number}" for number in range(20))
    return TrainedDetector(detector, classes, {"detector": {"name": name}}, SIDE)


def runner(path: Path) -> Callable[[torch.Tensor], list[np.ndarray]]:
    """Return a function that runs a file on one thread."""
    if path.suffix == ".pt2":
        module = torch.export.load(path).module()

        def run_module(images: torch.Tensor) -> list[np.ndarray]:
            with torch.no_grad():
                return [output.numpy() for output in module(images)]

        return run_module
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    name = session.get_inputs()[0].name
    return lambda images: session.run(None, {name: images.numpy()})


def latency(run: Callable[[torch.Tensor], object], image: torch.Tensor) -> float:
    """Return the milliseconds of processor time for one image."""
    run(image)
    times = []
    for _ in range(CALLS):
        start = time.process_time()
        run(image)
        times.append(1000 * (time.process_time() - start))
    return round(statistics.median(times), 2)


def differences(
    expected: list[tuple[np.ndarray, ...]], found: list[tuple[np.ndarray, ...]]
) -> dict[str, Any]:
    """Compare the detections of images in order: maximum differences, images that differ.

    Detections whose scores are nearly tied may be in another order; their number is reported.
    """
    box = score = 0.0
    differing, detections, reordered = 0, 0, 0
    for (boxes, scores, labels), (other_boxes, other_scores, other_labels) in zip(
        expected, found, strict=True
    ):
        detections += len(scores)
        if len(scores) != len(other_scores):
            differing += 1
            continue
        far = np.abs(boxes[:, None] - other_boxes).max(-1)
        tied = np.abs(scores[:, None] - scores) <= TIE
        np.fill_diagonal(tied, val=True)
        allowed = tied & (labels[:, None] == other_labels)
        ours, theirs = linear_sum_assignment(np.where(allowed, far, 1e6))
        if not allowed[ours, theirs].all():
            differing += 1
            continue
        reordered += int((ours != theirs).sum())
        box = max(box, float(far[ours, theirs].max(initial=0)))
        score = max(score, float(np.abs(scores - other_scores[theirs]).max(initial=0)))
    return {
        "images": len(expected),
        "detections": detections,
        "differing_images": differing,
        "reordered": reordered,
        "box_px": box,
        "score": score,
    }


def detections_of(
    run: Callable[[torch.Tensor], list[np.ndarray]], photos: torch.Tensor, batch: int
) -> list[tuple[np.ndarray, ...]]:
    """Return boxes, scores and labels of each photo, without empty slots."""
    found: list[tuple[np.ndarray, ...]] = []
    for part in torch.split(photos, batch):
        boxes, scores, labels = run(part)
        for image in range(len(part)):
            kept = labels[image] >= 0
            found.append((boxes[image][kept], scores[image][kept], labels[image][kept]))
    return found


def proposals_in_order(
    expected: np.ndarray, boxes: np.ndarray, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the proposals in the order of others; those that are nearly tied may change places."""
    places = []
    for one, other in zip(expected, boxes, strict=True):
        far = cdist(one.reshape(len(one), -1), other.reshape(len(other), -1), "chebyshev")
        places.append(linear_sum_assignment(far)[1])
    order = np.stack(places)
    image = np.arange(len(order))[:, None]
    return boxes[image, order], scores[image, order]


@torch.no_grad()
def rows_of(
    name: str, trained: TrainedDetector, photos: torch.Tensor, folder: Path
) -> Iterator[dict[str, Any]]:
    """Export a detector in every way and compare each file with it."""
    detector = for_inference(trained.detector, score=SCORES[name])
    expected = [
        tuple(one[key].numpy() for key in ("boxes", "scores", "labels"))
        for part in torch.split(photos, 1)
        for one in detector(part)
    ]
    yield {"detector": name, "format": "torch", "latency_ms": latency(detector, photos[:1])}
    boxes, scores = (part.numpy() for part in detector.predictions(photos[:3]))
    for dynamic, nms in ((False, True), (True, True), (True, False)):
        options = ExportOptions(
            nms=nms, score=SCORES[name], dynamic_batch=dynamic, dynamic_size=dynamic
        )
        program = export_program(trained, options)
        for kind in ("pt2", "onnx"):  # the conversion to ONNX adds guards to the program
            path = folder / f"{name}-{dynamic}-{nms}.{kind}"
            write_program(program, path, metadata(trained, options) | {"format": kind})
            run, batch = runner(path), 3 if dynamic else 1
            row: dict[str, Any] = {
                "detector": name,
                "format": kind,
                "precision": "fp32",
                "batch": "any" if dynamic else 1,
                "nms": nms,
                "bytes": path.stat().st_size,
            }
            if nms:
                row |= differences(expected, detections_of(run, photos, batch))
            else:
                parts = [run(part) for part in torch.split(photos[:3], batch)]
                found = (np.concatenate([part[n] for part in parts]) for n in (0, 1))
                outputs = proposals_in_order(boxes, *found) if name == FASTER_RCNN else tuple(found)
                box, score = (
                    float(np.abs(one - other).max())
                    for one, other in zip(outputs, (boxes, scores), strict=True)
                )
                row |= {"images": 3, "box_px": box, "score": score}
            yield row | {"latency_ms": latency(run, photos[:1])}


def precision_rows(
    trained: TrainedDetector, image: torch.Tensor, folder: Path, *, images: int
) -> Iterator[dict[str, Any]]:
    """Score YOLOv5n with fp32, fp16 and int8 weights on the drawn set."""
    data, side = trained.recipe["data"], trained.image_size
    dataset = load_dataset(data["path"], data["test"] or "val")
    program = export_program(trained, ExportOptions(score=0.001))
    for precision in ("fp32", "fp16", "int8"):
        path = folder / f"{precision}.onnx"
        options = ExportOptions(score=0.001, precision=precision)
        write_program(program, path, metadata(trained, options))
        run = runner(path)
        scores = DetectionScores(classes=trained.classes, rule="coco")
        for row in range(images):
            pixels, target = dataset[row]
            square = fit_image(pixels, side).pixels
            assert square is not None
            ((boxes, found, labels),) = detections_of(run, square.permute(2, 0, 1)[None], 1)
            scale = side / max(pixels.shape[1:])
            prediction = {"boxes": boxes / scale, "scores": found, "labels": labels}
            truth = {"boxes": target["boxes"].numpy(), "labels": target["labels"].numpy()}
            tensors = {name: torch.from_numpy(value) for name, value in prediction.items()}
            scores.update([tensors], [truth])
        yield {
            "detector": "yolov5n",
            "format": "onnx",
            "precision": precision,
            "batch": 1,
            "nms": True,
            "bytes": path.stat().st_size,
            "scored_images": images,
            "map": scores.compute().as_dict()["map"],
            "latency_ms": latency(run, image),
        }


def ultralytics_row(folder: Path, photos: torch.Tensor) -> dict[str, Any]:
    """Export yolov5n of Ultralytics with random weights by its own exporter, and time the file."""
    os.environ |= {
        "YOLO_CONFIG_DIR": str(folder),
        "YOLO_OFFLINE": "true",
        "YOLO_AUTOINSTALL": "false",
    }
    from ultralytics import YOLO  # type: ignore[attr-defined]

    before = Path.cwd()
    os.chdir(folder)
    try:
        path = Path(YOLO("yolov5n.yaml").export(format="onnx", imgsz=SIDE, simplify=False))
        path = path.absolute()
    finally:
        os.chdir(before)
    image = photos[:1].float() / 255
    return {
        "detector": "yolov5n of Ultralytics",
        "format": "onnx",
        "precision": "fp32",
        "batch": 1,
        "nms": False,
        "bytes": path.stat().st_size,
        "latency_ms": latency(runner(path), image),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", required=True, help="a folder of photos")
    parser.add_argument("--detectors", nargs="+", choices=SCORES, default=list(SCORES))
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--subset", type=float, default=0.5)
    parser.add_argument("--weights", type=Path, help="a run of YOLOv5n in place of a training")
    parser.add_argument("--scored", type=int, default=200, help="drawn images to score")
    parser.add_argument("--out", type=Path, default=FOLDER / "export-cpu.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = find_images([options.photos])[: max(PHOTOS.values())]
    squares = [fit_image(decode_image(path.read_bytes()), SIDE).pixels for path in paths]
    photos = torch.stack([square for square in squares if square is not None]).permute(0, 3, 1, 2)
    photos = photos.contiguous()
    record = conditions(torch.device("cpu"))
    record["versions"] = versions("onnx", "onnxruntime", "onnxscript", "ultralytics")
    record |= {"pixels": SIDE, "calls": CALLS, "rows": []}

    def keep(row: dict[str, Any]) -> None:
        record["rows"].append(row)
        print(row, flush=True)
        write_record(record | {"load": round(os.getloadavg()[0], 1)}, options.out)

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ultralytics = ultralytics_row(folder, photos)
        for name in options.detectors:
            own = photos[: PHOTOS[name]]
            if name == "yolov5n":
                trained = (
                    load_weights(options.weights)
                    if options.weights
                    else yolov5n(folder, epochs=options.epochs, subset=options.subset)
                )
                record["trained"] = {
                    name: trained.recipe[name]
                    for name in ("data", "loss", "image_size", "epochs", "subset", "seed")
                }
                side = trained.image_size
                small = photos[:1, :, :side, :side].contiguous()
                for row in precision_rows(trained, small, folder, images=options.scored):
                    keep(row)
                trained = replace(trained, image_size=SIDE)
            else:
                trained = untrained(name, photos[:2])
            for row in rows_of(name, trained, own, folder):
                keep(row)
            if name == "yolov5n":
                keep(ultralytics)


if __name__ == "__main__":
    main()
