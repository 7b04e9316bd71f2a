import io
import pickle
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from alphaiou.data import images
from alphaiou.data.images import FORMATS, ImageError, decode_image, image_size
from benchmarks.damage import png

pytestmark = pytest.mark.filterwarnings(
    "ignore:The image decoding and encoding capabilities:DeprecationWarning",
    "ignore:Corrupt EXIF data:UserWarning",
)

RNG = np.random.default_rng(7)
COLOUR = RNG.integers(0, 256, (13, 21, 4), dtype=np.uint8)
SMOOTH = np.stack(np.meshgrid(np.arange(0, 210, 10), np.arange(0, 130, 10)), -1)
SMOOTH = np.concatenate([SMOOTH, SMOOTH[..., :1]], -1).astype(np.uint8)

# Another build of libjpeg or libwebp may round differently.
LOSSY_TOLERANCE = 3


def encoded(image, fmt, **options):
    file = io.BytesIO()
    image.save(file, fmt, **options)
    return file.getvalue()


def reference(data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    if image.mode == "P":
        image = image.convert("RGBA")
    return np.asarray(image.convert("RGB")).astype(int)


def pixels(data):
    decoded = decode_image(data)
    assert decoded.dtype == torch.uint8
    return decoded.permute(1, 2, 0).numpy().astype(int)


def of_mode(mode):
    return Image.fromarray(COLOUR).convert(mode)


PLAIN = ("1", "L", "P", "RGB", "RGBA")
FRAMES = {"save_all": True, "append_images": [of_mode("RGB").rotate(90)]}
EXACT = {
    **{f"png {mode}": encoded(of_mode(mode), "PNG") for mode in (*PLAIN, "LA")},
    **{f"bmp {mode}": encoded(of_mode(mode), "BMP") for mode in PLAIN},
    **{f"tiff {mode}": encoded(of_mode(mode), "TIFF") for mode in (*PLAIN, "CMYK")},
    "webp RGB": encoded(of_mode("RGB"), "WEBP", lossless=True),
    "webp RGBA": encoded(of_mode("RGBA"), "WEBP", lossless=True, exact=True),
    "webp animation": encoded(of_mode("RGB"), "WEBP", lossless=True, **FRAMES),
    "gif": encoded(of_mode("P"), "GIF"),
    "gif animation": encoded(of_mode("P"), "GIF", **FRAMES),
    "ppm": encoded(of_mode("RGB"), "PPM"),
    "png palette with transparency": encoded(of_mode("P"), "PNG", transparency=bytes(range(256))),
    "png grey with transparency": encoded(of_mode("L"), "PNG", transparency=7),
    "tiff compressed": encoded(of_mode("RGB"), "TIFF", compression="tiff_lzw"),
}

PHOTO = Image.fromarray(SMOOTH)
LOSSY = {
    **{f"jpeg {mode}": encoded(PHOTO.convert(mode), "JPEG") for mode in ("L", "RGB", "CMYK")},
    "jpeg progressive": encoded(PHOTO, "JPEG", progressive=True, quality=80),
    "webp lossy": encoded(PHOTO, "WEBP", quality=80),
    "mpo": encoded(PHOTO, "MPO", **FRAMES),
}


@pytest.mark.parametrize("name", EXACT)
def test_lossless_formats_are_exactly_pillows(name):
    np.testing.assert_array_equal(pixels(EXACT[name]), reference(EXACT[name]))
    assert image_size(EXACT[name]) == (21, 13)


@pytest.mark.parametrize("name", LOSSY)
def test_lossy_formats_are_near_pillows(name):
    assert np.abs(pixels(LOSSY[name]) - reference(LOSSY[name])).max() <= LOSSY_TOLERANCE
    assert image_size(LOSSY[name]) == (21, 13)


@pytest.mark.parametrize("name", ["jpeg RGB", "jpeg L", "jpeg CMYK", "webp lossy"])
def test_torchvision_decodes_what_it_can(name):
    """So that the other tests compare two decoders, not Pillow with itself."""
    header = images._read_header(LOSSY[name], name)
    assert torch.equal(images._decode_torchvision(LOSSY[name], header), decode_image(LOSSY[name]))


@pytest.mark.parametrize("name", [*EXACT, *LOSSY])
def test_pillow_decodes_everything(name):
    data = (EXACT | LOSSY)[name]
    by_pillow = images._decode_pillow(data, name, images._read_header(data, name))
    np.testing.assert_array_equal(by_pillow.permute(1, 2, 0).numpy(), reference(data))


def test_cmyk_of_adobe_is_not_a_negative():
    """Adobe stores CMYK inverted; red must come out red."""
    red = Image.new("RGB", (16, 16), (250, 10, 10))
    data = encoded(red.convert("CMYK"), "JPEG", quality=95)
    assert b"Adobe" in data
    assert np.abs(pixels(data) - [250, 10, 10]).max() <= 12


def png_16(values):
    """A 16-bit PNG, which Pillow writes in grey only."""
    height, width, channels = values.shape
    rows = values.astype(">u2").reshape(height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)

    def chunk(kind, body):
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


def test_16_bits_of_grey_become_the_nearest_8():
    values = RNG.integers(0, 65536, (6, 5, 1))
    values.reshape(-1)[:4] = [0, 65535, 128, 129]
    expected = np.rint(values.repeat(3, axis=2) / 257)
    np.testing.assert_array_equal(pixels(png_16(values)), expected)


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_16_bits_of_colour_become_the_upper_8(channels):
    values = RNG.integers(0, 65536, (60, 50, channels))
    colours = values[..., :3] if channels > 2 else values[..., :1].repeat(3, axis=2)
    np.testing.assert_array_equal(pixels(png_16(values)), colours >> 8)
    assert np.abs(pixels(png_16(values)) - np.rint(colours / 257)).max() <= 1


@pytest.mark.parametrize("fmt", ["TIFF", "PPM"])
def test_16_bits_in_other_formats(fmt):
    values = RNG.integers(0, 65536, (6, 5)).astype(np.uint16)
    data = encoded(Image.fromarray(values), fmt)
    np.testing.assert_array_equal(pixels(data)[..., 1], np.rint(values / 257))


def test_32_bits_are_refused():
    data = encoded(Image.fromarray(np.linspace(0, 1, 30).reshape(5, 6).astype(np.float32)), "TIFF")
    with pytest.raises(ImageError, match="32 bits"):
        decode_image(data, "float.tif")


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("fmt", ["PNG", "WEBP", "TIFF", "JPEG"])
def test_orientation_is_applied(fmt, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if fmt == "WEBP" else {}
    data = encoded(PHOTO, fmt, exif=exif, **options)
    expected = reference(data)
    assert np.abs(pixels(data) - expected).max() <= (LOSSY_TOLERANCE if fmt == "JPEG" else 0)
    assert image_size(data) == expected.shape[1::-1]


def test_damaged_exif_is_no_reason_to_lose_the_image():
    data = encoded(PHOTO, "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert image_size(data) == (21, 13)
    assert decode_image(data).shape == (3, 13, 21)


def test_size_needs_the_header_alone(tmp_path):
    big = Image.fromarray(RNG.integers(0, 256, (200, 300, 3), dtype=np.uint8))
    for fmt in ("JPEG", "PNG", "BMP"):
        path = tmp_path / fmt
        path.write_bytes(encoded(big, fmt)[:2000])
        assert image_size(path) == image_size(path.read_bytes()) == (300, 200)


@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_cut_off(fmt, share):
    big = Image.fromarray(RNG.integers(0, 256, (40, 60, 3), dtype=np.uint8))
    data = encoded(big.convert("P") if fmt == "GIF" else big, fmt)
    with pytest.raises(ImageError, match=r"some\.jpg") as caught:
        decode_image(data[: int(len(data) * share)], "some.jpg")
    assert caught.value.kind == "image-truncated"


def png_of_rows(rows, *, interlaced=False):
    return png(60, 40, zlib.compress(rows), interlaced=interlaced)


def filtered_rows(pixels):
    return b"".join(b"\0" + row.tobytes() for row in pixels)


NOISE = RNG.integers(1, 256, (40, 60, 3), dtype=np.uint8)
PASSES = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2))
ADAM7 = [NOISE[y::dy, x::dx] for y, x, dy, dx in (*PASSES, (1, 0, 2, 1))]


class TestPixelsThatEndEarly:
    """The file is whole, its pixels are not: decoders fill the rest with black or grey."""

    @pytest.mark.parametrize("rows", [0, 1, 20, 39])
    def test_png(self, rows):
        with pytest.raises(ImageError) as caught:
            decode_image(png_of_rows(filtered_rows(NOISE[:rows])))
        assert caught.value.kind == "image-truncated"

    @pytest.mark.parametrize("missing", [1, 10, 20])
    def test_interlaced_png(self, missing):
        whole = b"".join(map(filtered_rows, ADAM7))
        expected = reference(png_of_rows(whole, interlaced=True))
        np.testing.assert_array_equal(pixels(png_of_rows(whole, interlaced=True)), expected)
        with pytest.raises(ImageError) as caught:
            decode_image(png_of_rows(whole[: -missing * 181], interlaced=True))
        assert caught.value.kind == "image-truncated"

    @pytest.mark.parametrize("mode", [*PLAIN, "LA", "I;16"])
    @pytest.mark.parametrize("size", [(60, 40), (7, 3), (1, 1)])
    def test_a_black_png_is_whole(self, mode, size):
        assert not decode_image(encoded(Image.new(mode, size), "PNG")).any()

    @pytest.mark.parametrize("share", [0.4, 0.7, 0.9])
    @pytest.mark.parametrize("mode", ["RGB", "L"])
    @pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}, {"subsampling": 0}])
    def test_jpeg(self, mode, options, share):
        whole = encoded(Image.fromarray(NOISE).convert(mode), "JPEG", **options)
        assert decode_image(whole).shape == (3, 40, 60)
        with pytest.raises(ImageError) as caught:
            decode_image(whole[: int(len(whole) * share)] + b"\xff\xd9")
        assert caught.value.kind == "image-truncated"

    @pytest.mark.parametrize("options", [{}, {"progressive": True}])
    def test_a_grey_jpeg_is_whole(self, options):
        grey = Image.new("RGB", (60, 40), (128, 128, 128))
        assert (decode_image(encoded(grey, "JPEG", **options)) == 128).all()
        grey.paste(Image.fromarray(NOISE[:20]))
        assert decode_image(encoded(grey, "JPEG", **options))[0, 39, 59] == 128

    @pytest.mark.parametrize("lossless", [True, False])
    def test_webp(self, lossless):
        whole = encoded(Image.fromarray(NOISE), "WEBP", lossless=lossless)
        part = whole[: len(whole) // 3 * 2 // 2 * 2]
        sizes = [struct.pack("<I", len(part) - 8), struct.pack("<I", len(part) - 20)]
        with pytest.raises(ImageError):
            decode_image(part[:4] + sizes[0] + part[8:16] + sizes[1] + part[20:])


@pytest.mark.parametrize("data", [b"", b"\0" * 5000, b"not an image", b"%!PS-Adobe-3.0 EPSF-3.0\n"])
def test_not_an_image(data):
    with pytest.raises(ImageError, match=r"some\.jpg") as caught:
        decode_image(data, "some.jpg")
    assert caught.value.kind == "image-unreadable"


def test_formats_that_run_other_programs_are_not_tried():
    assert "EPS" not in FORMATS
    with pytest.raises(ImageError, match="known format"):
        image_size(encoded(of_mode("RGB"), "EPS"))


@pytest.mark.parametrize("size", [(50_000, 50_000), (2**31 - 1, 1), (2**31 - 1, 2**31 - 1)])
def test_huge_declared_sizes_are_refused(size):
    body = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    data = png_16(np.zeros((1, 1, 1)))
    start = data.index(b"IHDR") + 4
    head = data[:start] + body + struct.pack(">I", zlib.crc32(b"IHDR" + body))
    with pytest.raises(ImageError, match=r"limit|more than"):
        decode_image(head + data[start + 17 :], "bomb.png")


def test_errors_survive_pickling():
    error = ImageError("a: b.jpg", "image-truncated", "the image is cut off")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.kind, copy.why) == (str(error), error.kind, error.why)
