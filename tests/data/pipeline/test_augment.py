import colorsys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from alphaiou.batch import compact
from alphaiou.data.pipeline.augment import (
    Augmentation,
    AugmentationSample,
    augment,
    change_colours,
    in_order,
    pack_images,
    sample_augmentation,
)
from alphaiou.data.pipeline.cache import ImageCache

SIDE = 32
NEVER_DROP = {"min_side": 0.0, "min_area_share": 0.0, "max_aspect": 1e9}


def random_cache(images=9, *, side=SIDE, most=5, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(side // 3, side + 1, (images, 2))
    sizes[np.arange(images), rng.integers(0, 2, images)] = side
    pixels = np.full((images, side, side, 3), 114, dtype=np.uint8)
    for image, (width, height) in enumerate(sizes):
        pixels[image, :height, :width] = rng.integers(0, 256, (height, width, 3))
    corners = np.sort(rng.uniform(0, 1, (images, most, 2, 2)), axis=2) * sizes[:, None, None]
    counts = rng.integers(0, most + 1, images)
    return ImageCache(
        pixels=torch.from_numpy(pixels),
        sizes=torch.from_numpy(sizes.astype(np.int32)),
        scales=torch.ones(images, 2),
        boxes=torch.from_numpy(corners.reshape(images, most, 4).astype(np.float32)),
        labels=torch.from_numpy(rng.integers(0, 20, (images, most))),
        counts=torch.from_numpy(counts),
        image_ids=torch.arange(images),
    )


def solid_cache(image, boxes):
    """One image of the full size with some boxes."""
    side = image.shape[0]
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(1, -1, 4)
    return ImageCache(
        pixels=torch.as_tensor(image)[None],
        sizes=torch.tensor([[side, side]], dtype=torch.int32),
        scales=torch.ones(1, 2),
        boxes=boxes,
        labels=torch.arange(boxes.shape[1])[None],
        counts=torch.tensor([boxes.shape[1]]),
        image_ids=torch.tensor([1]),
    )


def draw(batch, images, settings=None, *, side=SIDE, seed=0):
    source = torch.Generator().manual_seed(seed)
    settings = settings or Augmentation()
    return sample_augmentation(batch, images, side, settings, "cpu", generator=source)


def still(**changes):
    """A sample of one square that changes nothing, but for what is given."""
    sample = AugmentationSample(
        mosaic=torch.tensor([False]),
        others=torch.zeros(1, 3, dtype=torch.int64),
        centre=torch.tensor([[SIDE, SIDE]], dtype=torch.int32),
        scale=torch.tensor([1.0]),
        shift=torch.tensor([[0.5, 0.5]]),
        gains=torch.ones(1, 3),
        flip=torch.tensor([False]),
    )
    return sample._replace(**changes)


# --- oracles: the canvas drawn with Pillow, then moved; boxes one at a time ---------------------


def placed(sample, i, sizes, side):
    """Left, top, and whether it is shown, of each of the four images of a canvas."""
    x, y = sample.centre[i].tolist()
    if not sample.mosaic[i]:
        w, h = sizes[0]
        return [(side // 2 + (side - w) // 2, side // 2 + (side - h) // 2)]
    (w0, h0), (_, h1), (w2, _), _ = sizes
    return [(x - w0, y - h0), (x, y - h1), (x - w2, y), (x, y)]


def drawn_canvas(cache, rows, sample, i, fill=114):
    side = cache.side
    sizes = cache.sizes[rows].tolist()
    canvas = Image.new("RGB", (2 * side, 2 * side), (fill,) * 3)
    for corner, row, (w, h) in zip(placed(sample, i, sizes, side), rows, sizes, strict=False):
        canvas.paste(Image.fromarray(cache.pixels[row, :h, :w].numpy()), corner)
    return np.asarray(canvas).astype(np.float64)


def moved_canvas(canvas, sample, i, side, fill=114):
    """Every output pixel interpolated from the canvas, in float64."""
    scale = float(sample.scale[i])
    shift_x, shift_y = (side * sample.shift[i].double()).tolist()
    padded = np.full((canvas.shape[0] + 4, canvas.shape[1] + 4, 3), float(fill))
    padded[2:-2, 2:-2] = canvas
    out = np.empty((side, side, 3))
    for row in range(side):
        for column in range(side):
            u = side - 1 - column if sample.flip[i] else column
            x = np.clip((u + 0.5 - shift_x) / scale + side - 0.5, -2, 2 * side + 0.999)
            y = np.clip((row + 0.5 - shift_y) / scale + side - 0.5, -2, 2 * side + 0.999)
            left, top = int(np.floor(x)), int(np.floor(y))
            a, b = x - left, y - top
            patch = padded[top + 2 : top + 4, left + 2 : left + 4]
            upper, lower = patch[:, 0] * (1 - a) + patch[:, 1] * a
            out[row, column] = upper * (1 - b) + lower * b
    return out


def coloured(pixel, gains):
    hue, saturation, value = colorsys.rgb_to_hsv(*(channel / 255 for channel in pixel))
    hue, saturation, value = hue * gains[0] % 1, saturation * gains[1], value * gains[2]
    rgb = colorsys.hsv_to_rgb(hue, min(saturation, 1), min(value, 1))
    return [255 * channel for channel in rgb]


def moved_boxes(cache, first, sample, settings):
    """(image, label, box) of every box to keep, by plain arithmetic in float64."""
    found, side = [], cache.side
    for i in range(len(first)):
        rows = [int(first[i]), *sample.others[i].tolist()]
        sizes = cache.sizes[rows].tolist()
        scale, shift = float(sample.scale[i]), sample.shift[i].double().tolist()
        for (left, top), row in zip(placed(sample, i, sizes, side), rows, strict=False):
            for number in range(int(cache.counts[row])):
                x1, y1, x2, y2 = cache.boxes[row, number].double().tolist()
                area = (x2 - x1) * (y2 - y1) * scale**2

                def move(at, corner, axis, scale=scale, shift=shift):
                    on_canvas = min(max(at + corner, 0), 2 * side)
                    moved = (on_canvas - side) * scale + shift[axis] * side
                    return min(max(moved, 0), side)

                x1, x2 = move(x1, left, 0), move(x2, left, 0)
                y1, y2 = move(y1, top, 1), move(y2, top, 1)
                if sample.flip[i]:
                    x1, x2 = side - x2, side - x1
                w, h = x2 - x1, y2 - y1
                if min(w, h) < settings.min_side or min(w, h) <= 0:
                    continue
                if w * h < settings.min_area_share * area:
                    continue
                if max(w / h, h / w) > settings.max_aspect:
                    continue
                found.append((i, int(cache.labels[row, number]), [x1, y1, x2, y2]))
    return found


# --- pixels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mosaic", [0.0, 1.0])
def test_pixels_are_those_of_the_drawn_canvas(mosaic):
    cache = random_cache()
    settings = Augmentation(mosaic=mosaic, hue=0, saturation=0, value=0, fill=37)
    first = torch.tensor([4, 0, 7, 4, 2, 8])
    sample = draw(6, len(cache), settings, seed=3)
    images = augment(cache, first, sample, settings, 50).images
    for i in range(6):
        rows = [int(first[i]), *sample.others[i].tolist()]
        expected = moved_canvas(drawn_canvas(cache, rows, sample, i, 37), sample, i, SIDE, 37)
        off = np.abs(images[i].permute(1, 2, 0).numpy() - expected)
        assert off.max() < 0.51  # rounding, and float32 coordinates on noise


def test_whole_pixel_placements_are_exact_copies():
    cache = random_cache(seed=1)
    rows = [3, 1, 5, 2]
    sample = still(
        mosaic=torch.tensor([True]),
        others=torch.tensor([rows[1:]]),
        centre=torch.tensor([[29, 38]], dtype=torch.int32),
        shift=torch.tensor([[0.5 + 3 / SIDE, 0.5 - 5 / SIDE]]),
    )
    batch = augment(cache, torch.tensor([3]), sample, Augmentation(), 50)
    canvas = drawn_canvas(cache, rows, sample, 0)
    top, left = SIDE // 2 + 5, SIDE // 2 - 3
    expected = canvas[top : top + SIDE, left : left + SIDE]
    np.testing.assert_array_equal(batch.images[0].permute(1, 2, 0).numpy(), expected)


def test_no_augmentation_is_the_image_in_the_middle_of_its_square():
    cache, settings = random_cache(), Augmentation.none()
    everyone = torch.arange(len(cache))
    batch = augment(cache, everyone, draw(len(cache), len(cache), settings), settings, 99)
    for row, (width, height) in enumerate(cache.sizes.tolist()):
        square = np.full((SIDE, SIDE, 3), 114, dtype=np.uint8)
        left, top = (SIDE - width) // 2, (SIDE - height) // 2
        square[top : top + height, left : left + width] = cache.pixels[row, :height, :width]
        np.testing.assert_array_equal(batch.images[row].permute(1, 2, 0).numpy(), square)


def test_flip_mirrors_pixels_and_boxes():
    cache, settings = random_cache(), Augmentation(**NEVER_DROP)
    first, sample = torch.arange(6), draw(6, 9, settings)
    plain = augment(cache, first, sample._replace(flip=torch.zeros(6).bool()), settings, 99)
    mirrored = augment(cache, first, sample._replace(flip=torch.ones(6).bool()), settings, 99)
    assert torch.equal(mirrored.images, plain.images.flip(3))
    swapped = torch.tensor([SIDE, 0, SIDE, 0]) - plain.targets.boxes[:, [2, 1, 0, 3]]
    swapped = swapped * torch.tensor([1, -1, 1, -1])
    assert torch.equal(mirrored.targets.boxes[mirrored.targets.valid], swapped[plain.targets.valid])


@given(st.lists(st.tuples(*[st.integers(0, 255)] * 3), min_size=1, max_size=30), st.data())
def test_colours_are_those_of_colorsys(pixels, data):
    gain = st.floats(0, 2, width=32)
    gains = data.draw(st.tuples(gain, gain, gain))
    planes = torch.tensor(pixels, dtype=torch.float32).T.reshape(3, 1, 1, -1).unbind()
    found = torch.stack(change_colours(planes, torch.tensor([gains]))).flatten(1).T
    expected = np.array([coloured(pixel, gains) for pixel in pixels])
    # The hue is a circle: a rounding there, next to 0, turns nothing into a whole turn of it.
    np.testing.assert_allclose(found, expected, atol=2e-3 * max(gains[0], 1))


def test_every_colour_keeps_its_value_with_gains_of_one():
    levels = torch.arange(0, 256, 3, dtype=torch.float32)
    planes = torch.cartesian_prod(levels, levels, levels).T.reshape(3, 1, len(levels), -1)
    images = pack_images(change_colours(tuple(planes), torch.ones(1, 3)))
    assert torch.equal(images[0], planes[:, 0].to(torch.uint8))


def test_images_become_channels_last_floats():
    cache = random_cache()
    images = augment(cache, torch.arange(4), draw(4, 9), Augmentation(), 50).images
    assert images.dtype == torch.uint8
    assert images.to(torch.bfloat16).is_contiguous(memory_format=torch.channels_last)


# --- boxes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Augmentation(mosaic=0.6), Augmentation(**NEVER_DROP)])
@pytest.mark.parametrize("seed", range(5))
def test_boxes_are_those_of_plain_arithmetic(settings, seed):
    cache = random_cache(12, seed=seed)
    first, sample = torch.arange(12), draw(12, 12, settings, seed=seed)
    batch = augment(cache, first, sample, settings, 300)
    expected = moved_boxes(cache, first, sample, settings)
    count = len(expected)
    assert batch.targets.valid.tolist() == [True] * count + [False] * (300 - count)
    assert batch.targets.image_of_box[:count].tolist() == [image for image, _, _ in expected]
    assert batch.targets.labels[:count].tolist() == [label for _, label, _ in expected]
    boxes = [box for *_, box in expected]
    np.testing.assert_allclose(batch.targets.boxes[:count], boxes, atol=1e-4)
    assert not batch.targets.boxes[count:].any()
    assert int(batch.lost) == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_box_stays_with_its_object(seed):
    side, image = 64, np.zeros((64, 64, 3), dtype=np.uint8)
    rng = np.random.default_rng(seed)
    (x1, y1), (x2, y2) = rng.integers(4, 20, 2), rng.integers(40, 60, 2)
    image[y1:y2, x1:x2] = 255
    cache = solid_cache(image, [[x1, y1, x2, y2]])
    settings = Augmentation(mosaic=seed % 2, hue=0, saturation=0, value=0, fill=0, **NEVER_DROP)
    sample = draw(1, 1, settings, side=side, seed=seed)
    batch = augment(cache, torch.tensor([0]), sample, settings, 9)
    seen = batch.images[0, 0].numpy() > 127
    near = np.zeros_like(seen)
    for left, top, right, bottom in batch.targets.boxes[batch.targets.valid].round().int().tolist():
        within = seen[top + 1 : bottom - 1, left + 1 : right - 1]
        assert within.all()
        near[max(top - 1, 0) : bottom + 1, max(left - 1, 0) : right + 1] = True
    assert batch.targets.valid.any()
    assert not (seen & ~near).any()


def test_thin_cut_off_and_small_boxes_are_dropped():
    boxes = [[0, 0, 1.9, 20], [0, 0, 30, 1.4], [10, 10, 12, 12], [0, 0, 32, 32], [28, 4, 32, 12]]
    cache = solid_cache(np.zeros((SIDE, SIDE, 3), dtype=np.uint8), boxes)
    batch = augment(cache, torch.tensor([0]), still(), Augmentation(), 9)
    assert batch.targets.labels[batch.targets.valid].tolist() == [2, 3, 4]
    # A shift to the right by 3.7 of its 4 pixels leaves less than a tenth of the last one.
    shifted = still(shift=torch.tensor([[0.5 + 3.7 / SIDE, 0.5]]))
    batch = augment(cache, torch.tensor([0]), shifted, Augmentation(min_side=0.1), 9)
    assert 4 not in batch.targets.labels[batch.targets.valid].tolist()
    thin = solid_cache(np.zeros((64, 64, 3), dtype=np.uint8), [[0, 0, 2.5, 49], [0, 0, 2.5, 51]])
    batch = augment(thin, torch.tensor([0]), still(), Augmentation(), 9)
    assert batch.targets.labels[batch.targets.valid].tolist() == [0]


def test_images_without_boxes():
    cache = random_cache()
    cache = ImageCache(**{**vars(cache), "counts": torch.zeros_like(cache.counts)})
    batch = augment(cache, torch.arange(4), draw(4, 9), Augmentation(), 10)
    assert not batch.targets.valid.any()
    assert batch.targets.boxes.shape == (10, 4)


def test_boxes_without_a_slot_are_counted():
    cache, settings = random_cache(), Augmentation(**NEVER_DROP)
    sample = draw(6, 9, settings)
    everything = augment(cache, torch.arange(6), sample, settings, 99)
    total = int(everything.targets.valid.sum())
    few = augment(cache, torch.arange(6), sample, settings, total - 3)
    assert int(few.lost) == 3
    assert few.targets.valid.all()
    assert torch.equal(few.targets.boxes, everything.targets.boxes[: total - 3])


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6), st.data())
def test_compact_is_boolean_indexing_with_padding(valid, data):
    mask = torch.tensor(valid)
    slots = data.draw(st.integers(1, 20))
    boxes = torch.arange(mask.numel() * 4.0).reshape(*mask.shape, 4) + 1
    labels = torch.arange(mask.numel()).reshape(mask.shape)
    found, lost = compact(boxes, labels, mask, slots)
    kept = min(int(mask.sum()), slots)
    assert torch.equal(found.boxes[:kept], boxes[mask][:kept])
    assert torch.equal(found.labels[:kept], labels[mask][:kept])
    assert torch.equal(found.image_of_box[:kept], mask.nonzero()[:kept, 0])
    assert found.valid.sum() == kept == found.valid[:kept].sum()
    assert int(lost) == int(mask.sum()) - kept


# --- random numbers ----------------------------------------------------------------------------


def test_random_numbers_have_their_distributions():
    count = 20_000
    settings = Augmentation(mosaic=0.3, flip=0.2)
    sample = draw(count, 7, settings, side=100)
    assert sample.mosaic.float().mean() == pytest.approx(0.3, abs=0.015)
    assert sample.flip.float().mean() == pytest.approx(0.2, abs=0.015)
    for values, low, high in [
        (sample.scale, 0.5, 1.5),
        (sample.shift[:, 0], 0.4, 0.6),
        (sample.shift[:, 1], 0.4, 0.6),
        (sample.centre[:, 0], 50, 150),
        (sample.centre[:, 1], 50, 150),
        (sample.gains[:, 0], 0.985, 1.015),
        (sample.gains[:, 1], 0.3, 1.7),
        (sample.gains[:, 2], 0.6, 1.4),
    ]:
        share = (values.double() - low) / (high - low)
        assert 0 <= share.min() <= share.max() <= 1
        tenths = torch.histc(share.float(), 10, 0, 1) / count
        torch.testing.assert_close(tenths, torch.full((10,), 0.1), atol=0.012, rtol=0)
    drawn = torch.bincount(sample.others.flatten(), minlength=7) / (3 * count)
    torch.testing.assert_close(drawn, torch.full((7,), 1 / 7), atol=0.01, rtol=0)
    columns = [sample.scale, *sample.shift.T, *sample.centre.T, *sample.gains.T]
    correlation = torch.corrcoef(torch.stack([column.float() for column in columns]))
    torch.testing.assert_close(correlation, torch.eye(len(columns)), atol=0.03, rtol=0)


def test_a_seed_decides_everything():
    cache = random_cache()

    def batch(seed):
        return augment(cache, torch.arange(5), draw(5, 9, seed=seed), Augmentation(), 60)

    for name, value in batch(1).tensors().items():
        assert torch.equal(value, batch(1).tensors()[name])
    assert not torch.equal(batch(1).images, batch(2).images)


def test_four_images_in_a_row_are_the_same_as_the_whole_cache():
    cache, settings = random_cache(), Augmentation(mosaic=0.5)
    first, sample = torch.tensor([8, 3, 3]), draw(3, 9, settings)
    rows = torch.cat([first[:, None], sample.others], dim=1).flatten()
    part = cache.gather(rows, "cpu")
    whole = augment(cache, first, sample, settings, 60)
    streamed = augment(part, *in_order(sample), settings, 60)
    for name, value in whole.tensors().items():
        assert torch.equal(value, streamed.tensors()[name]), name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mosaic": 1.5}, "mosaic must be from 0 to 1, got 1.5"),
        ({"scale": 1.0}, "scale must be at least 0 and below 1"),
        ({"fill": 256}, "fill must be a whole number"),
        ({"hue": float("nan")}, "hue must be from 0 to 1, got nan"),
        ({"max_aspect": 0.5}, "max_aspect at least 1"),
    ],
)
def test_wrong_settings_say_what_is_allowed(wrong, message):
    with pytest.raises(ValueError, match=message):
        Augmentation(**wrong)


@pytest.mark.slow
def test_compiles_into_one_graph():
    """Sampling and augmentation have no break, no sync, and no shape from the data."""
    cache, settings = random_cache(side=16), Augmentation()

    def step(first):
        return augment(cache, first, sample_augmentation(2, 9, 16, settings, "cpu"), settings, 20)

    compiled = torch.compile(step, fullgraph=True, dynamic=False, backend="aot_eager")
    torch.manual_seed(0)
    expected = step(torch.tensor([1, 2]))
    torch.manual_seed(0)
    found = compiled(torch.tensor([1, 2]))
    for name, value in expected.tensors().items():
        assert torch.equal(value, found.tensors()[name]), name
