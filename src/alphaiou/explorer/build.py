"""``python -m alphaiou.explorer.build [--check]``: the page in docs/, and the results it shows.

The package ships no records: what the page needs of them lies beside its other parts, as
``results.json``. ``--check`` fails where that or the page is not what the records say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from alphaiou.experiments.paper_records import load_records
from alphaiou.explorer.page import explorer_page
from alphaiou.explorer.results import summarise

RECORDS = Path("results/voc320")
RESULTS = Path("src/alphaiou/explorer/parts/results.json")
PAGE = Path("docs/explorer.html")


def built(root: Path) -> dict[Path, str]:
    """The files that are made from others, and what they should hold."""
    results = summarise(load_records([root / RECORDS]).values())
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    return {root / RESULTS: text, root / PAGE: explorer_page(results)}


def main(argv: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Bring the files up to date, or with ``--check`` say which are not."""
    arguments, root = list(sys.argv[1:] if argv is None else argv), root or Path.cwd()
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m alphaiou.explorer.build [--check]\n")
        return 2
    outdated = {
        path: text
        for path, text in built(root).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in outdated.items():
        if arguments:
            sys.stderr.write(f"{path} is out of date: python -m alphaiou.explorer.build\n")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {path}\n")
    return 1 if arguments and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
