"""Draw boxes with their classes into images, and put images side by side."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from alphaiou._figures import palette
from alphaiou._shapes import UInt8
from alphaiou.detectors import Detections

JPEG_SUFFIXES = (".jpg", ".jpeg")
#: Sizes of labels in pixels: legible, and as small as it gets where there is no room.
LEGIBLE, SMALLEST = 8, 4
#: Pixels around the text of a label, and between the images of a sheet.
PADDING, GAP = 3, 8
Corners = tuple[float, float, float, float]


class LabelledBox(NamedTuple):
    """A box to draw, in pixels.

    Attributes:
        corners: x1, y1, x2, y2.
        text: What is written at the box.
        colour: Its colour, ``#rrggbb``.
    """

    corners: Corners
    text: str
    colour: str


class _Label(NamedTuple):
    """A text in its place."""

    place: Corners
    lines: str
    font: ImageFont.FreeTypeFont
    colour: str


def draw_detections(
    image: UInt8[Tensor, "3 height width"], detections: Detections, classes: Sequence[str]
) -> Image.Image:
    """Return an image with its detections drawn, the highest score on top."""
    picture = as_picture(image)
    colours = palette(len(classes))
    rows = zip(*(detections[name].tolist() for name in ("boxes", "labels", "scores")), strict=True)
    draw_boxes(
        picture,
        [
            LabelledBox(tuple(box), f"{classes[label]} {score:.2f}", colours[label])
            for box, label, score in rows
        ],
    )
    return picture


def as_picture(pixels: UInt8[Tensor, "3 height width"]) -> Image.Image:
    """Return an image to draw into."""
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def draw_boxes(picture: Image.Image, boxes: Sequence[LabelledBox]) -> None:
    """Draw boxes and their texts into an image, the first on top.

    Every text is inside the image as a whole: it moves, breaks into lines or becomes smaller.
    """
    drawing = ImageDraw.Draw(picture)
    thickness = max(1, round(min(picture.size) / 200))
    for box in reversed(boxes):
        _draw_outline(drawing, box, thickness)
    placed: list[_Label] = []
    for box in boxes:
        placed.append(_label(drawing, box, [label.place for label in placed]))
    for label in reversed(placed):
        left, top, *_ = _extent(drawing, label.lines, label.font)
        x1, y1, x2, y2 = label.place
        drawing.rectangle((x1, y1, x2 - 1, y2 - 1), fill=label.colour)
        drawing.multiline_text(
            (x1 + PADDING - left, y1 + PADDING - 1 - top),
            label.lines,
            font=label.font,
            fill=_ink_on(label.colour),
            spacing=2,
        )


def fitted(picture: Image.Image, side: int) -> tuple[Image.Image, float]:
    """Return an image whose longer side has some pixels, and the factor of its coordinates."""
    factor = side / max(picture.size)
    size = tuple(max(1, round(length * factor)) for length in picture.size)
    return picture.resize(size, Image.Resampling.BICUBIC), factor  # type: ignore[arg-type]


def sheet(pictures: Sequence[Image.Image], columns: int, titles: Sequence[str] = ()) -> Image.Image:
    """Put images side by side in rows, on white.

    Args:
        pictures: The images, at least one.
        columns: The number of images per row.
        titles: A title for each column.
    """
    columns = min(columns, len(pictures))
    rows = [pictures[start : start + columns] for start in range(0, len(pictures), columns)]
    cell = max(picture.width for picture in pictures) + GAP
    heights = [max(picture.height for picture in row) + GAP for row in rows]
    font = _font(16)
    head = 16 + 2 * GAP if titles else 0
    whole = Image.new("RGB", (columns * cell + GAP, head + sum(heights) + GAP), "white")
    drawing = ImageDraw.Draw(whole)
    for column, title in enumerate(titles[:columns]):
        drawing.text((GAP + column * cell, GAP), title, font=font, fill="black")
    for number, row in enumerate(rows):
        top = head + GAP + sum(heights[:number])
        for column, picture in enumerate(row):
            whole.paste(picture, (GAP + column * cell, top))
    return whole


def save_drawing(picture: Image.Image, path: Path) -> Path:
    """Write a picture as JPEG if its name has that extension, else as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() in JPEG_SUFFIXES:
        picture.save(path, "JPEG", quality=92)
        return path
    path = path.with_name(f"{path.name}.png") if path.suffix.lower() != ".png" else path
    picture.save(path, "PNG")
    return path


def _draw_outline(drawing: ImageDraw.ImageDraw, box: LabelledBox, thickness: int) -> None:
    x1, y1, x2, y2 = box.corners
    # At least one pixel, and inside the image despite rounding.
    corners = (x1, y1, max(x2 - 1, x1), max(y2 - 1, y1))
    drawing.rectangle(corners, outline=box.colour, width=thickness)


def _label(drawing: ImageDraw.ImageDraw, box: LabelledBox, others: Sequence[Corners]) -> _Label:
    """Place the text of a box: above it, inside, below, or wherever no other text is."""
    room_x, room_y = drawing.im.size
    lines, font = _text_that_fits(drawing, box.text)
    left, top, right, bottom = _extent(drawing, lines, font)
    width, height = right - left + 2 * PADDING, bottom - top + 2 * PADDING - 2
    x1, y1, _, y2 = box.corners
    x = round(min(max(x1, 0), max(room_x - width, 0)))
    lowest = max(room_y - height, 0)
    above = y1 - height
    tops = [above, y1, y2, y2 - height] if above >= 0 else [y1, y2, y2 - height]
    places = [
        (x, y, x + width, y + height) for y in (round(min(max(top, 0), lowest)) for top in tops)
    ]
    free = (place for place in places if not any(_overlap(place, other) for other in others))
    return _Label(next(free, places[0]), lines, font, box.colour)


def _text_that_fits(drawing: ImageDraw.ImageDraw, text: str) -> tuple[str, ImageFont.FreeTypeFont]:
    """Break a text into lines that fit into an image, in smaller letters if they must be."""
    width, height = (length - 2 * PADDING for length in drawing.im.size)
    usual = max(10, round(min(drawing.im.size) / 28))
    longest = max(text.split(" "), key=len)
    for size in range(usual, SMALLEST - 1, -1):
        font = _font(size)
        if size > LEGIBLE and font.getlength(longest) > width:
            continue
        lines = "\n".join(_broken(text, font, width))
        _, top, _, bottom = _extent(drawing, lines, font)
        if bottom - top <= height:
            break
    return lines, font


def _broken(text: str, font: ImageFont.FreeTypeFont, width: float) -> list[str]:
    """Break a text into lines of a width, between words where that is possible."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        if font.getlength(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for letter in word:
            if lines[-1] and font.getlength(lines[-1] + letter) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def _extent(drawing: ImageDraw.ImageDraw, lines: str, font: ImageFont.FreeTypeFont) -> Corners:
    """Return the extent of a text at (0, 0); its first line is as high as any."""
    left, top, right, bottom = drawing.multiline_textbbox((0, 0), lines, font=font, spacing=2)
    return left, min(top, font.getbbox("l")[1]), right, bottom


def _overlap(one: Corners, other: Corners) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _ink_on(colour: str) -> str:
    """Return black or white, whichever is legible on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return DejaVu Sans from matplotlib, which is the same on every machine."""
    return ImageFont.truetype(Path(mpl.get_data_path()) / "fonts/ttf/DejaVuSans.ttf", size)
