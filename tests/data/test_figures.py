"""Figures of data sets."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from alphaiou._figures import CATEGORICAL, palette
from alphaiou.data.figures import labels_figure, noise_figure, save_labels_figure
from alphaiou.data.shapes.dataset import shapes_index
from tests.data.made_index import made_index


@pytest.mark.parametrize("classes", [3, 9])
def test_boxes_have_the_colours_of_drawn_detections(classes):
    boxes = [[[10 * place, 10, 10 * place + 8, 30] for place in range(classes)]]
    index = made_index(boxes, classes=[f"class {place}" for place in range(classes)])
    figure = noise_figure([np.zeros((480, 640, 3), np.uint8)], index, index, 0.3)
    (legend,) = figure.legends
    colours = [to_hex(line.get_color()) for line in legend.get_lines()]
    assert colours == [colour.lower() for colour in palette(classes)]
    assert len({*colours}) == classes
    assert CATEGORICAL[-1].lower() not in colours, "black is hard to see in photographs"


def test_oriented_boxes_are_drawn_as_they_are_turned(tmp_path):
    index = shapes_index("train", size=64, length=6, level="oriented")
    pictures = [np.zeros((height, width, 3), np.uint8) for width, height in index.sizes.tolist()]
    figure = labels_figure(pictures, index)
    drawn = [axes for axes in figure.axes if axes.patches]
    assert len(drawn) == np.count_nonzero(np.diff(index.offsets))
    for image, axes in enumerate(figure.axes):
        # Each box twice, a white line under that of its class.
        outlines = [patch.get_xy()[:4] for patch in axes.patches[::2]]
        np.testing.assert_allclose(np.reshape(outlines, (-1, 4, 2)), index.corners(image))
    paths = save_labels_figure(index, 3, tmp_path / "pictures")
    assert [path.name for path in paths] == ["pictures.png", "pictures.svg"]
