"""Small trainings for the tests, beside those of ``benchmarks.tiny``."""

import contextlib
import os
import socket
from pathlib import Path

import numpy as np
import torch

from alphaiou.data.formats.coco import write_coco
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.losses.spec import LossSpec
from alphaiou.training.batches import CachedBatches
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Optimisation
from alphaiou.training.step import StepOptions, TrainingStep
from benchmarks.tiny import (
    PROCESSES,
    SIDE,
    tensors,
    tiny_recipe,
    train,
    train_in_process,
    write_shapes,
)

__all__ = ["SIDE", "tensors", "tiny_recipe", "train", "train_in_process", "write_shapes"]


def step_of(detector, cache, recipe, *, slots=64, capture=False):
    """The step of a training with all images in memory, not compiled, where these are."""
    device, alone = cache.pixels.device, Processes()
    batches = CachedBatches(cache, recipe, slots=slots, processes=alone, device=device)
    return TrainingStep(
        detector.to(device),
        batches,
        recipe,
        steps_per_epoch=batches.steps,
        processes=alone,
        options=StepOptions(compile=False, capture=capture),
    )


def easy_images(folder, count):
    """Images that fill their squares, with one object of the size of an anchor, as ``train``."""
    index = shapes_index("train", size=SIDE, length=400, level="plain")
    square = index.sizes[:, 0] == index.sizes[:, 1]
    single = np.diff(index.offsets) == 1
    first = index.boxes[index.offsets[:-1].clip(0, index.num_boxes - 1)]
    sides = first[:, 2:] - first[:, :2]
    fitting = ((sides > 16) & (sides < 30)).all(1)
    chosen = np.flatnonzero(square & single & fitting)[:count]
    write_coco(index.take(chosen), Path(folder), images="copy")
    return str(folder)


def learning_recipe(path, **changes):
    """Overfits a few images in some hundred steps.

    The gains of objectness and classes are made for 640 pixels and 80 classes. Each image comes
    twice in a batch: evaluation scales by the variance of the population, training by that of the
    batch, and over sixty layers the two part if it has few pixels. Hence small steps too.
    """
    return tiny_recipe(
        path,
        loss=LossSpec("ciou", 1.0),
        batch_size=8,
        box_gain=0.2,
        objectness_gain=30.0,
        class_gain=4.0,
        augmentation=Augmentation.none(),
        optimisation=Optimisation(
            lr=0.005,
            final_lr=0.01,
            momentum=0.9,
            weight_decay=0.0,
            warmup_epochs=0.0,
            warmup_steps=10,
            warmup_bias_lr=0.0,
            ema_decay=0.9,
            ema_growth=1.0,
        ),
        **changes,
    )


def train_together(recipe, folder, count):
    """Train in several processes as torchrun would start them; their exit codes."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(count):
        started.append(PROCESSES.Process(target=_join, args=(recipe, folder, rank, count, port)))
        started[-1].start()
    for process in started:
        process.join(120)
    return [process.exitcode for process in started]


def _join(recipe, folder, rank, count, port):
    os.environ |= {
        "TORCHELASTIC_RUN_ID": "test",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
    }
    train(recipe, folder)


def assert_same_bits(one, other):
    """Two sets of tensors are equal bit for bit."""
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name
