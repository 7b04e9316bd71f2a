"""Hooks of the documentation site: check its tables against the records, build the explorer."""

import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parents[1]))

from alphaiou.explorer import explorer_page
from tools.render import main as render

ROOT = Path(__file__).parents[1]
#: The CSV files that pages link to, and that the site has beside its pages.
TABLES = ("benchmarks/*.csv", "studies/voc320/*.csv", "studies/voc320/tables/*.csv")


def on_startup(**_):  # noqa: ANN003, ANN201, D103 - called by mkdocs
    if render(["--check"], ROOT):
        raise SystemExit("the tables are not those of the records: python -m tools.render")


def on_files(files, config):  # noqa: ANN001, ANN201, D103 - called by mkdocs
    for path in sorted(path for folder in TABLES for path in ROOT.glob(folder)):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))


def on_page_markdown(markdown, **_):  # noqa: ANN001, ANN003, ANN201, D103 - called by mkdocs
    markdown = re.sub(r"\]\(\.\./([^)]+\.csv)\)", r"](\1)", markdown)  # see on_files
    # GitHub needs \| for a bar within code in a table; Python-Markdown would print the backslash.
    markdown = re.sub(r"`[^`\n]+`", lambda code: code[0].replace("\\|", "|"), markdown)
    # No line breaks within a percentage or an interval
    markdown = re.sub(r"(?<=\d) %", "\u00a0%", markdown)
    return re.sub(r"(?<=\d) to (?=[+−-]?[\d.]+\))", "\u00a0to\u00a0", markdown)


def on_post_build(config):  # noqa: ANN001, ANN201, D103 - called by mkdocs
    Path(config.site_dir, "explorer.html").write_text(explorer_page(), encoding="utf-8")
