"""The study of docs/protocol.md, whose design was fixed before its runs.

    python -m studies.voc320.protocol --data PATH/voc320 --workers 3
    python -m studies.voc320.protocol --data PATH/voc320 --only primary --seeds 0 --minutes 9
    python -m studies.voc320.protocol --tables

Stopped at any moment and called again, it continues from the checkpoints in ``--out``. A run whose
record is in ``--keep`` is finished and is not repeated.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from alphaiou._environment import device_kind
from alphaiou._files import write_file
from alphaiou.data.dataset import load_dataset
from alphaiou.data.problems import DataError
from alphaiou.errors import AlphaIoUError, TerminatedError
from alphaiou.inference.tables import markdown
from alphaiou.metrics.columns import EPOCH_COLUMNS, PAPER_COLUMNS, column_title
from alphaiou.paper.grids import row_at_gain
from alphaiou.study.grid import Grid, Row
from alphaiou.study.kept import keep_detections
from alphaiou.study.records import RowRuns, RunRecord, grid_runs, load_records, record_paths
from alphaiou.study.runner import GridReport, PlannedRun, planned_runs, run_grid
from alphaiou.study.selection import select
from alphaiou.study.statistics import Change, Interval, Model, fit_rows
from alphaiou.study.tables import change_text, table_markdown, table_of
from alphaiou.training.loop import Execution, Report
from alphaiou.training.recipe import DataRecipe, Recipe
from alphaiou.training.recipes import other_factors, quick, voc320
from alphaiou.training.record import RECORD
from studies.voc320.search import Candidate

OUT, KEEP = Path("runs/protocol"), Path("studies/voc320/records/protocol")
#: voc320 with its test images in two halves: gains are chosen on ``val``, VOC2007 train, and scores
#: are reported on ``test``, VOC2007 val.
DATA = DataRecipe("voc320-2007", train="train", val="val", test="test")
HALVES = {"val": "train", "test": "val"}
EPOCHS, SCORED_EVERY = 200, 20
SHARE, NOISE = 0.25, 0.3
#: The primary endpoints: one score must be higher, the other may lose less than the margin.
SUPERIOR, NON_INFERIOR, MARGIN = "map75_95", "ap50", 0.01

_USUAL = {
    "iou": Candidate("iou"),
    "iou-x2": Candidate("iou", 2.0),
    "alpha3": Candidate("iou:3"),
}
#: The rows by part and name, in the order in which they are run.
PARTS: dict[str, dict[str, Candidate]] = {
    "primary": _USUAL,
    "tuned": {
        "iou-tuned": Candidate("iou", 4.0, class_gain=2.0, objectness_gain=4.0),
        "alpha3-tuned": Candidate("iou:3", 2.0, class_gain=2.0, objectness_gain=4.0),
        "rising-tuned": Candidate("diou", 2.0, to_alpha=5.0, class_gain=2.0, objectness_gain=4.0),
    },
    "quarter": {f"quarter-{name}": choice for name, choice in _USUAL.items()},
    "noise": {
        **{f"noise-{name}": choice for name, choice in _USUAL.items()},
        "noise-alpha3-similarity": Candidate("iou:3", objectness="similarity"),
    },
}
ROWS = {name: part for part, rows in PARTS.items() for name in rows}
#: A row and its baseline; the first two are the primary comparisons, in the order of the tests.
COMPARISONS = (
    ("alpha3", "iou"),
    ("alpha3", "iou-x2"),
    ("iou-x2", "iou"),
    ("iou-tuned", "iou"),
    ("alpha3-tuned", "iou-tuned"),
    ("rising-tuned", "iou-tuned"),
    ("quarter-alpha3", "quarter-iou"),
    ("quarter-alpha3", "quarter-iou-x2"),
    ("noise-alpha3", "noise-iou"),
    ("noise-alpha3", "noise-iou-x2"),
    ("noise-alpha3-similarity", "noise-iou"),
    ("noise-alpha3-similarity", "noise-alpha3"),
)
PRIMARY = 2


# Design


def protocol_recipe() -> Recipe:
    """The training that all rows share."""
    recipe = replace(voc320(), data=DATA, precision="bf16", epochs=EPOCHS)
    return replace(recipe, evaluate_every=SCORED_EVERY)


def trial_recipe() -> Recipe:
    """A training of seconds, to try the command; its scores mean nothing."""
    recipe = replace(quick(), data=DATA, image_size=64, epochs=4, evaluate_every=2)
    return replace(recipe, precision="fp32", batch_size=8, subset=1.0)


def protocol_grid(
    usual: Recipe, seeds: Sequence[int] = (0, 1, 2), names: Sequence[str] = tuple(ROWS)
) -> Grid:
    """The rows of some names; the first row of a part is the baseline of the others.

    Args:
        usual: The training that all rows share.
        seeds: The seeds of every row.
        names: The names of rows in ``ROWS``.
    """
    labels = {name: _row(name, usual).label for name in ROWS}
    baselines: dict[str, str] = {}
    for name, baseline in COMPARISONS:
        baselines.setdefault(name, labels[baseline])
    rows = tuple(replace(_row(n, usual), baseline=baselines.get(n)) for n in ROWS if n in names)
    differs = (
        f"{usual.epochs} epochs at {usual.image_size} px (a quarter of the images: as many steps). "
        "Scores are those of the last epoch on VOC2007 val.",
    )
    return Grid("protocol", "The pre-registered study", rows, tuple(seeds), differs)


def _row(name: str, usual: Recipe) -> Row:
    part = ROWS[name]
    choice = PARTS[part][name]
    recipe = choice.recipe(usual)
    if part == "noise":
        recipe = replace(recipe, noise=NOISE)
    row = row_at_gain(recipe, choice.gain)
    label = ", ".join([row.label, *other_factors(recipe, usual)])
    recipe = row.recipe
    if part == "quarter":  # as many steps, scored as often
        label += f", {SHARE:.0%} of the images"
        times = round(1 / SHARE)
        recipe = replace(
            recipe,
            subset=SHARE * recipe.subset,
            epochs=times * recipe.epochs,
            evaluate_every=times * recipe.evaluate_every,
        )
    return Row(label, recipe)


def chosen_rows(only: Sequence[str]) -> list[str]:
    """The names of rows, given names of rows and of parts; all by default.

    Examples:
        >>> chosen_rows(["tuned", "iou"])
        ['iou', 'iou-tuned', 'alpha3-tuned', 'rising-tuned']
    """
    for name in only:
        if name not in ROWS and name not in PARTS:
            known = ", ".join((*PARTS, *ROWS))
            raise SystemExit(f"--only {name!r}: there is no such part or row; choose from {known}")
    return [name for name, part in ROWS.items() if not only or name in only or part in only]


# Data


def split_data(source: Path, out: Path) -> Path:
    """voc320 with its test images in two halves: annotations anew, links to the shards.

    Args:
        source: voc320, with ``annotations/{train,test}.json`` and tar shards.
        out: The folder to write; files that are the same stay as they are.

    Raises:
        DataError: A file is missing, or an image has no ``subset``.
    """
    known = {"train": source / "annotations/train.json", "test": source / "annotations/test.json"}
    for path in known.values():
        if not path.is_file():
            raise DataError(f"{path}: there is no such file; --data is the folder of voc320")
    _write(out / "annotations/train.json", known["train"].read_bytes())
    whole = json.loads(known["test"].read_text(encoding="utf-8"))
    for split, subset in HALVES.items():
        images = [image for image in whole["images"] if image.get("subset") == subset]
        if not images:
            raise DataError(f"{known['test']}: no image has the subset {subset!r} (field subset)")
        numbers = {image["id"] for image in images}
        boxes = [box for box in whole["annotations"] if box["image_id"] in numbers]
        half = {**whole, "images": images, "annotations": boxes}
        _write(out / f"annotations/{split}.json", json.dumps(half).encode())
    for split, shards in {"train": "train", **dict.fromkeys(HALVES, "test")}.items():
        found = sorted(source.glob(f"{shards}*.tar"))
        if not found:
            raise DataError(f"{source}: there is no {shards}-0.tar")
        for shard in found:
            link = out / shard.name.replace(shards, split, 1)
            if link.resolve() != shard.resolve():
                link.unlink(missing_ok=True)
                link.symlink_to(shard.resolve())
    return out


def _write(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)


# Tables


def tables(grid: Grid, records: Mapping[str, RunRecord], names: Sequence[str]) -> str:
    """The endpoints, the scores, and each loss at the gains that are best on ``val``."""
    runs = grid_runs(grid, records)
    finished = sum(len(row.runs) for row in runs.values())
    text = [f"{finished} of {len(grid.rows) * len(grid.seeds)} runs are finished."]
    if finished:
        text += [
            endpoints_table(runs, names),
            table_markdown(table_of(grid, runs, PAPER_COLUMNS, runs)),
        ]
        text += _selected(grid, runs, names)
    return "\n\n".join(text) + "\n"


def endpoints_table(runs: Mapping[str, RowRuns], names: Sequence[str]) -> str:
    """Both endpoints of each comparison with 95 % intervals, from one model of all rows."""
    models = {column: fit_rows(runs, column) for column in (SUPERIOR, NON_INFERIOR)}
    labels = dict(zip(names, runs, strict=True))
    lines = []
    for place, (name, baseline) in enumerate(COMPARISONS):
        if name in labels and baseline in labels:
            pair = labels[name], labels[baseline]
            higher, kept = (_change(models[column], *pair) for column in models)
            verdicts = _verdict(higher, 0.0, "superior"), _verdict(kept, -MARGIN, "non-inferior")
            kind = "primary" if place < PRIMARY else "secondary"
            cells = change_text(higher), verdicts[0], change_text(kept), verdicts[1]
            seeds = "–" if higher is None else str(higher.runs)
            lines.append((kind, pair[0], pair[1], seeds, *cells))
    titles = column_title(SUPERIOR), "superior?", column_title(NON_INFERIOR), "non-inferior?"
    head = ("", "row", "baseline", "seeds", *titles)
    return f"### Endpoints\n\n{markdown(head, lines, left=3)}"


def _change(model: Model, row: str, baseline: str) -> Change | None:
    return model.change(row, baseline)


def _verdict(change: Change | None, least: float, word: str) -> str:
    """What the lower end of the relative 95 % interval shows."""
    interval: Interval | None = None if change is None else change.relative_interval
    if interval is None:
        return "–"
    return word if interval.low > least else "not shown"


def _selected(grid: Grid, runs: Mapping[str, RowRuns], names: Sequence[str]) -> list[str]:
    """Each loss at its best gains on ``val``, compared on ``test``; needs two losses."""
    labels = dict(zip(names, runs, strict=True))
    candidates = [runs[labels[n]] for n in names if ROWS[n] in ("primary", "tuned")]
    chosen = list(select(candidates, SUPERIOR, by=lambda row: row.row.recipe.loss_name).values())
    if len(chosen) < 2:
        return []
    first = chosen[0].row.label
    best = {
        one.row.label: replace(
            one, row=replace(one.row, baseline=None if one.row.label == first else first)
        )
        for one in chosen
    }
    title = "Each loss at the gains that are best on VOC2007 train"
    own = replace(grid, title=title, rows=tuple(one.row for one in best.values()))
    return [table_markdown(table_of(own, best, PAPER_COLUMNS, {**runs, **best}))]


# Command


@dataclass(frozen=True)
class Protocol:
    """Compute the runs of the pre-registered study, or print its tables."""

    data: Path | None = None
    """The folder of voc320."""

    only: tuple[str, ...] = ()
    """Parts (primary, tuned, quarter, noise) or rows to compute; all by default."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """The seeds of every row."""

    out: Path = OUT
    """Folder of the runs: checkpoints, weights, compiled data."""

    keep: Path | None = None
    """Folder for the records and detections of finished runs, to be committed; by default
    studies/voc320/records/protocol, or trial/ in --out with --trial."""

    workers: int = 3
    """Trainings at a time, per GPU."""

    minutes: float | None = None
    """Stop after this time with checkpoints; the same command continues."""

    tables: bool = False
    """Print the tables of the finished runs; compute nothing."""

    trial: bool = False
    """Trainings of seconds with a small detector, to try the command."""

    device: Annotated[Literal["auto", "cpu", "cuda"], tyro.conf.arg()] = "auto"
    """Where to compute."""

    @property
    def records(self) -> Path:
        """Where the records of finished runs are kept."""
        return self.keep or (self.out / "trial" if self.trial else KEEP)


def main(options: Protocol) -> int:
    """Compute runs, or print tables; return the exit code."""
    names = chosen_rows(options.only)
    usual = trial_recipe() if options.trial else protocol_recipe()
    if options.tables:
        folders = [folder for folder in (options.records, options.out) if folder.is_dir()]
        grid = protocol_grid(usual, options.seeds, names)
        sys.stdout.write(tables(grid, load_records(folders), names))
        return 0
    if options.data is None:
        raise SystemExit("--data is missing: the folder of voc320")
    data = split_data(options.data, options.out / DATA.path)
    parts = [
        protocol_grid(usual, options.seeds, [name for name in names if ROWS[name] == part])
        for part in PARTS
    ]
    device = device_kind(options.device)
    progress = Progress(options, data, device)
    try:
        with stopped_after(options.minutes):
            progress.keep_missing(planned_runs(parts, device))
            result = run_grid(
                parts,
                options.out,
                data={DATA.path: data},
                earlier=[options.records],
                keep=options.records,
                execution=Execution(device=options.device),
                workers=options.workers,
                report=progress.report(),
            )
    except KeyboardInterrupt:
        progress.say("stopped with checkpoints; the same command continues")
        return 130
    failed = {run.label: error for run, error in result.failed} | progress.failed
    for label, error in failed.items():
        progress.say(f"failed: {label}: {error}")
    return 1 if failed else 0


@contextmanager
def stopped_after(minutes: float | None) -> Iterator[None]:
    """Interrupt after a time, and on SIGTERM, as Ctrl-C does: workers save their checkpoints."""

    def stop(*_: object) -> None:
        raise TerminatedError

    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, stop)
    signal.setitimer(signal.ITIMER_REAL, 0 if minutes is None else 60 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Progress:
    """Prints a line per scored epoch, and keeps the detections of each finished run."""

    def __init__(self, options: Protocol, data: Path, device: str) -> None:
        self.options, self.data, self.device = options, data, device
        self.start = time.monotonic()
        self.failed: dict[str, AlphaIoUError] = {}
        self.notes: set[str] = set()

    def report(self) -> GridReport:
        """The listener to the events of all runs."""
        return GridReport(self._planned, self._run, self._ended, self.say)

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        passed = timedelta(seconds=round(time.monotonic() - self.start))
        print(f"[{passed}] {text}", flush=True)

    def keep_missing(self, runs: Sequence[PlannedRun]) -> None:
        """Keep the detections of runs that were stopped after their training."""
        paths = record_paths([self.options.out])
        for run in runs:
            if run.name in paths:
                self._keep(run)

    def _planned(self, runs: Sequence[PlannedRun], finished: int) -> None:
        self.say(f"{finished} runs are finished, {len(runs)} to compute")

    def _run(self, run: PlannedRun) -> Report:
        def epoch_done(entry: dict[str, Any]) -> None:
            scores = entry.get("val", {})
            if scores or entry["epoch"] == 1:
                shown = [
                    f"{column_title(c)} {100 * scores[c]:.2f}" for c in EPOCH_COLUMNS if scores
                ]
                speed = f"{entry['images_per_second']:,.0f} images/s"
                place = f"epoch {entry['epoch']} of {run.recipe.epochs}"
                self.say(f"{run.label}: {', '.join([place, speed, *shown])}")

        def note(text: str) -> None:
            if not text.startswith(DATA.path) or text not in self.notes:  # of the data once
                self.notes.add(text)
                self.say(f"{run.label}: {text}")

        return Report(note=note, epoch_done=epoch_done)

    def _ended(self, run: PlannedRun, error: Exception | None) -> None:
        self.say(f"{run.label}: {'finished' if error is None else f'failed: {error}'}")
        if error is None:
            self._keep(run)

    def _keep(self, run: PlannedRun) -> None:
        folder, path = self.options.out / run.name, self.options.records / f"{run.name}.npz"
        if path.exists() or not (folder / RECORD).exists():
            return
        try:
            halves = [load_dataset(self.data, split) for split in HALVES]
            keep_detections(folder, path, halves, device=self.device, with_objects=False)
            self.say(f"{run.label}: detections in {path}")
        except AlphaIoUError as error:
            self.failed[run.label] = error


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Protocol)))
