"""Encoded images to pixels: every common format, turned upright, 8-bit RGB.

Annotations are understood to be in the upright image, as labelling tools show it: the EXIF
orientation is applied, and sizes are those after it.
"""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from alphaiou._shapes import UInt8
from alphaiou.data.formats.files import open_file, reason
from alphaiou.data.problems import DataError

#: Larger images are refused before any memory is taken for them (Pillow's own limit).
LARGEST_IMAGE_PIXELS = 178_956_970

#: What is tried; Pillow knows more, some of which start other programs.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")

ImageKind = Literal["image-unreadable", "image-truncated"]

_CUT_OFF = "the image is cut off; copy it again"
_ORIENTATION = 0x0112
_ORIENTATION_SOURCES = ("exif", "xmp", "Raw profile type exif", "XML:com.adobe.xmp")


class ImageError(DataError):
    """An image cannot be decoded; ``kind`` says whether it is cut off or something else."""

    def __init__(self, name: str, kind: ImageKind, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.kind, self.why = kind, why

    def __reduce__(self) -> tuple[type[ImageError], tuple[str, ImageKind, str]]:
        return type(self), (str(self).removesuffix(f": {self.why}"), self.kind, self.why)


@dataclass(frozen=True)
class _Header:
    """What the first bytes of an image say; the size is before ``orientation`` is applied."""

    format: str
    width: int
    height: int
    orientation: int

    @property
    def upright_size(self) -> tuple[int, int]:
        turned = self.orientation in (5, 6, 7, 8)
        return (self.height, self.width) if turned else (self.width, self.height)


def image_size(source: bytes | Path, name: str | None = None) -> tuple[int, int]:
    """Width and height of an image, upright, from its header alone.

    Args:
        source: The encoded image, or its file, of which only the start is read.
        name: The name for messages; the path by default.

    Raises:
        ImageError: When it is no image, is cut off, or is too large.

    Examples:
        >>> image_size(b"P6 3 2 255 " + bytes(18))
        (3, 2)
    """
    label = name or (str(source) if isinstance(source, Path) else "image")
    return _read_header(source, label).upright_size


def decode_image(data: bytes, name: str = "image") -> UInt8[Tensor, "3 height width"]:
    """The pixels of an encoded image: RGB, upright, 8 bits.

    Grey becomes three equal channels, CMYK becomes RGB, an alpha channel is dropped (the colours
    beneath it stay), of an animation the first frame is taken. 16 bits of grey become the nearest
    of 256 levels; of colours with 16 bits Pillow keeps the upper 8, which is the same or one less.
    torchvision decodes JPEG and WebP where it can, Pillow the rest.

    Args:
        data: The encoded image.
        name: The name for messages.

    Raises:
        ImageError: When it is no image, is cut off, or is too large.

    Examples:
        >>> decode_image(b"P6 3 2 255 " + bytes(18)).shape
        torch.Size([3, 2, 3])
    """
    header = _read_header(data, name)
    pixels = _decode_torchvision(data, header)
    if pixels is None:
        pixels = _decode_pillow(data, name, header)
    width, height = header.upright_size
    if pixels.shape != (3, height, width):
        raise ImageError(name, "image-unreadable", "its pixels do not have the size it declares")
    if header.format in ("JPEG", "MPO") and _ends_early_jpeg(data, pixels):
        raise ImageError(name, "image-truncated", _CUT_OFF)
    return pixels


def image_pixels(image: Image.Image) -> UInt8[Tensor, "3 height width"]:
    """The pixels of an opened image: RGB, upright, 8 bits, as those of its file.

    Examples:
        >>> image_pixels(Image.new("L", (3, 2), 7))[:, 0, 0]
        tensor([7, 7, 7], dtype=torch.uint8)
    """
    return torch.from_numpy(_rgb(ImageOps.exif_transpose(image))).permute(2, 0, 1)


def _read_header(source: bytes | Path, name: str) -> _Header:
    if source == b"":
        raise ImageError(name, "image-unreadable", "the file is empty")
    try:
        with _open(source) as file, Image.open(file, formats=FORMATS) as image:
            width, height = image.size
            orientation = _orientation(image)
            kind = image.format or ""
    except Exception as error:  # decoders raise anything at all on damaged bytes
        raise _failure(source, name, error) from None
    if width * height > LARGEST_IMAGE_PIXELS:
        raise ImageError(
            name, "image-unreadable", f"{width} x {height} is more than {LARGEST_IMAGE_PIXELS:,} px"
        )
    return _Header(kind, width, height, orientation)


def _orientation(image: Image.Image) -> int:
    # Pillow turns TIFF by itself; and asking for EXIF that a PNG does not have decodes all of it.
    if image.format == "TIFF" or not any(key in image.info for key in _ORIENTATION_SOURCES):
        return 1
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # an image with damaged EXIF is an image
        return 1
    return value if value in range(1, 9) else 1


def _decode_torchvision(data: bytes, header: _Header) -> UInt8[Tensor, "3 height width"] | None:
    """The pixels decoded by torchvision, a quarter faster than Pillow; None where it cannot.

    Not PNG: on some damaged files its decoder brings the whole process down.
    """
    name = {"JPEG": "decode_jpeg", "MPO": "decode_jpeg", "WEBP": "decode_webp"}
    try:
        from torchvision import io as decoders

        decode = getattr(decoders, name[header.format])
        encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        pixels = decode(encoded, mode=decoders.ImageReadMode.RGB)
    # Another format, damaged or rare bytes, a build without the decoder; and since 0.29 they are
    # deprecated, so that one day they will be gone.
    except Exception:
        return None
    return _turn(pixels, header.orientation)


def _decode_pillow(data: bytes, name: str, header: _Header) -> UInt8[Tensor, "3 height width"]:
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            image.load()
            if image.format == "PNG" and _ends_early_png(data, image):
                raise ValueError("truncated pixels")
            if header.orientation != 1:
                ImageOps.exif_transpose(image, in_place=True)
            pixels = _rgb(image)
    except Exception as error:  # decoders raise anything at all on damaged bytes
        raise _failure(data, name, error) from None
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _rgb(image: Image.Image) -> UInt8[np.ndarray, "height width 3"]:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image)
        if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
            raise ValueError("pixels of 32 bits have no agreed range; save it with 8 or 16")
        levels = (values.astype(np.int64) + 128) // 257  # the nearest: 65535 is 257 · 255
        return levels.astype(np.uint8)[..., None].repeat(3, axis=2)
    if image.mode == "P":
        image = image.convert("RGBA")  # straight to RGB, Pillow warns about transparency
    return np.array(image.convert("RGB"))


def _turn(pixels: Tensor, orientation: int) -> Tensor:
    """Apply an EXIF orientation: 2 and 4 mirror, 3 turns by 180°, 5 to 8 also swap the axes."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 2)
    axes = {2: (2,), 3: (1, 2), 4: (1,), 6: (2,), 7: (1, 2), 8: (1,)}.get(orientation, ())
    return pixels.flip(axes) if axes else pixels


def _open(source: bytes | Path) -> io.BytesIO | io.BufferedReader:
    return io.BytesIO(source) if isinstance(source, bytes) else open_file(source)


def _failure(source: bytes | Path, name: str, error: Exception) -> ImageError:
    # Ultralytics has Image.open look for a package for more formats, and fail without it.
    if isinstance(error, UnidentifiedImageError | ModuleNotFoundError):
        known = ", ".join(FORMATS)
        return ImageError(name, "image-unreadable", f"is not an image of a known format ({known})")
    if "truncated" in str(error).lower() or _is_cut_off(source):
        return ImageError(name, "image-truncated", _CUT_OFF)
    return ImageError(name, "image-unreadable", f"cannot be decoded: {reason(error)}")


def _is_cut_off(source: bytes | Path) -> bool:
    """Whether the end that the format demands is missing."""
    try:
        with _open(source) as file:
            start = file.read(12)
            length = file.seek(0, io.SEEK_END)
            file.seek(max(0, length - 1024))  # some cameras pad after the end
            end = file.read()
    except (OSError, ValueError):
        return False
    if start.startswith(b"\xff\xd8"):
        return b"\xff\xd9" not in end
    if start.startswith(b"\x89PNG"):
        return b"IEND" not in end
    return start.startswith(b"RIFF") and int.from_bytes(start[4:8], "little") + 8 > length


# --- pixels that end early in a file that is whole ------------------------------------------------
# Decoders fill the rest of the image and report nothing. Decoding tells which images may be such:
# few others have to be looked at again.


def _ends_early_jpeg(data: bytes, pixels: UInt8[Tensor, "3 height width"]) -> bool:
    """Whether a JPEG has fewer pixels than it declares; the missing ones are medium grey.

    If so, further bytes before the end marker are decoded into pixels, else they are passed over.
    Not noticed: progressive files without their last scans, which are only less sharp.
    """
    corners = pixels[:, [0, 0, -1, -1], [0, -1, 0, -1]]  # one is the last pixel, however turned
    if not bool((corners == 128).all(dim=0).any()):
        return False
    end = data.rfind(b"\xff\xd9")
    longer = data[:end] + bytes(range(251)) + data[end:]
    try:
        images = [Image.open(io.BytesIO(one), formats=FORMATS) for one in (data, longer)]
        return images[0].tobytes() != images[1].tobytes()
    except Exception:  # a rare kind that only torchvision decodes
        return False


def _ends_early_png(data: bytes, image: Image.Image) -> bool:
    """Whether a PNG has fewer pixels than it declares; the missing ones are zero."""
    width, height = image.size
    last = [(0, row, width, row + 1) for row in range(max(0, height - 2), height)]
    # Both, since an interlaced image ends with every other row.
    if all(image.crop(row).getbbox(alpha_only=False) for row in last):
        return False
    body = b""
    place, bits, colour, interlaced = 8, 0, 0, 0
    inflate, length = zlib.decompressobj(), 0
    while place + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, place)
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        place += size + 12
        if kind == b"IHDR":
            bits, colour, _, _, interlaced = body[8:13]
        while kind == b"IDAT" and body:
            length += len(inflate.decompress(body, 1 << 20))
            body = inflate.unconsumed_tail
    bits *= {2: 3, 4: 2, 6: 4}.get(colour, 1)
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    sides = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
    return length < sum(rows * (1 + -(-columns * bits // 8)) for columns, rows in sides if columns)


#: Of each pass over an interlaced PNG: the first column and row, and the steps to the next ones.
_ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
