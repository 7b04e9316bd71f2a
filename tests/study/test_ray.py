"""Grids on a real Ray cluster of two machines, both of them here."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import Future
from dataclasses import replace
from threading import Timer
from types import SimpleNamespace
from unittest.mock import patch

import psutil
import pytest

from alphaiou._files import WriteError, write_file
from alphaiou.data.problems import DataError
from alphaiou.study import ray as ray_grid
from alphaiou.study.grid import Grid, Row
from alphaiou.study.pool import RecipeJob
from alphaiou.study.ray import RayError
from alphaiou.study.runner import GridReport, run_grid
from alphaiou.study.tune import TuneReport, tune
from alphaiou.training.checkpoint import locked
from alphaiou.training.loop import Report
from benchmarks.tiny import (
    CPU,
    IOU,
    POWERED,
    TINY,
    compute,
    events,
    grid,
    is_over,
    names,
    one_process,
    outcomes,
    wait_for,
)
from tests.study.test_runner import Listener, data
from tests.study.tune.functions import SPACE

pytestmark = pytest.mark.slow

__all__ = ["data"]  # a fixture


@contextlib.contextmanager
def two_machines(tmp_path, monkeypatch):
    """A cluster of two machines with one core each, and these."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # sockets have short paths only
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where its machines keep their runs
    # Ray's workers are nice by default, and starve where other tests run beside them. A machine is
    # lost when it has not answered five times, between which Ray lets three seconds pass.
    config = {"worker_niceness": 0, "health_check_period_ms": 500}
    head = {"num_cpus": 0, "_system_config": config}
    # Not of the cluster: services that other tests have left, such as that of W&B.
    others = set(psutil.Process().children(recursive=True))
    made = Cluster(initialize_head=True, head_node_args=head)
    made.others = others
    machines = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made, machines
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Two machines, of which no process is left at the end."""
    with two_machines(tmp_path, monkeypatch) as (made, machines):
        made.processes = set()
        yield made, machines
        made.processes |= {process for process, _ in ray_processes(made)}
    wait_for(lambda: all(map(is_over, made.processes)))


def ray_processes(cluster):
    """The processes of the cluster, with their command lines."""
    found = []
    for process in set(psutil.Process().children(recursive=True)) - cluster.others:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            line = " ".join(process.cmdline())
            if "multiprocessing" not in line:
                found.append((process, line))
    return found


def held(lost):
    """Runs that stay at an epoch until a file says which machine is lost; those on it for ever."""

    def stay():
        import ray

        here, begun = ray.get_runtime_context().get_node_id(), time.monotonic()
        while not lost.exists() or lost.read_text() == here:
            assert time.monotonic() - begun < 120, "no machine was lost"
            time.sleep(0.05)

    def train(number, job, data, execution, board):
        compute = type(job).do

        def do(self, execution, report):
            def epoch_done(entry):
                report.epoch_done(entry)
                stay()

            compute(self, execution, replace(report, epoch_done=epoch_done))

        with patch.object(type(job), "do", do):
            return ray_grid._train(number, job, data, execution, board)

    return train


@pytest.fixture
def boards(monkeypatch):
    """The boards that are put up."""
    made, put_up = [], ray_grid._board
    monkeypatch.setattr(ray_grid, "_board", lambda: made.append(put_up()) or made[-1])
    return made


def place_and_process(board):
    import ray

    def ask(_):
        return ray.get_runtime_context().get_node_id(), os.getpid()

    return ray.get(board.__ray_call__.remote(ask))


def test_nothing_is_lost_with_a_machine(cluster, boards, data, tmp_path, monkeypatch):
    """Neither a run nor what is told of it, even if the board ends at the same time."""
    made, machines = cluster
    broken = replace(TINY, data=replace(TINY.data, train="nowhere"))
    long = replace(TINY, epochs=3)
    wanted = grid(IOU, POWERED, recipe=long, pictures=True)
    wanted = replace(wanted, rows=(*wanted.rows, Row("broken", broken)))
    lost, heard = tmp_path / "lost", defaultdict(list)
    monkeypatch.setattr(ray_grid, "_train", held(lost))

    def lose_a_machine(run, epoch):
        heard[run.label].append(epoch)
        place, process = place_and_process(*boards)
        assert place == made.head_node.node_id  # before it ends and after
        if len(heard) == len(machines) == 2:  # both are at work
            machine = machines.pop()
            made.processes |= {process for process, _ in ray_processes(made)}
            made.remove_node(machine, allow_graceful=False)
            os.kill(process, signal.SIGKILL)
            write_file(lost, machine.node_id)

    listener = Listener(lose_a_machine)
    result = run_grid(
        [wanted],
        tmp_path,
        data=data,
        execution=CPU,
        ray=made.address,
        report=listener.report(),
    )
    assert len(machines) == 1
    assert [set(epochs) for epochs in heard.values()] == [{1, 2, 3}] * 2
    assert any(epochs.count(1) > 1 for epochs in heard.values())  # the run that was on it
    assert list(tmp_path.glob("alphaiou-*/*"))
    ((run, error),) = result.failed
    assert (run.label, type(error)) == ("tiny: broken, seed 0", DataError)
    assert list(result.records) == names(wanted)[:2]
    for name, path in result.records.items():
        record = json.loads(path.read_text())
        assert (record["name"], len(record["history"])) == (name, 3)
        assert {"findings.json", "best.safetensors"} <= {one.name for one in path.parent.iterdir()}


def training(cluster):
    """The processes of Ray that train."""
    return [process for process, line in ray_processes(cluster) if line.startswith("ray::_train")]


LONGER = grid(IOU, POWERED, recipe=replace(TINY, epochs=15))


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    """What must not depend on failures, of both runs."""
    folder = tmp_path_factory.mktemp("alone")
    return outcomes(run_grid([LONGER], folder, data=data, execution=CPU, workers=1))


def test_nothing_is_lost_or_repeated_with_a_process(cluster, alone, data, tmp_path):
    """A process that is killed, and not its machine."""
    made, _ = cluster
    heard, killed = defaultdict(list), []

    def run(planned):
        def epoch_done(entry):
            heard[planned.name].append(entry["epoch"])
            if len(heard) == 2 and not killed:
                killed.extend(training(made)[:1])
                killed[0].kill()

        return Report(epoch_done=epoch_done)

    options = {"data": data, "execution": CPU, "ray": made.address}
    result = run_grid([LONGER], tmp_path / "runs", report=GridReport(run=run), **options)
    assert outcomes(result) == alone
    assert killed
    # The other run was not touched. The killed one resumes where it finds its checkpoint, which
    # may not be on the machine that is free first.
    assert list(range(1, 16)) in heard.values()


def test_a_killed_grid_leaves_no_run_on_the_cluster_and_goes_on(cluster, alone, data, tmp_path):
    """Also if the files of a run cannot be written, which stops no other run."""
    made, _ = cluster
    folder, log = tmp_path / "runs", tmp_path / "log"
    with one_process(compute, LONGER, folder, data, log, None, made.address) as process:
        wait_for(lambda: events(log, "epoch") or not process.is_alive())
        process.kill()
        wait_for(lambda: training(made) == [])
    assert not list(folder.glob("*/record.json")), "it was over before it could be killed"
    first, second = names(LONGER)
    shutil.rmtree(folder / first, ignore_errors=True)
    (folder / first).write_text("in the way")
    options = {"data": data, "execution": CPU, "ray": made.address}
    result = run_grid([LONGER], folder, **options)
    ((run, error),) = result.failed
    assert (run.name, type(error)) == (first, WriteError)
    assert list(result.records) == [second]
    (folder / first).unlink()
    assert outcomes(run_grid([LONGER], folder, **options)) == alone


def test_a_run_that_another_process_trains_is_left_to_it(cluster, data, tmp_path):
    made, _ = cluster
    folder, wanted = tmp_path / "runs", grid(IOU, POWERED)
    first, second = names(wanted)
    elsewhere = run_grid([grid(IOU)], tmp_path / "elsewhere", data=data, execution=CPU)
    heard, notes = defaultdict(list), defaultdict(list)

    def finish_first(run, _):
        if run.name == second:
            shutil.copytree(elsewhere.records[first].parent, folder / first, dirs_exist_ok=True)
            lock.close()

    def run(planned):
        return Report(
            note=notes[planned.name].append,
            epoch_done=lambda entry: heard[planned.name].append(entry["epoch"]),
        )

    report = GridReport(run=run, ended=finish_first)
    with contextlib.ExitStack() as lock:
        lock.enter_context(locked(folder / first))
        options = {"data": data, "execution": CPU, "ray": made.address}
        result = run_grid([wanted], folder, report=report, **options)
    assert (result.failed, list(result.records)) == ([], [first, second])
    assert heard == {second: [1, 2]}
    (note,) = notes[first]
    assert note.startswith(f"{folder / first}: another process is training this run")


def test_calls_to_the_board_may_be_made_twice():
    board, event = ray_grid._board_class()(), (0, "note", ("something",))
    board.add("first", event)
    board.add("first", event)
    assert board.take([]) == board.take([]) == {"first": event}
    board.add("second", event)
    assert board.take(["first"]) == board.take(["first"]) == {"second": event}


def run_beside(tell, folder, monkeypatch):
    """A run that says one thing to a board which is told things by a function."""

    def remote(_, event):
        future = Future()
        tell(future, event)
        return SimpleNamespace(future=lambda: future)

    board = SimpleNamespace(add=SimpleNamespace(remote=remote))
    monkeypatch.setattr(ray_grid, "_home", lambda: folder)
    monkeypatch.setattr(RecipeJob, "do", lambda job, execution, report: report.note("the last"))
    return ray_grid._train(7, RecipeJob(TINY, folder), {}, CPU, board)


def test_a_run_ends_when_all_of_it_is_told(tmp_path, monkeypatch):
    told = []

    def tell_later(future, event):
        Timer(0.2, lambda: future.set_result(told.append(event))).start()

    assert run_beside(tell_later, tmp_path, monkeypatch) == {}
    assert told == [(7, "note", ("the last",))]


def test_a_run_ends_without_a_board(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_grid, "PATIENCE_SECONDS", 0.1)
    assert run_beside(lambda future, event: None, tmp_path, monkeypatch) == {}
    lost = RayError("the board is gone")
    assert run_beside(lambda future, _: future.set_exception(lost), tmp_path, monkeypatch) == {}


def test_without_ray_it_says_what_to_install(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayError, match=r"pip install '\.\[ray\]'"):
        run_grid([Grid("tiny", "Tiny", (Row("one", TINY),))], tmp_path, data=data, ray="auto")


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_under_uv_run_workers_are_started_as_without_it(tmp_path):
    """Ray would start them by ``uv run`` and send them the current folder."""
    pytest.importorskip("ray", reason="Ray is not installed")
    script = tmp_path / "connect.py"
    script.write_text(
        "from alphaiou.study.ray import _connect\n"
        "ray = _connect('local')\n"
        "print('environment:', dict(ray.get_runtime_context().runtime_env))\n"
    )
    command = ["uv", "run", "--no-project", "--no-config", sys.executable, str(script)]
    short = {**os.environ, "RAY_TMPDIR": tempfile.gettempdir()}
    short.pop("RAY_ENABLE_UV_RUN_RUNTIME_ENV", None)
    done = subprocess.run(
        command, cwd=tmp_path, env=short, capture_output=True, text=True, check=False
    )
    assert "environment: {}" in done.stdout.splitlines(), done.stdout + done.stderr


def test_no_cluster(data, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    with pytest.raises(RayError, match="no cluster answers there"):
        run_grid([Grid("tiny", "Tiny", (Row("one", TINY),))], tmp_path, data=data, ray="auto")


@pytest.fixture
def tuned_cluster(tmp_path, monkeypatch):
    """Two machines; what a lost one leaves behind is the subject of the other tests."""
    with two_machines(tmp_path, monkeypatch) as made_and_machines:
        yield made_and_machines


def test_a_search_survives_a_lost_machine(tuned_cluster, tmp_path):
    made, machines = tuned_cluster
    log, ended, begun = tmp_path / "log", [], []

    def train(settings, report):  # sent by value: the machines do not have this file
        import ray

        with log.open("a") as file:
            file.write(json.dumps([settings.name, ray.get_runtime_context().get_node_id()]) + "\n")
        score = 0.5 - (settings.loss.alpha - 2) ** 2 / 50
        for epoch in (1, 2, 3):
            report(epoch, {"map": score * (0.7 + epoch / 10)})
            time.sleep(0.3)
        return {"map": score}

    def end(number, outcome):
        ended.append((number, outcome))
        if len(ended) == 3:
            made.remove_node(machines.pop(), allow_graceful=False)

    report = TuneReport(begun=lambda number, _: begun.append(number), ended=end)
    options = {"trials": 12, "seeds": 0, "ray": made.address, "report": report}
    result = tune(train, SPACE, tmp_path / "study", **options)
    assert len(machines) == 1
    assert sorted(begun) == sorted(number for number, _ in ended) == list(range(12))
    assert {trial.state for trial in result.trials} <= {"complete", "pruned"}
    places = [json.loads(line) for line in log.read_text().splitlines()]
    assert len({place for _, place in places}) == 2
    runs = Counter(name for name, _ in places)
    assert {trial.run for trial in result.trials} == set(runs)
    # The run on the lost machine begins again on the other one; no other run does.
    assert sum(runs.values()) - len(runs) <= 1
