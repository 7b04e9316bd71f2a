"""Boxes and their texts in images: every text is whole."""

import numpy as np
import pytest
from PIL import Image

from alphaiou.inference.drawing import LabelledBox, draw_boxes, fitted, sheet

GREEN = "#00ff00"
LONG = "a class with a rather long name 0.87"


def green(picture):
    """The extent of what is drawn in green."""
    pixels = np.asarray(picture).astype(int)
    rows, columns = np.nonzero((pixels[..., 1] > 150) & (pixels[..., 0] < 120))
    return columns.min(), rows.min(), columns.max() + 1, rows.max() + 1


@pytest.mark.parametrize("size", [(320, 240), (120, 300), (64, 64), (24, 200)])
@pytest.mark.parametrize("corner", ["top left", "top right", "foot left", "foot right"])
@pytest.mark.parametrize("text", ["cat 0.90", LONG, "onelongwordwithoutanyspaces 0.50"])
def test_the_ground_of_a_text_keeps_a_margin_around_its_letters(size, corner, text):
    """What is cut at the border has letters there; a whole label has its ground all around."""
    width, height = size
    # Just outside, so that nothing but the label is seen.
    point = (width + 9 if "right" in corner else -9, height + 9 if "foot" in corner else -9)
    picture = Image.new("RGB", size, "black")
    draw_boxes(picture, [LabelledBox((*point, *point), text, GREEN)])
    x1, y1, x2, y2 = green(picture)
    assert 0 <= x1 < x2 <= width
    assert 0 <= y1 < y2 <= height
    part = np.asarray(picture).astype(int)[y1:y2, x1:x2]
    is_ground = (part[..., 1] > 250) & (part[..., 0] < 5)
    frame = np.concatenate([is_ground[0], is_ground[-1], is_ground[:, 0], is_ground[:, -1]])
    assert frame.all()
    assert (~is_ground).sum() > 5 * len(text.replace(" ", "")), "the letters"


def test_texts_of_neighbours_do_not_lie_on_one_another():
    picture = Image.new("RGB", (400, 300), "black")
    first, second = (100, 100, 200, 200), (104, 104, 198, 205)
    draw_boxes(picture, [LabelledBox(first, "a", "#00ff00"), LabelledBox(second, "b", "#ff0000")])
    alone = Image.new("RGB", (400, 300), "black")
    draw_boxes(alone, [LabelledBox(first, "a", "#00ff00")])
    x1, y1, x2, y2 = 100, 80, 112, 100  # above the first box
    top = np.asarray(picture)[y1:y2, x1:x2]
    np.testing.assert_array_equal(top, np.asarray(alone)[y1:y2, x1:x2])


def test_a_sheet_has_every_picture_and_its_titles():
    tiles = [fitted(Image.new("RGB", size, GREEN), 100)[0] for size in ((50, 25), (25, 50), (9, 9))]
    assert [tile.size for tile in tiles] == [(100, 50), (50, 100), (100, 100)]
    whole = np.asarray(sheet(tiles, 2, ("first", "second")))
    drawn = (whole == (0, 255, 0)).all(-1).sum()
    assert drawn == 100 * 50 + 50 * 100 + 100 * 100
    assert (whole[:30] < 100).all(-1).any(), "the titles"
    assert sheet(tiles[:1], 4).width < 130
