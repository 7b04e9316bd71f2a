import os
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.browser import CHROMIUM, Browser

# Two workers share two cores: one thread each, and the same examples on every run.
torch.set_num_threads(1)
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# Tests start many processes, and without bytecode on the disk each compiles torch from its source.
# Where it is not to be written beside the sources, it goes where pytest keeps its own.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    kept = Path(__file__).parents[1] / ".pytest_cache" / "bytecode"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(kept))
# Indexes of the tests' data sets do not belong in the user's cache.
os.environ.setdefault("ALPHAIOU_CACHE", tempfile.mkdtemp(prefix="alphaiou-tests-"))
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")


def pytest_collection_modifyitems(items):
    """Files with slow tests first: begun last, one would keep a core while the other waits."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, where there is one."""
    if CHROMIUM is None:
        pytest.skip("no chromium to show the page in")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
