"""One training step on the device: augmentation, forward, backward, update, moving average.

The step has static shapes and no host synchronisation, so that on CUDA it is captured once as a
CUDA graph and replayed. At 64 images of 320 pixels, launching the kernels one by one takes longer
than running them.
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

#: The initial scale of fp16 gradients, halved after every overflow.
FIRST_SCALE = 2.0**12
WARM_UP_STEPS = 3


class Batches(Protocol):
    """The source of the batches of a training."""

    #: Whether ``draw`` can be captured in a CUDA graph.
    capturable: bool
    #: The device of the batches.
    device: torch.device

    def begin_epoch(self, epoch: int) -> None:
        """Start an epoch; its batches depend only on the seed and the epoch."""
        ...

    def draw(self, place: Int[Tensor, ""]) -> list[Batch]:
        """Return the pieces of this process's share of a batch, given its position in the epoch."""
        ...


@dataclass(frozen=True)
class StepOptions:
    """How the device computes a step. None of these settings changes the result.

    Attributes:
        compile: Whether to compile parts of the step with ``torch.compile``.
        capture: Whether to capture the step as a CUDA graph.
    """

    compile: bool = False
    capture: bool = False


class Totals(NamedTuple):
    """Sums over the steps of the current epoch, on the device."""

    losses: Float[Tensor, " parts"]
    lost_boxes: Int[Tensor, ""]
    failed_step: Int[Tensor, ""]


class TrainingStep:
    """The state of a training and the step that updates it.

    Args:
        detector: The detector, on its device.
        batches: The source of the batches.
        recipe: The recipe of the run.
        steps_per_epoch: The number of batches per epoch.
        processes: The processes that share each batch.
        options: Whether to compile and capture.
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
            # Fuses a dozen passes over all parameters into one.
            self.optimiser.step = torch.compile(self.optimiser.step, fullgraph=True, dynamic=False)  # type: ignore[method-assign]
        self.alphas = [alpha for module in detector.modules() for alpha in _scheduled_alpha(module)]
        self.part_growth = torch.ones(len(detector.loss_names), device=device)
        self.compile, self.capture = options.compile, options.capture and detector.capturable
        self.graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def process_settings(self) -> Iterator[None]:
        """Set the torch settings that the steps need, and restore them at the end."""
        cudnn = torch.backends.cudnn
        with ExitStack() as stack:
            stack.callback(setattr, cudnn, "benchmark", cudnn.benchmark)
            # Shapes are static, so benchmarking the cuDNN algorithms pays off.
            cudnn.benchmark = self.number.is_cuda
            if self.compile:
                # One process may train with many losses, each of which is compiled separately.
                stack.enter_context(torch._dynamo.config.patch(recompile_limit=64))
            yield

    def begin_epoch(self, epoch: int) -> None:
        """Start an epoch, counted from 0."""
        self.batches.begin_epoch(epoch)
        self.number.fill_(epoch * self.steps_per_epoch)
        self.totals.losses.zero_()
        self.totals.lost_boxes.zero_()

    def __call__(self) -> None:
        """Run one step."""
        if not self.capture:
            self._step(self._draw())
        elif self.graph is None:
            raise RuntimeError("record() the step before it is replayed")
        else:
            if not self.batches.capturable:
                self._fill(self._draw())
            self.graph.replay()

    def record(self) -> None:
        """Capture the step as a CUDA graph; the state is left unchanged."""
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
        """Return every tensor that the next step depends on."""
        return {
            **{f"model.{name}": tensor for name, tensor in self.detector.state_dict().items()},
            **{f"ema.{name}": tensor for name, tensor in self.average.model.state_dict().items()},
            **self.optimiser.state(),
            "scale": self.scale,
        }

    @torch.no_grad()
    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Load a state in place: a captured step uses fixed addresses."""
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
        """Return the contribution of some images to the parts of the loss of their batch."""
        kind, device = AUTOCAST.get(self.recipe.precision), images.device.type
        # Cached casts would become stale in a captured step.
        with torch.autocast(device, kind, enabled=kind is not None, cache_enabled=False):
            losses = functional_call(self.detector, self.weights.by_name, (images, targets))
        parts = torch.stack(list(losses.values())) * self.part_growth
        pieces = self.recipe.optimisation.accumulate
        return parts if self.detector.sums_over_images else parts / pieces

    def _step(self, pieces: list[Batch]) -> None:
        # Plain indexing would synchronise with the host.
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
        """Compute the gradient over all pieces in ``gradient`` and return the sum of losses."""
        totals = []
        self.weights.refresh()
        for place, piece in enumerate(pieces):
            parts = self.losses(piece.images, piece.targets)
            gradients = torch.autograd.grad(parts.sum() * self.scale, self.weights.leaves)
            joined = self.weights.joined(gradients)
            self.gradient.copy_(joined) if place == 0 else self.gradient.add_(joined)
            totals.append(parts.detach())
        return torch.stack(totals).sum(0)

    @torch.no_grad()
    def _note(self, parts: Tensor, finite: Tensor, pieces: list[Batch]) -> None:
        failed = self.totals.failed_step
        if self.recipe.precision == "fp16":
            # An overflow of the scaled gradient is not a failure: the scale was too large.
            self.scale.mul_(torch.where(finite, 1.0, 0.5))
            finite = parts.sum().isfinite() & (self.scale > 2.0**-14)
        failed.copy_(torch.where((failed < 0) & ~finite, self.number, failed))
        self.totals.losses.add_(parts)
        for piece in pieces:
            self.totals.lost_boxes.add_(piece.lost)


def compile_parts(detector: Detector) -> None:
    """Compile the parts of a detector; detectors with equal parts share the kernels."""
    for name in detector.compiled_parts:
        part = detector.get_submodule(name)
        _hold_powers_in_tensors(part, next(detector.parameters()).device)
        part.forward = torch.compile(part.forward, fullgraph=True, dynamic=False)


def _hold_powers_in_tensors(part: nn.Module, device: torch.device) -> None:
    """Hold the powers in tensors, so that code compiled for one α is reused for others.

    This applies to the fused kernel, whose result is the same. The reference has shortcuts for
    constant powers.
    """
    losses = (module for module in part.modules() if isinstance(module, AlphaIoULoss))
    for loss in losses:
        if loss.schedule is None and not loss.modifiers and resolve_kind(loss.kind).kernel:
            powers = check_alphas(loss.alpha, loss.penalty_alpha)
            loss.alpha, loss.penalty_alpha = (
                torch.as_tensor(power.value, device=device) for power in powers
            )


def _scheduled_alpha(module: nn.Module) -> list[Tensor]:
    scheduled = isinstance(module, AlphaIoULoss) and module.schedule is not None
    return [module.alpha] if scheduled else []  # type: ignore[list-item]
