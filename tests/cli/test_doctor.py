"""alphaiou doctor and alphaiou completion, as a new user meets them."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from alphaiou.cli import main
from alphaiou.cli.commands import COMMANDS
from tests.cli.test_cli import BLOCKER


def test_the_doctor_names_versions_and_finds_the_losses_right(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert f"torch {version('torch')}" in said
    assert "loss on cpu        ok" in said
    assert max(map(len, said.splitlines())) <= 110


@pytest.mark.slow
def test_the_doctor_needs_none_of_the_extras(tmp_path):
    code = BLOCKER.format(missing="tyro", arguments=["doctor"])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "loss on cpu        ok" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def test_bash_completes_commands(capsys):
    main(["completion", "bash"])
    script = capsys.readouterr().out
    ask = """
COMP_WORDS=(alphaiou simu); COMP_CWORD=1; COMP_LINE="alphaiou simu"; COMP_POINT=13
"$(complete -p alphaiou | sed 's/.*-F \\([^ ]*\\).*/\\1/')" alphaiou simu alphaiou
printf "%s" "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash"], input=script + ask, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "simulate", done.stderr
