"""What people wrote about the runs: every share in these pages is that of the records.

A claim is a piece of the text with places for numbers, and what these are by the records. One that
fails says what the page has to say now.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.studies.claims_of_choosing import advice
from tests.studies.claims_of_findings import FINDINGS

DOCS = Path(__file__).parents[2] / "docs"
#: What is claimed in each page, and where in it claims end.
PAGES = {"findings.md": (FINDINGS, "## How to read it"), "choosing.md": ((advice,), "## What was")}


@cache
def words(name):
    """A page without what is rendered, each paragraph a line."""
    text = (DOCS / name).read_text()
    text = re.sub(r"<!-- record:.*?<!-- end record -->", "", text, flags=re.DOTALL)
    return " ".join(text.split())


def claims_of(part):
    return [template.format(*numbers) for template, numbers in part()]


@pytest.mark.parametrize(
    ("page", "part"), [(page, part) for page, (parts, _) in PAGES.items() for part in parts]
)
def test_pages_say_what_the_records_do(page, part):
    assert [claim for claim in claims_of(part) if claim not in words(page)] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_share_in_a_page_is_without_a_claim(page):
    parts, end = PAGES[page]
    text = words(page)
    text = text[: text.index(end)]
    for part in parts:
        for claim in claims_of(part):
            text = text.replace(claim, "")
    assert re.findall(r"[^ ]+ %", text) == []
