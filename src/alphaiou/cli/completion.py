"""``alphaiou completion``."""

from dataclasses import dataclass
from typing import Literal

import tyro

from alphaiou.cli.tasks import union_of


@dataclass(frozen=True)
class Completion:
    """Print a shell completion script for commands and options.

    bash: source <(alphaiou completion bash), for instance in ~/.bashrc

    zsh: alphaiou completion zsh > _alphaiou, in a folder of $fpath
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh"]]
    """The shell to complete in."""


def run_completion(command: Completion) -> int:
    """Print the script."""
    from alphaiou.cli.commands import COMMANDS

    kinds = {
        name: kind if isinstance(kind, type) else kind([]) for name, (kind, _) in COMMANDS.items()
    }
    try:
        tyro.cli(union_of(kinds), prog="alphaiou", args=["--tyro-print-completion", command.shell])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0
    return 1
