"""Pictures of the report: boxes, names of classes and captions."""

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from alphaiou.study.detections import Box, Example
from alphaiou.study.report.pictures import LETTER, example_row


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """Draws an image with objects and what was found as the page shows it."""
    folder = tmp_path_factory.mktemp("picture")
    Image.new("RGB", (200, 100)).save(folder / "image.png")

    def draw(objects, found=()):
        example = Example("image.png", (200, 100), objects, list(found))
        return example_row("mark", {"IoU": example}, folder)

    return draw


def names_in(text):
    """What is written into a picture: name, left, line and size of the letters."""
    pattern = r"<text ([^>]*)>([^<]*)</text>"
    found = []
    for attributes, name in re.findall(pattern, text):
        numbers = [re.search(rf'{key}="([^"]*)"', attributes)[1] for key in ("x", "y")]
        size = re.search(r"font-size: ([\d.]+)px", attributes)[1]
        found.append((name, *map(float, numbers), float(size)))
    return found


def test_pictures_tell_what_lies_on_objects_and_what_does_not(picture):
    objects = [
        Box((4, 4, 30, 40), "bird"),
        Box((50, 4, 80, 40), "bird"),
        Box((9, 9, 99, 99), "cow"),
    ]
    found = [Box((4, 4, 30, 40), "bird", 0.9, iou) for iou in (0.93, 0.49, 0.5, 0.0)]
    text = picture(objects, found)
    assert "bird ×2, cow" in text
    assert "bird .93, bird .50, 2 elsewhere" in text
    assert text.count('class="found"') == 2
    assert text.count('class="found astray"') == 2
    assert "2 elsewhere" in picture(objects, found[1::2])
    assert "</b> nothing<" in picture(objects)
    assert "bird .93, 2 more<" in picture(objects, found[:1] * 6).replace("bird .93, " * 3, "")
    assert "no objects" in picture([])


def test_a_name_without_room_above_is_at_the_foot_of_its_box_or_not_there(picture):
    same = Box((20, 30, 60, 80), "bird")
    (_, _, above, _), (_, x, foot, size) = names_in(picture([same] * 3))
    assert above == pytest.approx(30 - 0.25 * size)
    assert (x, foot) == (20, pytest.approx(80 - 0.25 * size))


@given(
    st.lists(
        st.tuples(
            st.floats(0, 190), st.floats(0, 90), st.sampled_from(("bird", "motorbike", "a" * 40))
        ),
        max_size=12,
    )
)
def test_names_in_pictures_do_not_cover_each_other(picture, places):
    objects = [Box((x, y, x + 10, y + 10), label) for x, y, label in places]
    names = names_in(picture(objects))
    assert bool(names) == bool(objects)
    for name, x, _, size in names:
        assert x >= 0
        assert x + LETTER * size * len(name) <= 200.1 or x == 0
    for (a, xa, ya, size), (b, xb, yb, _) in combinations(names, 2):
        right_a, right_b = (x + LETTER * size * len(n) for n, x in ((a, xa), (b, xb)))
        assert right_a <= xb + 0.1 or right_b <= xa + 0.1 or abs(ya - yb) > size - 0.1
