"""Disturb studies of ``alphaiou tune``, and count the trials that TPE needs to find an optimum.

    python -m benchmarks.tune [--quick] [--only ROW ...]

Each row of the record is one question:

- ``killed``: a study of tiny trainings on drawn images, killed in the middle and called again. Its
  trials must be those of a study that was not killed.
- ``four processes``: four processes share a study of the same trainings.
- ``ray``: the same study on a Ray cluster of two machines, one of which is lost.
- ``planted``: the number of trials until a synthetic objective is within a tolerance of its
  optimum, for TPE and random search.

``lost`` counts trials that are not over at the end, ``twice`` trainings that were completed more
than once.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from alphaiou.study.tune import TuneReport, Tuning, loss_space, tune_recipe
from alphaiou.study.tune.journal import TrialJournal
from alphaiou.study.tune.search import Plan
from alphaiou.study.tune.space import Settings, Space
from alphaiou.training.recipe import Recipe
from benchmarks.record import FOLDER, Row, conditions, load_record, write_record
from benchmarks.tiny import CPU, IOU, events, log_lines, one_process, tiny_recipe, write_shapes

RECORD = FOLDER / "tune-cpu.json"
KINDS = ("iou", "giou", "diou", "ciou")
#: The synthetic objective: its optimum, and how near a trial has to come.
OPTIMUM, TOLERANCE = 0.6, 0.02


# --- studies of trainings -------------------------------------------------------------------------


def recipe_of(data: str) -> Recipe:
    """The baseline: three epochs of four steps."""
    splits = {"val": "val", "test": "test"}
    recipe: Recipe = tiny_recipe(data, loss=IOU, epochs=3, evaluate_every=1, data=splits)
    return recipe


def study(data: str, folder: Path, trials: int, *, log: Path | None = None) -> Tuning:
    """A study of tiny trainings on drawn images."""
    recipe = recipe_of(data)
    plan = Plan(folder, trials, seeds=0, workers=0, execution=CPU)
    write = log_lines(log) if log is not None else lambda *_: None
    report = TuneReport(
        begun=lambda number, _: write("begun", number),
        ended=lambda number, outcome: write("ended", number, outcome),
    )
    torch.set_num_threads(1)
    return tune_recipe(recipe, loss_space(KINDS[:2]), plan, report)


def outcomes(tuning: Tuning) -> list[tuple[Any, ...]]:
    """What must not depend on a kill: the trials with their settings, scores and runs."""
    return [(t.number, t.state, dict(t.values), t.score, t.run) for t in tuning.trials]


def counts(tuning: Tuning, log: Path) -> Row:
    """How many trials were lost or completed twice."""
    ended = Counter(number for number, _ in events(log, "ended"))
    states = Counter(trial.state for trial in tuning.trials)
    return {
        "trials": len(tuning.trials),
        **states,
        "lost": states["running"] + (len(tuning.trials) - len(ended)),
        "twice": sum(count > 1 for count in ended.values()),
    }


def killed(data: str, folder: Path, trials: int) -> Row:
    """Kill a study in the middle, and call it again."""
    log = folder / "log"
    with one_process(run_study, data, folder / "killed", trials, log) as process:
        # Before a trial ends, so that one is left behind.
        while len(events(log, "begun")) <= trials // 2 and process.is_alive():
            time.sleep(0.01)
        alive = process.is_alive()
        process.kill()
    ended = len(events(log, "ended"))
    again = study(data, folder / "killed", trials, log=log)
    undisturbed = study(data, folder / "undisturbed", trials)
    return {
        "killed": alive,
        "ended_before": ended,
        **counts(again, log),
        "same_as_undisturbed": outcomes(again) == outcomes(undisturbed),
    }


def run_study(data: str, folder: Path, trials: int, log: Path) -> None:
    study(data, folder, trials, log=log)


def four_processes(data: str, folder: Path, trials: int) -> Row:
    """Four processes on one journal."""
    log = folder / "shared.log"
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(one_process(run_study, data, folder / "shared", trials, log))
            for _ in range(4)
        ]
        for process in processes:
            process.join()
        codes = [process.exitcode for process in processes]
    return {"exit_codes": codes, **counts(study(data, folder / "shared", trials), log)}


def lost_machine(data: str, folder: Path, trials: int) -> Row:
    """A Ray cluster of two machines, one of which is lost while both train."""
    from ray.cluster_utils import Cluster

    log = folder / "ray.log"
    lost: list[int] = []
    config = {"worker_niceness": 0, "health_check_period_ms": 500}
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": config}
    )
    machines = [cluster.add_node(num_cpus=1) for _ in range(2)]
    write = log_lines(log)

    def ended(number: int, outcome: str) -> None:
        write("ended", number, outcome)
        if number >= trials // 3 and not lost:
            lost.append(number)
            cluster.remove_node(machines.pop(), allow_graceful=False)

    try:
        recipe = recipe_of(data)
        plan = Plan(folder / "ray", trials, seeds=0, ray=cluster.address, execution=CPU)
        tuning = tune_recipe(recipe, loss_space(KINDS[:2]), plan, TuneReport(ended=ended))
    finally:
        cluster.shutdown()
    return {"machines_lost": len(lost), **counts(tuning, log)}


# --- the planted optimum --------------------------------------------------------------------------


def planted(settings: Settings) -> float:
    """A score that is best at α = 2.2, with DIoU, 1.7 times the gain, half the learning rate."""
    distance = [math.log2(settings.loss.alpha / 2.2), math.log2(settings.factor("box_gain") / 1.7)]
    rate = math.log2(2 * settings.factor("lr"))
    wrong_kind = settings["kind"] != "diou"
    return float(
        OPTIMUM
        - 0.1 * distance[0] ** 2
        - 0.03 * distance[1] ** 2
        - 0.05 * rate**2
        - 0.04 * wrong_kind
    )


def trials_until_found(folder: Path, space: Space, sampler: Any, seed: int, most: int) -> int:
    """The trials until the optimum is found; one more than the most if it is not."""
    journal = TrialJournal(folder, space, {}, trials=most, seed=seed, sampler=sampler)
    while (claim := journal.claim()) is not None:
        score = planted(Settings(claim.values))
        journal.complete(claim, str(claim.number), {"map": score}, "map")
        if score >= OPTIMUM - TOLERANCE:
            return claim.number + 1
    return most + 1


def planted_optimum(folder: Path, seeds: int, most: int) -> list[Row]:
    """The trials that TPE and random search need."""
    space = loss_space(KINDS, only=["kind", "alpha", "box_gain", "lr"])
    rows = []
    for sampler in ("tpe", "random"):
        needed = [
            trials_until_found(folder / f"{sampler}-{seed}", space, sampler, seed, most)
            for seed in range(seeds)
        ]
        rows.append(
            {
                "question": "planted",
                "sampler": sampler,
                "seeds": seeds,
                "median": statistics.median(needed),
                "not_found": sum(count > most for count in needed),
                "most": most,
                "trials": needed,
            }
        )
    return rows


QUESTIONS: Mapping[str, Callable[[str, Path, int], Row]] = {
    "killed": killed,
    "four processes": four_processes,
    "ray": lost_machine,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask every question, or some, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few trials and seeds")
    parser.add_argument("--only", nargs="+", choices=[*QUESTIONS, "planted"], help="some rows")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args(arguments)
    if options.quick:
        options = argparse.Namespace(**{**vars(options), "trials": 6, "seeds": 2})
    wanted = options.only or [*QUESTIONS, "planted"]
    made: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = write_shapes(folder / "data", train=8, val=4, test=4)
        for question in wanted:
            start = time.perf_counter()
            if question == "planted":
                made += planted_optimum(folder, options.seeds, 10 if options.quick else 150)
            else:
                row = QUESTIONS[question](data, folder, options.trials)
                made.append({"question": question, **row})
            seconds = round(time.perf_counter() - start, 1)
            print(made[-1], f"{seconds} s", flush=True)
    kept: list[Row] = []  # read now: other rows may have been made meanwhile
    if options.only and options.out.exists():
        kept = [row for row in load_record(options.out)["rows"] if row["question"] not in wanted]
    head = {"benchmark": "tune", **conditions(torch.device("cpu"), "optuna", "ray")}
    write_record({**head, "rows": [*kept, *made]}, options.out)


if __name__ == "__main__":
    main()
