"""What ``alphaiou --help`` prints, and that it prints it at once."""

import re
import subprocess
import sys

import pytest

from alphaiou.cli import main
from alphaiou.cli.commands import COMMANDS


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def help_of(capsys, *command):
    """The lines of the help of a command."""
    assert main([*command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(" ".join(("usage: alphaiou", *command)))
    return lines


def test_the_overview_fits_80_columns(capsys):
    lines = help_of(capsys)
    assert max(map(len, lines)) <= 80
    for command in ([], ["-h"]):
        assert main(command) == 0
        assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns(capsys, command):
    lines = help_of(capsys, command)
    if command == "train":  # its usage names all recipes
        lines = lines[1:]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", ["data", "paper"])
def test_help_of_subcommands_fits_80_columns(capsys, name):
    listed = re.search(r"\{(.*)\}", " ".join(help_of(capsys, name))).group(1)
    subcommands = listed.split(",")
    assert len(subcommands) > 4
    for subcommand in subcommands:
        assert max(map(len, help_of(capsys, name, subcommand))) <= 80


def test_the_overview_names_every_command(capsys):
    main(["--help"])
    out = capsys.readouterr().out
    for name, (kind, _) in COMMANDS.items():
        assert f"  {name}" in out
        assert kind.__doc__.splitlines()[0] in out


def test_the_help_of_simulate_says_how_a_loss_is_written(capsys):
    main(["simulate", "--help"])
    out = capsys.readouterr().out
    assert "kind:alpha:penalty_alpha" in out
    assert "[LOSS ...]" in out
    for option in ("--full", "--seed", "--out", "--fresh", "--equal-slope"):
        assert option in out
    assert "--no-full" not in out


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from alphaiou.cli import main; main(['simulate', '--help']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0
