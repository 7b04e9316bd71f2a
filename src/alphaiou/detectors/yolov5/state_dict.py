"""State dicts of YOLOv5 v4.0, and the rows of classes in the head."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from alphaiou.detectors.base import ClassRow

#: The layers by their number in the published table; the others have no parameters.
LAYERS = {
    0: "stem",
    1: "down2",
    2: "stage2",
    3: "down3",
    4: "stage3",
    5: "down4",
    6: "stage4",
    7: "down5",
    8: "pool5",
    9: "stage5",
    10: "narrow5",
    13: "merge4",
    14: "narrow4",
    17: "out3",
    18: "shrink3",
    20: "out4",
    21: "shrink4",
    23: "out5",
    24: "head",
}
#: The first ten layers.
BACKBONE = tuple(f"network.{name}." for number, name in LAYERS.items() if number < 10)
#: Three anchors per cell; four numbers of a box and its objectness before the classes.
_ANCHORS, _BEFORE = 3, 5
#: The parts of a layer and ours; the first two convolutions of a stage are one here.
_PARTS = (
    (r"^(stage\d|merge\d|out\d)\.cv3\.", r"\1.join."),
    (r"^(stage\d|merge\d|out\d)\.m\.(\d+)\.cv1\.", r"\1.blocks.\2.first."),
    (r"^(stage\d|merge\d|out\d)\.m\.(\d+)\.cv2\.", r"\1.blocks.\2.second."),
    (r"^pool5\.cv1\.", "pool5.narrow."),
    (r"^pool5\.cv2\.", "pool5.join."),
    (r"^head\.m\.(\d)\.", r"head.\1."),
    (r"\.bn\.", ".norm."),
)


def translated(tensors: Mapping[str, Tensor], strides: Sequence[int]) -> dict[str, Tensor]:
    """Return a state dict of YOLOv5 v4.0 with the names of this detector.

    Args:
        tensors: The state dict, with names such as ``model.0.conv.conv.weight``.
        strides: The strides of the three layers of the head, the unit of their anchors.

    Raises:
        ValueError: If it is of another architecture; the message says which tensor.
    """
    renamed: dict[str, Tensor] = {}
    halves: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        layer, rest = _layer_of(name)
        if rest == "anchors":
            scale = torch.tensor(strides, dtype=torch.float32)
            renamed["anchors"] = tensor.float() * scale.view(-1, 1, 1)
        elif half := re.fullmatch(r"cv([12])\.(.*)", rest if layer != "pool5" else ""):
            whole = f"network.{layer}.halves.{half[2].replace('bn.', 'norm.')}"
            halves.setdefault(whole, {})[half[1]] = tensor
        elif rest != "anchor_grid":  # the anchors in pixels
            new = f"{layer}.{rest}"
            for pattern, ours in _PARTS:
                new = re.sub(pattern, ours, new)
            renamed[f"network.{new}"] = _unshuffled(tensor) if _is_stem(new) else tensor
    for name, parts in halves.items():
        if parts.keys() != {"1", "2"}:
            raise ValueError(f"one half of {name} is missing")
        joined = [parts[number] for number in "12"]
        renamed[name] = torch.cat(joined) if joined[0].ndim else joined[0]
    return renamed


def _layer_of(name: str) -> tuple[str, str]:
    """Return the layer of a tensor and the rest of its name."""
    match = re.fullmatch(r"(?:model\.)+(\d+)\.(.*)", name)
    if match is None or int(match[1]) not in LAYERS:
        raise ValueError(f"{name} is no tensor of YOLOv5 v4.0, such as model.0.conv.conv.weight")
    if match[2].endswith("conv.bias"):
        raise ValueError(f"{name}: its batch norms are folded; save the weights of the training")
    return LAYERS[int(match[1])], match[2]


def _is_stem(name: str) -> bool:
    return name == "stem.conv.conv.weight"


def _unshuffled(weight: Tensor) -> Tensor:
    """Order the inputs of the first convolution as ``pixel_unshuffle`` does.

    Published are all colours of the upper left pixel of 2×2, then of the lower left, upper right
    and lower right one; here all pixels of a colour come together, row by row.
    """
    if weight.ndim != 4 or weight.shape[1] != 12:
        raise ValueError(
            f"the first convolution has the shape {tuple(weight.shape)}; in v4.0 it has 12 inputs"
        )
    outputs, _, *kernel = weight.shape
    by_pixel = weight.reshape(outputs, 2, 2, 3, *kernel)  # column, row, colour
    return by_pixel.permute(0, 3, 2, 1, 4, 5).reshape(weight.shape)


def class_rows(name: str, rows: int) -> list[ClassRow] | None:
    """Return what each row of a tensor of the head is for."""
    if not name.startswith("network.head."):
        return None
    each = max(rows // _ANCHORS, 1)
    keys: list[ClassRow] = []
    for row in range(rows):
        anchor, place = divmod(row, each)
        # The rows of an anchor are its box, its objectness, and one per class.
        label = place - _BEFORE if place >= _BEFORE else None
        keys.append((anchor * (_BEFORE + 1) + min(place, _BEFORE), label))
    return keys
