"""Tiny trainings and grids, in this process and in others, and ways to disturb them.

Processes are forked from a server that has imported everything once: a fresh interpreter would
take seconds each time.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning.fabric  # noqa: F401 - here, so that the server has it
import psutil
import torch

from alphaiou._files import WriteError
from alphaiou.data.formats.coco import write_coco
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.errors import TerminatedError
from alphaiou.inference.weights import read_tensors
from alphaiou.losses.spec import LossSpec
from alphaiou.study.grid import Grid, Row
from alphaiou.study.runner import GridReport, planned_runs, run_grid
from alphaiou.training.loop import Execution, Report, fit
from alphaiou.training.recipe import DataRecipe, Optimisation, Recipe, recipe_hash

SIDE = 64
#: Seconds after which to give up on a process.
PATIENCE = 120.0
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])

# --- data and recipes -----------------------------------------------------------------------------


def write_shapes(folder, *, train=4, val=2, test=0):
    """A small COCO data set of drawn shapes."""
    for split, length in (("train", train), ("val", val), ("test", test)):
        if length:
            index = shapes_index(split, size=SIDE, length=length, level="plain")
            write_coco(index, Path(folder), images="copy")
    return str(folder)


def tiny_recipe(path, **changes):
    """Two steps an epoch, with mosaics and all."""
    data = changes.pop("data", {})
    settings: dict[str, Any] = {
        "detector": "yolov5n",
        "loss": LossSpec("ciou", 3.0),
        "image_size": SIDE,
        "batch_size": 2,
        "epochs": 3,
        "precision": "fp32",
        "optimisation": Optimisation(warmup_steps=2, warmup_epochs=0.0),
    }
    return Recipe(data=replace(DataRecipe(path), **data), **(settings | changes))


CPU = Execution(device="cpu", workers=1, checkpoint_seconds=0)
#: The recipe of grids, for a data set called ``tiny``.
TINY = Recipe(
    detector="yolov5n",  # type: ignore[arg-type]
    data=DataRecipe("tiny", train="train", val="val"),
    image_size=64,
    batch_size=4,
    epochs=2,
    precision="fp32",
    augmentation=Augmentation.none(),
)


def grid(*losses, seeds=(0,), recipe=TINY, **options):
    """A grid with one row per loss."""
    rows = tuple(Row(str(loss), replace(recipe, loss=loss)) for loss in losses)
    return Grid("tiny", "Tiny", rows, seeds=seeds, **options)


IOU, POWERED = LossSpec("iou"), LossSpec("iou", 3.0)


# --- trainings ------------------------------------------------------------------------------------


def train(recipe, folder, **execution):
    """Train on the CPU; the record and what was said."""
    torch.set_num_threads(1)
    said = []
    execution = {"device": "cpu", "checkpoint_seconds": 0.0} | execution
    record = fit(
        recipe, Path(folder), execution=Execution(**execution), report=Report(note=said.append)
    )
    return record, said


def train_in_process(recipe, folder, **options):
    """A process that trains, started; the options are those of ``train_with_an_interrupt``."""
    target = train_with_an_interrupt if options else train
    process = PROCESSES.Process(target=target, args=(recipe, folder), kwargs=options)
    process.start()
    return process


def train_and_log(recipe, folder, log, *, checkpoint_seconds=0.0):
    """Train, and write events to a file: what is noted, and the epochs begun and done."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a job in the background
    write = log_lines(log)

    def stepped(epoch, step, steps):
        if step == 1:
            write("begun", epoch + 1)

    torch.set_num_threads(1)
    try:
        fit(
            recipe,
            Path(folder),
            execution=Execution(device="cpu", checkpoint_seconds=checkpoint_seconds),
            report=Report(
                note=lambda text: write("note", text),
                stepped=stepped,
                epoch_done=lambda entry: write("done", entry["epoch"]),
            ),
        )
    except TerminatedError:
        raise SystemExit(143) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # without a traceback on the terminal


def train_on_a_full_disk(recipe, folder, limit, epoch):
    """Train with a limit to the size of new files from some epoch on; 28 if one does not fit."""
    import resource

    def fill(*_):
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))

    def stepped(now, step, steps):
        if (now + 1, step) == (epoch, 1):
            fill()

    torch.set_num_threads(1)
    if epoch == 0:
        fill()
    try:
        execution = Execution(device="cpu", checkpoint_seconds=0.0)
        fit(recipe, Path(folder), execution=execution, report=Report(stepped=stepped))
    except WriteError:
        raise SystemExit(28) from None


def train_with_an_interrupt(recipe, folder, *, notes, interrupt, checkpoint_seconds=0.0):
    """Train, send a signal to itself in the epoch after some, and write down what is said."""
    epochs, number = interrupt

    def stepped(epoch, step, steps):
        if epoch == epochs:
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a job in the background
    torch.set_num_threads(1)
    said = []
    try:
        fit(
            recipe,
            Path(folder),
            execution=Execution(device="cpu", checkpoint_seconds=checkpoint_seconds),
            report=Report(note=said.append, stepped=stepped),
        )
    except TerminatedError:
        raise SystemExit(143) from None
    finally:
        notes.write_text("\n".join(said))


def kill(process, folder, epochs, delay):
    """Kill -9 some seconds after so many more checkpoints; without a delay, during the next."""
    written, last = None, 0
    while process.is_alive():
        now = [path.stat().st_mtime_ns for path in folder.glob("*/last.safetensors")]
        if written is None:
            written = now
        last += now != written
        written = now
        if delay is None and any(folder.glob("*/.last.safetensors.*.part")):
            break
        if delay is not None and last >= epochs:
            time.sleep(delay)
            break
        time.sleep(0.0002)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def stopped_run(recipe, folder):
    """A run that was killed after its first checkpoint."""
    assert kill(train_in_process(recipe, folder), folder, 1, 0.0)
    return folder / recipe_hash(recipe)


def tensors(folder, name="last.safetensors"):
    """The tensors of a file of the only run in a folder."""
    (run,) = (path for path in Path(folder).iterdir() if path.is_dir())
    return read_tensors(run / name).tensors


def outcomes(result):
    """The scores and losses of all runs, without times and memory."""
    assert [str(error) for _, error in result.failed] == []
    assert result.left == []
    return {name: outcome(json.loads(path.read_text())) for name, path in result.records.items()}


def outcome(record):
    """The scores and losses of a record, without times and memory."""
    measured = ("seconds", "images_per_second", "memory_bytes")
    history = [
        {name: value for name, value in entry.items() if name not in measured}
        for entry in record["history"]
    ]
    return {"scores": record["scores"], "history": history}


# --- records --------------------------------------------------------------------------------------


def places(value, path=()):
    """The path of every value in a record."""
    inner = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    for key, one in inner:
        yield (*path, key)
        yield from places(one, (*path, key))


def edited(record, path, *, remove=False):
    """A record with one value changed, or without it."""
    record = json.loads(json.dumps(record))
    part = record
    for key in path[:-1]:
        part = part[key]
    if remove:
        del part[path[-1]]
    else:
        value = part[path[-1]]
        part[path[-1]] = value + 1 if isinstance(value, int | float) else [value, "edited"]
    return record


# --- grids in processes of their own, whose events are read from a file ---------------------------


def wait_for(condition):
    """Wait until something has happened, but not for ever."""
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < PATIENCE, "it did not happen"
        time.sleep(0.02)


def log_lines(path):
    """A function that adds a line to a file."""

    def write(*facts):
        with path.open("a") as file:
            file.write(json.dumps(facts) + "\n")

    return write


def log_to(path):
    """A report that writes all events to a file, one per line."""

    write = log_lines(path)

    def run(planned):
        return Report(
            note=lambda text: write("note", planned.name, text),
            epoch_done=lambda entry: write("epoch", planned.name, entry["epoch"]),
        )

    return GridReport(run=run)


def events(path, kind):
    """What was written of a kind."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(facts) for which, *facts in map(json.loads, lines) if which == kind]


def names(*grids):
    """The names of the runs of grids."""
    return [run.name for run in planned_runs(grids)]


def compute(wanted, folder, data, log, workers, ray=None):
    """Compute a grid and write its events to a file."""
    options = {"workers": workers, "ray": ray, "report": log_to(log)}
    result = run_grid([wanted], folder, data=data, execution=CPU, **options)
    assert [str(error) for _, error in result.failed] == []
    assert set(result.records) == set(names(wanted))


@contextlib.contextmanager
def one_process(target, *args):
    """A process that is started, and killed at the end with all that it has started."""
    process = PROCESSES.Process(target=target, args=args)
    process.start()
    try:
        yield process
    finally:
        for one in family(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.join()


def family(process):
    """A process and all that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    return []


def is_over(process):
    """Whether a process has ended, waited for or not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


def workers_of(process):
    """The processes of a grid that train, without the tracker of multiprocessing."""
    return [one for one in family(process)[1:] if "spawn_main" in " ".join(one.cmdline())]
