"""Keep the detections of finished runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from alphaiou.data.dataset import DetectionDataset
from alphaiou.inference.evaluation import weights_detections
from alphaiou.inference.kept_detections import (
    DETECTIONS,
    KeptDetections,
    read_kept,
    write_kept,
)
from alphaiou.inference.weights import load_weights
from alphaiou.study.records import RowRuns, run_folder
from alphaiou.training.record import upgraded_recipe
from alphaiou.training.setup import run_sets


def keep_detections(
    folder: Path,
    path: Path | None = None,
    datasets: Sequence[DetectionDataset] | None = None,
    *,
    device: str = "cpu",
    workers: int | None = None,
    with_objects: bool = True,
    note: Callable[[str], None] = lambda _: None,
) -> Path | None:
    """Run the detector of a finished run over the images of some splits, and keep its detections.

    Args:
        folder: The folder of the run, with its weights.
        path: The file to write; by default ``detections.npz`` in the folder.
        datasets: The splits; by default the images that the run was scored on.
        device: ``cpu`` or ``cuda``.
        workers: The number of decoding processes; by default from the images and cores.
        with_objects: Whether to keep the objects too; without them, the data set is needed.
        note: Called with a message about each unreadable image.

    Returns:
        The file; None for a run that was scored on no images.

    Raises:
        CheckpointError: The run has no weights.
        DataError: Its data set is gone.
    """
    trained = load_weights(folder)
    recipe = upgraded_recipe(trained.recipe)
    if datasets is None:
        sets = run_sets(recipe)
        scored = sets.test or sets.val
        if scored is None:
            return None
        datasets = [scored]
    splits = {
        dataset.index.split: weights_detections(
            trained, dataset, rule=recipe.rule, device=device, workers=workers, note=note
        ).data()
        for dataset in datasets
    }
    path = path or folder / DETECTIONS
    write_kept(path, splits, classes=trained.classes, rule=recipe.rule, with_objects=with_objects)
    return path


def kept_runs(
    rows: Mapping[str, RowRuns], paths: Mapping[str, Path]
) -> dict[str, dict[int, KeptDetections]]:
    """The kept detections of every row by seed, of the runs on the same images as the first.

    Args:
        rows: The runs of each row by its label.
        paths: The paths of the records, as ``record_paths`` gives them.
    """
    kept: dict[str, dict[int, KeptDetections]] = {}
    first: KeptDetections | None = None
    for label, row in rows.items():
        for seed, record in sorted(row.runs.items()):
            path = run_folder(paths[record["name"]]) / DETECTIONS
            if not path.is_file():
                continue
            run = read_kept(path)
            first = first or run
            if _same_images(first, run):
                kept.setdefault(label, {})[seed] = run
    return kept


def _same_images(first: KeptDetections, other: KeptDetections) -> bool:
    """Whether two files are on the same images and objects."""
    names = ("image_ids", "target_images", "target_labels", "target_boxes")
    return first.rule == other.rule and all(
        np.array_equal(getattr(first.data, name), getattr(other.data, name)) for name in names
    )
