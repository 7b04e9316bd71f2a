"""What a recipe leaves open, decided by the data and the device before a run has a name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from alphaiou.data.layouts import split_names
from alphaiou.data.problems import DataError
from alphaiou.training.recipe import AUTO, DataRecipe, Recipe, Selection


def settle(recipe: Recipe, device: str) -> Recipe:
    """The recipe without any ``auto``: the precision of the device, the splits that there are.

    Args:
        recipe: The run.
        device: ``cpu`` or ``cuda``.

    Raises:
        DataError: The data set has no split that is plainly the one to train on.

    Examples:
        >>> settle(Recipe(precision="auto", data=DataRecipe(val="auto")), "cpu").data.val
        'val'
    """
    if recipe.precision == AUTO:
        recipe = replace(recipe, precision="bf16" if device == "cuda" else "fp32")
    return replace(recipe, data=settle_splits(recipe.data, recipe.select))


def settle_splits(data: DataRecipe, select: Selection = "last") -> DataRecipe:
    """The splits of a data set by their usual names, where they are ``auto``.

    ``trainval`` is taken before ``train``, and ``val`` with the latter only, which it is no part
    of; but where the best weights are to be chosen on ``val``, it stays out of the training.
    """
    if AUTO not in (data.train, data.val, data.test):
        return data
    names = split_names(data.path)
    train, val, test = data.train, data.val, data.test
    if train == AUTO:
        whole = ("train", "trainval") if select == "best" else ("trainval", "train")
        train = _named(names, whole) or _only(data.path, names)
    if val == AUTO:
        taken = data.hold_out or train.endswith("trainval")
        val = None if taken else _named(names, ("val", "valid", "validation"), but=train)
    if test == AUTO:
        test = _named(names, ("test",), but=train)
    return replace(data, train=train, val=val, test=test)


def _named(names: Sequence[str], wanted: Sequence[str], *, but: str = "") -> str | None:
    """The first of the wanted splits that there is, with or without a year behind its name."""
    for name in wanted:
        found = [one for one in names if re.fullmatch(re.escape(name) + r"(\d{4})?", one)]
        if name in found:
            found = [name]
        if len(found) == 1 and found[0] != but:
            return found[0]
    return None


def _only(path: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    raise DataError(
        f"{path}: no split is plainly the one to train on; "
        f"choose with data.train: {', '.join(names) or 'there is none'}"
    )
