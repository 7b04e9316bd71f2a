"""Tune the box loss and its gains, for ``alphaiou train`` or a training function of your own."""

from alphaiou.study.tune.gradient import GradientMatch, mean_gradient
from alphaiou.study.tune.journal import TuneError
from alphaiou.study.tune.recipes import tune_recipe
from alphaiou.study.tune.result import Tuning
from alphaiou.study.tune.search import TuneReport, tune
from alphaiou.study.tune.space import Choice, Range, Settings, loss_space

__all__ = [
    "Choice",
    "GradientMatch",
    "Range",
    "Settings",
    "TuneError",
    "TuneReport",
    "Tuning",
    "loss_space",
    "mean_gradient",
    "tune",
    "tune_recipe",
]
