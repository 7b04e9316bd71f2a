"""Time to score 5,000 images with 250,000 detections, compared with pycocotools.

    python -m benchmarks.evaluation      # writes benchmarks/evaluation-cpu.json

The time includes everything after the detector: conversion to arrays, checks, and all scores.
"""

import os
import resource
import sys
import time

import numpy as np
import torch

from alphaiou.metrics import RULES, DetectionScores, detection_ious
from benchmarks.record import FOLDER, conditions, write_record

IMAGES, TARGETS, DETECTIONS, CLASSES, BATCH, REPEATS = 5000, 3, 50, 80, 64, 9


def made_set(seed=0):
    """Return 3 targets and 50 detections per image, a fifth of them near a target."""
    random = np.random.default_rng(seed)
    predictions, targets = [], []
    for number in range(IMAGES):
        labels = random.integers(0, CLASSES, TARGETS)
        boxes = made_boxes(random, TARGETS)
        near = random.integers(0, TARGETS, DETECTIONS // 5)
        found = made_boxes(random, DETECTIONS)
        found[: len(near)] = boxes[near] + random.normal(0, 4, (len(near), 4))
        found[:, 2:] = np.maximum(found[:, :2] + 1, found[:, 2:])
        found_labels = random.integers(0, CLASSES, DETECTIONS)
        found_labels[: len(near)] = labels[near]
        scores = random.random(DETECTIONS)
        predictions.append(tensors(boxes=found, labels=found_labels, scores=scores))
        targets.append(tensors(boxes=boxes, labels=labels) | {"image_id": number})
    return predictions, targets


def made_boxes(random, count):
    corner, size = random.random((count, 2)) * 400, 8 + random.random((count, 2)) * 200
    return np.concatenate([corner, corner + size], axis=1)


def tensors(**arrays):
    return {
        name: torch.from_numpy(array if array.dtype == np.int64 else array.astype(np.float32))
        for name, array in arrays.items()
    }


def collected(predictions, targets, rule):
    scores = DetectionScores(CLASSES, rule=rule)
    for start in range(0, IMAGES, BATCH):
        scores.update(predictions[start : start + BATCH], targets[start : start + BATCH])
    return scores


def seconds(call, *arguments, **options):
    start = time.perf_counter()
    result = call(*arguments, **options)
    return time.perf_counter() - start, result


def measured(name, rule, predictions, targets, *, evaluator="hotcoco", repeats=REPEATS):
    times = []
    for _ in range(repeats):
        collecting, scores = seconds(collected, predictions, targets, rule)
        computing, result = seconds(scores.compute, evaluator=evaluator)
        times.append((collecting + computing, collecting, computing))
    total, collecting, computing = sorted(times)[len(times) // 2]
    row = {"what": name, "rule": rule, "repeats": repeats, "seconds": total}
    row |= {"seconds_fastest": min(times)[0], "load_average": os.getloadavg()[0]}
    row |= {"collect_seconds": collecting, "compute_seconds": computing, "map": result.map}
    print(f"{name:28} {total:7.3f} s: collect {collecting:.3f}, compute {computing:.3f}")
    return row


def main():
    predictions, targets = made_set()
    rows = [measured(f"ours, rule {rule}", rule, predictions, targets) for rule in RULES]
    data = collected(predictions, targets, "coco").data()
    taken = sorted(seconds(detection_ious, data)[0] for _ in range(REPEATS))[REPEATS // 2]
    rows.append({"what": "IoU of every detection", "repeats": REPEATS, "seconds": taken})
    slow = {"evaluator": "pycocotools", "repeats": 1}
    rows.append(measured("pycocotools, rule coco", "coco", predictions, targets, **slow))
    assert abs(rows[-1]["map"] - rows[0]["map"]) < 1e-12
    packages = ("numpy", "hotcoco", "pycocotools")
    record = {"record": "evaluation", **conditions(torch.device("cpu"), *packages)}
    record["settings"] = {"images": IMAGES, "targets": IMAGES * TARGETS, "classes": CLASSES}
    record["settings"] |= {"detections": IMAGES * DETECTIONS, "batch": BATCH}
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    record["array_bytes"] = sum(array.nbytes for array in vars(data).values())
    record["peak_memory_mb_with_pycocotools"] = kilobytes // 1024
    write_record(record | {"rows": rows}, FOLDER / "evaluation-cpu.json")


if __name__ == "__main__":
    sys.exit(main())
