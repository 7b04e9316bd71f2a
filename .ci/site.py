"""Hooks of the documentation site: its tables match the records, and the explorer is built."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from alphaiou.explorer import explorer_page
from tools.render import main as render


def on_startup(**_):  # noqa: ANN003, ANN201, D103 - called by mkdocs
    if render(["--check"], Path(__file__).parents[1]):
        raise SystemExit("the tables are not those of the records: python -m tools.render")


def on_post_build(config):  # noqa: ANN001, ANN201, D103 - called by mkdocs
    Path(config.site_dir, "explorer.html").write_text(explorer_page(), encoding="utf-8")
