"""How weights are changed, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from alphaiou.boxes import check_choice


@dataclass(frozen=True)
class Optimisation:
    """The optimiser, its rates over the training, and a moving average of the weights.

    Attributes:
        optimiser: sgd with momentum, or adamw with betas of 0.9 and 0.999.
        lr: The learning rate after warm-up.
        schedule: How it falls: along a cosine to final_lr, or in steps at drops.
        final_lr: What the cosine ends at, as a share of lr.
        drops: The epochs after which the learning rate drops.
        drop_factor: What it is multiplied with then.
        momentum: The momentum of sgd after warm-up.
        nesterov: Whether it is Nesterov's.
        weight_decay: How much weights decay.
        decay_batch: The batch that weight_decay is meant for, which it is scaled with; none leaves
            it as it is.
        decay: What decays: weights, or all parameters with norms and biases.
        clip_norm: The largest norm of the gradient over all parameters; 0 is any.
        warmup_epochs: The length of warm-up, but at least warmup_steps.
        warmup_steps: The least number of steps of warm-up.
        warmup_bias_lr: Where the learning rate of biases starts; that of the others starts at 0.
        warmup_momentum: Where the momentum starts.
        ema_decay: The decay of the moving average, once it has grown; 0 is no average.
        ema_growth: The number of steps in which it grows.
        accumulate: Pieces that a batch is computed in, to save memory.
    """

    optimiser: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.01
    schedule: Literal["cosine", "steps"] = "cosine"
    final_lr: float = 0.2
    drops: tuple[int, ...] = ()
    drop_factor: float = 0.1
    momentum: float = 0.937
    nesterov: bool = True
    weight_decay: float = 5e-4
    decay_batch: int | None = 64
    decay: Literal["weights", "all"] = "weights"
    clip_norm: float = 0.0
    warmup_epochs: float = 3.0
    warmup_steps: int = 1000
    warmup_bias_lr: float = 0.1
    warmup_momentum: float = 0.8
    ema_decay: float = 0.9999
    ema_growth: float = 2000.0
    accumulate: int = 1

    def __post_init__(self) -> None:
        check_choice("optimisation.optimiser", self.optimiser, ("sgd", "adamw"))
        check_choice("optimisation.schedule", self.schedule, ("cosine", "steps"))
        check_choice("optimisation.decay", self.decay, ("weights", "all"))
        for name in _NUMBERS:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"optimisation.{name} must be at least 0, got {value}")
        for name in ("momentum", "warmup_momentum", "ema_decay"):
            if getattr(self, name) >= 1:
                raise ValueError(f"optimisation.{name} must be below 1, got {getattr(self, name)}")
        for name in ("accumulate", "ema_growth", "decay_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"optimisation.{name} must be at least 1, got {value}")
        if self.optimiser == "adamw" and self.warmup_bias_lr > self.lr:
            raise ValueError(
                "optimisation.warmup_bias_lr must be at most optimisation.lr with adamw, got "
                f"{self.warmup_bias_lr} and {self.lr}; take 0"
            )
        self._check_drops()

    def _check_drops(self) -> None:
        if self.drops and self.schedule != "steps":
            raise ValueError("optimisation.drops needs optimisation.schedule='steps'")
        if any(epoch < 1 for epoch in self.drops) or list(self.drops) != sorted(set(self.drops)):
            raise ValueError(
                f"optimisation.drops must be epochs from 1 in rising order, got {self.drops}"
            )

    def scaled_decay(self, batch_size: int) -> float:
        """How much weights decay at a batch of some size.

        Examples:
            >>> Optimisation(weight_decay=0.5).scaled_decay(128)
            1.0
        """
        if self.decay_batch is None:
            return self.weight_decay
        return self.weight_decay * batch_size / self.decay_batch


_NUMBERS = (
    "lr",
    "final_lr",
    "drop_factor",
    "momentum",
    "weight_decay",
    "clip_norm",
    "warmup_epochs",
    "warmup_steps",
    "warmup_bias_lr",
    "warmup_momentum",
    "ema_decay",
    "ema_growth",
    "accumulate",
)
