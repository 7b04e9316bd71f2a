"""The arrays of one big JSON object, some elements at a time, in the memory of those elements.

The standard parsers hold a whole document: half a gigabyte of annotations becomes several. Here
the file is read in blocks, array operations find where elements end, and each run of whole
elements is handed on as the text of a small JSON array.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from alphaiou._shapes import Bool, Int64, UInt8
from alphaiou.data.formats.files import open_file, reason
from alphaiou.data.problems import BrokenFileError, DataError

BLOCK_BYTES = 4 << 20
# Beyond these it is no file of annotations, and reading it would take too much memory or time.
ELEMENT_LIMIT_BYTES = 32 << 20
KEY_LIMIT = 100

# What a byte means for where values end: 0 nothing.
OPEN, CLOSE, QUOTE, BACKSLASH = 1, 2, 3, 4
MEANING = bytes(
    {"{": OPEN, "[": OPEN, "}": CLOSE, "]": CLOSE, '"': QUOTE, "\\": BACKSLASH}.get(chr(byte), 0)
    for byte in range(256)
)

BLANK = re.compile(rb"[ \t\r\n]*+")
COMMA = re.compile(rb"[ \t\r\n]*+,[ \t\r\n]*+")
# A string, a punctuation mark, or a number or word; possessive, so that a long one costs no stack.
TOKEN = re.compile(
    rb'[ \t\r\n]*+("(?:[^"\\]++|\\.)*+"|[{}\[\],:]|[^ \t\r\n{}\[\],:"]++)', re.DOTALL
)

REMEDY = "restore the file from its source, or repair it with an editor"


@dataclass(frozen=True)
class Run:
    """Some whole elements of an array of the document.

    Attributes:
        key: The key that the array has in the document.
        text: The elements, as a JSON array.
        offset: Where in the file the elements begin, less the bracket that ``text`` begins with.
    """

    key: str
    text: bytes
    offset: int


def stream_arrays(path: Path, keys: Collection[str]) -> Iterator[Run]:
    """The elements of some arrays of a JSON object, in the order of the file.

    What the other keys hold is passed over. An array that is empty gives one run without elements,
    so that a key that gave no run is not in the file.

    Raises:
        DataError: The file is no JSON object, ends early, or one of ``keys`` holds no array.
    """
    try:
        with open_file(path) as file:
            yield from _Document(path, file).arrays(keys)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason(error)}; {REMEDY}") from None


def parse_run(path: Path, run: Run) -> list[Any]:
    """The elements of a run as Python objects, NaN and Infinity included.

    Raises:
        DataError: The text is not JSON.
    """
    try:
        elements: list[Any] = json.loads(run.text.decode())
    except json.JSONDecodeError as error:
        place = run.offset + len(error.doc[: error.pos].encode())
        raise broken(path, place, error.msg) from None
    except UnicodeDecodeError as error:
        raise broken(path, run.offset + error.start, "not UTF-8 text") from None
    except RecursionError:
        raise broken(path, run.offset, f'"{run.key}" is nested too deeply') from None
    except ValueError as error:  # a number of thousands of digits
        raise broken(path, run.offset, str(error).partition(";")[0]) from None
    return elements


def broken(path: Path, offset: int, reason: str) -> BrokenFileError:
    """The error for a file that is not JSON."""
    text = f"{path}: byte {max(offset, 0):,}: broken JSON: {reason}; {REMEDY}"
    return BrokenFileError(text)


class _Document:
    """The part of a file that is in memory: ``text``, which begins at byte ``offset``."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, self.file = path, file
        self.text, self.offset = b"", 0

    def arrays(self, keys: Collection[str]) -> Iterator[Run]:
        """The runs of the arrays of the document that ``keys`` names."""
        self._read_more()
        if self.text.startswith(b"\xef\xbb\xbf"):
            self._drop(3)
        self._expect(b"{", "the file is not a JSON object")
        seen: set[str] = set()
        token = self._token()
        while token != b"}":
            key = self._key(token)
            if key in seen and key in keys:
                raise self._broken(f'the key "{key}" is there twice')
            seen.add(key)
            if len(seen) > KEY_LIMIT:
                raise self._broken(f"the object has more than {KEY_LIMIT} keys")
            self._expect(b":", "a colon is missing after a key")
            if key in keys:
                yield from self._array(key)
            else:
                self._skip()
            token = self._token()
            if token == b",":
                token = self._token()
                if token == b"}":
                    raise self._broken("a comma before the closing brace")
            elif token != b"}":
                raise self._broken("a comma is missing between two keys")
        if self._token(at_end=True):
            raise self._broken("there is more after the end of the object")

    def _array(self, key: str) -> Iterator[Run]:
        """The elements of the array that begins here."""
        token = self._token()
        if token != b"[":
            found = token[:40].decode(errors="replace")
            raise BrokenFileError(
                f'{self.path}: "{key}" must be a list, found {found} at byte {self.offset:,}; '
                "see the COCO data format for what belongs there"
            )
        start = 0
        for number, (text, offset) in enumerate(self._elements(b"]")):
            if number:  # not the first run: a comma, or nothing at all
                comma = COMMA.match(text)
                if comma is None and BLANK.fullmatch(text):
                    continue
                if comma is None:
                    raise broken(self.path, offset, "a comma is missing")
                start = comma.end()
                if start == len(text):
                    raise broken(self.path, offset, "a comma before the closing bracket")
            yield Run(key, b"".join((b"[", text[start:], b"]")), offset + start - 1)

    def _skip(self) -> None:
        """Pass over the value that begins here."""
        token = self._token()
        if token in (b"{", b"["):
            for _ in self._elements(b"}" if token == b"{" else b"]"):
                pass
        elif token in (b"}", b"]", b",", b":"):
            raise self._broken("a value is missing")

    def _elements(self, closing: bytes) -> Iterator[tuple[memoryview, int]]:
        """The text up to the closing bracket and where it begins, cut only between elements."""
        while True:
            positions, depths = _brackets(self.text)
            outside = np.flatnonzero(depths < 0)
            if len(outside):
                end = int(positions[outside[0]])
                yield memoryview(self.text)[:end], self.offset
                self._drop(end)
                self._expect(closing, "a bracket is closed by one of another kind")
                return
            whole = positions[depths == 0]
            if len(whole):
                end = int(whole[-1]) + 1
                yield memoryview(self.text)[:end], self.offset
                self._drop(end)
            if not self._read_more():
                raise broken(self.path, self.offset + len(self.text), "the file ends early")

    def _key(self, token: bytes) -> str:
        if not token.startswith(b'"'):
            raise self._broken("a key in double quotes is missing")
        try:
            return str(json.loads(token))
        except ValueError:
            raise self._broken("a key is not a valid string") from None

    def _expect(self, token: bytes, reason: str) -> None:
        if self._token() != token:
            raise self._broken(reason)

    def _token(self, *, at_end: bool = False) -> bytes:
        """Take the next token; b"" at the end of the file where that is allowed."""
        while True:
            match = TOKEN.match(self.text)
            # A token that touches the end of what is in memory may go on after it.
            if match and (match.end() < len(self.text) or match[1] in b"{}[],:"):
                self._drop(match.end())
                return match[1]
            if BLANK.fullmatch(self.text):
                self._drop(len(self.text))
            if not self._read_more():
                if match:
                    self._drop(match.end())
                    return match[1]
                if at_end and not self.text:
                    return b""
                raise self._broken("the file ends early")

    def _read_more(self) -> bool:
        """Read a block; as much as there is, so that a long value is not scanned too often."""
        if len(self.text) > ELEMENT_LIMIT_BYTES:
            raise self._broken(f"one value is larger than {ELEMENT_LIMIT_BYTES >> 20} MiB")
        block = self.file.read(max(BLOCK_BYTES, len(self.text)))
        self.text += block
        return bool(block)

    def _drop(self, count: int) -> None:
        self.text = self.text[count:]
        self.offset += count

    def _broken(self, reason: str) -> BrokenFileError:
        return broken(self.path, self.offset, reason)


def _brackets(text: bytes) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Where brackets are, strings aside, and how deep the text is after each of them."""
    meanings = np.frombuffer(text.translate(MEANING), dtype=np.uint8)
    positions = np.flatnonzero(meanings != 0)  # many times faster than of numbers
    kinds = meanings[positions]
    if (kinds == BACKSLASH).any():
        plain = ~_escaped(positions, kinds) & (kinds != BACKSLASH)
        positions, kinds = positions[plain], kinds[plain]
    quotes = kinds == QUOTE
    outside = (np.cumsum(quotes) & 1 == 0) & ~quotes
    positions, kinds = positions[outside], kinds[outside]
    return positions, np.cumsum(np.where(kinds == OPEN, 1, -1))


def _escaped(
    positions: Int64[np.ndarray, " n"], kinds: UInt8[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Which characters come right after an odd number of backslashes."""
    after_backslash = np.zeros(len(kinds), dtype=bool)
    after_backslash[1:] = (kinds[:-1] == BACKSLASH) & (np.diff(positions) == 1)
    index = np.arange(len(kinds))
    run_start = np.maximum.accumulate(np.where(after_backslash, 0, index))
    odd: Bool[np.ndarray, " n"] = (index - run_start) % 2 == 1
    return odd
