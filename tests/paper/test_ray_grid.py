"""Grids on a real Ray cluster of two machines, both of them here."""

import json
import sys
import tempfile
from dataclasses import replace

import pytest

from alphaiou.data.problems import DataError
from alphaiou.experiments.grid import Cell, Grid
from alphaiou.experiments.grid_runner import run_grid
from alphaiou.experiments.ray_grid import RayError
from tests.paper.test_grid_runner import CPU, IOU, POWERED, TINY, Listener, data, grid, names

pytestmark = pytest.mark.slow

__all__ = ["data"]  # a fixture


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # sockets have short paths only
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where its machines keep their runs
    # Ray's workers are nice by default, and starve where other tests run beside them.
    head = {"num_cpus": 0, "_system_config": {"worker_niceness": 0}}
    made = Cluster(initialize_head=True, head_node_args=head)
    machines = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made, machines
    ray.shutdown()
    made.shutdown()


def test_nothing_is_lost_with_a_machine(cluster, data, tmp_path):
    made, machines = cluster
    broken = replace(TINY, data=replace(TINY.data, train="nowhere"))
    long = replace(TINY, epochs=6)
    wanted = grid(IOU, POWERED, recipe=long, pictures=True)
    wanted = replace(wanted, cells=(*wanted.cells, Cell("broken", broken)))
    seen = set()

    def lose_a_machine(run, epoch):
        seen.add(run.label)
        if len(seen) == len(machines) == 2:  # both are at work
            made.remove_node(machines.pop(), allow_graceful=False)

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
    assert list(tmp_path.glob("alphaiou-*/*"))
    ((run, error),) = result.failed
    assert (run.label, type(error)) == ("tiny: broken, seed 0", DataError)
    assert list(result.records) == names(wanted)[:2]
    for name, path in result.records.items():
        record = json.loads(path.read_text())
        assert (record["name"], len(record["history"])) == (name, 6)
        assert {"findings.json", "best.safetensors"} <= {one.name for one in path.parent.iterdir()}


def test_without_ray_it_says_what_to_install(data, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayError, match=r"pip install 'alphaiou\[ray\]'"):
        run_grid([Grid("tiny", "Tiny", (Cell("one", TINY),))], tmp_path, data=data, ray="auto")


def test_no_cluster(data, tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    with pytest.raises(RayError, match="no cluster answers there"):
        run_grid([Grid("tiny", "Tiny", (Cell("one", TINY),))], tmp_path, data=data, ray="auto")
