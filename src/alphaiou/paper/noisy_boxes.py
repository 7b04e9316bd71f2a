"""Pictures of clean and of noisy boxes: the paper's last figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from alphaiou.data.dataset import load_dataset
from alphaiou.data.figures import save_noise_figure
from alphaiou.data.noise import perturb_index
from alphaiou.paper.scales import Scale

PICTURES = 6
RATE = 0.3


def save_noisy_boxes(scale: Scale, out: Path) -> Iterator[Path]:
    """The figure for every data set of a scale that is here."""
    for data in scale.benchmarks.values():
        place = scale.place(data.path)
        if place is not None:
            clean = load_dataset(place, data.train).index
            noisy = perturb_index(clean, RATE, 0)
            stem = out / f"noisy-boxes-{data.path}"
            yield from save_noise_figure(clean, noisy, RATE, PICTURES, stem)
