"""The drawn data set: exact boxes, the same bytes everywhere, splits that share nothing."""

import hashlib
import io
import pickle
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageDraw
from shapely import LineString, Polygon

from alphaiou.data.dataset import load_dataset
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import LEAST_SEEN, DrawnImages, shapes_dataset, shapes_index
from alphaiou.data.shapes.drawing import draw
from alphaiou.data.shapes.outlines import LOOPS, SHAPES, circle, coverage, encloses, outline_edges
from alphaiou.data.shapes.scenes import SPLITS, Scenes, generator, lay_out

FINE = 16


@pytest.fixture(scope="module")
def index():
    return shapes_index()


def painted(loops, width, height, scale=FINE):
    """A mask of loops, painted by Pillow at a multiple of the size; the second one is a hole."""
    mask = Image.new("L", (width * scale, height * scale))
    for value, loop in zip((255, 0), loops, strict=False):
        # Pillow's coordinates are centres of pixels.
        ImageDraw.Draw(mask).polygon([(x, y) for x, y in loop * scale - 0.5], fill=value)
    return np.asarray(mask) > 0


def loops_in_image(scenes: Scenes, shape: int):
    """The outline of a shape in its image, with complex numbers for vectors."""
    along, across = (complex(*axis) for axis in scenes.axes[shape])
    loops = []
    for loop in LOOPS[SHAPES[scenes.shapes[shape]]]:
        points = [complex(*scenes.centres[shape]) + u * along + v * across for u, v in loop]
        loops.append(np.array([(point.real, point.imag) for point in points]))
    return loops


def shoelace(loops):
    areas = []
    for loop in loops:
        x, y = loop.T
        areas.append(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)
    return areas[0] - sum(areas[1:])


def digest(pixels):
    return hashlib.sha256(np.ascontiguousarray(pixels)).hexdigest()[:16]


class TestBoxes:
    def test_are_the_extent_of_what_is_painted_sixteen_times_finer(self):
        scenes = lay_out(range(40), split="train", size=160, seed=3)
        boxes = scenes.boxes()
        assert scenes.past_border().sum() > 5
        for shape, box in enumerate(boxes):
            width, height = scenes.sizes[scenes.image_of_shape[shape]].tolist()
            mask = painted(loops_in_image(scenes, shape), width, height)
            columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
            extent = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / FINE
            assert np.abs(extent - box).max() <= 2 / FINE, (SHAPES[scenes.shapes[shape]], box)

    def test_cut_by_the_border_are_those_of_the_part_inside(self):
        # A square on its corner whose top lies outside on the left: inside, it begins lower.
        axes = np.array([[[10.0, 10.0], [-10.0, 10.0]]])
        scenes = Scenes(
            sizes=np.array([[50, 50]]),
            image_of_shape=np.array([0]),
            shapes=np.array([SHAPES.index("square")]),
            centres=np.array([[-4.0, 25.0]]),
            axes=axes,
        )
        assert scenes.boxes()[0] == pytest.approx([0.0, 13.0, 12.0, 37.0], abs=1e-12)

    def test_of_a_shape_over_the_whole_image_is_the_image(self):
        scenes = Scenes(
            sizes=np.array([[50, 40]]),
            image_of_shape=np.array([0]),
            shapes=np.array([SHAPES.index("disc")]),
            centres=np.array([[25.0, 20.0]]),
            axes=np.array([[[90.0, 0.0], [0.0, 90.0]]]),
        )
        assert scenes.boxes()[0].tolist() == [0, 0, 50, 40]
        assert scenes.seen()[0] < 0.2

    def test_are_where_the_pixels_change(self):
        scenes = lay_out(range(30), split="val", size=128, seed=1)
        for edges, box, image in zip(
            scenes.edges(), scenes.boxes(), scenes.image_of_shape, strict=True
        ):
            rows, columns, area = coverage(edges, *scenes.sizes[image].tolist())
            touched = np.flatnonzero((area > 1e-12).any(0)) + columns.start
            assert touched[0] == np.floor(box[0])
            assert touched[-1] + 1 == np.ceil(box[2])
            touched = np.flatnonzero((area > 1e-12).any(1)) + rows.start
            assert touched[0] == np.floor(box[1])
            assert touched[-1] + 1 == np.ceil(box[3])

    def test_lie_in_their_image_and_have_a_size(self, index):
        sizes = index.sizes[index.image_of_box()]
        assert (index.boxes >= 0).all()
        assert (index.boxes[:, 2:] <= sizes).all()
        assert (index.boxes[:, 2:] - index.boxes[:, :2]).min() > 1.5


class TestCoverage:
    def test_sums_to_the_area_of_the_polygon(self):
        scenes = lay_out(range(20), split="test", size=200, seed=5)
        for shape, edges in enumerate(scenes.edges()):
            area = coverage(edges + 200.0, 700, 700)[2]
            assert area.sum(dtype=np.float64) == pytest.approx(
                shoelace(loops_in_image(scenes, shape)), rel=1e-5
            )

    def test_of_each_pixel_is_what_a_finer_painting_says(self):
        scenes = lay_out(range(12), split="train", size=96, seed=2)
        for shape, edges in enumerate(scenes.edges()):
            width, height = scenes.sizes[scenes.image_of_shape[shape]].tolist()
            mask = painted(loops_in_image(scenes, shape), width, height)
            fine = mask.reshape(height, FINE, width, FINE).mean((1, 3))
            whole = np.zeros((height, width))
            rows, columns, area = coverage(edges, width, height)
            whole[rows, columns] = area
            assert np.abs(whole - fine).max() < 0.15
            assert abs((whole - fine).mean()) < 0.002

    def test_outside_the_image_is_empty(self):
        assert coverage(outline_edges()[0] * 5 - 20.0, 30, 30)[2].size == 0


class TestOutlines:
    def test_a_circle_has_its_vertices_at_distance_one(self):
        assert np.hypot(*circle(1024).T) == pytest.approx(1.0, abs=1e-15)
        angle = 2 * np.pi * np.arange(64) / 64
        assert np.abs(circle() - np.stack([np.cos(angle), np.sin(angle)], 1)).max() < 1e-14

    @pytest.mark.parametrize("name", SHAPES)
    def test_each_lies_in_the_unit_square_and_turns_one_way(self, name):
        outer = LOOPS[name][0]
        assert np.abs(outer).max() <= 1
        x, y = outer.T
        assert np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)) > 0 or name == "bolt"

    def test_a_ring_has_a_hole(self):
        edges = outline_edges()[SHAPES.index("ring")]
        assert encloses(edges, np.array([(0.0, 0.0), (0.8, 0.0), (1.2, 0.0)])).tolist() == [
            False,
            True,
            False,
        ]


class TestObjects:
    def test_are_those_of_which_enough_is_seen(self):
        """The shares of the finer painting, later shapes over earlier ones, are the truth."""
        scenes = lay_out(range(60), split="train", size=160, seed=11)
        listed = shapes_index("train", size=160, length=60, seed=11)
        estimate, covered = scenes.seen(), 0
        for image in range(60):
            members = np.flatnonzero(scenes.image_of_shape == image)
            width, height = scenes.sizes[image].tolist()
            loops = [[loop + 80 for loop in loops_in_image(scenes, shape)] for shape in members]
            masks = [painted(one, width + 160, height + 160, 4) for one in loops]
            owner = np.full(masks[0].shape if masks else (0, 0), -1)
            for shape, mask in zip(members, masks, strict=True):
                owner[mask] = shape
            inside = owner[320:-320, 320:-320]
            for shape, mask in zip(members, masks, strict=True):
                share = (inside == shape).sum() / mask.sum()
                assert estimate[shape] == pytest.approx(share, abs=0.12)
                covered += share < 0.95
        assert covered > 20
        assert listed.num_boxes == (estimate >= LEAST_SEEN).sum() < len(estimate)

    def test_classes_are_balanced(self, index):
        counts = np.bincount(index.labels, minlength=len(index.classes))
        assert len(index.classes) == 12
        assert counts.min() > 0.85 * counts.mean()
        assert counts.max() < 1.15 * counts.mean()

    def test_are_small_medium_and_large(self, index):
        small, large = (index.areas < 32**2).mean(), (index.areas > 96**2).mean()
        assert 0.25 < small < 0.5
        assert 0.15 < large < 0.35
        longer = (index.boxes[:, 2:] - index.boxes[:, :2]).max(1)
        assert longer.max() > 250

    def test_some_images_have_none_and_some_many(self, index):
        counts = np.diff(index.offsets)
        assert (counts == 0).sum() > 10
        assert (counts >= 6).sum() > 100

    def test_it_counts_its_classes(self):
        discs, plain = (
            str(shapes_index("val", size=64, length=9, level=level)) for level in ("discs", "plain")
        )
        assert discs.endswith(" boxes, 1 class")
        assert plain.endswith(" boxes, 4 classes")

    def test_the_plain_level_has_few_large_ones_of_four_classes(self):
        plain = shapes_index("val", size=128, length=300, level="plain")
        assert plain.classes == ("disc", "triangle", "star", "cross")
        assert set(plain.labels.tolist()) == {0, 1, 2, 3}
        assert np.diff(plain.offsets).max() == 3
        cut = plain.truncated
        assert (plain.boxes[:, 2:] - plain.boxes[:, :2]).max(1)[~cut].min() > 20
        scenes = plain.images.scenes([5])
        names = [SHAPES[shape] for shape in scenes.shapes[scenes.seen() >= LEAST_SEEN]]
        assert names == [plain.classes[label] for label in plain.labels[plain.rows(5)]]

    def test_images_have_several_sizes(self, index):
        assert (index.sizes.max(1) == 320).all()
        assert len({tuple(size) for size in index.sizes.tolist()}) == 7


class TestSameEverywhere:
    #: Of the pixels of image 0 at 128 px; they change with the drawing, which makes another set.
    @pytest.mark.parametrize(
        ("split", "pinned"),
        [("train", "b47dc5ee5ad1cf07"), ("val", "81c24904fbd8f7cd"), ("test", "74b6e0a2885e1399")],
    )
    def test_pixels_are_the_pinned_ones(self, split, pinned):
        assert digest(DrawnImages(split, 128, 1, 0).draw(f"{split}-000000.png")) == pinned

    def test_another_process_draws_the_same_in_another_order(self):
        images = DrawnImages("val", 96, 6, 2**63)
        here = [digest(images.draw(images.name(i))) for i in range(6)]
        code = (
            "import hashlib; from alphaiou.data.shapes.dataset import DrawnImages\n"
            "images = DrawnImages('val', 96, 100, 2**63)\n"
            "for i in reversed(range(6)):\n"
            "    print(hashlib.sha256(images.draw(images.name(i)).tobytes()).hexdigest()[:16])\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        assert done.stdout.decode().split() == here[::-1]

    def test_one_image_is_laid_out_as_among_many(self):
        many = shapes_index("train", size=320, length=50, seed=7)
        for image in (0, 17, 49):
            scenes = lay_out([image], split="train", size=320, seed=7)
            boxes = scenes.boxes()[scenes.seen() >= LEAST_SEEN]
            assert np.array_equal(boxes, many.boxes[many.rows(image)])

    def test_a_longer_set_begins_with_the_shorter(self):
        long, short = shapes_index("test", length=40), shapes_index("test", length=10)
        assert np.array_equal(long.boxes[: short.num_boxes], short.boxes)
        assert list(long.files[:10]) == list(short.files)

    def test_splits_and_seeds_share_no_image(self):
        digests = set()
        for split in SPLITS:
            for seed in (0, 1):
                images = DrawnImages(split, 64, 15, seed)
                digests |= {digest(images.draw(images.name(i))) for i in range(15)}
        assert len(digests) == 6 * 15


class TestImages:
    def test_files_hold_the_pixels(self):
        images = pickle.loads(pickle.dumps(DrawnImages("val", 100, 3, 0)))
        decoded = np.asarray(Image.open(io.BytesIO(images.read("val-000001.png"))))
        assert np.array_equal(decoded.transpose(2, 0, 1), images.draw("val-000001.png"))
        assert np.array_equal(decoded.transpose(2, 0, 1), images.pixels("val-000001.png"))

    def test_a_data_set_gives_what_decoding_the_file_would(self):
        dataset = shapes_dataset("test", size=90, length=3)
        image, target = dataset[2]
        decoded = np.asarray(Image.open(io.BytesIO(dataset.index.images.read("test-000002.png"))))
        assert np.array_equal(decoded.transpose(2, 0, 1), image)
        assert target["boxes"].shape == dataset.index.boxes[dataset.index.rows(2)].shape

    def test_sizes_are_those_of_the_index(self):
        index = shapes_index("test", size=80, length=10)
        for name, (width, height) in zip(index.files, index.sizes.tolist(), strict=True):
            assert index.images.draw(name).shape == (3, height, width)

    def test_the_object_is_seen_against_its_background(self):
        """Without its shapes an image is another one, and only where they were."""
        images = DrawnImages("train", 160, 30, 0)
        scene = lay_out([4], split="train", size=160, seed=0)
        own = ("image_of_shape", "shapes", "centres", "axes")
        alone = replace(scene, **{name: getattr(scene, name)[:0] for name in own})
        without = draw(alone, generator(4, "train", 0, stream=1)).astype(int)
        change = np.abs(images.draw("train-000004.png").astype(int) - without).max(0)
        x1, y1, x2, y2 = scene.boxes()[0].astype(int)
        assert change[y1 + 1 : y2 - 1, x1 + 1 : x2 - 1].max() > 20

    def test_missing_names_are_told(self):
        images = DrawnImages("val", 64, 5, 0)
        names = [
            "val-000004.png",
            "val-000005.png",
            "train-000001.png",
            "val-1.png",
            "",
            "val-².png",
        ]
        assert images.missing(names) == [1, 2, 3, 4, 5]
        with pytest.raises(
            DataError, match=r"shapes/val-000005.png: no such image.*val-000004.png"
        ):
            images.read("val-000005.png")


class TestOriented:
    """The boxes of the level ``oriented``, against shapely's geometry of the outlines."""

    index = shapes_index("train", size=160, length=40, level="oriented")

    def outlines(self):
        """The outline of each object, and its oriented box."""
        scenes = self.index.images.scenes(range(len(self.index)))
        seen = np.flatnonzero(scenes.seen() >= 0.3)
        edges = scenes.edges()[seen]
        boxes = [Polygon(c) for image in range(len(self.index)) for c in self.index.corners(image)]
        return [Polygon(one[:, 0]) for one in edges], boxes

    def test_each_side_of_a_box_touches_its_shape_which_it_holds(self):
        outlines, boxes = self.outlines()
        assert len(outlines) == len(boxes) == self.index.num_boxes > 80
        for outline, box in zip(outlines, boxes, strict=True):
            assert box.buffer(1e-9).contains(outline)
            corners = list(box.exterior.coords)
            sides = [LineString(pair) for pair in pairwise(corners)]
            assert max(side.distance(outline) for side in sides) < 1e-9

    def test_the_box_of_a_rectangle_is_the_smallest(self):
        outlines, boxes = self.outlines()
        squares = self.index.labels == self.index.classes.index("square")
        for outline, box, is_square in zip(outlines, boxes, squares, strict=True):
            smallest = outline.minimum_rotated_rectangle
            assert box.area >= smallest.area * (1 - 1e-9)
            if is_square:
                assert box.area == pytest.approx(smallest.area)

    def test_boxes_lie_in_their_images_and_are_much_longer_than_wide(self):
        index = self.index
        assert index.boxes.min() >= 0
        assert (index.boxes[:, 2:] <= index.sizes[index.image_of_box()]).all()
        assert not index.truncated.any()
        ratios = index.oriented[:, 2] / index.oriented[:, 3]
        assert np.median(np.maximum(ratios, 1 / ratios)) > 1.5
        np.testing.assert_allclose(index.areas, index.oriented[:, 2] * index.oriented[:, 3])
        assert np.ptp(index.oriented[:, 4]) > 6  # the whole turn

    def test_it_is_opened_by_its_word(self):
        dataset = load_dataset("shapes-oriented-96", "val")
        assert dataset.index.sizes.max() == 96
        assert " oriented boxes, 4 classes" in str(dataset)


class TestWrongArguments:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"split": "training"}, "no split 'training'; take one of train, val, test"),
            ({"size": 63}, "size of shapes is 64 to 2048 pixels, not 63"),
            ({"size": 4096}, "not 4096"),
            ({"length": 0}, "at least 1 image, not 0"),
            ({"seed": -1}, r"0 to 2\*\*64 - 1, not -1"),
            ({"seed": 2**64}, "seed of shapes"),
            ({"level": "easy"}, "no level 'easy'; take one of full, plain"),
        ],
    )
    def test_are_named(self, arguments, message):
        with pytest.raises(DataError, match=message):
            shapes_index(**arguments)

    @pytest.mark.parametrize("size", [64, 2048])
    def test_the_extreme_sizes_are_drawn(self, size):
        index = shapes_index("val", size=size, length=2)
        assert max(index.images.draw(index.files[1]).shape) == size
