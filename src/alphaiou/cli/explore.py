"""``alphaiou explore``."""

import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Explore:
    """Open an interactive page about boxes, losses and α.

    The page is one HTML file that works offline and needs no server.
    """

    out: Path = Path("runs/explorer.html")
    """File to write."""

    no_open: bool = False
    """Write the file without opening a browser."""


def run_explore(command: Explore) -> int:
    """Write the page, print its path, and open it in a browser."""
    from alphaiou._files import write_file
    from alphaiou.explorer import explorer_page

    write_file(command.out, explorer_page())
    sys.stdout.write(f"wrote {command.out}\n")
    if not command.no_open and not webbrowser.open(command.out.resolve().as_uri()):
        sys.stdout.write("no browser could be started; open the file in your browser\n")
    return 0
