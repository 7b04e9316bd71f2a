"""The options of ``alphaiou train``: the fields of a recipe, and where it is computed.

Apart from ``cli.train``, since the fields of a recipe cannot be had without torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tyro

from alphaiou.cli.options import Missing, Workers
from alphaiou.data.problems import MISSING
from alphaiou.training.recipe import Recipe
from alphaiou.training.recipes import RECIPES, paper

NO_HINT = {"help_behavior_hint": ""}


def _named(name: str, recipe: Callable[[], Recipe]) -> Any:  # noqa: ANN401 - a type for tyro
    about = (recipe.__doc__ or "").splitlines()[0]
    named = tyro.conf.subcommand(name, default=recipe(), description=about)
    # No commands within it: the schedule of α and the other losses have options of their own.
    return Annotated[Recipe, named, tyro.conf.AvoidSubcommands]


if TYPE_CHECKING:
    Chosen = Recipe
else:
    _named_recipes = tuple(_named(name, recipe) for name, recipe in RECIPES.items())
    Chosen = Annotated[Union[_named_recipes], tyro.conf.arg(name="")]  # noqa: UP007


@tyro.conf.configure(tyro.conf.CascadeSubcommandArgs)
@dataclass(frozen=True)
class Train:
    """Train a detector with any box loss.

    alphaiou train --data PATH is enough for a VOC, COCO or YOLO layout.

    Recipes to start from are at the end; each option changes a field.

    A run is kept in OUT/<hash of its recipe>; run it again to go on:
    - record.json        the recipe, the scores, every epoch
    - best.safetensors   the weights, for alphaiou predict
    - last.safetensors   the state of the training
    """

    recipe: Chosen = field(default_factory=paper)

    source: Annotated[
        str | None, tyro.conf.DisallowNone, tyro.conf.arg(name="data", metavar="PATH", **NO_HINT)
    ] = None
    """Short for --data.path."""

    box_loss: Annotated[
        str | None, tyro.conf.DisallowNone, tyro.conf.arg(name="loss", metavar="LOSS", **NO_HINT)
    ] = None
    """ciou, ciou:3, ciou:3:1 or iou+wise_v3:3 in place of --loss.*; for Faster R-CNN also l1."""

    rpn_box_loss: Annotated[
        str | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(name="rpn-loss", metavar="LOSS", **NO_HINT),
    ] = None
    """The box loss of the first stage of Faster R-CNN, l1 unless given."""

    match_box_loss: Annotated[
        str | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(name="match-loss", metavar="LOSS", **NO_HINT),
    ] = None
    """The box loss that DETR matches by, giou unless given."""

    alpha_from_to: Annotated[
        str | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(name="alpha-schedule", metavar="FROM:TO", **NO_HINT),
    ] = None
    """An α that moves, 1:3 or 1:3:cosine, in place of --loss.alpha."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    devices: int = 1
    """GPUs, or processes on the CPU; under torchrun its number counts."""

    nodes: int = 1
    """Machines; under torchrun its number counts."""

    workers: Workers = None
    """Processes that decode images."""

    missing: Missing = MISSING

    no_compile: bool = False
    """Do not compile the kernels of a step (a GPU only)."""

    no_graph: bool = False
    """Do not record a step as a CUDA graph (a GPU only)."""

    tensorboard: bool = False
    """Write event files for TensorBoard into the folder of the run."""

    out: Path = Path("runs/train")
    """Folder of all runs."""
