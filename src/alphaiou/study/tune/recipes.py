"""Tuning ``alphaiou train``: from hyperparameters to recipes, splits and a command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alphaiou._config import ConfigError
from alphaiou._environment import device_kind
from alphaiou.data.shapes.dataset import SHAPES_WORD
from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import HELD_OUT, CompareSettings, compare_recipes
from alphaiou.study.pool import Job, RecipeJob
from alphaiou.study.tune.gradient import GradientMatch, match_of
from alphaiou.study.tune.journal import exclusive
from alphaiou.study.tune.result import Tuning
from alphaiou.study.tune.search import Plan, TuneReport, run_study
from alphaiou.study.tune.space import ALPHA, KIND, SCHEDULE, Settings, Space, Value
from alphaiou.training.recipe import AUTO, DataRecipe, Recipe, recipe_hash, write_recipe
from alphaiou.training.recipes import with_settings
from alphaiou.training.record import read_record
from alphaiou.training.setup import resolve_auto, resolve_splits

#: The recipe of the baseline, and the pairs of boxes of its first batches.
BASE, PAIRS = "base.yaml", "pairs.safetensors"
#: The gains that are fields of a detector.
GAINS = ("box_gain", "class_gain", "objectness_gain")


def tune_recipe(
    recipe: Recipe, space: Space, plan: Plan, report: TuneReport = TuneReport()
) -> Tuning:
    """Tune the training of a recipe, which is the baseline.

    Trials are scored on ``val``, or on a share of the training images if the data set has no split
    to spare; the best configurations are scored on ``test``.

    Args:
        recipe: The baseline.
        space: The hyperparameters; those that the detector does not have are left out.
        plan: How the study is computed.
        report: Listens to it.

    Raises:
        ConfigError: The recipe cannot be tuned.
        TuneError: The study in the folder is another one.
    """
    recipe = replace(recipe, data=resolve_splits(recipe.data, "best"))
    recipe = resolve_auto(recipe, device_kind(plan.execution.device))
    if plan.ray is not None and not SHAPES_WORD.fullmatch(recipe.data.path):
        path = str(Path(recipe.data.path).absolute())  # the same on every machine
        recipe = replace(recipe, data=replace(recipe.data, path=path))
    _check(recipe, space)
    space = {name: item for name, item in space.items() if _has(recipe, name)}
    search, final = split_recipes(recipe)
    plan.folder.mkdir(parents=True, exist_ok=True)
    with exclusive(plan.folder / f"{PAIRS}.lock"):
        match = match_of(search, plan.folder / PAIRS, plan.execution)
    write_recipe(final, plan.folder / BASE)
    if final.data.test is None:
        report.note(
            f"{recipe.data.path} has one split: the best configurations are scored on the share "
            "that is held out, with other seeds; a second split makes the scores independent"
        )
    objective = RecipeObjective(search, final, plan.folder.absolute(), match)
    return run_study(objective, space, plan, report)


def small_recipe(kind: str, settings: CompareSettings) -> Recipe:
    """The recipe of ``alphaiou compare`` as a baseline, with all splits of the data set.

    Args:
        kind: The loss of the baseline, such as ``iou``.
        settings: The detector, its data, and the length of the training.

    Examples:
        >>> recipe = small_recipe("ciou", CompareSettings())
        >>> recipe.data.val, recipe.data.test, str(recipe.loss)
        ('val', 'test', 'ciou')
    """
    (recipe,) = compare_recipes([LossSpec.parse(kind)], settings)
    data = DataRecipe(settings.data, train=AUTO, val=AUTO, test=AUTO)
    return replace(recipe, data=resolve_splits(data, "best"))


def loss_kind(recipe: Recipe) -> str:
    """The loss of a recipe without its powers, as text.

    Examples:
        >>> loss_kind(Recipe(loss=LossSpec("ciou", 3.0, 1.0)))
        'ciou'
    """
    return str(replace(recipe.loss, alpha=1.0, penalty_alpha=None))


def _check(recipe: Recipe, space: Space) -> None:
    if recipe.select == "best-on-test":
        raise ConfigError("select='best-on-test' looks at the test set; tune with last or best")
    if recipe.final_box_gain is not None and "box_gain" in space:
        raise ConfigError("final_box_gain cannot be tuned; set it to none, or leave out box_gain")


def _has(recipe: Recipe, name: str) -> bool:
    """Whether a hyperparameter is a setting of a recipe."""
    return name not in GAINS or hasattr(recipe.detector, name)


def split_recipes(recipe: Recipe) -> tuple[Recipe, Recipe]:
    """The recipes of the search and of the final scores, which differ in their splits.

    Examples:
        >>> data = DataRecipe("shapes", val="val", test="test")
        >>> search, final = split_recipes(Recipe(data=data))
        >>> (search.data.val, search.data.test), (final.data.val, final.data.test)
        (('val', None), (None, 'test'))
    """
    data = recipe.data
    if data.val is None or data.test is None:  # one split to report on, a share to select on
        share = data.hold_out or HELD_OUT
        data = replace(data, val=None, test=data.test or data.val, hold_out=share)
    search = replace(recipe, data=replace(data, test=None))
    if recipe.select == "best" or data.test is None:
        return search, replace(recipe, data=data)
    return search, replace(recipe, data=replace(data, val=None), evaluate_every=0)


@dataclass(frozen=True)
class RecipeObjective:
    """The training of a recipe.

    Attributes:
        search: The baseline, scored on the held-out split.
        final: The baseline, scored on the final split.
        folder: Each run has its own folder under this one.
        match: Matches the gradients of the losses.
    """

    search: Recipe
    final: Recipe
    folder: Path
    match: GradientMatch

    def facts(self) -> Mapping[str, Any]:
        """The recipe of the baseline, by its hash, and what is most likely to differ."""
        recipe = self.search
        return {
            "recipe": recipe_hash(recipe),
            "data": recipe.data.path,
            "detector": recipe.detector.name,
            "epochs": recipe.epochs,
        }

    def baseline(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """What is not given is as in the recipe."""
        return dict(values)

    def settings(self, values: Mapping[str, Value], seed: int, *, final: bool) -> Settings:
        """The values, and the match of their loss."""
        settings = Settings(dict(values), seed, "test" if final else "val")
        return replace(settings, match=self.match(tuned(self.search, settings, first=True).loss))

    def recipe(self, settings: Settings) -> Recipe:
        """The recipe of some settings."""
        base = self.final if settings.split == "test" else self.search
        return tuned(base, settings)

    def job(self, settings: Settings, *, asks: bool) -> RecipeJob:
        """The training."""
        return RecipeJob(self.recipe(settings), self.folder, asks=asks)

    def steps(self) -> int:
        """The number of epochs."""
        return self.search.epochs

    def scores(self, job: Job) -> Mapping[str, float]:
        """The scores of the record; those that are not defined are left out."""
        scores = read_record(job.folder / job.name / job.result)["scores"]
        return {name: float(value) for name, value in scores.items() if value is not None}

    def label(self, settings: Settings) -> str:
        """The loss, the gains and the learning rate."""
        recipe = self.recipe(settings)
        numbers = [
            f"{name.replace('_', ' ')} {getattr(recipe.detector, name):g}"
            for name in GAINS
            if hasattr(recipe.detector, name)
        ]
        return ", ".join((recipe.loss_name, *numbers, f"lr {recipe.optimisation.lr:g}"))

    def command(self, settings: Settings) -> str:
        """The command that repeats the training, with what differs from the baseline."""
        recipe = self.recipe(settings)
        course = recipe.alpha_schedule
        options = {"--config": str(self.folder / BASE), "--loss": str(recipe.loss)}
        if course is not None:
            options["--alpha-schedule"] = f"{course.start:g}:{course.end:g}:{course.shape}"
        for name in GAINS:
            value = getattr(recipe.detector, name, None)
            if value != getattr(self.final.detector, name, None):
                options[f"--{name.replace('_', '-')}"] = f"{value!r}"
        if recipe.optimisation.lr != self.final.optimisation.lr:
            options["--optimisation.lr"] = f"{recipe.optimisation.lr!r}"
        options |= {"--seed": str(recipe.seed), "--out": str(self.folder)}
        return shlex.join(["alphaiou", "train", *(t for pair in options.items() for t in pair)])


def tuned(recipe: Recipe, settings: Settings, *, first: bool = False) -> Recipe:
    """The recipe with some hyperparameters; what is not given is as in the recipe.

    Args:
        recipe: The baseline.
        settings: The hyperparameters.
        first: Whether α is that of the first batches, of which the schedule is the start.
    """
    values = settings.values
    loss = recipe.loss
    if KIND in values:
        loss = LossSpec.parse(str(values[KIND]))
    if KIND in values or ALPHA in values:
        alpha = settings.loss.alpha if ALPHA in values else recipe.loss.alpha
        loss = replace(loss, alpha=alpha, penalty_alpha=None)
    course = recipe.alpha_schedule
    if SCHEDULE in values or ALPHA in values:
        course = replace(settings, values={**values, ALPHA: loss.alpha}).schedule
    if first and course is not None:
        loss = replace(loss, alpha=course.start)
    gains = {
        name: _short(getattr(recipe.detector, name) * settings.factor(name))
        for name in GAINS
        if hasattr(recipe.detector, name) and settings.factor(name) != 1
    }
    optimisation = recipe.optimisation
    if settings.factor("lr") != 1:
        optimisation = replace(optimisation, lr=_short(optimisation.lr * settings.factor("lr")))
    changed = replace(recipe, loss=loss, alpha_schedule=course, optimisation=optimisation)
    return replace(with_settings(changed, **gains), seed=settings.seed)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
