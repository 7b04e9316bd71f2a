"""What the documentation site has beside its pages: the explorer, made as the site is built."""

from pathlib import Path

from alphaiou.explorer import explorer_page


def on_post_build(config):  # noqa: ANN001, ANN201, D103 - called by mkdocs
    Path(config.site_dir, "explorer.html").write_text(explorer_page(), encoding="utf-8")
