"""One training step on the device: augment, predict, loss, gradient, update, average.

It has static shapes and no host synchronisation, so that on CUDA the whole step is recorded once
as a CUDA graph and replayed: at 64 images of 320 pixels, launching the kernels one by one takes
longer than running them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from alphaiou._shapes import Float, Int
from alphaiou.batch import Batch, Targets
from alphaiou.detectors import Detector
from alphaiou.detectors.base import AUTOCAST
from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.functional import check_alphas
from alphaiou.losses.kinds import resolve_kind
from alphaiou.training.optimiser import (
    CastWeights,
    FlatParameters,
    MovingAverage,
    StepRates,
    clip,
    make_optimiser,
    rate_table,
)
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe

#: fp16 gradients are computed at this scale at first, half of it after every overflow.
FIRST_SCALE = 2.0**12
WARM_UP_STEPS = 3


class Batches(Protocol):
    """The source of the batches of a training."""

    #: Whether ``draw`` may be recorded in a CUDA graph.
    capturable: bool

    def begin_epoch(self, epoch: int) -> None:
        """Start with the first batch of an epoch, which depends on the seed and the epoch alone."""
        ...

    def draw(self, place: Int[Tensor, ""]) -> list[Batch]:
        """The pieces of this process's share of a batch, given its place in the epoch."""
        ...


@dataclass(frozen=True)
class StepOptions:
    """How the device computes a step; none of it is part of the result.

    Attributes:
        compile: Whether torch.compile makes the kernels.
        capture: Whether the step is recorded as a CUDA graph.
    """

    compile: bool = False
    capture: bool = False


class Totals(NamedTuple):
    """Sums since the epoch began, on the device."""

    losses: Float[Tensor, " parts"]
    lost_boxes: Int[Tensor, ""]
    failed_step: Int[Tensor, ""]


class TrainingStep:
    """The state of a training, and the step that changes it.

    Args:
        detector: The detector, on its device.
        batches: The source of its batches.
        recipe: The run.
        steps_per_epoch: The number of batches of an epoch.
        processes: The processes that share each batch.
        options: How to compute.
    """

    def __init__(
        self,
        detector: Detector,
        batches: Batches,
        recipe: Recipe,
        *,
        steps_per_epoch: int,
        processes: Processes,
        options: StepOptions,
    ) -> None:
        self.detector, self.batches, self.recipe = detector, batches, recipe
        detector.train()
        self.processes, self.steps_per_epoch = processes, steps_per_epoch
        self.parameters = FlatParameters(detector)
        device = self.parameters.values.device
        self.optimiser = make_optimiser(recipe, detector, self.parameters)
        self.average = MovingAverage(
            deepcopy(detector).eval().requires_grad_(requires_grad=False),
            self.parameters,
            detector,
        )
        self.weights = CastWeights(self.parameters, AUTOCAST.get(recipe.precision))
        self.gradient = torch.zeros_like(self.parameters.values)
        self.rates = rate_table(steps_per_epoch, recipe).to(device)
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        self.scale = torch.tensor(FIRST_SCALE if recipe.precision == "fp16" else 1.0, device=device)
        self.totals = Totals(
            torch.zeros(len(detector.loss_names), device=device),
            torch.zeros((), dtype=torch.int64, device=device),
            torch.full((), -1, dtype=torch.int64, device=device),
        )
        if options.compile:
            compile_parts(detector)
            # Its dozen passes over all numbers become one.
            self.optimiser.step = torch.compile(self.optimiser.step, fullgraph=True, dynamic=False)  # type: ignore[method-assign]
        self.alphas = [alpha for module in detector.modules() for alpha in _scheduled_alpha(module)]
        self.part_growth = torch.ones(len(detector.loss_names), device=device)
        self.compile, self.capture = options.compile, options.capture and detector.capturable
        self.graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def process_settings(self) -> Iterator[None]:
        """Settings of torch that the steps are computed under; a run restores them at its end."""
        cudnn = torch.backends.cudnn
        with ExitStack() as stack:
            stack.callback(setattr, cudnn, "benchmark", cudnn.benchmark)
            # Shapes never change, so it pays that cuDNN tries its algorithms.
            cudnn.benchmark = self.number.is_cuda
            if self.compile:
                # One process may train a detector with many losses, each a version of its own.
                stack.enter_context(torch._dynamo.config.patch(recompile_limit=64))
            yield

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for the first step of an epoch, counted from 0."""
        self.batches.begin_epoch(epoch)
        self.number.fill_(epoch * self.steps_per_epoch)
        self.totals.losses.zero_()
        self.totals.lost_boxes.zero_()

    def __call__(self) -> None:
        """Do one step."""
        if not self.capture:
            self._step(self._draw())
        elif self.graph is None:
            raise RuntimeError("record() the step before it is replayed")
        else:
            if not self.batches.capturable:
                self._fill(self._draw())
            self.graph.replay()

    def record(self) -> None:
        """Record the step as a CUDA graph; the state is as it was before."""
        if not self.capture:
            return
        self.begin_epoch(0)
        kept = {name: tensor.clone() for name, tensor in self.state().items()}
        self.static = None if self.batches.capturable else self._draw()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_STEPS):
                self._step(self.static or self._draw())
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step(self.static or self._draw())
        self.load_state(kept)
        self.totals.failed_step.fill_(-1)

    def state(self) -> dict[str, Tensor]:
        """Every tensor that the next step depends on."""
        return {
            **{f"model.{name}": tensor for name, tensor in self.detector.state_dict().items()},
            **{f"ema.{name}": tensor for name, tensor in self.average.model.state_dict().items()},
            **self.optimiser.state(),
            "scale": self.scale,
        }

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Go on from a state, in place: a recorded step keeps its addresses."""
        mine = self.state()
        if mine.keys() != tensors.keys():
            strange = sorted(mine.keys() ^ tensors.keys())[:3]
            raise ValueError(f"the state is another detector's: {', '.join(strange)}, ...")
        for name, tensor in mine.items():
            tensor.copy_(tensors[name])

    def _draw(self) -> list[Batch]:
        return self.batches.draw(self.number % self.steps_per_epoch)

    def _fill(self, pieces: list[Batch]) -> None:
        for static, piece in zip(self.static or [], pieces, strict=True):
            drawn = piece.tensors()
            for name, tensor in static.tensors().items():
                tensor.copy_(drawn[name], non_blocking=True)

    def losses(self, images: Tensor, targets: Targets) -> Float[Tensor, " parts"]:
        """The contribution of some images to the parts of the loss of their batch."""
        kind, device = AUTOCAST.get(self.recipe.precision), images.device.type
        # Casts that outlive the step would go stale in a recorded one.
        with torch.autocast(device, kind, enabled=kind is not None, cache_enabled=False):
            losses = functional_call(self.detector, self.weights.by_name, (images, targets))
        parts = torch.stack(list(losses.values())) * self.part_growth
        pieces = self.recipe.optimisation.accumulate
        return parts if self.detector.sums_over_images else parts / pieces

    def _step(self, pieces: list[Batch]) -> None:
        # A plain index would ask the host for the number.
        row = self.rates.index_select(0, self.number[None])[0]
        lr, bias_lr, momentum, decay, alpha, box_growth = row.unbind()
        for scheduled in self.alphas:
            scheduled.copy_(alpha)
        if self.recipe.final_box_gain is not None:
            self.part_growth[self.detector.loss_names.index("box")].copy_(box_growth)
        parts = self._accumulate(pieces)
        self.processes.average(self.gradient)
        if self.recipe.precision == "fp16":
            self.gradient.div_(self.scale)
        finite = self.gradient.sum().isfinite()
        self._note(parts, finite, pieces)
        keep = finite & (self.totals.failed_step < 0)
        if self.recipe.optimisation.clip_norm:
            clip(self.gradient, self.recipe.optimisation.clip_norm)
        self.optimiser.step(self.gradient, StepRates(lr, bias_lr, momentum), keep=keep)
        self.average.step(decay)
        self.number.add_(1)

    def _accumulate(self, pieces: list[Batch]) -> Float[Tensor, " parts"]:
        """The gradient of all pieces into ``gradient``, and the sum of their losses."""
        totals = []
        self.weights.refresh()
        for place, piece in enumerate(pieces):
            parts = self.losses(piece.images, piece.targets)
            found = torch.autograd.grad(parts.sum() * self.scale, self.weights.leaves)
            joined = self.weights.joined(found)
            self.gradient.copy_(joined) if place == 0 else self.gradient.add_(joined)
            totals.append(parts.detach())
        return torch.stack(totals).sum(0)

    @torch.no_grad()
    def _note(self, parts: Tensor, finite: Tensor, pieces: list[Batch]) -> None:
        failed = self.totals.failed_step
        if self.recipe.precision == "fp16":
            # An overflow of the scaled gradient is no failure: the scale was too large.
            self.scale.mul_(torch.where(finite, 1.0, 0.5))
            finite = parts.sum().isfinite() & (self.scale > 2.0**-14)
        failed.copy_(torch.where((failed < 0) & ~finite, self.number, failed))
        self.totals.losses.add_(parts)
        for piece in pieces:
            self.totals.lost_boxes.add_(piece.lost)


def compile_parts(detector: Detector) -> None:
    """Compile a detector's parts; detectors with the same part share its kernels."""
    for name in detector.compiled_parts:
        part = detector.get_submodule(name)
        _hold_powers_in_tensors(part, next(detector.parameters()).device)
        part.forward = torch.compile(part.forward, fullgraph=True, dynamic=False)


def _hold_powers_in_tensors(part: nn.Module, device: torch.device) -> None:
    """So that what is compiled for an α serves for others; the fused kernel computes the same.

    The reference does not: it is simpler for a number that it knows.
    """
    losses = (module for module in part.modules() if isinstance(module, AlphaIoULoss))
    for loss in losses:
        if loss.schedule is None and not loss.modifiers and resolve_kind(loss.kind).kernel:
            powers = check_alphas(loss.alpha, loss.penalty_alpha)
            loss.alpha, loss.penalty_alpha = (power.on(device) for power in powers)


def _scheduled_alpha(module: nn.Module) -> list[Tensor]:
    scheduled = isinstance(module, AlphaIoULoss) and module.schedule is not None
    return [module.alpha] if scheduled else []  # type: ignore[list-item]
