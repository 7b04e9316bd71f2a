"""Grids through failures: killed processes, full disks, and two grids on one folder.

Each ends, after a further call where that is needed, with the records of a grid without failures.
"""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import pytest

from alphaiou._files import WriteError
from alphaiou.inference.weights import CheckpointError
from alphaiou.study.pool import RecipeJob, RunKilledError, WorkerPool, schedule
from alphaiou.study.runner import (
    TRIES,
    Clock,
    GridResult,
    link_data,
    planned_runs,
    run_grid,
)
from alphaiou.training.checkpoint import locked
from alphaiou.training.loop import Report
from alphaiou.training.recipe import recipe_hash
from benchmarks.tiny import (
    CPU,
    IOU,
    PATIENCE,
    POWERED,
    TINY,
    compute,
    events,
    family,
    grid,
    is_over,
    names,
    one_process,
    outcomes,
    wait_for,
    workers_of,
)
from tests.study.test_runner import Listener, data

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and locks are POSIX's"),
]

__all__ = ["data"]  # a fixture

WANTED = grid(IOU, POWERED, recipe=replace(TINY, epochs=4))


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """The result of a grid without failures."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return run_grid([WANTED], folder, data=data, execution=CPU, workers=1)


@pytest.fixture(scope="module")
def undisturbed(finished):
    """What must not depend on failures, of every run."""
    return outcomes(finished)


def finish(folder, data):
    """Call again after a failure."""
    listener = Listener()
    result = run_grid(
        [WANTED], folder, data=data, execution=CPU, workers=1, report=listener.report()
    )
    return outcomes(result), listener


# Killed processes


def test_a_run_that_loses_every_worker_is_finished_by_the_next_call(data, undisturbed, tmp_path):
    first, second = planned_runs([WANTED])
    killed = []

    def kill(run, epoch):
        (child,) = multiprocessing.active_children()
        if (run, epoch) == (first, 2) and child.pid not in killed:  # a checkpoint of epoch 1
            killed.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    report = Listener(kill).report()
    result = run_grid([WANTED], tmp_path, data=data, execution=CPU, workers=1, report=report)
    assert len(killed) == TRIES
    ((run, error),) = result.failed
    assert (run, type(error)) == (first, RunKilledError)
    assert "ended from outside (exit code -9)" in str(error)
    assert list(result.records) == [second.name]
    again, listener = finish(tmp_path, data)
    assert again == undisturbed
    assert listener.planned == [(1, 1)]
    assert any(note.startswith("resuming after epoch") for note in listener.notes)
    assert multiprocessing.active_children() == []


def test_a_killed_grid_leaves_no_process_and_goes_on(data, undisturbed, tmp_path):
    folder, log = tmp_path / "runs", tmp_path / "log"
    with one_process(compute, WANTED, folder, data, log, 2) as process:
        wait_for(lambda: len({name for name, _ in events(log, "epoch")}) == 2)
        started = family(process)
        assert len(workers_of(process)) == 2
        process.kill()
        wait_for(lambda: all(map(is_over, started)))
    again, _ = finish(folder, data)
    assert again == undisturbed


def test_a_worker_that_waits_for_a_file_ends_with_its_grid(tmp_path):
    """It sends no events meanwhile, and so does not notice that nobody reads them."""
    folder = tmp_path / recipe_hash(TINY)
    folder.mkdir()
    os.mkfifo(folder / "record.json")  # as on a server that does not answer
    with one_process(compute_job, RecipeJob(TINY, tmp_path)) as process:
        writer = []
        wait_for(lambda: open_if_read(folder / "record.json", writer))
        (worker,) = workers_of(process)
        process.kill()
        try:
            wait_for(lambda: is_over(worker))
        finally:
            os.close(*writer)


def compute_job(job):
    list(WorkerPool([job], schedule("cpu", 1), CPU).run())


def open_if_read(path, opened):
    """Open a pipe to write to it, if somebody reads it."""
    with contextlib.suppress(OSError):
        opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    return opened


# Full disks


def fill(folder, links, limit):
    """Compute on a disk that is full until it is given more space."""
    folder, kept = Path(folder), Path(folder).parent
    if limit == "files":
        import resource

        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000_000, before[1]))
    result = run_grid([WANTED], folder, data={"tiny": Path(links)}, execution=CPU, workers=1)
    assert len(result.failed) == 2
    for _, error in result.failed:
        assert isinstance(error, WriteError)
        assert str(error).startswith(str(folder))
        assert "Free some space" in str(error)
    assert list(folder.rglob("*.part")) == []
    if limit == "files":
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    else:
        subprocess.run(["mount", "-o", "remount,size=500m", str(folder)], check=True)
    again, listener = finish(folder, {"tiny": Path(links)})
    assert listener.planned == [(2, 0)]
    resumed = any(note.startswith("resuming after epoch") for note in listener.notes)
    assert resumed == (limit == "disk")  # which has space for the first checkpoint
    (kept / "outcomes.json").write_text(json.dumps(again))


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def is_permitted(folder):
    """Whether a disk can be mounted where nobody else sees it."""
    if shutil.which("unshare") is None:
        return False
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(folder)]
    return subprocess.run([*NAMESPACE, *mount], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("limit", ["disk", "files"])
def test_a_full_disk(limit, data, undisturbed, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    code = "import sys; from tests.study.test_pool import fill; fill(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(folder), str(data["tiny"]), limit]
    if limit == "disk":
        if not is_permitted(folder):
            pytest.skip("a disk of its own needs user namespaces and mount")
        mount = f"mount -t tmpfs -o size=35m tmpfs '{folder}' && exec \"$@\""
        command = [*NAMESPACE, "sh", "-c", mount, "sh", *command]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((tmp_path / "outcomes.json").read_text()) == undisturbed


def test_a_record_that_cannot_be_kept_is_kept_by_the_next_call(data, tmp_path):
    keep, wanted = tmp_path / "kept", grid(IOU, POWERED)
    keep.write_text("in the way")
    result = run_grid([wanted], tmp_path, data=data, keep=keep, execution=CPU, workers=1)
    assert [type(error) for _, error in result.failed] == [WriteError, WriteError]
    assert list(result.records) == names(wanted)
    keep.unlink()
    listener = Listener()
    run_grid([wanted], tmp_path, data=data, keep=keep, execution=CPU, report=listener.report())
    assert listener.begun == []
    assert sorted(path.stem for path in keep.iterdir()) == sorted(names(wanted))


# Two grids on one folder


def test_two_grids_share_their_runs(data, undisturbed, tmp_path):
    """The second skips the run that the first computes, and waits for it at the end."""
    folder, logs = tmp_path / "runs", (tmp_path / "first", tmp_path / "second")
    first, second = names(WANTED)
    with one_process(compute, WANTED, folder, data, logs[0], 1) as one:
        wait_for(lambda: events(logs[0], "epoch"))
        (worker,) = workers_of(one)
        worker.suspend()
        with one_process(compute, WANTED, folder, data, logs[1], 1) as other:
            wait_for(lambda: (second, 4) in events(logs[1], "epoch") or not other.is_alive())
            worker.resume()
            for process in (one, other):
                process.join(PATIENCE)
                assert process.exitcode == 0
    assert events(logs[0], "epoch") == [(first, epoch) for epoch in range(1, 5)]
    assert events(logs[1], "epoch") == [(second, epoch) for epoch in range(1, 5)]
    notes = [text for name, text in events(logs[1], "note") if name == first]
    assert sum("another process" in text for text in notes) == 1
    assert finish(folder, data)[0] == undisturbed


def test_a_grid_does_not_wait_longer_than_its_time(data, tmp_path):
    (run,), listener = planned_runs([grid(IOU)]), Listener()
    options = {"data": data, "execution": CPU, "report": listener.report()}
    with locked(tmp_path / run.name):
        result = run_grid([grid(IOU)], tmp_path, seconds=5.0, **options)
    assert result == GridResult({}, [], [run])
    (note,) = listener.notes
    assert note.startswith(f"{tmp_path / run.name}: another process is training this run")


def test_a_run_that_another_process_finished_says_nothing_of_the_pace(
    data, finished, tmp_path, monkeypatch
):
    first, second = planned_runs([WANTED])
    heard, timed = [], []

    def finish_second(run, epoch):
        heard.append((run.name, epoch))
        if epoch == 1:
            shutil.copytree(finished.records[second.name].parent, tmp_path / second.name)

    monkeypatch.setattr(Clock, "end", lambda clock, number: timed.append(number in clock.begun))
    options = {"data": data, "execution": CPU, "report": Listener(finish_second).report()}
    result = run_grid([WANTED], tmp_path, workers=1, **options)
    assert heard == [(first.name, epoch) for epoch in range(1, 5)]
    assert timed == [True, False]
    assert outcomes(result) == outcomes(finished)


def test_findings_are_computed_by_one_process(data, tmp_path):
    recipe = replace(TINY, data=replace(TINY.data, path=str(data["tiny"])))
    RecipeJob(recipe, tmp_path).do(CPU, Report())
    job = RecipeJob(recipe, tmp_path, pictures=True)
    folder = tmp_path / recipe_hash(recipe)
    with locked(folder), pytest.raises(CheckpointError, match="another process"):
        job.do(CPU, Report())
    job.do(CPU, Report())
    assert (folder / "findings.json").exists()


def test_two_grids_link_their_data_at_once(data, tmp_path):
    errors, together = [], Barrier(4)

    def link(folder):
        together.wait()
        try:
            link_data(data, folder)
        except OSError as error:
            errors.append(error)

    for number in range(200):
        threads = [Thread(target=link, args=(tmp_path / str(number),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        links = tmp_path / str(number) / "data"
        assert [link.name for link in links.iterdir()] == ["tiny"]
    assert errors == []
