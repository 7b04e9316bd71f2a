"""Sets of detections and targets made to be hard for evaluators."""

import numpy as np

from alphaiou.metrics import ScoringData


def make(seed, *, images=4, classes=3, targets=30, detections=90, kind="grid", **changes):
    """A random set; half of the detections lie exactly on targets, and scores tie often."""
    random = np.random.default_rng(seed)
    target_boxes, boxes = (_boxes(random, count, kind) for count in (targets, detections))
    columns = {
        "image_ids": random.permutation(10 * images)[:images],
        "target_images": random.integers(0, images, targets),
        "target_boxes": target_boxes,
        "target_labels": random.integers(0, classes, targets),
        "target_areas": np.prod(target_boxes[:, 2:], axis=1) * random.choice([1.0, 0.6], targets),
        "crowd": random.random(targets) < 0.15,
        "difficult": random.random(targets) < 0.15,
        "images": random.integers(0, images, detections),
        "boxes": boxes,
        "labels": random.integers(0, classes, detections),
        "scores": np.round(random.random(detections), 1),
    }
    if targets and detections:
        copied, half = random.integers(0, targets, detections // 2), detections // 2
        for name in ("boxes", "images", "labels"):
            columns[name][:half] = columns[f"target_{name}"][copied]
    return ScoringData(**columns | changes)


def _boxes(random, count, kind):
    corner, size = random.random((count, 2)), random.random((count, 2))
    both = {
        "grid": (np.floor(6 * corner), np.floor(7 * size)),  # zero areas, IoUs on thresholds
        "whole": (np.floor(9 * corner), np.floor(20 + 9 * size)),
        "sizes": (20 * corner, 150 * size),
        "tenths": (np.round(10 * corner, 1), np.round(120 * size, 1)),
        "float32": (np.float32(5 * corner), np.float32(20 + 8 * size)),
        "huge": (1e6 * corner, 9e4 * size),
        "tiny": (1e-6 * corner, 1e-6 * size),
    }[kind]
    return np.concatenate(both, axis=1).astype(np.float64)


def as_batches(data, batch=3):
    """The same as the lists of dictionaries that a detector and a data set give."""
    entries = []
    for image, number in enumerate(data.image_ids.tolist()):
        of, true = data.images == image, data.target_images == image
        entries.append(
            (
                {
                    "boxes": corners(data.boxes[of]),
                    "scores": data.scores[of],
                    "labels": data.labels[of],
                },
                {
                    "boxes": corners(data.target_boxes[true]),
                    "labels": data.target_labels[true],
                    "area": data.target_areas[true],
                    "iscrowd": data.crowd[true],
                    "difficult": data.difficult[true],
                    "image_id": number,
                },
            )
        )
    for start in range(0, len(entries), batch):
        yield tuple(map(list, zip(*entries[start : start + batch], strict=True)))


def corners(boxes):
    """x1 y1 x2 y2 of x y width height."""
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
