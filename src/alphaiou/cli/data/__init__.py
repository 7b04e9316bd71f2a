"""``alphaiou data``: look at data sets, and make new ones of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from alphaiou.cli.data.check import DataCheck, run_data_check
from alphaiou.cli.data.convert import DataConvert, run_data_convert
from alphaiou.cli.data.noise import DataNoise, run_data_noise
from alphaiou.cli.data.stats import DataStats, run_data_stats
from alphaiou.cli.data.subset import DataSubset, run_data_subset

TASKS: dict[type, Callable[[Any], int]] = {
    DataCheck: run_data_check,
    DataConvert: run_data_convert,
    DataSubset: run_data_subset,
    DataStats: run_data_stats,
    DataNoise: run_data_noise,
}


@dataclass(frozen=True)
class Data:
    """Check, convert, cut, describe or perturb a data set."""

    task: Annotated[
        Annotated[DataCheck, tyro.conf.subcommand("check")]
        | Annotated[DataConvert, tyro.conf.subcommand("convert")]
        | Annotated[DataSubset, tyro.conf.subcommand("subset")]
        | Annotated[DataStats, tyro.conf.subcommand("stats")]
        | Annotated[DataNoise, tyro.conf.subcommand("noise")],
        tyro.conf.arg(name=""),
    ]


def run_data(command: Data) -> int:
    """Do one of the tasks."""
    return TASKS[type(command.task)](command.task)
