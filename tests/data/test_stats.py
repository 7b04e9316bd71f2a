import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from pycocotools.cocoeval import Params

from alphaiou._figures import save_figure
from alphaiou.data.figures import noise_figure, save_stats_figures
from alphaiou.data.noise import perturb_index
from alphaiou.data.stats import SizeCounts, centre_map, dataset_stats
from tests.data.made_index import made_index, random_index


def test_counts_of_a_small_set():
    index = made_index(
        [[[0, 0, 10, 20], [0, 0, 100, 50]], [], [[10, 10, 210, 110]]],
        sizes=[(100, 200), (50, 50), (640, 320)],
        classes=("cat", "dog", "hen", "yak"),
    )
    index = replace(
        index, labels=np.array([1, 1, 0], np.int32), crowd=np.array([True, False, True])
    )
    stats = dataset_stats(index)
    assert (stats.images, stats.boxes, stats.images_without_boxes, stats.crowd) == (3, 3, 1, 2)
    assert [(one.name, one.boxes, one.images) for one in stats.classes] == [
        ("cat", 1, 1),
        ("dog", 2, 1),
        ("hen", 0, 0),
        ("yak", 0, 0),
    ]
    assert stats.boxes_per_image.mean == pytest.approx(1)
    assert stats.boxes_per_image.maximum == 2
    assert stats.aspect_ratio.median == 2
    assert stats.aspect_ratio.minimum == 0.5
    assert stats.relative_size.minimum == pytest.approx(np.sqrt(200 / 20_000))
    assert stats.sizes == SizeCounts(1, 1, 1)
    # 200 x long side 200 -> 640: 10 x 20 becomes 32 x 64, 100 x 50 becomes 320 x 160.
    assert stats.sizes_at_reference == SizeCounts(0, 1, 2)


def test_sizes_part_where_pycocotools_parts_them():
    ranges = dict(zip(Params("bbox").areaRngLbl, Params("bbox").areaRng, strict=True))
    areas = np.random.default_rng(0).uniform(0, 20_000, 1000)
    counts = SizeCounts.of(areas)
    for name in ("small", "medium", "large"):
        low, high = ranges[name]
        assert getattr(counts, name) == ((areas >= low) & (areas <= high)).sum()


def test_centres_against_numpy():
    index = random_index(200)
    centres = (index.boxes[:, :2] + index.boxes[:, 2:]) / 2 / index.sizes[index.image_of_box()]
    centres = centres.clip(0, 1 - 1e-12)
    expected = np.histogram2d(*centres.T[::-1], bins=21, range=((0, 1), (0, 1)))[0]
    assert np.array_equal(centre_map(index, 21), expected)
    assert np.array_equal(dataset_stats(index).centres, expected)


def test_json_is_complete_and_strict():
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    for index in (random_index(20), made_index([]), made_index([[], []], classes=())):
        content = json.loads(dataset_stats(index).to_json(), parse_constant=refuse)
        assert content["images"] == len(index)
        assert content["boxes"] == index.num_boxes
        assert sum(map(sum, content["centres"])) == index.num_boxes


@pytest.mark.slow
@pytest.mark.parametrize("classes", [80, 1203])
def test_figures_are_drawn_for_any_number_of_classes(tmp_path, classes):
    index = random_index(20)
    names = [f"${number} of a long_name {'x' * number}" for number in range(classes)]
    index = replace(index, classes=tuple(names), labels=index.labels % classes)
    paths = save_stats_figures(index, dataset_stats(index), tmp_path)
    assert [path.name for path in paths] == ["boxes.png", "boxes.svg", "classes.png", "classes.svg"]
    with Image.open(tmp_path / "classes.png") as picture:
        assert picture.height < 2200


@pytest.mark.slow
@pytest.mark.parametrize(
    "index",
    [
        made_index([]),
        made_index([[], []]),
        made_index([[[1, 1, 2, 2]]]),
        made_index([], classes=()),
    ],
)
def test_figures_of_nearly_nothing(tmp_path, index):
    assert all(
        path.stat().st_size for path in save_stats_figures(index, dataset_stats(index), tmp_path)
    )


@pytest.mark.slow
def test_noisy_boxes_are_drawn_below_the_clean_ones(tmp_path):
    clean = made_index([[[10, 10, 40, 40]], []], sizes=[(64, 48), (48, 64)])
    noisy = perturb_index(clean, 0.3, seed=0)
    grey = [np.full((48, 64, 3), 128, np.uint8), np.full((64, 48, 3), 128, np.uint8)]
    figure = noise_figure(grey, clean, noisy, 0.3)
    (top, _), (bottom, _) = np.array(figure.axes).reshape(2, 2)
    for axes, index in ((top, clean), (bottom, noisy)):
        x1, y1, x2, y2 = index.boxes[0]
        drawn = axes.patches[0].get_xy()
        assert (*drawn.min(0), *drawn.max(0)) == pytest.approx((x1, y1, x2, y2))
    assert (top.get_ylabel(), bottom.get_ylabel()) == ("η = 0", "η = 0.3")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["cat"]
    save_figure(lambda: noise_figure(grey, clean, noisy, 0.3), tmp_path / "noise")
    save_figure(lambda: noise_figure([], made_index([]), made_index([]), 0.3), tmp_path / "empty")
