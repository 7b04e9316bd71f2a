"""The types of errors by tidecv, the program of TIDE's authors."""

from tidecv import TIDE, Data
from tidecv.quantify import Qualifier

from alphaiou.metrics.errors import ERROR_TYPES

LIMIT = 10_000


def tide_run(data, classes, iou):
    """A run of tidecv on detections and objects without crowds and difficult objects."""
    truth, found = Data("truth", max_dets=LIMIT), Data("found", max_dets=LIMIT)
    for image in range(len(data.image_ids)):
        truth.add_image(image, str(image))
    for label in range(classes):
        truth.add_class(label, str(label))
    for image, label, box in zip(
        data.target_images.tolist(),
        data.target_labels.tolist(),
        data.target_boxes.tolist(),
        strict=True,
    ):
        truth.add_ground_truth(image, label, box)
    for image, label, score, box in zip(
        data.images.tolist(),
        data.labels.tolist(),
        data.scores.tolist(),
        data.boxes.tolist(),
        strict=True,
    ):
        found.add_detection(image, label, score, box)
    return TIDE().evaluate(truth, found, pos_threshold=iou, mode=TIDE.BOX, name="run")


def tide_counts(run):
    """The number of errors by type."""
    counts = {kind.short_name: count for kind, count in run.count_errors().items()}
    return {name: counts[key] for name, key in ERROR_TYPES.items()}


def tide_gains(run, test=None):
    """What fixing each type adds to AP: of all errors, or of those that pass a test."""
    qualifier = None if test is None else Qualifier("tested", test)
    gains = {kind.short_name: gain for kind, gain in run.fix_main_errors(qual=qualifier).items()}
    return {name: gains[key] / 100 for name, key in ERROR_TYPES.items()}
