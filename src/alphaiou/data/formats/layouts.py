"""Open a data set of any layout: recognise it, read it or take its index from the cache."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.formats.coco import (
    annotation_files,
    find_annotations,
    find_images,
    read_coco,
)
from alphaiou.data.formats.files import FolderImages, TarImages
from alphaiou.data.formats.index_cache import Sources, cached_index
from alphaiou.data.formats.voc import CLASSES_FILE, find_years, read_voc, voc_splits, voc_years
from alphaiou.data.formats.yolo import (
    find_config,
    label_path,
    locate,
    read_config,
    read_yolo,
    yolo_splits,
)
from alphaiou.data.index import DetectionIndex, Layout
from alphaiou.data.problems import DataError, left_out

logger = logging.getLogger("alphaiou.data")

#: The files that each layout is recognised by, for messages.
SIGNS: dict[Layout, str] = {
    "voc": "VOC2007 and the like with Annotations, ImageSets/Main and JPEGImages",
    "coco": "a .json file, annotations/*.json, or */_annotations.coco.json",
    "yolo": "a .yaml file that names the classes, or the folders images and labels",
    "shapes": 'the word "shapes"',
}
#: The drawn sets: their level, and the longer side of their images.
SHAPES_WORD = re.compile(r"shapes(?:-(?P<level>plain|discs))?(?:-(?P<size>[0-9]+))?")
SHAPES_WORDS = "shapes, shapes-plain, shapes-discs, and each with a size such as shapes-discs-64"


def load_dataset(path: str | Path, split: str, *, layout: Layout | None = None) -> DetectionDataset:
    """Open one split of a data set, of whatever layout it is.

    The index is cached on disk, and read from there while the files stay the same (see
    :mod:`alphaiou.data.formats.index_cache`). The data set, and images and boxes that are left
    out, are reported to the logger ``alphaiou.data``; ``dataset.index.problems`` lists them.

    Args:
        path: A VOC devkit, a COCO folder or JSON file, a YOLO folder or YAML file; or a word for a
            set that is drawn as it is read: ``shapes``, or the easier ``shapes-plain`` and
            ``shapes-discs``; each may say how large its images are, as in ``shapes-discs-64``.
        split: The split: ``train``, ``val``, ``test``, or what the data set calls it.
        layout: The layout, where the files could be of more than one.

    Raises:
        DataError: It is no data set, could be of two layouts, or has no such split; the message
            names what was looked for, and the splits.

    Examples:
        >>> dataset = load_dataset("shapes", "val")
        >>> dataset.layout, len(dataset)
        ('shapes', 500)
        >>> load_dataset("shapes-plain-96", "val").index.classes
        ('disc', 'triangle', 'star', 'cross')
    """
    dataset = open_dataset(path, split, recognise(path, layout))
    logger.info("%s", dataset)
    if lost := left_out(dataset.index.problems):
        logger.warning("%s, split %s: %s", path, split, lost)
    return dataset


def open_dataset(path: str | Path, split: str, layout: Layout) -> DetectionDataset:
    """Open a data set of a known layout without logging, for callers that report by themselves."""
    if layout == "shapes":
        return _drawn(str(path), split)
    return DetectionDataset(_index(Path(path), split, layout))


def recognise(path: str | Path, layout: Layout | None = None) -> Layout:
    """The layout of a data set.

    Args:
        path: As for :func:`load_dataset`.
        layout: What it is to be; checked, and needed where the files could be of two layouts.

    Raises:
        DataError: It is of none, of more than one, or not of the one asked for.
    """
    if layout is not None and layout not in get_args(Layout):
        known = ", ".join(get_args(Layout))
        raise DataError(f"layout {layout!r}: there is no such layout; take one of {known}")
    if layout == "shapes" or (layout is None and SHAPES_WORD.fullmatch(str(path))):
        return "shapes"
    root = Path(path)
    if not root.exists():
        raise DataError(
            f"{path}: there is no such file or folder; sets that need none are {SHAPES_WORDS}"
        )
    found = [name for name, is_it in RECOGNISERS.items() if is_it(root)]
    if layout in found:
        return layout
    if layout is not None:
        other = f"; it looks like {' or '.join(found)}" if found else ""
        raise DataError(f"{root}: is not of the {layout} layout, which has {SIGNS[layout]}{other}")
    if not found:
        signs = "; ".join(f"{name}: {SIGNS[name]}" for name in RECOGNISERS)
        raise DataError(f"{root}: is no data set of a known layout; looked for {signs}")
    if len(found) > 1:
        raise DataError(
            f"{path}: could be {' or '.join(found)}; choose with layout={found[0]!r}, "
            "or name the file rather than the folder"
        )
    return found[0]


def split_names(path: str | Path, *, layout: Layout | None = None) -> tuple[str, ...]:
    """The splits that a data set has.

    Examples:
        >>> split_names("shapes")
        ('train', 'val', 'test')
    """
    layout = recognise(path, layout)
    root = Path(path)
    if layout == "shapes":
        from alphaiou.data.shapes.dataset import LENGTHS

        return tuple(LENGTHS)
    if layout == "voc":
        return voc_splits(root)
    if layout == "yolo":
        return yolo_splits(find_config(root) or root)
    return (root.stem.removeprefix("instances_"),) if root.is_file() else (*annotation_files(root),)


def _drawn(word: str, split: str) -> DetectionDataset:
    from alphaiou.data.shapes.dataset import shapes_dataset

    meant = SHAPES_WORD.fullmatch(word)
    if meant is None:
        raise DataError(f"{word!r} is no drawn set; there are {SHAPES_WORDS}")
    return shapes_dataset(split, level=meant["level"] or "full", size=int(meant["size"] or 320))


def _index(root: Path, split: str, layout: Layout) -> DetectionIndex:
    find = {"voc": _find_voc, "coco": _find_coco, "yolo": _find_yolo}[layout]
    return cached_index((layout, str(root.absolute()), split), lambda: find(root, split))


Found = tuple[Sources, Callable[[], DetectionIndex]]


def _find_coco(root: Path, split: str) -> Found:
    annotations = find_annotations(root, split)
    images = find_images(annotations, split)
    folders = (images.root,) if isinstance(images, FolderImages) else ()
    shards = images.shards if isinstance(images, TarImages) else ()
    # The names of the annotation files count: another one may be meant when it is there.
    sources = Sources((annotations, *shards), (root / "annotations", *folders))
    return sources, lambda: read_coco(annotations, split, images)


def _find_voc(root: Path, split: str) -> Found:
    years = voc_years(root)
    contents = [year / part for year in years for part in ("Annotations", "ImageSets/Main")]
    sources = Sources(
        contents=(years[0].parent / CLASSES_FILE, *contents),
        names=tuple(year / "JPEGImages" for year in years),
    )
    return sources, lambda: read_voc(root, split)


def _find_yolo(root: Path, split: str) -> Found:
    config = find_config(root) or root
    folders = list(_yolo_images(config, split))
    labels = [label_path(folder / "image.jpg").parent for folder in folders]
    # The sizes of images are in their files alone: here their contents count too.
    contents = dict.fromkeys((config, *folders, *labels))
    return Sources(contents=tuple(contents)), lambda: read_yolo(config, split)


def _yolo_images(config: Path, split: str) -> Iterator[Path]:
    """The folders of images of a split, and the lists of images."""
    description = read_config(config)
    for entry in description.splits.get({"valid": "val"}.get(split, split), ()):
        place = locate(description, split, entry)
        yield place
        if place.is_file():
            lines = place.read_bytes().decode("utf-8", "surrogateescape").splitlines()
            for folder in dict.fromkeys(line.strip().rpartition("/")[0] for line in lines):
                yield place.parent / folder
                yield description.base / folder


def _is_voc(root: Path) -> bool:
    return bool(find_years(root))


def _is_coco(root: Path) -> bool:
    return root.suffix.lower() == ".json" if root.is_file() else bool(annotation_files(root))


def _is_yolo(root: Path) -> bool:
    in_folders = (root / "images").is_dir() and (root / "labels").is_dir()
    return in_folders or ((config := find_config(root)) is not None and config.is_file())


RECOGNISERS: dict[Layout, Callable[[Path], bool]] = {
    "voc": _is_voc,
    "coco": _is_coco,
    "yolo": _is_yolo,
}
