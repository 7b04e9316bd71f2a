"""``alphaiou data check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from alphaiou.cli.data.opening import FileLayout, SetPath

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from alphaiou.data.check import Report
    from alphaiou.data.problems import Problem

#: Findings of a kind that are shown unless all are asked for.
SHOWN = 5


@dataclass(frozen=True)
class DataCheck:
    """List everything that is wrong in a data set, with file, place and remedy.

    Reads the annotations and decodes every image.

    The exit code is 0 if nothing is wrong, 1 if anything is.

    YOLO images without a label file are listed, but that is not wrong.
    """

    path: SetPath

    split: Annotated[
        str | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="SPLIT", help_behavior_hint="(default: all of them)"),
    ] = None
    """The split to check."""

    layout: Annotated[
        FileLayout | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(help_behavior_hint="(default: recognised)"),
    ] = None
    """The layout, where the files could be of more than one."""

    json: bool = False
    """Print one JSON document, for machines, and nothing else, also after a fatal error."""

    all: bool = False
    """List every finding, not only the first of each kind."""

    no_decode: bool = False
    """Read the headers of images only; those that are cut off go unnoticed."""

    workers: Annotated[
        int | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="INT", help_behavior_hint="(default: one per core)"),
    ] = None
    """Threads that open images."""


def run_data_check(command: DataCheck) -> int:
    """Check the data set and print the report; 1 if anything is wrong."""
    from rich.console import Console

    if command.json:
        return _print_json(command, Console(stderr=True))
    console = Console()
    report = _check(command, console)
    _print(report, console, shown=None if command.all else SHOWN)
    return 0 if report.ok else 1


def _print_json(command: DataCheck, console: Console) -> int:
    import json
    import sys
    from dataclasses import asdict

    from alphaiou.data.check import Report
    from alphaiou.errors import AlphaIoUError

    error = None
    try:
        report = _check(command, console)
    except (AlphaIoUError, OSError) as failure:
        error = str(failure)
        report = Report(command.path, command.layout, (), ())
    ok = report.ok and error is None
    content = {"ok": ok, "error": error, "counts": report.counts, **asdict(report)}
    sys.stdout.write(json.dumps(content, indent=1) + "\n")
    return 0 if ok else 1


def _check(command: DataCheck, console: Console) -> Report:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from alphaiou.cli import UsageError
    from alphaiou.data.check import check_dataset

    if command.workers is not None and command.workers < 1:
        raise UsageError(f"--workers {command.workers}: must be at least 1")
    columns = (TextColumn("images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task("", total=None)
        return check_dataset(
            command.path,
            command.split,
            layout=command.layout,
            decode=not command.no_decode,
            workers=command.workers,
            on_progress=lambda done, total: progress.update(task, completed=done, total=total),
        )


def _print(report: Report, console: Console, *, shown: int | None) -> None:
    def line(text: str, style: str = "") -> None:
        console.print(_printable(text), style=style, markup=False, highlight=False, soft_wrap=True)

    for split in report.splits:
        counts = ", ".join(
            (
                _counted(split.images, "image"),
                _counted(split.boxes, "box", "boxes"),
                _counted(split.classes, "class", "classes"),
            )
        )
        line(f"{report.path} ({report.layout} layout, split {split.split}): {counts}")
    for kind, count in report.counts.items():
        found = [problem for problem in report.problems if problem.kind == kind]
        line(f"\n{kind}: {count:,} ({_effects(found)})", "bold")
        for problem in found[:shown]:
            place = f"{problem.file}, {problem.where}" if problem.where else problem.file
            line(f"  {place}: {problem.detail}")
        if shown is not None and count > shown:
            line(f"  … and {count - shown:,} more; --all lists them")
        line(f"  → {found[0].remedy}")
    line(_conclusion(report))


def _effects(found: Sequence[Problem]) -> str:
    from collections import Counter

    counts = Counter(problem.effect for problem in found)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count:,} {effect}" for effect, count in counts.items())


def _conclusion(report: Report) -> str:
    from alphaiou.data.problems import left_out

    if not report.problems:
        return "nothing is wrong"
    total = "\n" + _counted(len(report.problems), "finding")
    if report.ok:
        return f"{total}, nothing is wrong"
    return f"{total}; {left_out(report.problems) or 'nothing is left out for them'}"


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _printable(text: str) -> str:
    """Without what a hostile file name could do to the terminal."""
    return "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode("ascii")
        for one in text
    )
