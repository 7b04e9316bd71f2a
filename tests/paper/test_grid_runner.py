"""Grids run with tiny real trainings."""

import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace

import pytest

from alphaiou.data.augment import Augmentation
from alphaiou.data.problems import DataError
from alphaiou.data.shapes import shapes_index
from alphaiou.data.yolo import write_yolo
from alphaiou.experiments.grid import Cell, Grid
from alphaiou.experiments.grid_runner import GridReport, planned_runs, run_grid
from alphaiou.experiments.worker_pool import Job, WorkerPool, seats_for
from alphaiou.losses.spec import LossSpec
from alphaiou.training.fit import Execution, Report, TrainingFailedError, fit
from alphaiou.training.recipe import DataRecipe, Recipe, recipe_hash

CPU = Execution(device="cpu", checkpoint_seconds=0)
TINY = Recipe(
    detector="yolov5n",
    data=DataRecipe("tiny", train="train", val="val"),
    image_size=64,
    batch_size=4,
    epochs=2,
    precision="fp32",
    augmentation=Augmentation.none(),
)


def grid(*losses, seeds=(0,), recipe=TINY, **options):
    cells = tuple(Cell(str(loss), replace(recipe, loss=loss)) for loss in losses)
    return Grid("tiny", "Tiny", cells, seeds=seeds, **options)


IOU, POWERED = LossSpec("iou"), LossSpec("iou", 3.0)


class Listener:
    """Writes down what it is told, and may do something at the end of an epoch."""

    def __init__(self, at_epoch=lambda run, epoch: None):
        self.planned, self.begun, self.ended, self.notes = [], [], [], []
        self.at_epoch = at_epoch

    def report(self):
        return GridReport(self.hear_plan, self.begin, lambda run, error: self.ended.append(run))

    def hear_plan(self, runs, finished):
        self.planned.append((len(runs), finished))

    def begin(self, run):
        self.begun.append(run.label)
        return Report(
            note=self.notes.append, epoch_done=lambda entry: self.at_epoch(run, entry["epoch"])
        )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets") / "kept elsewhere"
    for split, length in (("train", 8), ("val", 4)):
        write_yolo(shapes_index(split, size=64, length=length, level="plain"), root, images="copy")
    return {"tiny": root}


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """The folder of two finished runs, their grid, and what was said."""
    folder = tmp_path_factory.mktemp("runs")
    wanted, listener = grid(IOU, POWERED, pictures=True), Listener()
    result = run_grid(
        [wanted], folder, data=data, execution=CPU, workers=1, report=listener.report()
    )
    assert (result.failed, result.left) == ([], [])
    return folder, wanted, listener


def names(*grids):
    return [run.name for run in planned_runs(grids)]


def test_one_worker_runs_them_in_order(finished):
    folder, wanted, listener = finished
    assert listener.planned == [(2, 0)]
    assert listener.begun == ["tiny: iou, seed 0", "tiny: iou:3, seed 0"]
    assert [run.name for run in listener.ended] == names(wanted)
    for name in names(wanted):
        record = json.loads((folder / name / "record.json").read_text())
        assert (record["name"], record["recipe"]["data"]["path"]) == (name, "tiny")
        assert (folder / name / "findings.json").exists()


def test_a_run_in_a_worker_is_the_same_as_alone(finished, data, tmp_path):
    folder, wanted, _ = finished
    second = wanted.cells[1].recipe
    elsewhere = replace(second, data=replace(second.data, path=str(data["tiny"])))
    alone = fit(elsewhere, tmp_path, execution=CPU)["history"]
    record = json.loads((folder / recipe_hash(second) / "record.json").read_text())
    for part in ("box", "objectness", "class"):
        here, there = ([entry[part] for entry in run] for run in (alone, record["history"]))
        assert here == pytest.approx(there, rel=1e-4)  # not the same number of threads


def test_what_is_finished_is_not_run_again(finished, data, tmp_path):
    folder, wanted, _ = finished
    listener = Listener()
    result = run_grid([wanted], folder, data=data, execution=CPU, report=listener.report())
    assert (listener.planned, listener.begun) == ([(0, 2)], [])
    assert list(result.records) == names(wanted)
    # Neither are runs whose records are committed: as files that the hash names.
    committed = tmp_path / "results" / "some"
    committed.mkdir(parents=True)
    for name in names(wanted):
        shutil.copy(folder / name / "record.json", committed / f"{name}.json")
    result = run_grid([wanted], tmp_path / "new", earlier=[tmp_path / "results"])
    assert list(result.records.values()) == [committed / f"{name}.json" for name in names(wanted)]


def test_a_run_of_two_grids_is_planned_once_with_pictures_if_one_needs_them():
    first, second = grid(IOU, POWERED, seeds=(0, 1)), grid(POWERED, pictures=True)
    runs = planned_runs([first, second])
    assert [run.label for run in runs] == [
        "tiny: iou, seed 0",
        "tiny: iou:3, seed 0",
        "tiny: iou, seed 1",
        "tiny: iou:3, seed 1",
    ]
    assert [run.pictures for run in runs] == [False, True, False, False]
    assert len({run.name for run in runs}) == 4


def test_failures_and_killed_workers_do_not_stop_the_rest(data, tmp_path):
    """The worker of the second run is killed once, that of the last as often as it begins."""
    recipes = {
        "broken": replace(TINY, data=replace(TINY.data, train="nowhere")),
        "unlucky": replace(TINY, epochs=4),
        "sound": TINY,
        "doomed": replace(TINY, epochs=9),
    }
    wanted = Grid("hard", "Hard", tuple(Cell(*pair) for pair in recipes.items()))
    killed = []

    def kill(run, epoch):
        label = run.label.split()[1].strip(",")
        # In the second epoch, after the checkpoint of the first; or whenever there is an epoch.
        if (label, epoch, killed) == ("unlucky", 2, []) or label == "doomed":
            killed.append(label)
            (child,) = multiprocessing.active_children()
            os.kill(child.pid, signal.SIGKILL)

    listener = Listener(kill)
    result = run_grid(
        [wanted], tmp_path, data=data, execution=CPU, workers=1, report=listener.report()
    )
    assert killed == ["unlucky", "doomed", "doomed"]
    assert any(note.startswith("going on after epoch") for note in listener.notes)
    failed = {run.label: error for run, error in result.failed}
    assert list(failed) == ["hard: broken, seed 0", "hard: doomed, seed 0"]
    assert isinstance(failed["hard: broken, seed 0"], DataError)
    assert "nowhere" in str(failed["hard: broken, seed 0"])
    assert isinstance(failed["hard: doomed, seed 0"], TrainingFailedError)
    assert "exit code -9" in str(failed["hard: doomed, seed 0"])
    assert list(result.records) == [recipe_hash(recipes[label]) for label in ("unlucky", "sound")]
    assert multiprocessing.active_children() == []


def test_interrupted_it_stops_all_workers(data, tmp_path):
    def interrupt(run, epoch):
        raise KeyboardInterrupt

    wanted = grid(IOU, POWERED, LossSpec("diou"))
    with pytest.raises(KeyboardInterrupt):
        run_grid(
            [wanted],
            tmp_path,
            data=data,
            execution=CPU,
            workers=2,
            report=Listener(interrupt).report(),
        )
    assert multiprocessing.active_children() == []


def test_runs_without_data_or_time_are_left(data, tmp_path):
    wanted = grid(IOU, POWERED)
    result = run_grid([wanted], tmp_path, execution=CPU)
    assert [run.label for run in result.left] == ["tiny: iou, seed 0", "tiny: iou:3, seed 0"]
    result = run_grid([wanted], tmp_path, data=data, execution=CPU, workers=1, seconds=4.0)
    # The second would take as long as the first, and that is more than is left.
    assert [run.label for run in result.left] == ["tiny: iou:3, seed 0"]
    with pytest.raises(DataError, match="gone: there is no such file or folder"):
        run_grid([wanted], tmp_path, data={"tiny": tmp_path / "gone"}, execution=CPU)


def test_seats_on_a_processor_share_its_threads():
    assert [seat.gpu for seat in seats_for("cpu", 5, workers=3)] == [None] * 3
    assert len(seats_for("cpu", 1, workers=3)) == 1
    assert all(seat.threads >= 1 for seat in seats_for("cpu", 64, workers=64))


def test_an_empty_pool_ends_at_once():
    assert list(WorkerPool([], seats_for("cpu", 0), CPU).run()) == []
    assert Job(TINY, None).pictures is False
