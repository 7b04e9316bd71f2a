"""The options of ``alphaiou train``: the fields of a recipe, and how to run it.

They are separate from ``cli.train`` because importing the recipe needs torch.
"""

from __future__ import annotations

import argparse
import types
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union

import tyro

from alphaiou._config import from_plain, to_plain
from alphaiou.cli import UsageError
from alphaiou.cli.options import Missing, Workers
from alphaiou.data.problems import MISSING
from alphaiou.detectors.registry import DETECTORS, detector_config, parse_loss
from alphaiou.errors import AlphaIoUError
from alphaiou.training.auto import AutoRecipe, auto_recipe
from alphaiou.training.recipe import DataRecipe, Recipe, read_recipe
from alphaiou.training.recipes import ANY_DATA, RECIPES

NO_HINT = {"help_behavior_hint": ""}


@dataclass(frozen=True)
class Train:
    """Train a detector with any box loss.

    On your own images: alphaiou train --data PATH.

    Without a recipe, settings that suit the data are chosen and printed.

    The named recipes are as published; each option changes one field.

    A run is stored in OUT/<hash of its recipe>. The same command resumes it:
    - recipe.yaml        the recipe; train --config repeats the run
    - record.json        the recipe, the scores and all epochs
    - best.safetensors   the weights, for alphaiou predict
    - last.safetensors   the training state, to resume from
    - batch.jpg          the first batch, with its boxes
    - predictions.jpg    predictions beside the ground truth
    - training.html      curves, scores, classes, confusion matrix
    """

    recipe: Recipe = field(default_factory=Recipe)

    config: Annotated[
        Path | None, tyro.conf.DisallowNone, tyro.conf.arg(metavar="FILE", **NO_HINT)
    ] = None
    """YAML file with a recipe, instead of a named one; options change its fields."""

    detector_name: Annotated[
        Literal[tuple(DETECTORS)] | None,  # type: ignore[valid-type]
        tyro.conf.DisallowNone,
        tyro.conf.arg(name="detector", **NO_HINT),
    ] = None
    """Detector instead of that of the recipe, with its default settings."""

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

    logger: Annotated[
        tuple[Literal["tensorboard", "csv", "wandb", "mlflow"], ...],
        tyro.conf.UseAppendAction,
        tyro.conf.arg(metavar="NAME", **NO_HINT),
    ] = ()
    """Also log to tensorboard, csv, wandb or mlflow; may be repeated."""

    keep_detections: bool = False
    """Keep the detections on the scored images in detections.npz, for alphaiou eval --errors."""

    no_page: bool = False
    """Write no training.html and no pictures."""

    out: Path = Path("runs/train")
    """Folder of all runs."""

    #: What was chosen from the data, if no recipe was given.
    chosen: ClassVar[AutoRecipe | None] = None


#: What ``alphaiou train`` chooses from the data unless it is given.
AUTO_NAME = "auto"
ABOUT_AUTO = "Chosen from the data: alphaiou train --data PATH --help shows what."


def options_of(arguments: Sequence[str]) -> type[Train]:
    """Return the options, which depend on the recipe, the detector and the data.

    Args:
        arguments: The command line, in which some options are looked up before it is parsed.

    Raises:
        ConfigError: If the file of a recipe cannot be read.
        DataError: If the recipe is to be chosen from data that cannot be opened.
        UsageError: If there is no such detector, or a number cannot be read.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--config", "--detector", "--data", "--device", "--loss", *_DATA_OPTIONS):
        parser.add_argument(name)
    for name in ("--epochs", "--batch-size", "--image-size"):
        parser.add_argument(name, type=int)
    parser.add_argument("--subset", type=float, default=1.0)
    try:
        given, rest = parser.parse_known_args(list(arguments))
        if given.detector is not None:
            detector_config(given.detector)
    except (argparse.ArgumentError, ValueError) as error:
        raise UsageError(str(error)) from None
    chosen: AutoRecipe | None = None
    if given.config is not None:
        path = Path(given.config)
        named = {path.name: _with_detector(read_recipe(path), given.detector)}
    else:
        if not _names_a_recipe(rest):
            chosen = _auto(given, is_help=not {"-h", "--help"}.isdisjoint(rest))
        first = Recipe() if chosen is None else chosen.recipe
        recipes = {name: recipe() for name, recipe in RECIPES.items()}
        named = {AUTO_NAME: first} | {
            name: _with_detector(recipe, given.detector) for name, recipe in recipes.items()
        }
    defaults = {name: _with_flat_options(recipe) for name, recipe in named.items()}
    kinds = tuple(_named(name, default) for name, default in defaults.items())
    # A union of one type is that type, without subcommands.
    union: Any = Annotated[Union[kinds], tyro.conf.arg(name="")]  # noqa: UP007
    default = next(iter(defaults.values()))
    train = make_dataclass(
        "Train",
        [("recipe", union, field(default=default))],
        bases=(Train,),
        frozen=True,
        namespace={"__doc__": Train.__doc__, "chosen": chosen},
    )
    return tyro.conf.configure(tyro.conf.CascadeSubcommandArgs)(train)


#: The options of the data, and the fields of ``DataRecipe`` that they set.
_DATA_OPTIONS = {
    "--data.path": "path",
    "--data.train": "train",
    "--data.val": "val",
    "--data.test": "test",
    "--data.hold-out": "hold_out",
}
_FLAGS = ("--no-compile", "--no-graph", "--no-page")


def _names_a_recipe(rest: Sequence[str]) -> bool:
    """Return whether one of the remaining arguments is the name of a recipe, not a value."""
    before = ("", *rest)
    return any(
        name in RECIPES and (not last.startswith("--") or last in _FLAGS or "=" in last)
        for last, name in zip(before, rest, strict=False)
    )


def _auto(given: argparse.Namespace, *, is_help: bool) -> AutoRecipe | None:
    """Choose a recipe from the data; None if the help is wanted and there are no data."""
    options = vars(given)
    texts = {
        field: options[option[2:].replace("-", "_")] for option, field in _DATA_OPTIONS.items()
    }
    texts["path"] = given.data or texts["path"]
    if is_help and texts["path"] is None:
        return None
    known = {field: None if text == "None" else text for field, text in texts.items() if text}
    data = from_plain(to_plain(ANY_DATA) | known, DataRecipe, where="--data")
    try:
        return auto_recipe(
            data,
            given.device or "auto",
            detector=given.detector,
            loss=None if given.loss is None else parse_loss(given.loss),
            epochs=given.epochs,
            batch_size=given.batch_size,
            image_size=given.image_size,
            subset=given.subset,
        )
    except AlphaIoUError:  # about the data, not the arguments
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


def _with_detector(recipe: Recipe, name: str | None) -> Recipe:
    if name in (None, recipe.detector.name):
        return recipe
    return replace(recipe, detector=detector_config(str(name)))


def _named(name: str, default: Recipe) -> Any:  # noqa: ANN401 - a type for tyro
    about = (RECIPES[name].__doc__ or "").splitlines()[0] if name in RECIPES else ABOUT_AUTO
    named = tyro.conf.subcommand(name, default=default, description=about)
    # No nested subcommands: the schedule of α and the other losses have their own options.
    # Yes and no are values: which flag there is would depend on the recipe.
    return Annotated[type(default), named, tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff]


def _with_flat_options(recipe: Recipe) -> Recipe:
    """Return the recipe as a subclass of its own, whose options of the detector have no prefix."""
    detector: Any = Annotated[type(recipe.detector), tyro.conf.OmitArgPrefixes]
    body = {
        "__annotations__": {"detector": detector},
        "__doc__": Recipe.__doc__,
        "__module__": __name__,
        "detector": recipe.detector,
    }
    options = {"frozen": True, "kw_only": True}
    kind: Any = types.new_class("Recipe", (Recipe,), options, lambda names: names.update(body))
    flat: Recipe = kind(**{item.name: getattr(recipe, item.name) for item in fields(recipe)})
    return flat
