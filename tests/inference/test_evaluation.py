"""Where detections lie in the original images, of any shape."""

import numpy as np
import torch
from PIL import Image
from torch import nn

from alphaiou.batch import FILL
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.formats.files import FolderImages
from alphaiou.data.pipeline.cache import build_cache
from alphaiou.inference.evaluation import detect
from tests.data.made_index import made_index

#: Width and height.
SIZES = [(40, 30), (30, 64), (64, 64), (200, 50)]


class WhitePatches(nn.Module):
    """A detector of what is white, in an image that is black."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, images):
        return [self.found(image) for image in images]

    def found(self, image):
        rows, columns = (image[0] > (FILL + 255) / 2).nonzero().unbind(1)
        low, high = (
            torch.stack([columns.min(), rows.min()]),
            torch.stack([columns.max(), rows.max()]),
        )
        box = torch.cat([low, high + 1]).float()
        return {"boxes": box[None], "scores": torch.ones(1), "labels": torch.zeros(1).long()}


def test_boxes_are_where_the_original_has_them(tmp_path):
    names, patches = [f"{number}.png" for number in range(len(SIZES))], []
    for name, (width, height) in zip(names, SIZES, strict=True):
        patch = [width // 4, height // 5, width // 2, height]
        pixels = np.zeros((height, width, 3), dtype=np.uint8)
        pixels[patch[1] : patch[3], patch[0] : patch[2]] = 255
        Image.fromarray(pixels).save(tmp_path / name)
        patches.append(patch)
    index = made_index([[]] * len(SIZES), names=names, sizes=SIZES)
    object.__setattr__(index, "images", FolderImages(tmp_path))
    cache = build_cache(DetectionDataset(index), 64)
    found = detect(WhitePatches(), cache, torch.arange(len(cache)), precision="fp32")
    for one, patch, scale in zip(found, patches, cache.scales, strict=True):
        pixel = 1 / scale.min()  # of the resized image, in the original
        assert (one["boxes"][0] - torch.tensor(patch)).abs().max() <= pixel, patch
