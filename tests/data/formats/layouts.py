"""Data sets of other tools, built file by file, for the tests of their layouts."""

import numpy as np
from PIL import Image

from alphaiou.data.dataset import load_dataset

SIZE = (100, 50)


def put(path, content=""):
    """Write a file of text or bytes, or a small image if there is no content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content or path.suffix.lower() not in (".jpg", ".jpeg", ".png", ".bmp"):
        path.write_text(content, encoding="utf-8")
    else:
        Image.new("RGB", SIZE).save(path)
    return path


def put_all(root, files):
    """Write files by their paths; an image has the content None."""
    for name, content in files.items():
        put(root / name, content or "")
    return root


def contents(root, split, **options):
    """Of each image: the class names and corners of its boxes, as opening gives them."""
    index = load_dataset(root, split, **options).index
    assert index.images.missing(index.files) == []
    found = {}
    for image, name in enumerate(index.files):
        rows = index.rows(image)
        names = [index.classes[label] for label in index.labels[rows]]
        boxes = np.round(index.boxes[rows], 6).tolist()
        found[name] = list(zip(names, map(tuple, boxes), strict=True))
    return found


def kinds(index):
    """The kind, file, place and effect of each problem."""
    return [(p.kind, p.file.rpartition("/")[2], p.where, p.effect) for p in index.problems]
