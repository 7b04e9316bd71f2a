from itertools import pairwise

import numpy as np
import pytest

from alphaiou.data.subset import subset_index
from tests.data.made_index import made_index, random_index


def names(index):
    return list(index.files)


@pytest.mark.parametrize(("fraction", "count"), [(0.25, 4138), (0.5, 8276), (1.0, 16551)])
def test_sizes_are_the_papers(fraction, count):
    index = made_index([[] for _ in range(16551)])
    assert len(subset_index(index, fraction, seed=0)) == count


def test_smaller_parts_lie_inside_larger_ones():
    index = random_index(200)
    parts = [set(names(subset_index(index, f, seed=3))) for f in (0.05, 0.25, 0.5, 0.9, 1.0)]
    assert all(small < large for small, large in pairwise(parts))


def test_order_is_kept_and_boxes_stay_with_their_images():
    index = random_index(50)
    part = subset_index(index, 0.4, seed=0)
    places = [names(index).index(name) for name in part.files]
    assert places == sorted(places)
    assert all(
        np.array_equal(boxes, index.boxes[index.rows(place)])
        for place, (_, boxes) in zip(places, part, strict=True)
    )


def test_the_order_of_files_plays_no_role():
    index = random_index(50)
    shuffled = index.take(np.random.default_rng(1).permutation(50))
    assert set(names(subset_index(index, 0.3, 0))) == set(names(subset_index(shuffled, 0.3, 0)))


def test_images_with_the_same_stem_are_told_apart():
    folders = [f"cam{i}/0001.jpg" for i in range(10)]
    index = made_index([[] for _ in folders], names=folders)
    reverse = index.take(np.arange(10)[::-1])
    taken = set(names(subset_index(index, 0.5, 0)))
    assert len(taken) == 5
    assert taken == set(names(subset_index(reverse, 0.5, 0)))


def test_seeds_differ_and_take_every_image_alike():
    index = random_index(100)
    assert names(subset_index(index, 0.5, 0)) != names(subset_index(index, 0.5, 1))
    parts = [set(names(subset_index(index, 0.25, seed))) for seed in range(200)]
    taken = np.array([[name in part for name in index.files] for part in parts])
    share = taken.mean(axis=0)  # a standard deviation of .031 for each image
    assert 0.25 - 5 * 0.031 < share.min() <= share.max() < 0.25 + 5 * 0.031


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, float("nan")])
def test_fractions_out_of_range_are_refused(fraction):
    with pytest.raises(ValueError, match="fraction must be above 0 and at most 1"):
        subset_index(random_index(4), fraction, seed=0)


def test_no_image_left_is_refused_and_nothing_of_nothing_is_nothing():
    with pytest.raises(ValueError, match=r"0\.1 of 4 images is not one image; 0\.25 takes one"):
        subset_index(random_index(4), 0.1, seed=0)
    assert len(subset_index(made_index([]), 0.1, seed=0)) == 0
