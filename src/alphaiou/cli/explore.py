"""``alphaiou explore``."""

import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Explore:
    """Open a page to play with boxes, losses and α.

    The page is one file that needs no network and no server: keep it or send it.
    """

    out: Path = Path("runs/explorer.html")
    """File to write."""

    no_open: bool = False
    """Write the file and open no browser."""


def run_explore(command: Explore) -> int:
    """Write the page, say where, and open it."""
    from alphaiou.explorer import explorer_page

    command.out.parent.mkdir(parents=True, exist_ok=True)
    command.out.write_text(explorer_page(), encoding="utf-8")
    sys.stdout.write(f"wrote {command.out}\n")
    if not command.no_open and not webbrowser.open(command.out.resolve().as_uri()):
        sys.stdout.write("no browser could be opened from here: open the file in one\n")
    return 0
