"""The search space, and the settings of a trial."""

import pytest

from alphaiou._config import ConfigError
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.study.tune import Choice, Range, Settings, loss_space
from alphaiou.study.tune.space import first_trials


def test_a_space_has_every_hyperparameter_unless_some_are_chosen():
    assert list(loss_space()) == [
        "kind",
        "alpha",
        "schedule",
        "box_gain",
        "class_gain",
        "objectness_gain",
        "lr",
    ]
    assert loss_space(only=["lr"], lr=2) == {"lr": Range(0.5, 2, log=True)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kinds": ["iou:3"]}, "α is tuned; write 'iou'"),
        ({"kinds": ["nope"]}, "kind must be one of"),
        ({"schedules": ["steep"]}, "schedules must be one of"),
        ({"only": ["momentum"]}, "the hyperparameters to tune must be one of"),
        ({"alpha": (3.0, 1.0)}, "low < high, got 3.0 and 1.0"),
        ({"alpha": (0.0, 1.0)}, "must be above 0, got low=0.0"),
        ({"kinds": []}, "at least one value"),
    ],
)
def test_a_wrong_space_is_rejected(wrong, message):
    with pytest.raises(ConfigError, match=message):
        loss_space(**wrong)


def test_settings_are_a_loss_a_schedule_and_factors():
    values = {"kind": "ciou+inner", "alpha": 2.34567, "schedule": "cosine", "box_gain": 0.5}
    settings = Settings(values, match=3.0)
    assert settings.loss == LossSpec("ciou", 2.346, modifiers=("inner",))
    assert settings.schedule == AlphaSchedule(1.0, 2.346, "cosine")
    assert settings.first_loss.alpha == 1.0
    assert settings.module().schedule == settings.schedule
    assert (settings.factor("box_gain"), settings.factor("lr")) == (1.5, 1.0)
    assert Settings({"schedule": "constant"}).schedule is None
    assert Settings({"alpha": 2.0}).first_loss.alpha == 2.0


def test_settings_have_a_name_of_their_own():
    one = Settings({"alpha": 1.0})
    others = [
        Settings({"alpha": 1.5}),
        Settings({"alpha": 1.0}, seed=1),
        Settings({"alpha": 1.0}, split="test"),
        Settings({"alpha": 1.0}, match=2.0),
    ]
    assert len({settings.name for settings in (one, *others)}) == 5
    assert one.name == Settings({"alpha": 1.0}).name


def test_the_first_trials_are_the_losses_with_nothing_else_tuned():
    first = list(first_trials(loss_space(["iou", "ciou"])))
    assert [(one["kind"], one["alpha"]) for one in first] == [
        ("iou", 1.0),
        ("iou", 3.0),
        ("ciou", 1.0),
        ("ciou", 3.0),
    ]
    assert {one["schedule"] for one in first} == {"constant"}
    assert {one[name] for one in first for name in ("box_gain", "lr")} == {1.0}
    low = loss_space(["iou"], alpha=(0.5, 2.0), only=["alpha"])
    assert list(first_trials(low)) == [{"alpha": 1.0}]
    assert list(first_trials({"depth": Choice((1, 2))})) == []
