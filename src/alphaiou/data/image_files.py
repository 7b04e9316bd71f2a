"""Where the bytes of images are: in folders, or in tar shards read in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class ImageFiles(Protocol):
    """The encoded images of a data set, by name.

    Picklable and small: worker processes and index caches carry it.
    """

    def read(self, name: str) -> bytes:
        """The encoded image; DataError when it is not there or cannot be read."""
        ...

    def where(self, name: str) -> str:
        """The path to show in messages: a file, or ``shard.tar!member``."""
        ...

    def missing(self, names: Iterable[str]) -> list[int]:
        """The positions of the names that are not there, without opening any file."""
        ...
