"""The drawn data set: speed of layout and drawing, and a contact sheet.

python -m benchmarks.shapes [docs/images/shapes.png]
"""

import sys
import time

from PIL import Image, ImageDraw

from alphaiou.data.shapes.dataset import shapes_index


def measure():
    start = time.perf_counter()
    index = shapes_index()
    laid_out = time.perf_counter()
    for name in index.files[:200]:
        index.images.draw(name)
    drawn = time.perf_counter()
    print(f"{index}: laid out in {laid_out - start:.2f} s")
    print(f"drawn at {200 / (drawn - laid_out):.0f} images a second")


def sheet(path, columns=6, rows=2, cell=160):
    index = shapes_index(length=columns * rows)
    page = Image.new("RGB", (columns * (cell + 4) - 4, rows * (cell + 4) - 4), "white")
    for place, (name, boxes) in enumerate(index):
        image = Image.fromarray(index.images.draw(name).transpose(1, 2, 0))
        image = image.reduce(2)
        pen = ImageDraw.Draw(image)
        for x1, y1, x2, y2 in boxes / 2:
            pen.rectangle([x1, y1, max(x2 - 1, x1), max(y2 - 1, y1)], outline=(255, 255, 255))
        left, top = place % columns * (cell + 4), place // columns * (cell + 4)
        page.paste(image, (left + (cell - image.width) // 2, top + (cell - image.height) // 2))
    page.point(lambda level: level & 0xFC | 2).save(path, optimize=True)  # finer steps are noise


if __name__ == "__main__":
    measure()
    if len(sys.argv) > 1:
        sheet(sys.argv[1])
