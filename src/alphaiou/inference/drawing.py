"""Draw detections into images: boxes with class and score."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import matplotlib as mpl
from matplotlib.colors import to_hex
from PIL import Image, ImageDraw, ImageFont

from alphaiou._figures import CATEGORICAL
from alphaiou.data.images import decode_image
from alphaiou.detectors import Detections

JPEG_SUFFIXES = (".jpg", ".jpeg")
Corners = tuple[float, float, float, float]


def palette(classes: int) -> list[str]:
    """Return one colour per class: the palette of the figures, or a rainbow for many classes."""
    if classes < len(
        CATEGORICAL
    ):  # without black, the last colour, which is hard to see in photographs
        return list(CATEGORICAL[:classes])
    rainbow = mpl.colormaps["turbo"]
    # Steps of the golden ratio give neighbouring labels distant colours.
    return [to_hex(rainbow((0.1 + 0.618034 * label) % 1.0)) for label in range(classes)]


def draw_detections(path: Path, detections: Detections, classes: Sequence[str]) -> Image.Image:
    """Return an image with its detections drawn, the highest score on top."""
    pixels = decode_image(path.read_bytes(), str(path))
    picture = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    drawing, colours = ImageDraw.Draw(picture), palette(len(classes))
    thickness = max(1, round(min(picture.size) / 200))
    font = _font(max(10, round(min(picture.size) / 28)))
    rows = zip(*(detections[name].tolist() for name in ("boxes", "labels", "scores")), strict=True)
    for box, label, score in reversed(list(rows)):
        text = f"{classes[label]} {score:.2f}"
        _draw_box(drawing, box, colours[label], thickness)
        _draw_label(drawing, (box[0], box[1]), text, colours[label], font)
    return picture


def save_drawing(picture: Image.Image, path: Path) -> Path:
    """Write a picture as JPEG if its name has that extension, else as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() in JPEG_SUFFIXES:
        picture.save(path, "JPEG", quality=92)
        return path
    path = path.with_name(f"{path.name}.png") if path.suffix.lower() != ".png" else path
    picture.save(path, "PNG")
    return path


def _draw_box(drawing: ImageDraw.ImageDraw, box: Corners, colour: str, thickness: int) -> None:
    x1, y1, x2, y2 = box
    # At least one pixel, and inside the image despite rounding.
    corners = (x1, y1, max(x2 - 1, x1), max(y2 - 1, y1))
    drawing.rectangle(corners, outline=colour, width=thickness)


def _draw_label(
    drawing: ImageDraw.ImageDraw,
    corner: tuple[float, float],
    text: str,
    colour: str,
    font: ImageFont.FreeTypeFont,
) -> None:
    """Draw a label on the colour of its class, above the box or inside it at the top edge."""
    left, top, right, bottom = drawing.textbbox((0, 0), text, font=font)
    width, height = right - left + 6, bottom - top + 4
    image_width, image_height = drawing.im.size
    x = min(max(corner[0], 0), max(image_width - width, 0))
    y = corner[1] - height if corner[1] >= height else min(corner[1], image_height - height)
    drawing.rectangle((x, y, x + width, y + height), fill=colour)
    drawing.text((x + 3 - left, y + 2 - top), text, font=font, fill=_ink_on(colour))


def _ink_on(colour: str) -> str:
    """Return black or white, whichever is legible on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return DejaVu Sans from matplotlib, which is the same on every machine."""
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", size)
