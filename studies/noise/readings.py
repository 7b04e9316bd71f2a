"""How the paper's boundary condition on noisy boxes may be read, and what each reading gives.

    python -m studies.noise.readings PATH/TO/voc320

The paper says which noise it draws and where a noisy box must lie, not how it gets there. It gives
the mean IoU to the clean boxes, .833 / .710 / .613 at the rates .1 / .2 / .3, so every reading can
be compared with it. Writes ``voc320.json`` beside this file, which docs/data.md shows.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from alphaiou.data.dataset import load_dataset
from alphaiou.data.index import DetectionIndex
from alphaiou.data.noise import PAPER_IOU, CleanIoU, clean_iou, perturb_index
from benchmarks.record import conditions, write_record

ADOPTED = "size cut to the image, then centre moved inside"
Boxes = np.ndarray  # centre and sides, in shares of the image
Reading = Callable[[Boxes, Callable[[], Boxes]], Boxes]


def unbounded(clean: Boxes, draw: Callable[[], Boxes]) -> Boxes:
    return draw()


def corners_clipped(clean: Boxes, draw: Callable[[], Boxes]) -> Boxes:
    noisy = draw()
    low = (noisy[:, :2] - noisy[:, 2:] / 2).clip(0, 1)
    high = (noisy[:, :2] + noisy[:, 2:] / 2).clip(0, 1)
    return np.concatenate([(low + high) / 2, high - low], axis=1)


def sides_cut(clean: Boxes, draw: Callable[[], Boxes]) -> Boxes:
    noisy = draw()
    centre = noisy[:, :2].clip(1e-6, 1 - 1e-6)
    room = 2 * np.minimum(centre, 1 - centre)
    return np.concatenate([centre, np.minimum(noisy[:, 2:], room)], axis=1)


def drawn_again(clean: Boxes, draw: Callable[[], Boxes]) -> Boxes:
    noisy = draw()
    for _ in range(1000):
        outside = ~_inside(noisy)
        if not outside.any():
            break
        noisy[outside] = draw()[outside]
    outside = ~_inside(noisy)
    noisy[outside] = clean[outside]  # as wide or as high as the image: nothing else fits
    return noisy


def left_clean(clean: Boxes, draw: Callable[[], Boxes]) -> Boxes:
    noisy = draw()
    return np.where(_inside(noisy)[:, None], noisy, clean)


READINGS: dict[str, Reading] = {
    "no condition at all": unbounded,
    "corners clipped to the image": corners_clipped,
    "centre kept, sides cut": sides_cut,
    "drawn again until inside": drawn_again,
    "left clean where outside": left_clean,
}


def main(source: Path) -> None:
    train, test = (load_dataset(source, split).index for split in ("train", "test"))
    rows = []

    def add(reading: str, split: str, rate: float, seed: int, iou: CleanIoU) -> None:
        row = {"reading": reading, "split": split, "rate": rate, "seed": seed, **iou._asdict()}
        rows.append(row | {"paper": PAPER_IOU[rate]})
        print(*row.values(), sep="\t")

    for rate in PAPER_IOU:
        for seed in (0, 1, 2):
            for split, index in (("train", train), ("test", test)):
                iou = clean_iou(perturb_index(index, rate, seed), index)
                add(ADOPTED, split, rate, seed, iou)
        for name, reading in READINGS.items():
            add(name, "train", rate, 0, clean_iou(read_as(reading, train, rate), train))
    counts = {
        split: {"images": len(index), "boxes": index.num_boxes}
        for split, index in (("train", train), ("test", test))
    }
    record = conditions(torch.device("cpu")) | {"data": "voc320", "splits": counts, "rows": rows}
    print("wrote", write_record(record, Path(__file__).with_name("voc320.json")))


def read_as(reading: Reading, index: DetectionIndex, rate: float) -> DetectionIndex:
    sizes = index.sizes[index.image_of_box()]
    low, high = index.boxes[:, :2] / sizes, index.boxes[:, 2:] / sizes
    clean = np.concatenate([(low + high) / 2, high - low], axis=1)
    reach = rate * np.tile(clean[:, 2:], 2)
    rng = np.random.default_rng(0)
    noisy = reading(clean, lambda: clean + rng.uniform(-1, 1, clean.shape) * reach)
    corners = [noisy[:, :2] - noisy[:, 2:] / 2, noisy[:, :2] + noisy[:, 2:] / 2]
    return replace(index, boxes=np.concatenate(corners, axis=1) * np.tile(sizes, 2))


def _inside(boxes: Boxes) -> np.ndarray:
    centre, half = boxes[:, :2], boxes[:, 2:] / 2
    return ((half < 0.5) & (centre >= half) & (centre <= 1 - half)).all(axis=1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
