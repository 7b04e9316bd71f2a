"""``alphaiou bench``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from alphaiou.experiments.bench.settings import FuzzBench, LossBench


@dataclass(frozen=True)
class Bench:
    """Measure the speed of the losses, and try them on hard boxes."""

    task: Annotated[
        Annotated[LossBench, tyro.conf.subcommand("losses")]
        | Annotated[FuzzBench, tyro.conf.subcommand("fuzz")],
        tyro.conf.arg(name=""),
    ]


def run_bench(command: Bench) -> int:
    """Run the benchmark with progress, print its table and write its record."""
    from alphaiou.cli import UsageError
    from alphaiou.experiments.bench.terminal import bench_fuzz, bench_losses

    try:
        if isinstance(command.task, LossBench):
            bench_losses(command.task)
        else:
            bench_fuzz(command.task)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return 0
