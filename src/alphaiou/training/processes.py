"""Data-parallel training: several processes, each with a share of every batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from alphaiou._environment import DeviceError, device_kind
from alphaiou.detectors import Detector

if TYPE_CHECKING:
    from lightning.fabric import Fabric


def launch(device: str, devices: int, nodes: int) -> tuple[Processes, torch.device]:
    """Join the processes that torchrun started, or start them.

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.
        devices: Processes per machine; ignored under torchrun.
        nodes: Machines; ignored under torchrun.

    Raises:
        DeviceError: If the devices are not available.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    kind = device_kind(device)
    if devices * nodes == 1:  # Fabric takes seconds to import
        return Processes(), torch.device(kind, 0) if kind == "cuda" else torch.device(kind)
    return _launch(kind, devices, nodes)


def _launch(kind: str, devices: int, nodes: int) -> tuple[Processes, torch.device]:
    from lightning.fabric import Fabric
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    try:
        fabric = Fabric(accelerator=kind, devices=devices, num_nodes=nodes, strategy="ddp")
        fabric.launch()
    except (MisconfigurationException, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DeviceError(f"{devices} devices on {nodes} machines: {reason}") from None
    return Processes(fabric), fabric.device


def is_first_process() -> bool:
    """Return whether this is the first process, also before the processes are joined."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


class Processes:
    """The processes of a training; by default a single one without a process group.

    The gradient, the number of positives and the statistics of batch norms are reduced over all
    processes, so the result is that of a single process up to rounding.
    """

    def __init__(self, fabric: Fabric | None = None) -> None:
        self.fabric = fabric
        self.count = fabric.world_size if fabric else 1
        self.rank = fabric.global_rank if fabric else 0

    def __deepcopy__(self, _: dict[int, Any]) -> Processes:
        """Return the same object: a copy of a model belongs to the same processes."""
        return self

    @property
    def is_first(self) -> bool:
        """Return whether this process writes files and reports progress."""
        return self.rank == 0

    def average(self, tensor: Tensor) -> Tensor:
        """Average a tensor over all processes, in place."""
        return self.total(tensor).div_(self.count) if self.count > 1 else tensor

    def total(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Wait for all processes."""
        if self.fabric is not None and self.count > 1:
            self.fabric.barrier()

    def shares(self, batch_size: int, pieces: int) -> list[slice]:
        """Return this process's rows of a batch, one slice per piece."""
        each, rest = divmod(batch_size, pieces * self.count)
        if rest:
            raise DeviceError(
                f"batch_size must be a multiple of {pieces} pieces times {self.count} processes, "
                f"got {batch_size}"
            )
        starts = [(piece * self.count + self.rank) * each for piece in range(pieces)]
        return [slice(start, start + each) for start in starts]

    def join(self, detector: Detector) -> None:
        """Make batch norms and losses of a detector use the whole batch."""
        if self.count == 1:
            return
        for module in detector.modules():
            if hasattr(module, "mean_over_processes"):
                module.mean_over_processes = self.average  # type: ignore[assignment]
                if detector.sums_over_images:
                    # The loss is scaled by the batch size, of which this process sees a share.
                    module.register_forward_hook(partial(_times, self.count))
            if hasattr(module, "sum_over_processes"):
                module.sum_over_processes = self.total  # type: ignore[assignment]
            if isinstance(module, nn.BatchNorm2d):
                module.forward = _SyncedNorm(module).__call__  # type: ignore


def _times(count: int, _: nn.Module, __: Any, losses: dict[str, Tensor]) -> dict[str, Tensor]:  # noqa: ANN401
    return {name: count * loss for name, loss in losses.items()}


class _SyncedNorm:
    """The forward pass of a batch norm over the batches of all processes, on any device."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        self.norm = norm
        self.alone: Callable[[Tensor], Tensor] = norm.forward

    def __call__(self, x: Tensor) -> Tensor:
        norm = self.norm
        if not norm.training or norm.weight is None:
            return self.alone(x)
        wide = x.float()
        count = torch.distributed.get_world_size()
        mean = _total(wide.mean((0, 2, 3))) / count
        centred = wide - mean[:, None, None]
        variance = _total(centred.square().mean((0, 2, 3))) / count
        self._track(mean.detach(), variance.detach(), count * x.numel() // x.shape[1])
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        normed: Tensor = centred * scale[:, None, None] + norm.bias[:, None, None]
        return normed.to(x.dtype)

    def _track(self, mean: Tensor, variance: Tensor, numbers: int) -> None:
        norm = self.norm
        if norm.running_mean is None or norm.running_var is None or norm.momentum is None:
            return
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (numbers / max(1, numbers - 1)), norm.momentum)


class _Total(torch.autograd.Function):
    """Sum over all processes, differentiably."""

    @staticmethod
    def forward(_: Any, tensor: Tensor) -> Tensor:  # noqa: ANN401
        total = tensor.clone()
        torch.distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        total = gradient.clone()
        torch.distributed.all_reduce(total)
        return total


def _total(tensor: Tensor) -> Tensor:
    total: Tensor = _Total.apply(tensor)
    return total
