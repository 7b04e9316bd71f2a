"""Where AP50 is lost with a larger box gain: in what is found, or in what it is taken for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from alphaiou.study.records import CellRuns, RunRecord
from alphaiou.training.recipes import gain_factor
from studies.voc320.best import by_loss, loss_title

#: Recall with as many detections as the paper's rule takes: at an IoU of .5 where records have it,
#: else the mean over .5 to .95, which closer boxes raise too.
RECALLS = {"recall50": "recall at an IoU of .5", "ar300": "average recall"}
#: The part of YOLOv5's loss that says how well objects are told apart.
CLASSES = "class"


def cost_sentences(cells: Mapping[str, CellRuns]) -> list[str]:
    """A sentence on each loss that was run at the usual gain and at larger ones.

    Recall does not ask how sure a detector is; AP does. Where recall rises and AP50 falls, and the
    loss of the classes ends higher, objects seem to be found and then taken for something else.
    """
    sentences = (_sentence(line) for line in by_loss(cells).values())
    return [sentence for sentence in sentences if sentence]


def _sentence(line: Sequence[CellRuns]) -> str:
    usual = next((own for own in line if gain_factor(own.cell.recipe) == 1), None)
    largest = max(line, key=lambda own: gain_factor(own.cell.recipe))
    if usual is None or largest is usual:
        return ""
    seeds = [seed for seed in usual.runs if seed in largest.runs]
    ends = [[own.runs[seed] for seed in seeds] for own in (usual, largest)]
    recall = _recall([run for runs in ends for run in runs])
    if recall is None:
        return ""
    found, precise, classes = (
        " to ".join(f"{_mean(runs, number):.2f}" for runs in ends)
        for number in (_score(recall), _score("ap50"), _class_loss)
    )
    name, gain = loss_title(usual).rstrip(","), gain_factor(largest.cell.recipe)
    return (
        f"{name} from the usual gain to ×{gain:g}: {RECALLS[recall]} {found} %, "
        f"AP50 {precise} %, loss of the classes at the end {classes}."
    )


def _recall(runs: Sequence[RunRecord]) -> str | None:
    """The recall that all of some runs have; None if there is none, or no run tells of classes."""
    if not runs or not all(CLASSES in run["history"][-1] for run in runs):
        return None
    return next((name for name in RECALLS if all(name in run["scores"] for run in runs)), None)


def _score(name: str) -> Callable[[RunRecord], float]:
    return lambda run: 100 * float(run["scores"][name])


def _class_loss(run: RunRecord) -> float:
    return float(run["history"][-1][CLASSES])


def _mean(runs: Sequence[RunRecord], number: Callable[[RunRecord], float]) -> float:
    return sum(map(number, runs)) / len(runs)
