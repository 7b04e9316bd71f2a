"""Grids on a real Ray cluster of two machines, both of them here."""

import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import replace
from threading import Timer
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from alphaiou._files import write_file
from alphaiou.data.problems import DataError
from alphaiou.study import pool
from alphaiou.study import ray as ray_grid
from alphaiou.study.grid import Grid, Row
from alphaiou.study.pool import Job
from alphaiou.study.ray import RayError
from alphaiou.study.runner import run_grid
from tests.study.test_runner import CPU, IOU, POWERED, TINY, Listener, data, grid, names

pytestmark = pytest.mark.slow

__all__ = ["data"]  # a fixture


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # sockets have short paths only
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where its machines keep their runs
    # Ray's workers are nice by default, and starve where other tests run beside them. A machine is
    # lost when it has not answered five times, between which Ray lets three seconds pass.
    config = {"worker_niceness": 0, "health_check_period_ms": 500}
    head = {"num_cpus": 0, "_system_config": config}
    made = Cluster(initialize_head=True, head_node_args=head)
    machines = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made, machines
    ray.shutdown()
    made.shutdown()


def held(lost):
    """Runs that stay at an epoch until a file says which machine is lost; those on it for ever."""

    def stay():
        import ray

        here, begun = ray.get_runtime_context().get_node_id(), time.monotonic()
        while not lost.exists() or lost.read_text() == here:
            assert time.monotonic() - begun < 120, "no machine was lost"
            time.sleep(0.05)

    def do_job(job, execution, report):
        def epoch_done(entry):
            report.epoch_done(entry)
            stay()

        pool.do_job(job, execution, replace(report, epoch_done=epoch_done))

    def train(number, job, data, execution, board):
        with patch.object(ray_grid, "do_job", do_job):
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
    monkeypatch.setattr(ray_grid, "do_job", lambda job, execution, report: report.note("the last"))
    return ray_grid._train(7, Job(TINY, folder), {}, CPU, board)


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
    with pytest.raises(RayError, match=r"pip install 'alphaiou\[ray\]'"):
        run_grid([Grid("tiny", "Tiny", (Row("one", TINY),))], tmp_path, data=data, ray="auto")


def test_no_cluster(data, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    with pytest.raises(RayError, match="no cluster answers there"):
        run_grid([Grid("tiny", "Tiny", (Row("one", TINY),))], tmp_path, data=data, ray="auto")
