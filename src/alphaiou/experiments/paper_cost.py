"""Where AP50 is lost with a larger box gain: in what is found, or in what it is taken for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from alphaiou.experiments.paper_best import by_loss, loss_title
from alphaiou.experiments.paper_records import CellRuns, RunRecord
from alphaiou.experiments.recipes import gain_factor

#: Average recall with as many detections as the paper's rule takes, the mean over .5 to .95.
RECALL = "ar300"
#: The part of YOLOv5's loss that says how well objects are told apart.
CLASSES = "class"


def cost_sentences(cells: Mapping[str, CellRuns]) -> list[str]:
    """A sentence on each loss that was run at the usual gain and at larger ones.

    Recall does not ask how sure a detector is; AP does. Where recall rises and AP50 falls, and the
    loss of the classes ends higher, objects seem to be found and then taken for something else.
    This recall is a mean over IoUs from .5 to .95, so that closer boxes raise it too.
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
    if not seeds or not all(_says(run) for runs in ends for run in runs):
        return ""
    recall, precision, classes = (
        " to ".join(f"{_mean(runs, number):.2f}" for runs in ends)
        for number in (_score(RECALL), _score("ap50"), _class_loss)
    )
    name, gain = loss_title(usual).rstrip(","), gain_factor(largest.cell.recipe)
    return (
        f"{name} from the usual gain to ×{gain:g}: average recall {recall} %, "
        f"AP50 {precision} %, loss of the classes at the end {classes}."
    )


def _says(run: RunRecord) -> bool:
    return RECALL in run["scores"] and CLASSES in run["history"][-1]


def _score(name: str) -> Callable[[RunRecord], float]:
    return lambda run: 100 * float(run["scores"][name])


def _class_loss(run: RunRecord) -> float:
    return float(run["history"][-1][CLASSES])


def _mean(runs: Sequence[RunRecord], number: Callable[[RunRecord], float]) -> float:
    return sum(map(number, runs)) / len(runs)
