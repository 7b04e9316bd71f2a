import pytest

from alphaiou.explorer import explorer_page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page as a file."""
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    path.write_text(explorer_page(), encoding="utf-8")
    return path
