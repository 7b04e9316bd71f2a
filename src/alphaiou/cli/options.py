"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from alphaiou.cli import UsageError

#: ``--missing`` of the commands that train.
Missing = Annotated[
    float,
    tyro.conf.arg(
        metavar="SHARE",
        help="Maximum share of a split's images that may be missing or unreadable.",
    ),
]

#: ``--workers`` of the commands that decode images.
Workers = Annotated[
    int | None,
    tyro.conf.DisallowNone,
    tyro.conf.arg(metavar="INT", help_behavior_hint="(default: from images and cores)"),
]

#: ``--out`` of the commands that write a folder.
NewFolder = Annotated[Path, tyro.conf.arg(metavar="DIR", help="Folder to write to.")]


def check_missing(share: float) -> float:
    """Return the share if it lies in [0, 1].

    Raises:
        UsageError: If it does not.
    """
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"--missing must be from 0 to 1, got {share:g}")
    return share


def make_folder(out: Path) -> None:
    """Create the output folder of a command before any work is done.

    Raises:
        UsageError: If the folder cannot be created.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: the folder cannot be created: {error.strerror}") from None
