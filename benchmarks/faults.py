"""Disturb tiny real trainings in many ways, and count what is lost.

    python -m benchmarks.faults [--quick]

Trainings are killed and interrupted, their files damaged, their data changed, disks filled, and
grids of trainings killed. Each row of the record is one kind of fault: how often it was tried, and
how often the outcome was not the expected one (``wrong``). Wherever something is resumed, the
expected outcome is that of an undisturbed training: the same weights bit for bit, the same losses
and scores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from alphaiou.data.formats.yolo import write_yolo
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.errors import AlphaIoUError
from alphaiou.inference.weights import WEIGHTS, Checkpoint, read_tensors, write_tensors
from alphaiou.study.grid import Grid
from alphaiou.study.runner import GridReport, planned_runs, run_grid
from alphaiou.training.checkpoint import LAST, load_checkpoint
from alphaiou.training.loop import Execution, Report, fit
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.record import RECORD, RecordError, read_record
from alphaiou.training.record import write_record as write_run_record
from alphaiou.training.setup import TOUCHED
from benchmarks.record import FOLDER, Record, Row, conditions, write_record
from benchmarks.tiny import (
    CPU,
    IOU,
    PATIENCE,
    POWERED,
    PROCESSES,
    SIDE,
    TINY,
    compute,
    edited,
    events,
    family,
    grid,
    is_over,
    kill,
    one_process,
    outcome,
    outcomes,
    places,
    tiny_recipe,
    train,
    train_and_log,
    train_on_a_full_disk,
    wait_for,
    workers_of,
    write_shapes,
)

#: Examples of wrong outcomes that a row keeps.
EXAMPLES = 3
SAME = "resumed, the same bits"


@dataclass(frozen=True)
class Sizes:
    """How often each fault is tried."""

    kill_runs: int = 5
    kills: int = 10
    interrupt_runs: int = 4
    interrupts: int = 4
    flips: int = 200
    cuts: int = 60
    values: int = 40
    resumes: int = 6
    record_flips: int = 1000
    record_cuts: int = 200
    data_changes: int = 2
    full_disks: int = 8
    grids: int = 2


QUICK = Sizes(1, 2, 1, 2, 6, 4, 2, 1, 40, 10, 1, 1, 1)


@dataclass
class Tally:
    """The row of one kind of fault."""

    fault: str
    how: str
    expected: str
    tried: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def add(self, problem: str | None) -> None:
        """Count one attempt, and what was wrong with it, if anything."""
        self.tried += 1
        if problem is not None:
            self.wrong += 1
            self.examples = [*self.examples, problem][:EXAMPLES]

    def row(self) -> Row:
        """The row of the record."""
        facts = {key: getattr(self, key) for key in ("fault", "how", "expected", "tried", "wrong")}
        seconds = round(time.perf_counter() - self.started, 1)
        return facts | self.more | {"examples": self.examples, "seconds": seconds}


@dataclass(frozen=True)
class Battery:
    """What the faults share: how often, random numbers, and an empty folder."""

    sizes: Sizes
    rng: random.Random
    folder: Path


def difference(one: Path, other: Path) -> str | None:
    """What differs between two finished runs, of weights, state, losses and scores."""
    for name in (LAST, WEIGHTS):
        first, second = read_tensors(one / name).tensors, read_tensors(other / name).tensors
        if first.keys() != second.keys():
            return f"{name} has other tensors"
        for key, tensor in first.items():
            if not torch.equal(tensor, second[key]):
                return f"{name}: {key} differs"
    records = [outcome(read_record(run / RECORD)) for run in (one, other)]
    return None if records[0] == records[1] else "the records differ"


def finished(recipe: Recipe, folder: Path, undisturbed: Path) -> str | None:
    """Train to the end; what differs from the undisturbed training, or the error."""
    try:
        train(recipe, folder)
        return difference(folder / recipe_hash(recipe), undisturbed / recipe_hash(recipe))
    except Exception as error:  # what this looks for
        return f"{type(error).__name__}: {error}"[:300]


# --- trainings ------------------------------------------------------------------------------------


def killed_trainings(battery: Battery) -> Iterator[Row]:
    """Trainings that are killed again and again, at random moments and while they save."""
    rng, sizes, folder = battery.rng, battery.sizes, battery.folder
    path = write_shapes(folder / "data")
    recipe = tiny_recipe(path, epochs=20, data={"val": "val"}, evaluate_every=6, select="best")
    train(recipe, folder / "undisturbed")
    tally = Tally("killed trainings", "SIGKILL at random moments", SAME)
    again = runs = 0
    for number in range(sizes.kill_runs):
        runs, log = runs + 1, folder / f"{number}.log"
        place = folder / str(number)
        kills = 0
        for count in range(sizes.kills):
            process = PROCESSES.Process(target=train_and_log, args=(recipe, place, log))
            process.start()
            # Some while a checkpoint is written, the others anywhere: reading, steps, scoring.
            delay = None if count % 3 == 0 else rng.uniform(0.0, 0.5)
            if not kill(process, place, count % 2, delay):
                break  # it was over before
            kills += 1
        train_in_process(recipe, place, log)
        problem = finished(recipe, place, folder / "undisturbed")
        for count in range(kills):  # what is wrong with a run may be due to any of its kills
            tally.add(problem if count == 0 else None)
        again += len(events(log, "begun")) - recipe.epochs
        shutil.rmtree(place)
    tally.more = {"runs": runs, "epochs_begun_again": again}
    yield tally.row()


def train_in_process(
    recipe: Recipe, folder: Path, log: Path, checkpoint_seconds: float = 0.0
) -> None:
    """Train to the end in another process, and write down the events."""
    process = PROCESSES.Process(
        target=train_and_log,
        args=(recipe, folder, log),
        kwargs={"checkpoint_seconds": checkpoint_seconds},
    )
    process.start()
    process.join()


def interrupted_trainings(battery: Battery) -> Iterator[Row]:
    """Trainings that are interrupted at random moments, with no checkpoint due."""
    rng, sizes, folder = battery.rng, battery.sizes, battery.folder
    recipe = tiny_recipe(write_shapes(folder / "data"), epochs=12)
    train(recipe, folder / "undisturbed")
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143}
    tallies = {
        number: Tally(
            "interrupted trainings",
            f"{number.name}, no checkpoint due",
            "state saved, " + SAME,
            more={"epochs_lost": 0},
        )
        for number in codes
    }
    for run in range(sizes.interrupt_runs):
        place, problems = folder / str(run), []
        moments = sorted(rng.sample(range(1, recipe.epochs), sizes.interrupts))
        for count, epoch in enumerate(moments):
            number = (signal.SIGINT, signal.SIGTERM)[(run + count) % 2]
            log = folder / f"{run}-{count}.log"
            process = PROCESSES.Process(
                target=train_and_log,
                args=(recipe, place, log),
                kwargs={"checkpoint_seconds": 1e9},
            )
            process.start()
            wait_for(lambda: _begun(log, epoch) or not process.is_alive())  # noqa: B023
            time.sleep(rng.uniform(0.0, 0.2))
            os.kill(process.pid or 0, number)
            process.join()
            if process.exitcode == 0:  # it was over before
                break
            done = [done for (done,) in events(log, "done")]
            lost = max(done, default=0) - _epochs_saved(place / recipe_hash(recipe))
            tallies[number].more["epochs_lost"] += max(lost, 0)
            wrong = lost > 0 or process.exitcode != codes[number]
            problems.append((number, f"exit {process.exitcode}, lost {lost}" if wrong else None))
        problem = finished(recipe, place, folder / "undisturbed")
        for number, own in problems:
            tallies[number].add(own or problem)
        shutil.rmtree(place)
    for tally in tallies.values():
        yield tally.row()


def _begun(log: Path, epoch: int) -> bool:
    return any(begun >= epoch for (begun,) in events(log, "begun"))


def _epochs_saved(run: Path) -> int:
    last = run / LAST
    return len(read_tensors(last).facts["history"]) if last.exists() else 0


# --- files ----------------------------------------------------------------------------------------


def damaged_checkpoints(battery: Battery) -> Iterator[Row]:
    """Checkpoints with other bytes, cut off, or with values that are not finite."""
    rng, sizes, folder = battery.rng, battery.sizes, battery.folder
    recipe = tiny_recipe(write_shapes(folder / "data"), epochs=6)
    train(recipe, folder / "undisturbed")
    run = _stopped(recipe, folder / "stopped", checkpoints=2)
    last = run / LAST
    sound = last.read_bytes()
    epochs, head = _epochs_saved(run), 8 + int.from_bytes(sound[:8], "little")

    def previous_is_used() -> str | None:
        notes: list[str] = []
        try:
            loaded = load_checkpoint(run, notes.append)
        except Exception as error:  # what this looks for
            return f"{type(error).__name__}: {error}"[:300]
        if loaded is None or len(loaded.facts["history"]) != epochs - 1:
            return "the damaged checkpoint was loaded"
        return None if len(notes) == 1 and str(last) in notes[0] else f"notes: {notes}"

    expected = "refused, the previous one used"
    tally = Tally("damaged checkpoints", "one byte changed", expected)
    for number in range(sizes.flips):
        place = rng.randrange(head if number % 2 else len(sound))
        _flip(last, place, rng)
        tally.add(_at(previous_is_used(), place))
        last.write_bytes(sound)
    yield tally.row()

    tally = Tally("damaged checkpoints", "cut off", expected)
    for number in range(sizes.cuts):
        length = rng.randrange(head if number % 2 else len(sound))
        last.write_bytes(sound[:length])
        tally.add(_at(previous_is_used(), length))
    last.write_bytes(sound)
    yield tally.row()

    tally = Tally("damaged checkpoints", "NaN or infinite, with a correct digest", expected)
    content = read_tensors(last)
    for _ in range(sizes.values):
        name = _set_value(last, content, rng)
        tally.add(_at(previous_is_used(), name))
    last.write_bytes(sound)
    yield tally.row()

    tally = Tally("damaged checkpoints", "any of these, then trained to the end", SAME)
    for number in range(sizes.resumes):
        resumed = folder / "resumed"
        shutil.copytree(run.parent, resumed)
        copy = resumed / run.name / LAST
        if number % 3 == 0:
            _flip(copy, rng.randrange(len(sound)), rng)
        elif number % 3 == 1:
            copy.write_bytes(sound[: rng.randrange(len(sound))])
        else:
            _set_value(copy, content, rng)
        tally.add(finished(recipe, resumed, folder / "undisturbed"))
        shutil.rmtree(resumed)
    yield tally.row()


def _stopped(recipe: Recipe, folder: Path, *, checkpoints: int) -> Path:
    """The folder of a run that was killed after some checkpoints, before its end."""
    process = PROCESSES.Process(target=train, args=(recipe, folder))
    process.start()
    if not kill(process, folder, checkpoints, 0.0):
        raise RuntimeError("the training was over before it could be killed")
    return folder / recipe_hash(recipe)


def _flip(path: Path, place: int, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= rng.randrange(1, 256)
    path.write_bytes(data)


def _set_value(path: Path, content: Checkpoint, rng: random.Random) -> str:
    """Write a checkpoint with one value that is not finite, and the digest of this content."""
    names = [name for name, one in content.tensors.items() if one.is_floating_point()]
    name = rng.choice(names)
    tensor = content.tensors[name].clone()
    tensor.view(-1)[rng.randrange(tensor.numel())] = rng.choice((float("nan"), float("inf")))
    write_tensors(Checkpoint({**content.tensors, name: tensor}, content.facts), path)
    return name


def _at(problem: str | None, place: object) -> str | None:
    return problem and f"{place}: {problem}"


def damaged_records(battery: Battery) -> Iterator[Row]:
    """Records with any field edited or removed, with other bytes, and cut off."""
    rng, sizes, folder = battery.rng, battery.sizes, battery.folder
    recipe = tiny_recipe(write_shapes(folder / "data"), epochs=2, data={"val": "val"})
    record, _ = train(recipe, folder / "runs")
    run = folder / "runs" / record["name"]
    path = run / RECORD
    sound = path.read_bytes()

    def refused() -> str | None:
        try:
            read = read_record(path)
        except RecordError as error:
            return None if str(path) in str(error) else f"it does not name the file: {error}"
        except Exception as error:  # what this looks for
            return f"{type(error).__name__}: {error}"[:300]
        return None if read == record else "accepted"  # 1e-05 and 1E-05 are the same

    for remove in (False, True):
        how = "each field removed" if remove else "each field edited"
        tally = Tally("damaged records", how, "refused")
        for place in places(record):
            write_run_record(edited(record, place, remove=remove), run)
            tally.add(_at(refused(), place))
        yield tally.row()

    tally = Tally("damaged records", "one byte changed", "refused")
    for _ in range(sizes.record_flips):
        path.write_bytes(sound)
        place = rng.randrange(len(sound))
        _flip(path, place, rng)
        tally.add(_at(refused(), place))
    yield tally.row()

    tally = Tally("damaged records", "cut off", "refused")
    for _ in range(sizes.record_cuts):
        length = rng.randrange(len(sound) - 1)  # the last byte is the end of the line
        path.write_bytes(sound[:length])
        tally.add(_at(refused(), length))
    yield tally.row()


# --- data -----------------------------------------------------------------------------------------


def change_data(how: str, root: Path, rng: random.Random) -> None:
    """Change the training images or their annotations."""
    path = root / "annotations/train.json"
    content = json.loads(path.read_text())
    annotations = content["annotations"]
    one = rng.choice(annotations)
    image = rng.choice(sorted((root / "images/train").iterdir()))
    data = image.read_bytes()
    if how == "box moved":
        one["bbox"][rng.randrange(2)] += rng.choice((0.25, 1))
    elif how == "class changed":
        one["category_id"] = next(
            entry["id"] for entry in content["categories"] if entry["id"] != one["category_id"]
        )
    elif how == "box removed":
        annotations.remove(one)
    elif how == "box added":
        annotations.append(one | {"id": 1 + max(entry["id"] for entry in annotations)})
    elif how == "class renamed":
        rng.choice(content["categories"])["name"] += " of another kind"
    elif how == "image cut off":
        image.write_bytes(data[: rng.randrange(1, len(data))])
    elif how == "image longer":
        image.write_bytes(data + rng.randbytes(rng.randrange(1, 100)))
    elif how == "image removed":
        image.unlink()
    elif how == "other bytes, same length":
        _flip(image, rng.randrange(len(data) // 2, len(data)), rng)
    path.write_text(json.dumps(content))


CHANGES = (
    *("box moved", "class changed", "box removed", "box added", "class renamed"),
    *("image cut off", "image longer", "image removed", "other bytes, same length"),
)


class _NotNoticedError(Exception):
    """A training goes on with other data, and says nothing."""


def changed_data(battery: Battery) -> Iterator[Row]:
    """Labels and images that change between kill and resume, and after the end."""
    rng, sizes, folder = battery.rng, battery.sizes, battery.folder
    data = folder / "data"
    recipe = tiny_recipe(write_shapes(data), epochs=3)
    shutil.copytree(data, folder / "sound")
    long = replace(recipe, epochs=50)
    stopped = _stopped(long, folder / "stopped", checkpoints=1)
    train(recipe, folder / "finished")

    def noticed(wanted: Recipe, place: Path) -> str | None:
        notes: list[str] = []

        def stepped(*_: int) -> None:
            raise _NotNoticedError

        try:
            execution = Execution(device="cpu", checkpoint_seconds=0.0)
            fit(
                wanted,
                place,
                execution=execution,
                report=Report(note=notes.append, stepped=stepped),
            )
        except AlphaIoUError:
            return None
        except _NotNoticedError:
            pass
        except Exception as error:  # what this looks for
            return f"{type(error).__name__}: {error}"[:300]
        return None if any(TOUCHED in note for note in notes) else "not noticed"

    for when, wanted in (("between kill and resume", long), ("after the end", recipe)):
        tally = Tally("changed data", f"labels or images, {when}", "refused or noted")
        for how in CHANGES:
            for _ in range(sizes.data_changes):
                change_data(how, data, rng)
                place = folder / "copy"
                shutil.copytree(stopped.parent if wanted is long else folder / "finished", place)
                tally.add(_at(noticed(wanted, place), how))
                shutil.rmtree(place)
                shutil.rmtree(data)
                shutil.copytree(folder / "sound", data)  # with the times of the files
        yield tally.row()


# --- disks ----------------------------------------------------------------------------------------


def full_disks(battery: Battery) -> Iterator[Row]:
    """Trainings whose files no longer fit from some epoch on, which are repeated with space."""
    rng, sizes, folder = battery.rng, battery.sizes, battery.folder
    recipe = tiny_recipe(write_shapes(folder / "data"), epochs=4, data={"val": "val"})
    train(recipe, folder / "undisturbed")
    tally = Tally("full disks", "RLIMIT_FSIZE from a random epoch on", "no damage, " + SAME)
    for number in range(sizes.full_disks):
        place = folder / str(number)
        limit = rng.choice((0, 100, 10_000, 1_000_000, 5_000_000))
        epoch = rng.randrange(recipe.epochs + 1)
        process = PROCESSES.Process(target=train_on_a_full_disk, args=(recipe, place, limit, epoch))
        process.start()
        process.join()
        problem = None if process.exitcode == 28 else f"exit {process.exitcode}"
        problem = problem or _unsound(place / recipe_hash(recipe))
        problem = problem or finished(recipe, place, folder / "undisturbed")
        tally.add(_at(problem, (limit, epoch)))
        shutil.rmtree(place)
    yield tally.row()


def _unsound(run: Path) -> str | None:
    """What a full disk has left behind that it should not have."""
    if parts := list(run.glob("*.part")) + list(run.glob(".*.part")):
        return f"{parts[0].name} is left"
    notes: list[str] = []
    load_checkpoint(run, notes.append)
    return notes[0] if notes else None


# --- grids ----------------------------------------------------------------------------------------


def grids(battery: Battery) -> Iterator[Row]:
    """Grids that lose workers, are killed, and compute in one folder at a time."""
    folder = battery.folder
    data = {"tiny": folder / "set"}
    for split, length in (("train", 8), ("val", 4)):
        index = shapes_index(split, size=SIDE, length=length, level="plain")
        write_yolo(index, data["tiny"], images="copy")
    wanted = grid(IOU, POWERED, recipe=replace(TINY, epochs=4))
    result = run_grid([wanted], folder / "undisturbed", data=data, execution=CPU, workers=1)
    yield _killed_workers(battery, wanted, data, outcomes(result))
    yield from _killed_grids(battery, wanted, data, outcomes(result))
    yield _two_grids(battery, wanted, data, outcomes(result))


def _ended(wanted: Grid, folder: Path, data: dict[str, Path], expected: Record) -> str | None:
    """Compute what is left of a grid; what differs from the undisturbed one."""
    result = run_grid([wanted], folder, data=data, execution=CPU, workers=1)
    if result.failed:
        return str(result.failed[0][1])[:300]
    return None if outcomes(result) == expected else "the outcomes differ"


def _killed_workers(battery: Battery, wanted: Grid, data: dict[str, Path], expected: Record) -> Row:
    tally = Tally("grids", "the worker of each run killed once", "the same outcomes")
    names = [run.name for run in planned_runs([wanted])]
    for number in range(battery.sizes.grids):
        place = battery.folder / f"workers {number}"
        moments = {name: battery.rng.randrange(1, 4) for name in names}

        def kill_worker(name: str, epoch: int, moments: dict[str, int] = moments) -> None:
            if moments.get(name) == epoch:
                del moments[name]
                (worker,) = _own_workers()
                threading.Timer(battery.rng.uniform(0.0, 0.3), worker.kill).start()

        def listen(run: Any) -> Report:
            return Report(epoch_done=lambda entry: kill_worker(run.name, entry["epoch"]))

        options = {"workers": 1, "report": GridReport(run=listen)}
        result = run_grid([wanted], place, data=data, execution=CPU, **options)  # type: ignore[arg-type]
        failed = f"{len(result.failed)} runs failed" if result.failed else None
        problem = failed or (None if outcomes(result) == expected else "the outcomes differ")
        for _ in range(len(names) - len(moments)):
            tally.add(problem)
            problem = None
        shutil.rmtree(place)
    return tally.row()


def _own_workers() -> list[psutil.Process]:
    """The workers of a grid that this process computes."""
    children = psutil.Process().children()
    return [one for one in children if "spawn_main" in " ".join(one.cmdline())]


def _killed_grids(
    battery: Battery, wanted: Grid, data: dict[str, Path], expected: Record
) -> Iterator[Row]:
    tally = Tally("grids", "the grid killed with two workers", "no orphans, the same outcomes")
    tally.more = {"workers": 0, "orphans": 0}
    for number in range(battery.sizes.grids):
        place, log = battery.folder / f"killed {number}", battery.folder / f"killed {number}.log"
        with one_process(compute, wanted, place, data, log, 2) as process:
            wait_for(lambda: events(log, "epoch"))  # noqa: B023
            time.sleep(battery.rng.uniform(0.0, 1.0))
            started = family(process)
            tally.more["workers"] += len(workers_of(process))
            process.kill()
            end = time.monotonic() + PATIENCE
            while not all(map(is_over, started)) and time.monotonic() < end:
                time.sleep(0.02)
            orphans = sum(not is_over(one) for one in started)
        tally.more["orphans"] += orphans
        problem = f"{orphans} orphans" if orphans else _ended(wanted, place, data, expected)
        tally.add(problem)
        shutil.rmtree(place)
    yield tally.row()


def _two_grids(battery: Battery, wanted: Grid, data: dict[str, Path], expected: Record) -> Row:
    tally = Tally("grids", "two grids on one folder", "no epoch trained twice")
    for number in range(battery.sizes.grids):
        place = battery.folder / f"shared {number}"
        logs = [battery.folder / f"shared {number} {which}.log" for which in "ab"]
        with one_process(compute, wanted, place, data, logs[0], 1) as one:
            time.sleep(battery.rng.uniform(0.0, 2.0))
            with one_process(compute, wanted, place, data, logs[1], 1) as other:
                one.join(PATIENCE)
                other.join(PATIENCE)
                codes = [one.exitcode, other.exitcode]
        done = [event for log in logs for event in events(log, "epoch")]
        problem = None if codes == [0, 0] else f"exit codes {codes}"
        if len(done) != len(set(done)):
            problem = "an epoch was trained twice"
        tally.add(problem or _ended(wanted, place, data, expected))
        shutil.rmtree(place)
    return tally.row()


# --- the battery ----------------------------------------------------------------------------------

FAULTS = {
    "killed": killed_trainings,
    "interrupted": interrupted_trainings,
    "checkpoints": damaged_checkpoints,
    "records": damaged_records,
    "data": changed_data,
    "disks": full_disks,
    "grids": grids,
}


def suite() -> dict[str, int]:
    """The number of tests of the suite, and of their files."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0"]
    root = FOLDER.parent
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    counts = re.findall(r"^tests/\S+\.py: (\d+)$", listed, re.MULTILINE)
    return {"tests": sum(map(int, counts)), "files": len(counts)}


def main(argv: Sequence[str] | None = None) -> int:
    """Try every fault; the record is written after each, in case the battery is interrupted."""
    options = _options(argv)
    path = options.out or FOLDER / "faults-cpu.json"
    record: Record = {
        "record": "faults",
        **conditions(torch.device("cpu"), "numpy", "safetensors"),
        "settings": {"faults": options.faults, "quick": options.quick, "seed": options.seed},
        "complete": False,
        "suite": None,
        "rows": [],
    }
    for name in options.faults:
        with tempfile.TemporaryDirectory() as folder:
            before = os.environ.get("ALPHAIOU_CACHE")
            os.environ["ALPHAIOU_CACHE"] = f"{folder}/cache"
            battery = Battery(
                QUICK if options.quick else Sizes(), random.Random(options.seed), Path(folder)
            )
            try:
                for row in FAULTS[name](battery):
                    print(
                        f"{row['fault']}, {row['how']}: {row['tried']} tried, {row['wrong']} wrong"
                    )
                    for example in row["examples"]:
                        print(f"  {example}")
                    record["rows"].append(row)
            finally:
                os.environ.pop("ALPHAIOU_CACHE")
                if before is not None:
                    os.environ["ALPHAIOU_CACHE"] = before
        write_record(record, path)
    record["suite"] = None if options.quick else suite()
    write_record(record | {"complete": True}, path)
    print(f"wrote {path}")
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--quick", action="store_true", help="each fault once or a few times")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments and places")
    parser.add_argument("--out", type=Path, help="path of the record; benchmarks/faults-cpu.json")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
