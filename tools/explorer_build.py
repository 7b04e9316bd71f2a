"""``python -m tools.explorer_build [--check]``: the results that the page shows.

The package ships no records: what the page needs of them lies beside its other parts, as
``results.json``. ``--check`` fails where that is not what the records say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from alphaiou.study.records import load_records
from tools.explorer_results import summarise

RECORDS = Path("results/voc320")
RESULTS = Path("src/alphaiou/explorer/parts/results.json")


def built(root: Path) -> str:
    """What the file should hold."""
    results = summarise(load_records([root / RECORDS]).values())
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"


def main(argv: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Bring the file up to date, or with ``--check`` say that it is not."""
    arguments, root = list(sys.argv[1:] if argv is None else argv), root or Path.cwd()
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tools.explorer_build [--check]\n")
        return 2
    path, text = root / RESULTS, built(root)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    if arguments:
        sys.stderr.write(f"{path} is out of date: python -m tools.explorer_build\n")
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
