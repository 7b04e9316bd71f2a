"""The benchmarks on a terminal: progress while they run, a table when they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from alphaiou.inference.tables import figures, small_number
from benchmarks.fuzz import run_fuzz
from benchmarks.losses import run_losses
from benchmarks.record import Record
from benchmarks.settings import FuzzBench, LossBench
from tools.fuzz_tables import fuzz_summary
from tools.loss_tables import by_cell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

CONTENDERS = ("fused", "reference", "eager", "compiled", "torchvision")
SHORT_PASS = {"forward": "fwd", "forward+backward": "fwd+bwd"}


def bench_losses(settings: LossBench, console: Console | None = None) -> Path:
    """Run the benchmark of the losses with progress, and print its tables."""
    console = console or wide_console()
    with _progress(console) as step:
        record, path = run_losses(settings, lambda cell, *place: step(str(cell), *place))
    print_losses(record, console)
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return path


def bench_fuzz(settings: FuzzBench, console: Console | None = None) -> Path:
    """Run the fuzz battery with progress, and print its table."""
    console = console or wide_console()
    with _progress(console) as step:
        record, path = run_fuzz(settings, step)
    console.print(fuzz_view(record))
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return path


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar, moved by calls with what comes next, its place and the number of steps."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("preparing", total=None)
        yield lambda text, place, count: progress.update(
            task, description=text, completed=place, total=count
        )


def wide_console() -> Console:
    """A console of at least 100 columns where nobody looks, as in a log."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 100))


def print_losses(record: Record, console: Console) -> None:
    """Print the wall times and, where they differ, the times on the device."""
    console.print(losses_view(record, "wall"))
    if record["device_type"] != "cpu":
        console.print(losses_view(record, "device"))
    failures = {f"{row['contender']}: {row['error']}" for row in record["rows"] if row["error"]}
    for failure in sorted(failures):
        console.print(f"could not run {failure}", style="red", highlight=False)


def losses_view(record: Record, clock: str) -> Table:
    """The times of one clock, a line a cell, a column a contender."""
    from rich import box
    from rich.table import Table

    what = {"wall": "wall time from Python", "device": "time on the device"}[clock]
    caption = (
        f"a copy runs at {figures(record['copy_gb_per_s'])} GB/s, copy is our share of that; ×tv "
        "and ×best: how much faster ours is than torchvision, and than the fastest of the others"
    )
    title = f"{record['device']}: {what}, ms"
    table = Table(box=box.SIMPLE_HEAD, title=title, caption=caption, padding=(0, 1, 0, 0))
    present = [n for n in CONTENDERS if any(r["contender"] == n for r in record["rows"])]
    for name in ("loss", "pairs", "pass", *present, "×tv", "×best", "copy"):
        left = name in ("loss", "pass")
        short = {"torchvision": "torchv."}.get(name, name)
        table.add_column(short, no_wrap=True, justify="left" if left else "right")
    for cell in by_cell(record).values():
        rows, first = {row["contender"]: row for row in cell}, cell[0]
        ours = rows.get("fused") or rows.get("reference") or first
        share = ours["share_of_copy"]
        table.add_row(
            f"{first['kind']}:{first['alpha']:g} {first['dtype'].replace('fp32', '')}",
            f"{first['pairs']:,}",
            SHORT_PASS[first["mode"]],
            *(_time(rows.get(name, {}).get(f"{clock}_ms")) for name in present),
            _ratio(ours[f"{clock}_vs_torchvision"]),
            _ratio(ours[f"{clock}_vs_best_peer"]),
            "" if share is None else f"{share:.0%}",
        )
    return table


def fuzz_view(record: Record) -> Table:
    """What was not finite, a line a loss, over all powers and dtypes."""
    from rich import box
    from rich.table import Table

    title = f"{record['device']}: hard boxes, over all powers and dtypes"
    caption = (
        "bad: not finite; ∂L: the largest gradient at α = 1 times the hull's side, ordinary boxes; "
        "errors of fp32 against float64, comparable pairs, gradients with α > 0; off: the share "
        "of gradients off by more than 1e-4"
    )
    table = Table(box=box.SIMPLE_HEAD, title=title, caption=caption, padding=(0, 1, 0, 0))
    table.add_column("loss", no_wrap=True)
    names = ("pairs", "bad L", "bad ∂L", "ordinary", "bad L", "bad ∂L", "∂L", "error", "∂ error")
    for name in (*names, "off"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in fuzz_summary(record):
        counts = [
            text
            for pairs, *bad in (line.everywhere, line.ordinary)
            for text in (_millions(pairs), *(f"{count:,}" for count in bad))
        ]
        errors = (line.value_error, line.gradient_error, line.off) if line.ours else ()
        table.add_row(
            line.kind if line.ours else f"tv {line.kind}",
            *counts,
            f"{line.largest_gradient:.2g}",
            *map(small_number, errors),
        )
    return table


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count:,}"


def _time(milliseconds: float | None) -> str:
    if milliseconds is None:
        return ""
    return f"{milliseconds:.3f}" if milliseconds < 10 else f"{milliseconds:.1f}"


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"
