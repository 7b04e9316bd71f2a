"""What the benchmarks can be told. Without torch, so that the command line starts at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

KIND_NAMES = (
    *("iou", "giou", "diou", "ciou", "eiou", "siou"),
    *("mpdiou", "shape_iou", "piou", "nwd", "biou"),
)


@dataclass(frozen=True)
class LossBench:
    """Time every loss, ours and other people's, side by side, and write the record.

    Our two backends, the textbook formula eagerly and under torch.compile, and torchvision's
    losses; forward, and forward with backward; wall time from Python and time on the device.
    """

    kinds: tuple[str, ...] = ()
    """Losses to time; all by default."""

    sizes: tuple[int, ...] = ()
    """Numbers of pairs, rising; by default 1,024 to 4,194,304 on CUDA, to 1,000,000 on the CPU."""

    dtypes: tuple[str, ...] = ("fp32", "fp16", "bf16")
    """fp32, fp16, bf16; all but fp32 for CIoU only."""

    backends: tuple[str, ...] = ("fused", "reference")
    """Which of ours."""

    compile: bool = True
    """Whether to time the textbook formula under torch.compile too; compiling takes minutes."""

    repeats: int = 10
    """Rounds over the contenders; the median counts."""

    seconds: float = 0.3
    """About how long to spend on each contender of a row."""

    quick: bool = False
    """Tiny sizes and two rounds, to see that it runs."""

    seed: int = 0
    """Seed of the boxes."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    out: Path | None = None
    """The record; benchmarks/losses-DEVICE.json by default."""

    def __post_init__(self) -> None:
        _check("dtypes", self.dtypes, ("fp32", "fp16", "bf16"))
        _check("backends", self.backends, ("fused", "reference"))
        _check("kinds", self.kinds, KIND_NAMES)
        _check_counts("sizes", self.sizes)
        _check_counts("repeats", (self.repeats,))


@dataclass(frozen=True)
class FuzzBench:
    """Throw hard boxes at the losses, ours and torchvision's, and count what is not finite.

    Also compares ours with its own float64 reference, and writes the record.
    """

    kinds: tuple[str, ...] = ()
    """Losses to try; all by default."""

    alphas: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 3.0, 10.0)
    """Powers to try each of ours with."""

    pairs: int = 1_000_000
    """Pairs for each loss and power, shared equally by the dtypes."""

    dtypes: tuple[str, ...] = ("fp32", "fp16", "bf16", "fp64")
    """fp32, fp16, bf16, fp64; the fused backend leaves out fp64."""

    backend: Literal["auto", "reference", "fused"] = "auto"
    """Which of ours; auto is fused on CUDA and reference on the CPU."""

    quick: bool = False
    """A few hundred pairs, to see that it runs."""

    seed: int = 0
    """Seed of the boxes."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    out: Path | None = None
    """The record; benchmarks/fuzz-DEVICE.json by default."""

    def __post_init__(self) -> None:
        _check("dtypes", self.dtypes, ("fp32", "fp16", "bf16", "fp64"))
        _check("backend", (self.backend,), ("auto", "reference", "fused"))
        _check("kinds", self.kinds, KIND_NAMES)
        _check_counts("pairs", (self.pairs,))


def _check(name: str, values: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    for value in values:
        if value not in allowed:
            raise ValueError(f"{name} must be among {', '.join(allowed)}; got {value!r}")


def _check_counts(name: str, values: tuple[int, ...]) -> None:
    for value in values:
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
