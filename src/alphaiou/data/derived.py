"""Data sets made from others, each with a record of its source and settings, made once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from alphaiou._version import __version__
from alphaiou.data.formats.files import FolderImages, TarImages
from alphaiou.data.formats.writing import Placing, writing_folder
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError


def write_once(
    out: Path,
    record: str,
    made: Mapping[str, Any],
    about: Mapping[str, Any],
    write: Callable[[Path], None],
) -> bool:
    """Fill a folder with a data set and a record of how it was made; all of it or nothing.

    Args:
        out: The folder.
        record: The name of the record, a JSON file in the folder.
        made: What the content follows from: the same again, and the folder is left as it is.
        about: What else the record is to say.
        write: Fills the folder that it is given.

    Returns:
        Whether it was written; False if it was there already.

    Raises:
        DataError: The folder holds something else.
    """
    made = {"made_by": record.removesuffix(".json"), **made}
    there = read_derived(out, record)
    if there is not None and {key: there.get(key) for key in made} == made:
        return False
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: is a file; give a folder to write to")
    if there is not None or (out.exists() and any(out.iterdir())):
        raise DataError(f"{out}: {_difference(made, there)}; write to another folder, or remove it")
    with writing_folder(out) as folder:
        write(folder)
        content = {**made, **about, "version": __version__}
        (folder / record).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return True


def made_of(splits: Sequence[DetectionIndex], layout: str, images: Placing) -> dict[str, Any]:
    """The settings that every derived data set records."""
    return {
        "layout": layout,
        "images": images,
        "splits": [index.split for index in splits],
        "fingerprint": fingerprint(splits),
    }


def source_of(splits: Sequence[DetectionIndex]) -> str:
    """The locations of the splits, for a record; only their content matters."""
    return str(splits[0].root) if splits else ""


def read_derived(folder: Path, record: str) -> dict[str, Any] | None:
    """The record of a folder; None if it has none of this package."""
    try:
        content = json.loads((folder / record).read_text())
    except (OSError, ValueError):
        return None
    ours = isinstance(content, dict) and content.get("made_by") == record.removesuffix(".json")
    return content if ours else None


def fingerprint(indexes: Sequence[DetectionIndex]) -> str:
    """A hash of images, boxes, labels and flags: the same for the same annotations."""
    digest = blake2b(digest_size=16)
    for index in indexes:
        digest.update(repr((index.split, index.classes, len(index))).encode())
        digest.update("\0".join(index.files).encode("utf-8", "surrogateescape"))
        for name in ("sizes", "offsets", "boxes", "labels", "crowd", "difficult", "truncated"):
            digest.update(np.ascontiguousarray(getattr(index, name)).tobytes())
        if index.oriented is not None:
            digest.update(np.ascontiguousarray(index.oriented).tobytes())
    return digest.hexdigest()


def image_digests(index: DetectionIndex) -> tuple[str, str]:
    """Hashes of the sizes in bytes and of the times of the image files; drawn images have none.

    The content of the files is not read.
    """
    sizes, times = blake2b(digest_size=16), blake2b(digest_size=16)
    for path in _image_paths(index):
        try:
            facts = path.stat()
        except (OSError, ValueError):  # missing, or a name that cannot be a file
            sizes.update(b"missing ")
            continue
        sizes.update(b"%d " % facts.st_size)
        times.update(b"%d " % facts.st_mtime_ns)
    return sizes.hexdigest(), times.hexdigest()


def _image_paths(index: DetectionIndex) -> Iterable[Path]:
    images = index.images
    if isinstance(images, TarImages):
        return images.shards
    if isinstance(images, FolderImages):
        return (images.root / name for name in index.files)
    return ()


def _difference(made: Mapping[str, Any], there: Mapping[str, Any] | None) -> str:
    if there is None:
        return "is not empty"
    key = next(key for key in made if there.get(key) != made[key])
    if key == "fingerprint":
        return f"was made of other annotations than those of {made.get('source', 'the source')} now"
    return f"was made with {key} {there.get(key)}, not {made[key]}"
