"""Make voc320 from PASCAL VOC: the images at a long side of 320 px, the boxes scaled with them.

    python -m studies.voc320.make VOCtrainval_06-Nov-2007.tar VOCtrainval_11-May-2012.tar
    python -m studies.voc320.make VOCdevkit --out PATH/voc320

The sources are the official archives, or folders that they were extracted to. ``images/*.txt``
beside this file lists the images of voc320. Of VOC2012 trainval two images are left out that nearly
repeat test images; of VOC2007 trainval three, which were not available: 005042, 007284, 009623.
With all images the annotations are those of the records, byte by byte, which is checked. The images
are too where Pillow decodes and encodes them the same way (Pillow 13 with libwebp 1.6 does).
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from PIL import Image

from alphaiou._files import replacing, write_file
from alphaiou.data.formats.files import FolderImages, TarImages
from alphaiou.data.formats.voc import VOC_CLASSES, XmlError, parse_annotation
from alphaiou.data.problems import DataError

SIDE, QUALITY, EFFORT = 320, 65, 6
#: The year of each split, and the list of its images.
YEARS = {"train": "2012", "test": "2007"}
LISTS = Path(__file__).parent / "images"
#: A shard ends before the image with which it would have more bytes, 1024 per image for its header.
SHARD, HEADER = 46 << 20, 1024
#: SHA-256 of ``annotations/SPLIT.json`` with all images.
ANNOTATIONS = {
    "train": "aeb5f5162c469759a23f0c87525e0c5fc35c931417862f3ef1856f68212888c1",
    "test": "6eecb68dc3af26edf61688abddd26437f8707385f57df7f351abab5fe635eb94",
}


# Sources


@dataclass(frozen=True)
class Year:
    """One year of VOC in a folder or an archive.

    Attributes:
        files: The folder or the archive.
        prefix: The path of the year within it, such as ``VOCdevkit/VOC2007/``.
    """

    files: FolderImages | TarImages
    prefix: str

    def read(self, name: str) -> bytes:
        """The bytes of a file of the year, such as ``Annotations/000005.xml``."""
        return self.files.read(self.prefix + name)

    def missing(self, names: Sequence[str]) -> list[int]:
        """The positions of the files that do not exist."""
        return self.files.missing([self.prefix + name for name in names])

    def listed(self, split: str) -> list[str]:
        """The images of a list in ``ImageSets/Main``."""
        return self.read(f"ImageSets/Main/{split}.txt").decode().split()


def find_year(sources: Iterable[Path], year: str) -> Year:
    """A year of VOC in the first source that has it.

    Raises:
        DataError: No source has it, or one does not exist.
    """
    sources = list(sources)
    for source in sources:
        if not source.exists():
            raise DataError(f"{source}: there is no such file or folder")
        files = FolderImages(source) if source.is_dir() else TarImages((source,))
        for prefix in ("", f"VOC{year}/", f"VOCdevkit/VOC{year}/"):
            of_year = prefix or source.name == f"VOC{year}"
            found = Year(files, prefix)
            if of_year and not found.missing(["ImageSets/Main/trainval.txt"]):
                return found
    places = ", ".join(map(str, sources))
    raise DataError(f"{places}: there is no VOC{year}/ImageSets/Main/trainval.txt")


# One image


def scaled_size(width: int, height: int) -> tuple[int, int]:
    """The size of an image at a long side of 320 px.

    Examples:
        >>> scaled_size(500, 333), scaled_size(334, 500)
        ((320, 213), (214, 320))
    """
    longer = max(width, height)
    return round(width * SIDE / longer), round(height * SIDE / longer)


def scaled_image(data: bytes, name: str) -> tuple[bytes, tuple[int, int]]:
    """The image as WebP, and its original size.

    Raises:
        DataError: The image cannot be decoded.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            small = image.convert("RGB").resize(scaled_size(*image.size), Image.Resampling.LANCZOS)
            out = io.BytesIO()
            small.save(out, "WEBP", quality=QUALITY, method=EFFORT)
            return out.getvalue(), image.size
    except OSError as error:
        raise DataError(f"{name}: the image cannot be decoded ({error}); copy it again") from None


def scaled_boxes(
    annotation: bytes, before: tuple[int, int], after: tuple[int, int], name: str
) -> list[dict[str, Any]]:
    """The objects of an annotation file, in the stored image; rounded to 1/100 px.

    VOC's corners are 1-based and inclusive; corners outside the image are moved to its border.

    Raises:
        DataError: The file is no annotation, or an object has no box or another class.
    """
    try:
        objects = parse_annotation(annotation).objects
    except XmlError as error:
        raise DataError(f"{name}: {error}; copy it again") from None
    boxes = []
    for number, voc in enumerate(objects):
        if voc.lacks or voc.name not in VOC_CLASSES:
            what = f"lacks {', '.join(voc.lacks)}" if voc.lacks else f"is a {voc.name!r}"
            raise DataError(f"{name}: object {number + 1} {what}")
        x1, y1, x2, y2 = voc.corners
        x1, x2 = (min(max(x, 0), before[0]) * after[0] / before[0] for x in (x1 - 1, x2))
        y1, y2 = (min(max(y, 0), before[1]) * after[1] / before[1] for y in (y1 - 1, y2))
        width, height = round(x2 - x1, 2), round(y2 - y1, 2)
        boxes.append(
            {
                "category_id": VOC_CLASSES.index(voc.name) + 1,
                "bbox": [round(x1, 2), round(y1, 2), width, height],
                "area": round(width * height, 2),
                "iscrowd": 0,
                "difficult": int(voc.difficult),
                "truncated": int(voc.truncated),
            }
        )
    return boxes


# The data set


def make_split(year: Year, split: str, out: Path, *, partial: bool = False) -> str:
    """Write the annotations and the shards of a split.

    Args:
        year: VOC2012 for ``train``, VOC2007 for ``test``.
        split: ``train`` or ``test``.
        out: The folder of the data set.
        partial: Whether images may be missing; the annotations then differ from the usual ones.

    Returns:
        What was made, in words.

    Raises:
        DataError: Images are missing, cannot be decoded, or give other annotations.
    """
    wanted = (LISTS / f"{split}.txt").read_text(encoding="utf-8").split()
    absent = set(year.missing([f"JPEGImages/{name}.jpg" for name in wanted]))
    if absent and not partial:
        first = wanted[min(absent)]
        raise DataError(
            f"VOC{YEARS[split]}: {len(absent):,} of {len(wanted):,} images are missing, such as "
            f"{year.prefix}JPEGImages/{first}.jpg; --partial makes the rest"
        )
    chosen = [(number, name) for number, name in enumerate(wanted, 1) if number - 1 not in absent]
    subset = {name: which for which in ("train", "val") for name in year.listed(which)}
    if unlisted := [name for _, name in chosen if name not in subset]:
        raise DataError(
            f"{year.prefix}ImageSets/Main: neither train.txt nor val.txt lists {unlisted[0]}"
        )
    images: list[dict[str, Any]] = []
    boxes: list[dict[str, Any]] = []

    def convert(item: tuple[int, str]) -> tuple[bytes, tuple[int, int]]:
        return scaled_image(year.read(f"JPEGImages/{item[1]}.jpg"), f"{item[1]}.jpg")

    def members() -> Iterator[tuple[str, bytes]]:
        with ThreadPoolExecutor() as pool:
            for (number, name), (data, before) in zip(
                chosen, pool.map(convert, chosen), strict=True
            ):
                width, height = scaled_size(*before)
                image = {"id": number, "file_name": f"{name}.webp", "width": width}
                image |= {"height": height, "orig_width": before[0], "orig_height": before[1]}
                images.append({**image, "subset": subset[name]})
                found = year.read(f"Annotations/{name}.xml")
                for box in scaled_boxes(found, before, (width, height), f"{name}.xml"):
                    boxes.append({"id": len(boxes) + 1, "image_id": number, **box})
                yield f"{split}/{name}.webp", data

    shards = write_shards(members(), out, split)
    text = annotation_text(split, images, boxes).encode()
    if not absent and hashlib.sha256(text).hexdigest() != ANNOTATIONS[split]:
        raise DataError(
            f"VOC{YEARS[split]}: the annotations of {split} differ from those of the records; the "
            "source is another release of VOC, or was changed"
        )
    write_file(out / f"annotations/{split}.json", text)
    left = len(set(year.listed("trainval")) - set(wanted))
    check = f"{len(absent):,} are missing" if absent else "the annotations are those of the records"
    return (
        f"{split}: {len(images):,} images with {len(boxes):,} boxes in {shards} shards; "
        f"{left} images of VOC{YEARS[split]} trainval are left out; {check}"
    )


def annotation_text(
    split: str, images: Sequence[dict[str, Any]], boxes: Sequence[dict[str, Any]]
) -> str:
    """The COCO file of a split."""
    content = {
        "info": {"description": f"PASCAL VOC, long side {SIDE} px, {split} split"},
        "images": images,
        "annotations": boxes,
        "categories": [{"id": n, "name": name} for n, name in enumerate(VOC_CLASSES, 1)],
    }
    return json.dumps(content, separators=(",", ":"))


def write_shards(members: Iterable[tuple[str, bytes]], out: Path, split: str) -> int:
    """Write files to ``SPLIT-0.tar``, ``SPLIT-1.tar`` and so on; return the number of shards."""
    out.mkdir(parents=True, exist_ok=True)
    waiting: list[tuple[str, bytes]] = []
    shards = size = 0

    def close() -> None:
        nonlocal shards, size
        write_shard(waiting, out / f"{split}-{shards}.tar")
        waiting.clear()
        shards, size = shards + 1, 0

    for name, data in members:
        if waiting and size + len(data) + HEADER > SHARD:
            close()
        waiting.append((name, data))
        size += len(data) + HEADER
    if waiting:
        close()
    return shards


def write_shard(members: Iterable[tuple[str, bytes]], path: Path) -> None:
    """Write a tar file; the same files give the same bytes."""
    with (
        replacing(path) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


# Command


@dataclass(frozen=True)
class Make:
    """Make voc320 from PASCAL VOC 2007 and 2012."""

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Official archives, or folders that they were extracted to."""

    out: Path = Path("voc320")
    """Folder to write."""

    partial: bool = False
    """Make the images that exist; the annotations then differ from the usual ones."""


def main(options: Make) -> int:
    """Make both splits; return the exit code."""
    years = {split: find_year(options.sources, year) for split, year in YEARS.items()}
    for split, year in years.items():
        print(make_split(year, split, options.out, partial=options.partial))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Make)))
    except DataError as error:
        sys.exit(str(error))
