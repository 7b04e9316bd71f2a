"""Where a data set in COCO's layout keeps the annotations and the images of a split."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from alphaiou.data.coco_tables import first_names
from alphaiou.data.image_files import FolderImages, TarImages, file_names
from alphaiou.data.problems import DataError

#: The name of the file beside the images of a split, as Roboflow exports it.
BESIDE_IMAGES = "_annotations.coco.json"

# COCO's own folder of annotations also has files with no boxes, or not those of all objects.
NOT_BOXES = re.compile(r"(captions|image_info|panoptic|person_keypoints|stuff)_.*")


def annotation_files(root: Path) -> dict[str, Path]:
    """The annotation file of each split under a folder; none if it is no COCO data set."""
    folder = root / "annotations"
    stems = sorted(Path(name).stem for name in file_names(folder) if name.lower().endswith(".json"))
    files = {
        stem.removeprefix("instances_"): folder / f"{stem}.json"
        for stem in stems
        if not NOT_BOXES.fullmatch(stem)
    }
    beside = {path.parent.name: path for path in sorted(root.glob(f"*/{BESIDE_IMAGES}"))}
    return beside | files


def find_annotations(root: Path, split: str) -> Path:
    """The annotation file of a split: ``root`` itself if it is a file.

    The year may be left out: ``train`` finds ``instances_train2017.json`` where there is one year.

    Raises:
        DataError: There is none, or more than one; the message lists the splits there are.
    """
    if root.is_file():
        return root
    files = annotation_files(root)
    if split in files:
        return files[split]
    of_years = [name for name in files if re.fullmatch(re.escape(split) + r"\d{4}", name)]
    if len(of_years) == 1:
        return files[of_years[0]]
    looked_for = (
        f"annotations/{split}.json, annotations/instances_{split}.json, "
        f"annotations/instances_{split}2017.json, {split}/{BESIDE_IMAGES}"
    )
    problem = "more than one year has the split" if of_years else "there is no split"
    raise DataError(
        f"{root}: {problem} {split!r} (looked for {looked_for}); "
        f"the splits are: {', '.join(files) or 'none'}"
    )


def find_images(annotations: Path, split: str) -> FolderImages | TarImages:
    """Where the images of an annotation file are: tar shards or a folder near it.

    Of the places there are, the one that has most of the first images of the file.

    Raises:
        DataError: None of them is anywhere; the message lists the places.
    """
    names = first_names(annotations)
    places = list(_places(annotations, split))
    absent = [len(place.missing(names)) for place in places]
    if names and min(absent) == len(names):
        looked_in = ", ".join(map(_describe, places))
        raise DataError(
            f"{annotations}: its images ({names[0]} and so on) were not found; "
            f"put them into one of {looked_in}, or into images/{split}/ beside it"
        )
    return places[absent.index(min(absent))]


def _places(annotations: Path, split: str) -> Iterator[FolderImages | TarImages]:
    """The places that exist, the most particular first."""
    beside = annotations.parent
    top = beside.parent if beside.name.lower() == "annotations" else beside
    stem = annotations.stem.removeprefix("instances_")
    for folder in (top, top / "images"):
        for name in dict.fromkeys((split, stem)):
            if shards := _shards(folder, name):
                yield TarImages(shards)
    folders = [
        top / part
        for name in dict.fromkeys((split, stem))
        for part in (f"images/{name}", name, f"{name}/images")
    ]
    for folder in dict.fromkeys([*folders, beside / "images", top / "images", beside, top]):
        if folder.is_dir():
            yield FolderImages(folder)


def _shards(folder: Path, name: str) -> tuple[Path, ...]:
    """The tar files of a split by number: ``train.tar``, ``train-0.tar``, ``train-1.tar``, ..."""
    numbered = re.compile(re.escape(name) + r"(?:-(\d+))?\.tar")
    found = [match for file in file_names(folder) if (match := numbered.fullmatch(file))]
    found.sort(key=lambda match: (int(match[1] or -1), match[0]))
    return tuple(folder / match[0] for match in found)


def _describe(place: FolderImages | TarImages) -> str:
    if isinstance(place, FolderImages):
        return f"{place.root}/"
    return ", ".join(map(str, place.shards))
