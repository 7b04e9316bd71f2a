"""Loggers with the real packages, offline: what they wrote is read back by their own readers."""

import csv
import json
import struct

import pytest
from PIL import Image

from alphaiou.study.report import loggers
from alphaiou.study.report.loggers import LOGGERS, RunLogger, scalars
from alphaiou.training.callbacks import Callback
from alphaiou.training.loop import fit
from benchmarks.tiny import wait_for
from tests.training.runs import tiny_recipe, write_shapes

EPOCHS = 2
PICTURES = ("batch.jpg", "predictions.jpg", "precision_recall.png")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The recipe, folder and record of a run, with pictures in its folder."""
    folder = tmp_path_factory.mktemp("run")
    data = write_shapes(folder / "data", train=4, val=2)
    recipe = tiny_recipe(data, epochs=EPOCHS, data={"val": "val"}, evaluate_every=1)
    record = fit(recipe, folder / "runs")
    return recipe, record


@pytest.fixture
def folder(tmp_path, run):
    place = tmp_path / run[1]["name"]
    place.mkdir()
    for name in PICTURES:
        Image.new("RGB", (40, 30), "red").save(place / name)
    return place


def log(name, run, folder, *, earlier=0):
    """Log a run; the first epochs are those before an interruption."""
    recipe, record = run
    logger = RunLogger(name)
    logger.on_start(recipe, folder, record["history"][:earlier])
    for entry in record["history"][earlier:]:
        logger.on_epoch(entry)
    logger.on_end(record)
    logger.log_pictures(folder, EPOCHS)
    logger.close()


def curve(record, name):
    return [scalars(entry)[name] for entry in record["history"]]


@pytest.mark.slow
def test_tensorboard(run, folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log("tensorboard", run, folder)
    events = EventAccumulator(str(folder))
    events.Reload()
    for name in ("train/box", "val/map"):
        found = events.Scalars(name)
        assert [event.step for event in found] == [1, 2]
        assert [event.value for event in found] == pytest.approx(curve(run[1], name))
    assert "final/map" in events.Tags()["scalars"]
    assert sorted(events.Tags()["images"]) == ["batch", "precision_recall", "predictions"]
    assert events.Images("batch")[0].width == 40


@pytest.mark.parametrize("earlier", [0, 1])
def test_csv(run, folder, earlier):
    if earlier:  # as an interrupted call left it
        log("csv", (run[0], run[1] | {"history": run[1]["history"][:1]}), folder)
    log("csv", run, folder, earlier=earlier)
    with (folder / "csv/metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["train/box"]]
    assert [int(row["step"]) for row in rows] == [1, 2]
    assert [float(row["train/box"]) for row in rows] == pytest.approx(curve(run[1], "train/box"))


@pytest.mark.slow
def test_mlflow(run, folder, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log("mlflow", run, folder)
    from mlflow.tracking import MlflowClient

    client = MlflowClient((folder / "mlruns").absolute().as_uri())
    experiment = client.get_experiment_by_name("alphaiou")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == folder.name
    assert found.info.status == "FINISHED"
    assert found.data.params["detector.name"] == run[0].detector.name
    history = client.get_metric_history(found.info.run_id, "train/box")
    assert [point.step for point in history] == [1, 2]
    assert [point.value for point in history] == pytest.approx(curve(run[1], "train/box"))
    artifacts = {item.path for item in client.list_artifacts(found.info.run_id)}
    assert artifacts == {"batch.png", "predictions.png", "precision_recall.png"}


WANDB_HEADER, BLOCK = 7, 1 << 15


def leveldb_records(data, place):
    """The records of a log of LevelDB, which W&B writes: blocks of pieces with 7 bytes of head."""
    at, parts = 0, b""
    while at + 7 <= len(data):
        if BLOCK - (place + at) % BLOCK < 7:  # too little for a head
            at += BLOCK - (place + at) % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield parts
            parts = b""


@pytest.mark.slow
def test_wandb_offline(run, folder, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    log("wandb", run, folder)
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    assert folder.name in path.name
    from wandb.proto.wandb_internal_pb2 import Record

    def rows():
        """The history, which a process of W&B writes to the file."""
        for data in leveldb_records(path.read_bytes()[WANDB_HEADER:], WANDB_HEADER):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {item.key or "/".join(item.nested_key): item.value_json for item in items}

    wait_for(lambda: any("predictions/format" in row for row in rows()))
    logged = [json.loads(row["train/box"]) for row in rows() if "train/box" in row]
    assert logged == pytest.approx(curve(run[1], "train/box"))


def test_a_package_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(loggers, "find_spec", lambda _: None)
    with pytest.raises(loggers.LoggerError, match=r"needs wandb.*pip install 'alphaiou\[wandb\]'"):
        RunLogger("wandb")
    with pytest.raises(ValueError, match="tensorboard"):
        RunLogger("comet")
    assert set(LOGGERS) == {"tensorboard", "csv", "wandb", "mlflow"}


class Recorder(Callback):
    def __init__(self):
        self.calls = []

    def on_epoch(self, entry):
        self.calls.append(entry["epoch"])
        if self.calls == [1]:
            raise KeyboardInterrupt


class Resumed(Callback):
    def __init__(self):
        self.calls = []

    def on_start(self, recipe, folder, history):
        self.calls.append(("start", recipe.epochs, folder.name, [one["epoch"] for one in history]))

    def on_epoch(self, entry):
        self.calls.append(("epoch", entry["epoch"]))

    def on_end(self, record):
        self.calls.append(("end", record["name"]))


def test_callbacks_of_an_interrupted_run(tmp_path, run):
    """A callback needs only the methods that it uses; one that raises ends the training."""
    recipe, record = run
    first = Recorder()
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, tmp_path, callbacks=[first])
    assert first.calls == [1]
    second = Resumed()
    again = fit(recipe, tmp_path, callbacks=[second])
    name = record["name"]
    assert second.calls == [("start", EPOCHS, name, [1]), ("epoch", 2), ("end", name)]
    assert again["scores"] == record["scores"]
    fit(recipe, tmp_path, callbacks=[second])
    assert len(second.calls) == 3  # the run was finished
