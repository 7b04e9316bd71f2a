"""What is tuned: the hyperparameters, their ranges, and the settings of one trial."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from alphaiou._config import ConfigError
from alphaiou.boxes import check_choice
from alphaiou.losses.module import AlphaIoULoss, AlphaSchedule
from alphaiou.losses.spec import LossSpec

Value = str | float | int | bool
Split = Literal["val", "test"]
#: The course of α over a training: constant, or from 1 to α.
SCHEDULES = ("constant", "linear", "cosine")
#: The hyperparameters that are factors: of the matched box gain, and of the baseline's settings.
FACTORS = ("box_gain", "class_gain", "objectness_gain", "lr")
#: The names of the other hyperparameters of a box loss.
KIND, ALPHA, SCHEDULE = "kind", "alpha", "schedule"
#: The α of the first trials of each kind: as first published, and the paper's.
FIRST_ALPHAS = (1.0, 3.0)


@dataclass(frozen=True)
class Range:
    """The numbers between two ends.

    Attributes:
        low: The lower end.
        high: The upper end.
        log: Whether factors are sampled evenly rather than differences.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError(f"a range needs low < high, got {self.low} and {self.high}")
        if self.log and self.low <= 0:
            raise ConfigError(f"a logarithmic range must be above 0, got low={self.low}")

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """One of several values.

    Attributes:
        values: The values.
    """

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise ConfigError("a choice needs at least one value")

    def __contains__(self, value: object) -> bool:
        return value in self.values


#: The hyperparameters by name.
Space = Mapping[str, Range | Choice]


def loss_space(
    kinds: Sequence[str] = ("iou",),
    *,
    alpha: tuple[float, float] = (0.5, 5.0),
    schedules: Sequence[str] = SCHEDULES,
    gain: float = 4.0,
    lr: float = 3.0,
    only: Sequence[str] = (),
) -> dict[str, Range | Choice]:
    """The search space of a box loss.

    Args:
        kinds: Losses without powers, such as ``iou`` or ``ciou+inner``.
        alpha: The range of α.
        schedules: Courses of α: ``constant``, or ``linear`` and ``cosine`` from 1 to α.
        gain: Gains are tuned between 1/gain and gain times their defaults, the box gain times the
            matched one.
        lr: The learning rate is tuned between 1/lr and lr times its default.
        only: The hyperparameters to tune, all if empty; the others keep their defaults.

    Raises:
        ConfigError: A loss, a schedule or a name is unknown, or a range is empty.

    Examples:
        >>> loss_space(["iou", "ciou"], only=["kind", "alpha"])
        {'kind': Choice(values=('iou', 'ciou')), 'alpha': Range(low=0.5, high=5.0, log=True)}
    """
    try:
        for kind in kinds:
            if LossSpec.parse(kind).alpha != 1 or ":" in kind:
                raise ConfigError(f"loss {kind!r}: α is tuned; write {kind.partition(':')[0]!r}")
        for schedule in schedules:
            check_choice("schedules", schedule, SCHEDULES)
        space: dict[str, Range | Choice] = {
            KIND: Choice(tuple(kinds)),
            ALPHA: Range(*alpha, log=True),
            SCHEDULE: Choice(tuple(schedules)),
            **{name: Range(1 / gain, gain, log=True) for name in FACTORS[:-1]},
            "lr": Range(1 / lr, lr, log=True),
        }
        for name in only:
            check_choice("the hyperparameters to tune", name, tuple(space))
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return {name: item for name, item in space.items() if not only or name in only}


@dataclass(frozen=True)
class Settings:
    """The settings of one training.

    Attributes:
        values: The value of each hyperparameter.
        seed: The seed of the training.
        split: The images to score on: ``val`` in the search, ``test`` at the end.
        match: The factor that matches the mean gradient of the loss to that of the baseline.

    Examples:
        >>> settings = Settings({"kind": "ciou", "alpha": 3.0, "box_gain": 2.0}, match=0.5)
        >>> str(settings.loss), settings.factor("box_gain"), settings["kind"]
        ('ciou:3', 1.0, 'ciou')
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    seed: int = 0
    split: Split = "val"
    match: float = 1.0

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    @property
    def loss(self) -> LossSpec:
        """The box loss, without the schedule of its α."""
        spec = LossSpec.parse(str(self.values.get(KIND, "iou")))
        return replace(spec, alpha=_short(self.number(ALPHA, 1.0)))

    @property
    def schedule(self) -> AlphaSchedule | None:
        """The schedule of α; None if it is constant."""
        shape = self.values.get(SCHEDULE, "constant")
        if shape == "constant":
            return None
        return AlphaSchedule(1.0, self.loss.alpha, shape)  # type: ignore[arg-type]

    @property
    def first_loss(self) -> LossSpec:
        """The box loss in the first batches."""
        return self.loss if self.schedule is None else replace(self.loss, alpha=1.0)

    def module(self) -> AlphaIoULoss:
        """The box loss as a module, with its schedule."""
        return self.loss.module(self.schedule)

    def number(self, name: str, default: float) -> float:
        """The value of a hyperparameter, or a default if it is not tuned."""
        return float(self.values.get(name, default))

    def factor(self, name: str) -> float:
        """The factor of a gain or of the learning rate; that of the box gain includes ``match``."""
        return _short(self.number(name, 1.0) * (self.match if name == "box_gain" else 1.0))

    @property
    def name(self) -> str:
        """A hash of the settings, which names a run."""
        facts = [dict(self.values), self.seed, self.split, self.match]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]


def _short(value: float) -> float:
    """A number to four digits, so that it can be written in a command."""
    return float(f"{value:.4g}")


def described(space: Space) -> dict[str, list[Value]]:
    """A search space as plain values: the ends of ranges, and the values of choices."""
    return {
        name: list(item.values) if isinstance(item, Choice) else [item.low, item.high, item.log]
        for name, item in space.items()
    }


def first_trials(space: Space) -> Iterator[dict[str, Value]]:
    """The losses at equal gradient scale, with the other settings of the baseline.

    Examples:
        >>> for trial in first_trials(loss_space(only=["kind", "alpha", "lr"])):
        ...     print(trial)
        {'kind': 'iou', 'alpha': 1.0, 'lr': 1.0}
        {'kind': 'iou', 'alpha': 3.0, 'lr': 1.0}
    """
    if not {KIND, ALPHA} & space.keys():
        return
    usual: dict[str, Value] = {SCHEDULE: "constant", **dict.fromkeys(FACTORS, 1.0)}
    kinds = space[KIND].values if isinstance(space.get(KIND), Choice) else ("iou",)  # type: ignore[union-attr]
    for kind in kinds:
        for alpha in FIRST_ALPHAS:
            values = {KIND: kind, ALPHA: alpha, **usual}
            if all(name in values and values[name] in item for name, item in space.items()):
                yield {name: values[name] for name in space}
            if ALPHA not in space:
                break
