"""The options of ``alphaiou train``: the fields of a recipe, and how to run it.

They are separate from ``cli.train`` because importing the recipe needs torch.
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
    # No nested subcommands: the schedule of α and the other losses have their own options.
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

    For a data set in VOC, COCO or YOLO layout: alphaiou train --data PATH.

    The named recipes are listed below; each option changes one field.

    A run is stored in OUT/<hash of its recipe>. The same command resumes it:
    - record.json        the recipe, the scores and all epochs
    - best.safetensors   the weights, for alphaiou predict
    - last.safetensors   the training state, to resume from
    """

    recipe: Chosen = field(default_factory=paper)

    source: Annotated[
        str | None, tyro.conf.DisallowNone, tyro.conf.arg(name="data", metavar="PATH", **NO_HINT)
    ] = None
    """Data set to train on; short for --data.path."""

    box_loss: Annotated[
        str | None, tyro.conf.DisallowNone, tyro.conf.arg(name="loss", metavar="LOSS", **NO_HINT)
    ] = None
    """Box loss instead of --loss.*: ciou, ciou:3, ciou:3:1, iou+wise_v3:3; Faster R-CNN also l1."""

    rpn_box_loss: Annotated[
        str | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(name="rpn-loss", metavar="LOSS", **NO_HINT),
    ] = None
    """Box loss of the region proposal network of Faster R-CNN; default l1."""

    match_box_loss: Annotated[
        str | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(name="match-loss", metavar="LOSS", **NO_HINT),
    ] = None
    """Box loss in the matching cost of DETR; default giou."""

    alpha_from_to: Annotated[
        str | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(name="alpha-schedule", metavar="FROM:TO", **NO_HINT),
    ] = None
    """Schedule of α instead of --loss.alpha: 1:3 or 1:3:cosine."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on."""

    devices: int = 1
    """Number of GPUs, or of processes on the CPU; torchrun overrides it."""

    nodes: int = 1
    """Number of machines; torchrun overrides it."""

    workers: Workers = None
    """Number of processes that decode images."""

    missing: Missing = MISSING

    no_compile: bool = False
    """Do not compile the training step (GPU only)."""

    no_graph: bool = False
    """Do not capture the training step as a CUDA graph (GPU only)."""

    tensorboard: bool = False
    """Also write TensorBoard event files to the run folder."""

    out: Path = Path("runs/train")
    """Folder of all runs."""
