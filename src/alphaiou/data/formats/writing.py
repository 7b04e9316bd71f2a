"""Writing data sets: all of it or nothing, nothing overwritten, images linked or copied."""

from __future__ import annotations

import filecmp
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Literal

from alphaiou.data.formats.files import FolderImages, ImageFiles, reason, stays_inside
from alphaiou.data.problems import DataError

#: How the images come into a written data set: by hard link (a copy where that cannot be), by
#: copy, or not at all.
Placing = Literal["link", "copy", "none"]


@contextmanager
def writing_folder(out: Path, *, may_change: Collection[str] = ()) -> Iterator[Path]:
    """A new folder to write to, which becomes ``out`` when the block ends without an error.

    Where ``out`` is there already, the files are added to it. A file that is there with other
    content is an error, and then ``out`` stays as it was.

    Args:
        out: The folder to make, or to add to.
        may_change: Names of files, relative to ``out``, that may be replaced.

    Examples:
        >>> with writing_folder(Path("set")) as folder:
        ...     _ = (folder / "a.txt").write_text("a")
        >>> Path("set/a.txt").read_text()
        'a'

    Raises:
        DataError: The folder cannot be made, or a file of it would be overwritten.
    """
    out = Path(os.path.abspath(out))  # noqa: PTH100 - resolve() would follow a link that is `out`
    with _beside(out) as hidden:
        folder = Path(hidden) / "new"  # inside, so that its mode follows the umask
        folder.mkdir()
        yield folder
        if out.exists():
            _add(folder, out, may_change)
        else:
            folder.replace(out)


def _beside(out: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(
            dir=out.parent, prefix=f".{out.name}.", ignore_cleanup_errors=True
        )
    except OSError as error:
        raise DataError(
            f"{out}: the folder cannot be made: {reason(error)}; write somewhere else"
        ) from None


def place_images(
    images: ImageFiles, names: Iterable[str], folder: Path, targets: Iterable[str], how: Placing
) -> None:
    """Put images into a folder.

    Args:
        images: Where they are.
        names: Their names there.
        folder: The folder to put them in.
        targets: Their names relative to it, with forward slashes.
        how: By hard link, by copy, or not at all.
    """
    made: set[Path] = set()
    for name, target in zip(names, targets, strict=True):
        if not stays_inside(target):
            raise DataError(f"{folder}: the image name {target!r} leads out of the folder")
        if how == "none":
            continue
        path = folder / target
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        _place(images, name, path, how)


def flat_names(names: Iterable[str]) -> list[str]:
    """A name without folders for each image: its own last part, or all parts where two collide.

    Examples:
        >>> flat_names(["a/1.jpg", "a/2.jpg", "b/2.jpg"])
        ['1.jpg', 'a_2.jpg', 'b_2.jpg']
    """
    names = list(names)
    stems: dict[str, int] = {}
    for name in names:
        stem = PurePosixPath(name).stem
        stems[stem] = stems.get(stem, 0) + 1
    flat: list[str] = []
    taken: set[str] = set()
    for name in names:
        path = PurePosixPath(name)
        parts = [part for part in path.parts if part not in ("/", "..", ".")]
        one = path.name if stems[path.stem] == 1 else "_".join(parts)
        while PurePosixPath(one).stem in taken:  # labels are found by stem
            one = f"_{one}"
        taken.add(PurePosixPath(one).stem)
        flat.append(one)
    return flat


def shortest(value: float) -> str:
    """The shortest text that reads back as the same number.

    Examples:
        >>> shortest(48.0), shortest(0.1)
        ('48', '0.1')
    """
    return str(int(value)) if value.is_integer() else repr(value)


def _place(images: ImageFiles, name: str, path: Path, how: Placing) -> None:
    if not isinstance(images, FolderImages):
        path.write_bytes(images.read(name))
        return
    source = images.path(name).resolve()
    try:
        if how == "link":
            try:
                os.link(source, path)
                return
            except OSError:
                pass  # another file system, or one without links
        shutil.copyfile(source, path)
    except OSError as error:
        raise DataError(f"{source}: cannot be copied to {path}: {error.strerror}") from None


def _add(folder: Path, out: Path, may_change: Collection[str]) -> None:
    """Move every file of a folder into another one."""
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    for file in files:
        there = out / file
        if there.exists() and file.as_posix() not in may_change and not _same(folder / file, there):
            raise DataError(f"{there}: is there already, with other content; write somewhere else")
    # What may change lists the other files, and so comes after them.
    for file in sorted(files, key=lambda file: file.as_posix() in may_change):
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).replace(out / file)


def _same(one: Path, other: Path) -> bool:
    return one.samefile(other) or filecmp.cmp(one, other, shallow=False)
