"""``--missing``, the same for every command that trains."""

from typing import Annotated

import tyro

from alphaiou.cli import UsageError

Missing = Annotated[
    float,
    tyro.conf.arg(
        metavar="SHARE",
        help="The largest share of a split's images that may be missing or unreadable.",
    ),
]


def check_missing(share: float) -> float:
    """The share as it is given, if it is one."""
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"--missing must be from 0 to 1, got {share:g}")
    return share
