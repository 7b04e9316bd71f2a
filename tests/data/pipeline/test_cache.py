import numpy as np
import pytest
import torch
from PIL import Image

from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.formats.files import FolderImages
from alphaiou.data.pipeline.augment import Augmentation, augment, in_order, sample_augmentation
from alphaiou.data.pipeline.cache import (
    ImageCache,
    build_cache,
    choose_device,
    letterbox_batch,
    margins,
    to_original,
)
from alphaiou.data.pipeline.decoding import fitted_size, resize
from alphaiou.data.pipeline.stream import draw_tiles, stream_batches
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_dataset
from tests.data.made_index import made_index

SIZES = [(40, 30), (30, 64), (64, 64), (100, 7), (31, 77)]
BOXES = [
    [[1.5, 2, 20, 29.5], [30, 0, 44, 12]],
    [],
    [[0, 0, 64, 64]],
    [[50, 1, 99, 6], [1, 1, 3, 3], [0, 0, 9, 7]],
    [[10, 20, 30, 70]],
]


@pytest.fixture
def photos(tmp_path):
    """Five images of noise in a folder, with boxes, one of which passes the border."""
    rng = np.random.default_rng(0)
    names = [f"{number}.png" for number in range(len(SIZES))]
    for name, (width, height) in zip(names, SIZES, strict=True):
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
    index = made_index(BOXES, names=names, sizes=SIZES)
    object.__setattr__(index, "images", FolderImages(tmp_path))
    return DetectionDataset(index)


def test_pixels_are_those_of_pillow_in_the_corner_of_a_grey_square(photos):
    cache = build_cache(photos, 64)
    for row, size in enumerate(SIZES):
        width, height = (max(round(side * 64 / max(size)), 1) for side in size)
        assert cache.sizes[row].tolist() == [width, height]
        expected = np.full((64, 64, 3), 114, dtype=np.uint8)
        original = Image.fromarray(photos[row][0].permute(1, 2, 0).numpy())
        resized = original.resize((width, height), Image.Resampling.BILINEAR)
        expected[:height, :width] = np.asarray(resized)
        off = np.abs(cache.pixels[row].numpy().astype(int) - expected)
        assert off.max() <= 1  # both round, after other sums
        assert not off[height:].any()
        assert not off[:, width:].any()


def test_an_image_of_the_size_is_copied(photos):
    cache = build_cache(photos, 64)
    assert torch.equal(cache.pixels[2], photos[2][0].permute(1, 2, 0))


def test_boxes_are_scaled_clipped_and_padded(photos):
    cache = build_cache(photos, 64)
    assert cache.counts.tolist() == [2, 0, 1, 3, 1]
    assert cache.boxes.shape == (5, 3, 4)
    assert cache.image_ids.tolist() == [1, 2, 3, 4, 5]
    torch.testing.assert_close(cache.boxes[0, 0], torch.tensor([1.5, 2, 20, 29.5]) * 1.6)
    torch.testing.assert_close(cache.boxes[0, 1], torch.tensor([48, 0, 64, 19.2]))
    assert not cache.boxes[0, 2:].any()
    assert cache.labels[3].tolist() == photos[3][1]["labels"].tolist()


def test_boxes_go_back_to_the_original(photos):
    cache = build_cache(photos, 64)
    for row in (2, 3, 4):
        count = int(cache.counts[row])
        back = to_original(cache.boxes[row, :count], cache.scales[row, None])
        torch.testing.assert_close(back, photos[row][1]["boxes"])


def test_broken_images_are_left_out_and_named(photos):
    folder = photos.index.images.root
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:200])
    (folder / "3.png").unlink()
    cache = build_cache(photos, 64)
    assert cache.image_ids.tolist() == [1, 3, 5]
    assert cache.counts.tolist() == [2, 1, 1]
    assert torch.equal(cache.pixels[1], photos[2][0].permute(1, 2, 0))
    assert [problem.kind for problem in cache.problems] == ["image-truncated", "image-unreadable"]
    assert [problem.effect for problem in cache.problems] == ["image left out"] * 2
    assert str(folder / "3.png") in cache.problems[1].file


def test_a_wrong_size_is_named(photos):
    photos.index.sizes[0] = 41, 30
    (problem,) = build_cache(photos, 64).problems
    assert (problem.kind, problem.effect) == ("image-size", "kept")
    assert "40 x 30, its annotation says 41 x 30" in problem.detail


def test_nothing_readable_is_an_error(tmp_path, photos):
    for file in tmp_path.glob("*.png"):
        file.write_bytes(b"no image")
    with pytest.raises(DataError, match="no image of the split can be read"):
        build_cache(photos, 64)


@pytest.mark.parametrize("size", [0, 63, -2])
def test_odd_sizes_are_refused(photos, size):
    with pytest.raises(ValueError, match=f"image_size must be an even number .* got {size}"):
        build_cache(photos, size)


def test_progress_and_number_of_processes_change_nothing(photos):
    done = []
    several = build_cache(photos, 32, workers=2, on_progress=done.append)
    assert done == [5]
    assert_same(several, build_cache(photos, 32, workers=0))


def assert_same(one: ImageCache, other: ImageCache):
    for name, value in vars(one).items():
        if name == "problems":
            assert value == other.problems
        else:
            assert torch.equal(value, getattr(other, name)), name


def test_pixels_go_where_they_fit():
    cpu = torch.device("cpu")
    assert choose_device(100, cpu, 100) == cpu
    with pytest.raises(DataError, match="smaller image_size, or stream"):
        choose_device(101, cpu, 100)
    with pytest.raises(DataError, match="stream them"):
        choose_device(2**60, cpu)
    # No such device is asked: the limit alone decides.
    assert choose_device(100, torch.device("cuda"), 100).type == "cuda"
    assert choose_device(101, torch.device("cuda"), 100) == cpu


def test_gather_takes_rows_in_any_order(photos):
    cache = build_cache(photos, 32)
    part = cache.gather(torch.tensor([4, 0, 4]), "cpu")
    assert part.image_ids.tolist() == [5, 1, 5]
    assert torch.equal(part.pixels[2], cache.pixels[4])
    assert torch.equal(part.boxes[1], cache.boxes[0])


def test_letterbox_is_channels_last_and_in_the_middle(photos):
    cache = build_cache(photos, 64)
    rows = torch.arange(len(cache))
    images = letterbox_batch(cache, rows)
    assert images.shape == (len(cache), 3, 64, 64)
    assert images.is_contiguous(memory_format=torch.channels_last)
    for image, pixels, (width, height), (left, above) in zip(
        images, cache.pixels, cache.sizes, margins(cache, rows), strict=True
    ):
        inside = image[:, above : above + height, left : left + width]
        assert torch.equal(inside, pixels[:height, :width].permute(2, 0, 1))
        assert image.float().sum() == pixels.float().sum()  # and grey beside it


def test_letterbox_is_where_training_without_changes_has_it(photos):
    cache = build_cache(photos, 64)
    rows = torch.arange(len(cache))
    settings = Augmentation.none()
    sample = sample_augmentation(len(cache), len(cache), 64, settings, "cpu")
    trained = augment(cache, rows, sample, settings, slots=200)
    assert torch.equal(trained.images, letterbox_batch(cache, rows))


@pytest.mark.parametrize(("size", "side"), [((500, 375), 320), ((1, 9999), 64), ((64, 3), 640)])
def test_fitted_sizes_keep_the_shape(size, side):
    width, height = fitted_size(size, side)
    assert max(width, height) == side
    assert abs(width * size[1] - height * size[0]) <= max(size)


def test_resizing_keeps_flat_colours():
    flat = torch.full((3, 50, 30), 77, dtype=torch.uint8)
    assert torch.equal(resize(flat, (48, 80)), torch.full((3, 80, 48), 77, dtype=torch.uint8))


@pytest.mark.parametrize("workers", [0, 1])
def test_streaming_gives_the_rows_of_the_cache(photos, workers):
    cache = build_cache(photos, 32)
    order = [3, 0, 4]
    tiles = draw_tiles(torch.tensor(order), 5, generator=torch.Generator().manual_seed(7))
    parts = stream_batches(
        photos,
        order,
        32,
        batch_size=2,
        workers=workers,
        generator=torch.Generator().manual_seed(7),
    )
    for part, rows in zip(parts, tiles.split(8), strict=True):
        assert_same(part, cache.gather(rows, "cpu"))


def test_streamed_samples_are_those_of_the_cache():
    shapes, settings = shapes_dataset("val", size=64, length=6), Augmentation()
    cache = build_cache(shapes, 64)
    sample = sample_augmentation(2, 6, 64, settings, "cpu")
    order = torch.tensor([5, 1])
    (part,) = stream_batches(
        shapes, order, 64, batch_size=2, workers=0, generator=torch.Generator().manual_seed(1)
    )
    tiles = draw_tiles(order, 6, generator=torch.Generator().manual_seed(1)).view(2, 4)
    streamed = augment(part, *in_order(sample), settings, 40)
    whole = augment(cache, tiles[:, 0], sample._replace(others=tiles[:, 1:]), settings, 40)
    for name, value in whole.tensors().items():
        assert torch.equal(value, streamed.tensors()[name]), name


def test_a_broken_image_in_a_stream_is_an_empty_square(photos):
    (photos.index.images.root / "0.png").write_bytes(b"")
    (part,) = stream_batches(photos, [0, 2], 64, batch_size=2, images_per_sample=1, workers=0)
    assert part.sizes.tolist() == [[0, 0], [64, 64]]
    assert part.counts.tolist() == [0, 1]
    assert (part.pixels[0] == 114).all()
    (problem,) = part.problems
    assert problem.kind == "image-unreadable"
