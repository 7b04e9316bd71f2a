"""README and the pages under docs: the commands that they show exist, with these options."""

import re
import shlex
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from alphaiou.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
#: Commands whose help depends on their first argument: a task, or the recipe.
WITH_TASKS = ("data", "paper", "train")
COMMAND = re.compile(r"(?:^ {4}|`|&& )(?:uv run )?alphaiou ([a-z][^`\n]*)", re.MULTILINE)


def commands_of(page):
    """The commands of a page, as lists of arguments without comments."""
    lines = COMMAND.findall(page.read_text(encoding="utf-8"))
    return [shlex.split(re.sub(r"[][|>]", " ", line), comments=True) for line in lines]


@cache
def help_of(command):
    with redirect_stdout(StringIO()) as text:
        assert main([*command, "--help"]) == 0, f"alphaiou {' '.join(command)} --help"
    return text.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for name, *arguments in commands_of(page):
        has_task = name in WITH_TASKS and arguments and arguments[0][0].islower()
        command = (name, arguments[0]) if has_task else (name,)
        text = help_of(command)
        for option in (word for word in arguments if re.match(r"--[a-z]", word)):
            pattern = rf"{re.escape(option)}(?![\w-])"
            assert re.search(pattern, text), f"{page.name}: alphaiou {name} has no {option}"


def test_there_are_commands():
    assert sum(len(commands_of(page)) for page in PAGES) > 50
