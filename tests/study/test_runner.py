"""Grids run with tiny real trainings."""

import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from alphaiou.data.formats.yolo import write_yolo
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.losses.spec import LossSpec
from alphaiou.study import runner
from alphaiou.study.grid import Grid, Row
from alphaiou.study.pool import Worker, WorkerPool, schedule, share_gpus_in_turn
from alphaiou.study.runner import Clock, GridReport, GridResult, planned_runs, run_grid
from alphaiou.training.loop import Report, fit
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.record import RecordError
from benchmarks.tiny import CPU, IOU, POWERED, TINY, grid, names

pytestmark = pytest.mark.slow


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


@dataclass
class Eventful:
    """Runs of one worker, of which the first fails and the last is killed once."""

    folder: Path
    wanted: Grid
    listener: Listener
    result: GridResult


@pytest.fixture(scope="module")
def eventful(data, tmp_path_factory):
    recipes = {
        "broken": replace(TINY, data=replace(TINY.data, train="nowhere")),
        "plain": replace(TINY, loss=IOU),
        "powered": replace(TINY, loss=POWERED),
        "unlucky": replace(TINY, epochs=4),
    }
    wanted = Grid("hard", "Hard", tuple(Row(*pair) for pair in recipes.items()), pictures=True)
    killed = []

    def kill(run, epoch):
        # In the second epoch: after the checkpoint of the first.
        if (run.recipe.epochs, epoch, killed) == (4, 2, []):
            (child,) = multiprocessing.active_children()
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    folder, listener = tmp_path_factory.mktemp("runs"), Listener(kill)
    result = run_grid(
        [wanted],
        folder,
        data=data,
        keep=folder.parent / "kept",
        execution=CPU,
        workers=1,
        report=listener.report(),
    )
    assert killed
    return Eventful(folder, wanted, listener, result)


def test_they_run_in_order_and_leave_records_that_name_the_data(eventful):
    listener, folder = eventful.listener, eventful.folder
    assert listener.planned == [(4, 0)]
    assert [label.split()[1] for label in listener.begun] == [
        "broken,",
        "plain,",
        "powered,",
        "unlucky,",
    ]
    assert listener.ended == planned_runs([eventful.wanted])
    assert list(eventful.result.records) == names(eventful.wanted)[1:]
    for name, path in eventful.result.records.items():
        record = json.loads(path.read_text())
        assert path == folder / name / "record.json"
        assert (record["name"], record["recipe"]["data"]["path"]) == (name, "tiny")
        assert (folder / name / "findings.json").exists()
        assert (folder.parent / "kept" / f"{name}.json").read_bytes() == path.read_bytes()


def test_a_failed_run_does_not_stop_the_rest(eventful):
    ((run, error),) = eventful.result.failed
    assert run.label == "hard: broken, seed 0"
    assert isinstance(error, DataError)
    assert "nowhere" in str(error)
    assert eventful.result.left == []


def test_a_run_whose_worker_is_killed_goes_on_in_another(eventful):
    assert any(note.startswith("resuming after epoch") for note in eventful.listener.notes)
    record = json.loads(list(eventful.result.records.values())[-1].read_text())
    assert [entry["epoch"] for entry in record["history"]] == [1, 2, 3, 4]
    assert multiprocessing.active_children() == []


def test_a_run_in_a_worker_is_the_same_as_alone(eventful, data, tmp_path):
    """Also after other runs in the same process, with their decoded images."""
    recipe = replace(TINY, loss=POWERED)
    elsewhere = replace(recipe, data=replace(recipe.data, path=str(data["tiny"])))
    alone = fit(elsewhere, tmp_path, execution=CPU)["history"]
    record = json.loads((eventful.folder / recipe_hash(recipe) / "record.json").read_text())
    for part in ("box", "objectness", "class"):
        here, there = ([entry[part] for entry in run] for run in (alone, record["history"]))
        assert here == pytest.approx(there, rel=1e-4)  # not the same number of threads


def test_what_is_finished_is_not_run_again(eventful, data, tmp_path):
    wanted = replace(eventful.wanted, rows=eventful.wanted.rows[1:])
    listener, folder = Listener(), eventful.folder
    result = run_grid([wanted], folder, data=data, execution=CPU, report=listener.report())
    assert (listener.planned, listener.begun) == ([(0, 3)], [])
    assert result == GridResult(eventful.result.records, [], [])
    # Neither are runs whose records are committed: as files that the hash names.
    committed = tmp_path / "results" / "some"
    committed.mkdir(parents=True)
    for name in names(wanted):
        shutil.copy(folder / name / "record.json", committed / f"{name}.json")
    result = run_grid([wanted], tmp_path / "new", earlier=[tmp_path / "results"])
    assert list(result.records.values()) == [committed / f"{name}.json" for name in names(wanted)]


def test_data_that_changed_after_a_run_are_noticed(eventful, data, tmp_path):
    wanted = replace(eventful.wanted, rows=eventful.wanted.rows[1:])
    other = tmp_path / "copied"
    shutil.copytree(data["tiny"], other)  # with the times of the originals
    images = sorted(other.rglob("*.png"))
    os.utime(images[0], (1.0, 1.0))
    notes, folder = [], eventful.folder
    told = GridReport(note=notes.append)
    run_grid([wanted], folder, data={"tiny": other}, execution=CPU, report=told)
    touched = [note for note in notes if "image files have other times" in note]
    assert len(touched) == 3
    labels = next(path for path in sorted(other.rglob("*.txt")) if path.read_text().strip())
    labels.write_text(labels.read_text() + labels.read_text())
    with pytest.raises(RecordError, match="since the training, the annotations have changed"):
        run_grid([wanted], folder, data={"tiny": other}, execution=CPU)
    run_grid([wanted], folder, data=data, execution=CPU)


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


def test_interrupted_it_stops_all_workers(data, tmp_path):
    def interrupt(_):
        raise KeyboardInterrupt

    wanted = grid(IOU, POWERED, LossSpec("diou"))
    report = GridReport(run=lambda _: Report(note=interrupt))
    with pytest.raises(KeyboardInterrupt):
        run_grid(
            [wanted],
            tmp_path,
            data=data,
            execution=CPU,
            workers=2,
            report=report,
        )
    assert multiprocessing.active_children() == []


def test_runs_without_data_or_time_are_left(data, tmp_path):
    wanted = grid(IOU, POWERED)
    labels = ["tiny: iou, seed 0", "tiny: iou:3, seed 0"]
    result = run_grid([wanted], tmp_path, data={}, execution=CPU)
    assert [run.label for run in result.left] == labels
    result = run_grid([wanted], tmp_path, data=data, execution=CPU, seconds=0.0)
    assert [run.label for run in result.left] == labels
    with pytest.raises(DataError, match="gone: there is no such file or folder"):
        run_grid([wanted], tmp_path, data={"tiny": tmp_path / "gone"}, execution=CPU)


def test_no_run_is_begun_that_would_end_too_late():
    whole = Recipe(epochs=4)
    others = [replace(whole, subset=0.25), replace(whole, detector="yolov5x")]
    clock = Clock([whole, *others], seconds=100.0)
    clock.begin(0)
    clock.begun[0] -= 60.0
    clock.end(0)
    assert clock.may_start(0)  # a minute more than nothing
    clock.start -= 60.0
    assert not clock.may_start(0)  # a minute more than a minute
    assert clock.may_start(1)  # a quarter
    assert clock.may_start(2)  # nobody knows
    clock.start -= 60.0
    assert not any(map(clock.may_start, range(3)))
    assert replace(clock, seconds=None).may_start(0)


def test_a_failed_run_says_nothing_of_the_pace(data, tmp_path, monkeypatch):
    ended = []
    monkeypatch.setattr(Clock, "end", lambda _, number: ended.append(number))
    broken = replace(TINY, data=replace(TINY.data, train="nowhere"))
    result = run_grid([grid(IOU, recipe=broken)], tmp_path, data=data, execution=CPU)
    assert len(result.failed) == 1
    assert ended == []


def test_a_shorter_run_is_begun_where_the_next_would_end_too_late(data, tmp_path):
    late = grid(IOU, recipe=replace(TINY, epochs=10**9))
    wanted = [grid(IOU), late, grid(POWERED)]
    result = run_grid(wanted, tmp_path, data=data, execution=CPU, workers=1, seconds=3600.0)
    assert [run.recipe.epochs for run in result.left] == [10**9]
    assert len(result.records) == 2


def test_workers_on_a_processor_share_its_threads():
    assert [worker.gpu for worker in schedule("cpu", 5, at_once=3)] == [None] * 3
    assert len(schedule("cpu", 1, at_once=3)) == 1
    assert all(worker.threads >= 1 for worker in schedule("cpu", 64, at_once=64))


def test_workers_take_turns_on_a_gpu_that_they_share_without_mps(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    shared = [Worker(gpu="0"), Worker(gpu="1"), Worker(gpu="0")]
    assert share_gpus_in_turn(shared)
    assert not share_gpus_in_turn(shared[:2])
    assert not share_gpus_in_turn(schedule("cpu", 2, at_once=2))
    (tmp_path / "control").touch()
    assert not share_gpus_in_turn(shared)


def test_who_listens_is_told_that_workers_share_gpus_in_turn(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    workers, notes = [Worker(gpu="0")] * 2, []
    monkeypatch.setattr(runner, "schedule", lambda *_: workers)
    run_grid([], tmp_path, execution=CPU, report=GridReport(note=notes.append))
    assert [note for note in notes if "nvidia-cuda-mps-control -d" in note] == notes != []
    workers.pop()
    run_grid([], tmp_path, execution=CPU, report=GridReport(note=notes.append))
    assert len(notes) == 1


def test_an_empty_pool_ends_at_once():
    assert list(WorkerPool([], schedule("cpu", 0), CPU).run()) == []
