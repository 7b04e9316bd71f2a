"""``alphaiou bench``."""

from __future__ import annotations

from alphaiou.cli.tasks import command_of
from benchmarks.settings import FuzzBench, LossBench


def run_bench(task: LossBench | FuzzBench) -> int:
    """Run the benchmark with progress, print its table and write its record."""
    from alphaiou.cli import UsageError
    from benchmarks.terminal import bench_fuzz, bench_losses

    try:
        if isinstance(task, LossBench):
            bench_losses(task)
        else:
            bench_fuzz(task)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return 0


BENCH = command_of(
    "Measure the speed of the losses, and try them on hard boxes.",
    {"losses": (LossBench, run_bench), "fuzz": (FuzzBench, run_bench)},
)
