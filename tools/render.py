"""``python -m tools.render [--check]`` fills README.md, docs/ and CSV files from records.

The text between ``<!-- record: benchmarks/NAME.json TABLE -->`` and ``<!-- end record -->`` is the
table ``tables.TABLES[TABLE]`` of that record. Numbers in sentences are the tokens of
:mod:`tools.numbers`. ``--check`` fails where a document differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

from alphaiou._files import write_file
from benchmarks.record import load_record
from tools.numbers import with_numbers
from tools.sheets import sheets
from tools.tables import TABLES

_BLOCK = re.compile(
    r"(?P<start><!-- record: (?P<record>\S+) (?P<table>\S+) -->\n)"
    r"(?P<old>(?:(?!<!-- record:).)*?)(?P<end><!-- end record -->)",
    re.DOTALL,
)
_MARK = re.compile(r"^<!-- (?:record:.*|end record) -->$", re.MULTILINE)


def rendered(text: str, root: Path) -> str:
    """A document with its tables and numbers made from the records.

    Args:
        text: The document.
        root: The folder that the paths of the records start from.

    Raises:
        ValueError: A mark names no table, a block has no end, or a token leads to no number; the
            message quotes it.
    """
    blocks = list(_BLOCK.finditer(text))
    stray = [m for m in _MARK.finditer(text) if not any(_within(m, b) for b in blocks)]
    if stray:
        raise ValueError(f"{stray[0][0]!r} has no partner, or is not written RECORD TABLE")
    return with_numbers(_BLOCK.sub(lambda block: _block(block, root), text), root)


def documents(root: Path) -> list[Path]:
    """The documents of a repository that may hold tables."""
    return [
        path for path in (root / "README.md", *sorted(root.glob("docs/**/*.md"))) if path.is_file()
    ]


def main(argv: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Bring the documents up to date, or with ``--check`` report those that are not."""
    arguments, root = list(sys.argv[1:] if argv is None else argv), root or Path.cwd()
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tools.render [--check]\n")
        return 2
    outdated = 0
    try:
        for path, text, new in _texts(root):
            if new == text:
                continue
            outdated += 1
            if arguments:
                sys.stderr.write(f"{path} is out of date: python -m tools.render\n")
                sys.stderr.writelines(_differences(text, new))
            else:
                write_file(path, new)
                sys.stdout.write(f"wrote {path}\n")
    except (ValueError, KeyError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 1 if arguments and outdated else 0


def _texts(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Each CSV file and document, its text, and its text by the records.

    The CSV files come first, since documents print numbers of them.
    """
    for path, new in sheets(root).items():
        yield path, path.read_text() if path.exists() else "", new
    for path in documents(root):
        text = path.read_text()
        try:
            yield path, text, rendered(text, root)
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(f"{path}: {error}") from error


def _block(block: re.Match[str], root: Path) -> str:
    name, table = block["record"], block["table"]
    if table not in TABLES:
        raise ValueError(f"no table {table!r}; the tables are {', '.join(TABLES)}")
    path = root / name
    if path.exists():
        body = TABLES[table](load_record(path))
    else:
        body = f"*No record yet: `{_maker(path, root)}` writes `{name}`.*"
    return f"{block['start']}{body}\n{block['end']}"


def _differences(text: str, new: str) -> list[str]:
    """The lines that change, those of today and those of the records."""
    lines = unified_diff(text.splitlines(), new.splitlines(), "document", "records", n=0)
    return [f"  {line}\n" for line in lines if not line.startswith(("---", "+++", "@@"))]


def _maker(path: Path, root: Path) -> str:
    """The command that makes a record: the benchmark beside it whose name it begins with."""
    script = path.with_name(f"{path.stem.partition('-')[0]}.py").relative_to(root)
    return f"python -m {'.'.join(script.with_suffix('').parts)}"


def _within(mark: re.Match[str], block: re.Match[str]) -> bool:
    return mark.start() in (block.start(), block.start("end"))


if __name__ == "__main__":
    sys.exit(main())
