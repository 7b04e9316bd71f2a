import pytest

from alphaiou.explorer import explorer_page
from tests.explorer.browser import CHROMIUM, Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium to show the page in")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page as a file."""
    path = tmp_path_factory.mktemp("page") / "explorer.html"
    path.write_text(explorer_page(), encoding="utf-8")
    return path
