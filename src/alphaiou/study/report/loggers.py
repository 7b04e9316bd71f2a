"""Log trainings to TensorBoard, CSV files, Weights & Biases or MLflow, by Lightning's loggers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from alphaiou._config import to_plain
from alphaiou.boxes import check_choice
from alphaiou.errors import AlphaIoUError
from alphaiou.study.report.training_page import BATCH, PRECISION_RECALL, PREDICTIONS
from alphaiou.training.callbacks import Callback
from alphaiou.training.recipe import Recipe

if TYPE_CHECKING:
    from lightning.fabric.loggers.logger import Logger

#: The project in Weights & Biases, and the experiment in MLflow.
PROJECT = "alphaiou"
#: Where MLflow writes unless ``MLFLOW_TRACKING_URI`` names a server or another place.
MLFLOW_FOLDER = "mlruns"


class LoggerError(AlphaIoUError, ValueError):
    """A logger cannot be used; the message says what to install."""


class RunLogger(Callback):
    """Log the recipe, the losses and scores of every epoch, and the pictures of a run.

    Args:
        name: One of ``LOGGERS``.

    Raises:
        LoggerError: If its package is not installed.

    Examples:
        >>> RunLogger("csv").name
        'csv'
    """

    def __init__(self, name: str) -> None:
        check_choice("logger", name, tuple(LOGGERS))
        module, self._make, self._log_picture = LOGGERS[name]
        if find_spec(module) is None:
            raise LoggerError(
                f"logger {name} needs {module}, which is not installed: "
                f"pip install 'alphaiou[{name}]'"
            )
        self.name = name
        self.logger: Logger | None = None

    def on_start(self, recipe: Recipe, folder: Path, history: Sequence[Mapping[str, Any]]) -> None:
        """Log the recipe and the epochs before an interruption."""
        self.logger = self._make(folder)
        if self.name != "csv":  # which has no place for them; the folder has recipe.yaml
            self.logger.log_hyperparams(flat(to_plain(recipe)))
        for entry in history:
            self.on_epoch(entry)

    def on_epoch(self, entry: Mapping[str, Any]) -> None:
        """Log the losses, speed and scores of an epoch."""
        if self.logger is not None:
            self.logger.log_metrics(scalars(entry), step=entry["epoch"])
            self.logger.save()

    def on_end(self, record: Mapping[str, Any]) -> None:
        """Log the final scores."""
        if self.logger is not None:
            scores = {f"final/{name}": value for name, value in record["scores"].items()}
            self.logger.log_metrics(defined(scores), step=len(record["history"]))
            self.logger.save()

    def log_pictures(self, folder: Path, step: int) -> None:
        """Log the first batch, predictions and curves of a run; CSV files take no pictures."""
        if self.logger is not None and self._log_picture is not None:
            for name, picture in run_pictures(folder).items():
                self._log_picture(self.logger, name, picture, step)

    def close(self, status: str = "success") -> None:
        """Write what is left; ``status`` is ``success`` or ``failed``."""
        if self.logger is not None:
            self.logger.finalize(status)
            if self.name == "wandb":  # which otherwise waits for the end of the process
                self.logger.experiment.finish()  # type: ignore[attr-defined]
            self.logger = None


def run_pictures(folder: Path) -> dict[str, Image.Image]:
    """Return the pictures that belong to the page of a finished run, by name."""
    paths = [folder / name for name in (BATCH, PREDICTIONS, PRECISION_RECALL)]
    return {path.stem: Image.open(path).convert("RGB") for path in paths if path.exists()}


def scalars(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of an epoch by the names of their curves; undefined ones are left out.

    Examples:
        >>> scalars({"epoch": 1, "box": 0.5, "val": {"map": 0.25}})
        {'train/box': 0.5, 'val/map': 0.25}
    """
    values: dict[str, float | None] = {}
    for name, value in entry.items():
        if isinstance(value, dict):
            values |= {f"{name}/{inner}": number for inner, number in value.items()}
        elif name != "epoch":
            values[f"train/{name}"] = value
    return defined(values)


def defined(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the values that are numbers.

    Examples:
        >>> defined({"map": 0.5, "ap_small": float("nan")})
        {'map': 0.5}
    """
    return {name: value for name, value in values.items() if value is not None and not isnan(value)}


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with dotted names.

    Examples:
        >>> flat({"seed": 0, "detector": {"name": "yolov5n"}})
        {'seed': 0, 'detector.name': 'yolov5n'}
    """
    result: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{name}.")
        else:
            result[f"{prefix}{name}"] = value
    return result


# --- the loggers ----------------------------------------------------------------------------------


def _tensorboard(folder: Path) -> Logger:
    from lightning.fabric.loggers.tensorboard import TensorBoardLogger

    return TensorBoardLogger(folder, name="", version="")


def _csv(folder: Path) -> Logger:
    from lightning.fabric.loggers.csv_logs import CSVLogger

    # Without the rows of an interrupted call, which `on_start` logs again: it would warn of them.
    shutil.rmtree(folder / "csv", ignore_errors=True)
    return CSVLogger(folder, name="", version="csv", flush_logs_every_n_steps=1)


def _wandb(folder: Path) -> Logger:
    from lightning.pytorch.loggers import WandbLogger

    return WandbLogger(name=folder.name, id=folder.name, project=PROJECT, save_dir=folder)


def _mlflow(folder: Path) -> Logger:
    from lightning.pytorch.loggers import MLFlowLogger

    place = (folder / MLFLOW_FOLDER).absolute().as_uri()
    uri = os.environ.get("MLFLOW_TRACKING_URI", place)
    return MLFlowLogger(PROJECT, run_name=folder.name, tracking_uri=uri)


def _tensorboard_picture(logger: Any, name: str, picture: Image.Image, step: int) -> None:  # noqa: ANN401
    logger.experiment.add_image(name, np.asarray(picture), step, dataformats="HWC")
    logger.experiment.flush()


def _wandb_picture(logger: Any, name: str, picture: Image.Image, step: int) -> None:  # noqa: ANN401
    logger.log_image(name, [picture], step=step)


def _mlflow_picture(logger: Any, name: str, picture: Image.Image, step: int) -> None:  # noqa: ANN401
    logger.experiment.log_image(logger.run_id, picture, artifact_file=f"{name}.png")


_Picture = Callable[[Any, str, Image.Image, int], None]
#: The package, the logger of a run folder, and how it takes pictures, by name.
LOGGERS: dict[str, tuple[str, Callable[[Path], Any], _Picture | None]] = {
    "tensorboard": ("tensorboard", _tensorboard, _tensorboard_picture),
    "csv": ("lightning", _csv, None),
    "wandb": ("wandb", _wandb, _wandb_picture),
    "mlflow": ("mlflow", _mlflow, _mlflow_picture),
}
