"""Problems of a data set, each with its file, its object and a remedy."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from alphaiou.errors import AlphaIoUError

#: The consequence of a problem.
Effect = Literal["kept", "box left out", "image left out", "file left out"]

#: The largest share of the images of a split that may be missing in a training by default.
MISSING = 0.05


@dataclass(frozen=True, order=True)
class Problem:
    """One problem of a data set.

    Attributes:
        file: The file it is in, as a path that the user can open.
        where: The place in the file ("object 3", "line 7", "annotation id 12"), "" for all of it.
        kind: What it is, one of a small vocabulary in kebab case: "box-outside", "xml-broken", ...
        detail: The same with the values that were found.
        remedy: What to do about it.
        effect: What reading did about it.
        count: How many boxes it is about: identical boxes of an image are one problem.
    """

    file: str
    where: str
    kind: str
    detail: str
    remedy: str
    effect: Effect = "kept"
    count: int = 1

    def __str__(self) -> str:
        place = f"{self.file}, {self.where}" if self.where else self.file
        return f"{place}: {self.detail} ({self.effect}); {self.remedy}"


class DataError(AlphaIoUError, ValueError):
    """A data set, or a file of it, cannot be used; the message names the file and the remedy."""


class BrokenFileError(DataError):
    """A file does not follow its format."""


def left_out(problems: Iterable[Problem]) -> str:
    """How many boxes, images and files were left out, and why; "" when nothing was.

    Examples:
        >>> flat = Problem("a.xml", "object 1", "box-flat", "width is 0", "fix it", "box left out")
        >>> left_out([flat, flat])
        '2 boxes left out (2 box-flat)'
    """
    counts: dict[str, Counter[str]] = {}
    for problem in problems:
        if problem.effect != "kept":
            counts.setdefault(problem.effect, Counter())[problem.kind] += problem.count
    parts = []
    for effect, kinds in counts.items():
        total = sum(kinds.values())
        what = effect.removesuffix(" left out")
        plural = {"box": "boxes"}.get(what, f"{what}s") if total != 1 else what
        why = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        parts.append(f"{total} {plural} left out ({why})")
    return "; ".join(parts)
